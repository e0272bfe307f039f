"""Studies on local processes that are killed, swell or are interrupted: the others go on."""

import json
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest
from forked import forked
from mutant import mutant
from study_scenes import BASE, STUDY, changed, stillborn

from desim.errors import RunError
from desim.experiments.studies.study import study
from desim.runs import processes

WORKER = "import multiprocessing, os, pathlib, time\nif multiprocessing.parent_process():\n    "
DIES = WORKER + "os.kill(os.getpid(), 9)\n"
DIES_ONCE = WORKER + "mark = pathlib.Path(__file__).with_suffix('.mark')\n    "
DIES_ONCE += "if not mark.exists():\n        mark.touch()\n        os.kill(os.getpid(), 9)\n"
SWELLS = WORKER + "much = bytearray(b'x') * 1_500_000_000\n    time.sleep(60)\n"


def workers_of(process):
    """Its processes that are alive, but for the tracker that multiprocessing starts."""
    found = [child for child in process.children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in found if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.slow
def test_processes_that_are_killed_or_swell_end_no_study(tmp_path):
    entries = [{"label": "good"}]
    for name, code in (("dies", DIES), ("dies once", DIES_ONCE), ("swells", SWELLS)):
        file = tmp_path / f"{name.replace(' ', '_')}.py"
        file.write_text(code)
        entries.append({"label": name, "plugins": [str(file)]})
    told = []
    with forked():
        made = study(
            changed(list=entries, grid={"seed": [1]}), tmp_path / "out", workers=2, memory=1e9,
            progress=lambda *now: told.append(now),
        )  # fmt: skip
    found = made.runs.set_index("label")
    assert list(found["status"][["good", "dies once"]]) == ["done", "done"]
    assert found["reason"]["dies"] == "its process ended 2 times (signal 9)"
    assert found["reason"]["swells"] == "needed more memory than the 1 GB of a worker"
    assert made.complete
    assert told[-1] == (4, 4, 2)
    alone = study(changed(grid={"seed": [1]}), workers=0).runs.drop(columns="wall")
    numbers = alone.columns[6:]
    pd.testing.assert_frame_equal(made.runs[:1][numbers], alone[numbers], check_dtype=False)


@pytest.mark.slow
def test_processes_that_cannot_begin_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "serve", stillborn)
    with pytest.raises(RunError, match=r"processes end before they begin \(exit code 3\)"):
        study(STUDY, tmp_path, workers=1)
    assert set(pd.read_parquet(tmp_path / "runs.parquet")["status"]) == {"stopped"}


def manifests(folder):
    return "".join(file.read_text() for file in folder.glob("studies/s/runs/*/manifest.json"))


@pytest.mark.slow
def test_ctrl_c_leaves_what_is_done_and_no_process(tmp_path):
    long = {**BASE, "stop": {"rounds": 300}}
    (tmp_path / "s.yaml").write_text(json.dumps({"base": long, "grid": {"seed": "0..500"}}))
    command = [sys.executable, "-m", "desim", "study", "s.yaml", "--workers", "1"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    while '"status": "done"' not in manifests(tmp_path):
        assert running.poll() is None
        time.sleep(0.05)
    children = workers_of(psutil.Process(running.pid))
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert err == "not all runs could be simulated; the same command goes on\n"
    assert "stopped" in out.splitlines()[0]
    assert len(children) == 1
    for child in children:
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    status = pd.read_parquet(tmp_path / "studies" / "s" / "runs.parquet")["status"]
    assert (status == "done").any()


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path):
    """Its process does not run the script again, so that it says its word once."""
    script = tmp_path / "script.py"
    study = {**STUDY, "base": BASE, "grid": {"seed": [1, 2]}}
    script.write_text(
        f"import json, desim\nprint('begun')\nstudy = json.loads({json.dumps(study)!r})\n"
        "print(desim.study(study, workers=1).runs['status'].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("begun\n['done', 'done']\n", "")


class Pressing:
    """A process that Ctrl-C meets as it begins."""

    def __init__(self, **about):
        self.killed = False

    def start(self):
        signal.raise_signal(signal.SIGINT)

    def kill(self):
        self.killed = True

    def join(self):
        assert self.killed


def killed(module, patch):
    """How many of two processes are, between whose beginnings Ctrl-C is pressed."""
    begun = []

    def process(**about):
        begun.append(Pressing(**about))
        return begun[-1]

    several = SimpleNamespace(Pipe=Pipe, Process=process)
    patch.setattr(module, "multiprocessing", SimpleNamespace(get_context=lambda _: several))
    patch.setattr(module.Workers, "waiting", lambda _: 2)
    workers = module.Workers(print)
    with pytest.raises(KeyboardInterrupt):
        next(workers.results(2))
    workers.end()
    return [one.killed for one in begun]


@pytest.mark.usefixtures("keyboard")
def test_ctrl_c_while_processes_begin_loses_none(monkeypatch):
    assert killed(processes, monkeypatch) == [True, True]
    right = "with beginning():  # Ctrl-C is heard once"
    wrong = "with contextlib.nullcontext():  #"
    assert killed(mutant(processes, right, wrong), monkeypatch) == [False]


def test_signals_that_were_blocked_stay_blocked():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with processes.beginning():
            pass
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
