"""Runs: every way to end leaves a directory that can be read, and nothing else is touched."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mutant import mutant
from staged import DEVICES, SCENARIO, TEXT, Staged

import desim
from desim.errors import AtOnce, Diverged, InputError, RunError
from desim.problem import targets
from desim.runs import directory as place
from desim.runs import interruption, recording
from desim.runs import run as run_module
from desim.runs.interruption import Interruption

FILES = {
    "manifest.json",
    "scenario.yaml",
    "events.parquet",
    "metrics.parquet",
    "releases.parquet",
    "state.npz",
    "iterates.npz",
    "model.npz",
}


@pytest.fixture
def stage(monkeypatch):
    """stage(course): from now on scenarios are played as staged."""

    def stage(course="done", rounds=4):
        monkeypatch.setattr(recording, "build", lambda scenario: Staged(course, rounds))

    stage()
    return stage


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_run_is_stored_and_opened_again(stage, tmp_path):
    run = desim.run(SCENARIO, out=tmp_path / "runs" / "a")
    again = desim.open(tmp_path / "runs" / "a")
    assert names(tmp_path / "runs" / "a") == FILES
    assert run.manifest == again.manifest
    assert run.events.equals(again.events)
    assert run.metrics.equals(again.metrics)
    assert len(run.events) == 16
    assert again.status == "done"
    assert again.scenario == run.scenario == desim.load(SCENARIO)
    np.testing.assert_array_equal(again.state["x"], np.full((3, 5), 2.0))
    assert again.iterates.shape == (5, 3, 5)
    assert again.model.shape == (5, 5)
    assert repr(again) == f"<Run staged in {tmp_path / 'runs' / 'a'}: done, 4 rounds in 4.4 s>"


def test_a_run_in_memory_reads_the_same(stage, tmp_path):
    stored, kept = desim.run(SCENARIO, out=tmp_path / "a"), desim.run(SCENARIO)
    assert kept.directory is None
    assert kept.events.equals(stored.events)
    assert kept.metrics.equals(stored.metrics)
    assert kept.releases.equals(stored.releases)
    np.testing.assert_array_equal(kept.iterates, stored.iterates)
    assert kept.state.keys() == stored.state.keys()


def test_the_manifest_says_what_ran(stage, tmp_path):
    desim.run(SCENARIO, out=tmp_path / "a")
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["seed"] == 3
    assert (manifest["engine"], manifest["why"]) == ("cohort", "staged")
    assert (manifest["time"], manifest["rounds"]) == (4.4, 4)
    assert manifest["counts"] == {"send": 12}
    assert manifest["warnings"] == ["rho is large"]
    assert manifest["reason"] == "4 rounds done"
    assert {"python", "desim", "numpy", "numba"} <= manifest["versions"].keys()
    assert len(manifest["scenario_sha256"]) == len(manifest["problem_sha256"]) == 64
    assert str(tmp_path) not in json.dumps(manifest)


def test_the_stored_scenario_is_the_resolved_one(stage, tmp_path):
    run = desim.run(SCENARIO, out=tmp_path / "a", overrides={"algorithm.rho": 0.7})
    again = desim.load(tmp_path / "a" / "scenario.yaml")
    assert again == run.scenario
    assert again.algorithm.parameters.rho == 0.7


def check_running(module, folder):
    """While it plays, the directory says `running`, and what was flushed can be read."""
    seen = []

    def look(now):
        run = desim.open(folder)
        raw = json.loads((folder / "manifest.json").read_text())["status"]
        seen.append((raw, run.status, len(run.events)))

    module.run(SCENARIO, out=folder, progress=look)
    assert seen == [("running", "running", 4 * n) for n in range(1, 5)]
    assert desim.open(folder).status == "done"


@pytest.fixture
def stored_at_once(monkeypatch):
    """Every flush is in a part before the run goes on."""
    monkeypatch.setattr("desim.log.parquet.AHEAD", 0)
    monkeypatch.setattr("desim.log.parquet.PART_SECONDS", -1.0)


@pytest.mark.usefixtures("stored_at_once")
def test_a_running_run_can_be_read(stage, tmp_path):
    check_running(recording, tmp_path / "a")


@pytest.mark.usefixtures("stored_at_once")
def test_a_manifest_that_promises_too_early_is_noticed(tmp_path):
    twin = mutant(recording, '"status": "running"', '"status": "done"')
    twin.build = lambda scenario: Staged()
    with pytest.raises(AssertionError):
        check_running(twin, tmp_path / "a")


@pytest.mark.parametrize(
    ("course", "kind", "reason"),
    [
        ("failed", RunError, "nobody can go on"),
        ("diverged", Diverged, "diverged: agent 1, round 4"),
        ("full", RunError, "cannot be written (No space left on device); what came before"),
        ("broken", ZeroDivisionError, "error in desim: ZeroDivisionError: a bug"),
    ],
)
def test_a_failed_run_raises_once_it_is_stored(stage, tmp_path, course, kind, reason):
    stage(course)
    with pytest.raises(kind):
        desim.run(SCENARIO, out=tmp_path / "a")
    run = desim.open(tmp_path / "a")
    assert run.status == "failed"
    assert reason in run.manifest["reason"]
    assert len(run.events) == 16
    assert "parts" not in names(tmp_path / "a")


def test_a_failed_run_in_memory_raises_too(stage):
    stage("failed")
    with pytest.raises(RunError, match="nobody can go on"):
        desim.run(SCENARIO)


def test_a_disk_that_fills_up_at_the_end_leaves_the_parts(stage, tmp_path, monkeypatch):
    def full(path, arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, "write_arrays", full)
    with pytest.raises(RunError, match=r"No space left on device"):
        desim.run(SCENARIO, out=tmp_path / "a")
    run = desim.open(tmp_path / "a")
    assert run.status == "failed"
    assert len(run.events) == 16


def test_bad_input_writes_nothing(stage, tmp_path):
    with pytest.raises(InputError):
        desim.run(SCENARIO | {"seeed": 3}, out=tmp_path / "a")
    assert names(tmp_path) == set()


def test_a_run_that_cannot_be_built_writes_nothing(stage, tmp_path, monkeypatch):
    def build(scenario):
        raise InputError("problem.data: row 3 holds NaN")

    monkeypatch.setattr(recording, "build", build)
    with pytest.raises(InputError, match="row 3"):
        desim.run(SCENARIO, out=tmp_path / "a")
    assert names(tmp_path) == set()


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_with_something_else_in_it_is_refused(stage, tmp_path, force):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        desim.run(SCENARIO, out=tmp_path, force=force)
    assert names(tmp_path) == {"thesis.tex"}


def test_a_run_is_replaced_only_by_force(stage, tmp_path):
    desim.run(SCENARIO, out=tmp_path / "a")
    (tmp_path / "a" / "figure.png").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        desim.run(SCENARIO, out=tmp_path / "a")
    stage(rounds=2)
    desim.run(SCENARIO, out=tmp_path / "a", force=True)
    assert len(desim.open(tmp_path / "a").events) == 8
    assert names(tmp_path / "a") == FILES | {"figure.png"}


def test_a_file_is_no_directory(stage, tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="is a file"):
        desim.run(SCENARIO, out=tmp_path / "a")
    with pytest.raises(InputError, match="not a writable directory"):
        desim.run(SCENARIO, out=tmp_path / "a" / "b")


def test_of_two_runs_that_begin_together_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "check_free", lambda path, force: None)
    refused = pytest.raises(InputError, match="another run has just begun there")
    with place.claim(tmp_path / "a", {"status": "running", "name": "a"}):
        with refused, place.claim(tmp_path / "a", {"status": "mine"}):
            pass
    with refused, place.claim(tmp_path / "a", {"status": "mine"}):
        pass
    assert place.read_manifest(tmp_path / "a")["status"] == "running"


def test_overrides_come_before_checking(stage):
    with pytest.raises(InputError, match="loaded already"):
        desim.run(desim.load(SCENARIO), overrides={"seed": 4})


@pytest.mark.parametrize(
    ("text", "message"), [(None, "not a run directory"), ("{", "damaged"), ("[]", "damaged")]
)
def test_what_is_no_run_is_not_opened(tmp_path, text, message):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=message):
        desim.open(tmp_path)


def test_arrays_never_need_pickle(tmp_path):
    with pytest.raises(ValueError, match="Python objects"):
        place.write_arrays(tmp_path / "state.npz", {"x": np.array([None])})
    (tmp_path / "state.npz").write_bytes(b"PK torn")
    with pytest.raises(InputError, match=r"state\.npz: not an npz file"):
        place.read_arrays(tmp_path / "state.npz")


def test_the_next_free_directory(tmp_path):
    assert place.next_free(tmp_path, "a") == tmp_path / "a"
    for name in ("a", "a-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    assert place.next_free(tmp_path, "a") == tmp_path / "a-3"


def check_time_to(module):
    run = module.Run({"name": "staged", "status": "done"}, desim.run(SCENARIO).store)
    assert run.time_to("error", 0.25) == 2.4
    assert run.time_to("error", 0.2) == 3.4
    assert run.time_to("error", 1e-8) == np.inf
    assert run.time_to("accuracy", 0.75) == 2.4
    assert run.time_to("accuracy", 0.99) == np.inf


def test_time_to_a_metric(stage):
    check_time_to(run_module)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("values <= target", "values < target"),
        ("if metric in RISING", "if False"),
        ("int(np.argmax(met))", "int(np.flatnonzero(met)[-1])"),
    ],
)
def test_a_wrong_time_is_noticed(stage, monkeypatch, right, wrong):
    twin = mutant(targets, right, wrong)
    monkeypatch.setattr(targets, "time_met", twin.time_met)
    with pytest.raises(AssertionError):
        check_time_to(run_module)


def test_a_time_to_what_an_agent_has_is_noticed(stage):
    twin = mutant(run_module, ' & (rows["agent"] == NETWORK)]', "]")
    with pytest.raises(AssertionError):
        check_time_to(twin)


def test_a_metric_that_was_not_recorded(stage):
    with pytest.raises(InputError, match=r"recorded: accuracy, error; did you mean 'error'"):
        desim.run(SCENARIO).time_to("eror", 1.0)


def press():
    signal.raise_signal(signal.SIGINT)


def check_interruption(module):
    """First press: the next check raises. Later again: at once. Soon, third, closed: nothing."""
    now = [100.0]
    with module.Interruption(lambda: now[0]) as interruption:
        interruption.check()
        press()
        press()
        with pytest.raises(KeyboardInterrupt) as first:
            interruption.check()
        assert first.type is not AtOnce
        now[0] += 0.4
        press()
        now[0] += 0.1
        with pytest.raises(AtOnce):
            press()
        now[0] += 1.0
        press()
    with module.Interruption() as interruption:
        interruption.close()
        press()
    with pytest.raises(KeyboardInterrupt):
        press()


@pytest.mark.usefixtures("keyboard")
def test_presses_of_ctrl_c():
    check_interruption(interruption)


@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("now - self._since >= PAUSE", "True"),
        ("now - self._since >= PAUSE", "False"),
        ("            self.pressed = 2\n", ""),
        ("self._since = now", "pass"),
        ("True\n        if self.pressed:\n", "True\n        if self.pressed > 1:\n"),
        ("max(self.pressed, 2)", "max(self.pressed, 1)"),
        ("signal.signal(signal.SIGINT, self._before)", "pass"),
    ],
)
def test_a_wrong_key_press_is_noticed(right, wrong):
    twin = mutant(interruption, right, wrong)
    with pytest.raises((AssertionError, KeyboardInterrupt, pytest.fail.Exception)):
        check_interruption(twin)


class Compiles:
    """A compilation that is under way."""

    under_way = True


def check_compiling(module, capfd):
    """What is compiled before the first step is finished, and then the run ends, once."""
    before = threading.active_count()
    with module.Interruption() as interruption:
        interruption.compiling = Compiles()
        interruption.compiled()
        press()
        for _ in range(200):
            if told := capfd.readouterr().err:
                break
            time.sleep(0.01)
        assert told == "Ctrl-C: stops after this compilation; press again to stop now\n"
        with ThreadPoolExecutor(1) as helper:  # compiles, too, and has nobody to tell
            helper.submit(interruption.compiled).result()
        with pytest.raises(KeyboardInterrupt):
            interruption.compiled()
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
    with module.Interruption() as interruption:
        interruption.check()
        press()
        interruption.compiled()  # the end of a step comes soon
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == before


@pytest.mark.usefixtures("keyboard")
def test_ctrl_c_while_compiling_is_answered_at_once(capfd):
    check_compiling(interruption, capfd)


@pytest.mark.slow
@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("and self.of.compiling.under_way", "and False"),
        ("            self.check()\n            self._stepped", "            self._stepped"),
        ("if not self._stepped:", "if True:"),
        (
            "if self.rings:\n            signal.set_wakeup_fd(-1)\n",
            "if self.rings:\n            pass\n",
        ),
    ],
)
def test_a_compilation_that_swallows_ctrl_c_is_noticed(right, wrong, capfd):
    twin = mutant(interruption, right, wrong)
    with pytest.raises((AssertionError, KeyboardInterrupt, pytest.fail.Exception)):
        check_compiling(twin, capfd)
    signal.set_wakeup_fd(-1)


@pytest.mark.usefixtures("keyboard")
def test_somebody_else_s_wake_up_is_left_alone():
    inner, outer = socket.socketpair()
    inner.setblocking(False)
    signal.set_wakeup_fd(inner.fileno())
    with Interruption():
        press()
    assert outer.recv(1) == bytes([signal.SIGINT])
    assert signal.set_wakeup_fd(-1) == inner.fileno()
    inner.close()
    outer.close()


def test_what_fails_after_a_second_ctrl_c_is_its_doing(monkeypatch):
    """It may fall into a lock of Python's, which then fails of something else."""
    play = recording._play

    def tripped(*about):
        tables, outcome = play(*about)
        about[-1].pressed = 2
        return tables, replace(outcome, status="failed", error=RuntimeError("unlocked lock"))

    monkeypatch.setattr(recording, "_play", tripped)
    with pytest.raises(AtOnce):
        desim.run(SCENARIO)


def waking(module):
    """Whether a run can begin where another's wake-up was closed, and leaves none behind."""
    inner, outer = socket.socketpair()
    inner.setblocking(False)
    signal.set_wakeup_fd(inner.fileno())
    inner.setblocking(True)
    try:
        with module.Interruption():
            pass
    finally:
        left = signal.set_wakeup_fd(-1)
        inner.close()
        outer.close()
    return left


@pytest.mark.usefixtures("keyboard")
def test_a_wake_up_that_nobody_can_have_back_is_no_error():
    assert waking(interruption) == -1
    careless = mutant(interruption, "except (OSError, ValueError):", "except OSError:")
    with pytest.raises(ValueError, match="non-blocking"):
        waking(careless)


@pytest.mark.usefixtures("keyboard")
def test_handlers_of_others_and_threads_are_left_alone():
    def mine(number, frame):
        pass

    signal.signal(signal.SIGINT, mine)
    with Interruption():
        assert signal.getsignal(signal.SIGINT) is mine
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found = []

    def elsewhere():
        with Interruption():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


@pytest.fixture
def begun(tmp_path):
    """begun(course): the process and directory of a run that has flushed three rounds or more."""
    processes = []

    def begun(course):
        (tmp_path / "s.yaml").write_text(TEXT)
        program = [sys.executable, str(Path(__file__).parent / "staged.py"), course]
        command = [*program, "run", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "a")]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        processes.append(process)
        while not (tmp_path / "a" / "parts" / "metrics-00002.parquet").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        return process, tmp_path / "a"

    yield begun
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_ctrl_c_leaves_a_stopped_run(begun):
    process, folder = begun("endless")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    run = desim.open(folder)
    assert process.returncode == 1
    assert errors == DEVICES + "stopped: interrupted by Ctrl-C\n"
    assert run.status == "stopped"
    assert names(folder) == FILES
    assert len(run.events) == 4 * run.manifest["rounds"] >= 12
    assert len(run.iterates) == run.manifest["rounds"] + 1


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_spoil_the_log(begun):
    process, folder = begun("stuck")
    while desim.open(folder).status == "running":
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, errors = process.communicate(timeout=60)
    run = desim.open(folder)
    assert process.returncode == 1
    assert "desim resume goes on with it" in errors
    assert run.status == "interrupted"
    assert len(run.events) == 12
    assert not {"rounds", "time", "counts"} & set(run.manifest)


@pytest.mark.slow
def test_a_killed_run_keeps_what_was_flushed(begun):
    process, folder = begun("endless")
    process.kill()
    process.wait()
    run = desim.open(folder)
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
    assert run.status == "interrupted"
    assert len(run.events) >= 12
    assert run.events["seq"].tolist() == list(range(len(run.events)))
    assert run.state == {}
    assert run.iterates is None
    assert run.time_to("error", 0.5) == 1.4
