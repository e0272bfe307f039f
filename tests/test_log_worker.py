"""The thread that stores a log: what it does in time, what goes wrong there, who waits for it."""

import threading
import time

import pytest
from mutant import mutant
from test_parquet import fill

from desim.log import parquet
from desim.log import parquet as worker_module
from desim.log.parquet import Worker, read_table


def check_alarm(module, folder, monkeypatch):
    """Rows come into a part in time although no others follow."""
    folder.mkdir()
    monkeypatch.setattr(module, "PART_SECONDS", 0.01)
    tables = fill(module.Tables(folder), [0, 5])
    for _ in range(200):
        if len(read_table(folder, "events")) == 5:
            break
        time.sleep(0.01)
    assert len(read_table(folder, "events")) == 5
    tables.finish()


@pytest.mark.slow
def test_rows_are_stored_in_time_although_none_follow(tmp_path, monkeypatch):
    check_alarm(parquet, tmp_path / "right", monkeypatch)
    twin = mutant(parquet, "self._worker.later(PART_SECONDS, self._part)", "pass")
    with pytest.raises(AssertionError):
        check_alarm(twin, tmp_path / "wrong", monkeypatch)


def test_what_fails_in_the_thread_is_raised_by_the_next_calls():
    worker, done = Worker(), []

    def broken():
        raise OSError(28, "No space left on device")

    def again():
        worker.do(done.append, 2)
        worker.wait()

    worker.do(done.append, 1)
    worker.do(broken)
    worker.idle()
    for call in (again, again, worker.close):
        with pytest.raises(OSError, match="No space"):
            call()
    assert done == [1]


def check_waiting(module):
    """A task beyond the limit is handed over only when an earlier one is done."""
    worker, done, go = module.Worker(), [], threading.Event()
    worker.do(go.wait)
    worker.do(done.append, 1)
    threading.Timer(0.05, go.set).start()
    worker.do(done.append, 2)
    assert go.is_set()
    worker.close()
    assert done == [1, 2]


def test_a_run_that_is_faster_than_its_log_waits():
    check_waiting(mutant(worker_module, "AHEAD = 32", "AHEAD = 2"))
    with pytest.raises(AssertionError):
        check_waiting(worker_module)
