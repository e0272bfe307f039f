"""Runs that are killed at any moment, damaged or stopped go on to the log of one that is not."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cases import graph, merged, star
from mutant import mutant
from test_engines import differences

import desim
from desim.errors import Differs, InputError, RunError
from desim.log import resumed
from desim.runs import directory as place
from desim.runs.directory import write_lock
from desim.runs.recording import Behind

TABLES = ("events", "metrics", "releases")
LONG = {"stop": {"rounds": 150}, "observe": {"metrics": ["error"], "iterates": True}}
PROGRAM = """
import json, os, sys
import desim, desim.engine.world
desim.engine.world.FLUSH_SECONDS = 0.05
known = None
for line in sys.stdin:
    scenario, folder = json.loads(line)
    if scenario != known:
        desim.run(scenario)  # from here on a run does nothing but play
    known = scenario
    if child := os.fork():
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)
    else:
        desim.run(scenario, out=folder)
        os._exit(0)
"""


def unlike(one, other):
    """What differs between two runs in their tables, arrays, hashes and counts, to the last bit."""
    keys = ("status", "reason", "time", "rounds", "scenario_sha256", "problem_sha256")
    first, second = ({**run.manifest["counts"], "play_seconds": 0} for run in (one, other))
    return differences(one, other, keys) + ["counts"] * (first != second)


@contextlib.contextmanager
def quick_flushes(monkeypatch, rows=300):
    """Flush after few rows, and put them into a part before the run goes on."""
    with monkeypatch.context() as patched:
        patched.setattr("desim.log.event_log.FLUSH_ROWS", rows)
        patched.setattr("desim.log.parquet.AHEAD", 0)
        patched.setattr("desim.log.parquet.PART_SECONDS", -1.0)
        yield


class Killed(BaseException):
    """Stands for a SIGKILL: nothing of desim catches it."""


def killed(scenario, folder, monkeypatch, after, rows=300):
    """A run that is killed when it has told its progress `after` times, as it is left."""
    told = []

    def step(now):
        told.append(now)
        if len(told) == after:
            raise Killed

    with quick_flushes(monkeypatch, rows), monkeypatch.context() as patched:
        patched.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
        patched.setattr("desim.engine.compiled.star.BLOCK_ROUNDS", 1)
        with contextlib.suppress(Killed):  # or it is over before
            desim.run(scenario, out=folder, progress=step)
    return desim.open(folder)


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("make", [star, graph])
def test_a_killed_run_goes_on_to_the_same_log(make, engine, tmp_path, monkeypatch):
    scenario = make(engine=engine, stop={"rounds": 60})
    whole = desim.run(scenario)
    for after in (1, 2):
        folder = tmp_path / str(after)
        left = killed(scenario, folder, monkeypatch, after, rows=40)
        assert left.status == "interrupted"
        assert left.state == {}
        went_on = desim.resume(folder)
        assert unlike(whole, went_on) == []
        assert unlike(whole, desim.open(folder)) == []
        assert {path.name for path in folder.iterdir()} <= set(place.FILES)


def test_what_is_stored_is_not_written_again(tmp_path, monkeypatch):
    killed(star(), tmp_path / "a", monkeypatch, 9, rows=40)
    parts = tmp_path / "a" / "parts"
    before = {path.name: path.stat().st_mtime_ns for path in parts.glob("events-*")}
    assert len(before) > 2
    seen = []

    def look(now):
        seen.append({name: (parts / name).stat().st_mtime_ns for name in before})

    with quick_flushes(monkeypatch, 40):
        monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
        desim.resume(tmp_path / "a", progress=look)
    assert all(one == before for one in seen)


def test_a_run_that_is_done_is_only_opened(tmp_path):
    done = desim.run(star(), out=tmp_path / "a")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    assert unlike(done, desim.resume(tmp_path / "a")) == []
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["events.parquet", "releases.parquet", "state.npz", "model.npz"])
@pytest.mark.parametrize("harm", ["missing", "cut"])
def test_a_run_that_is_done_but_has_lost_a_file_is_made_whole(name, harm, tmp_path):
    done = desim.run(star(), out=tmp_path / "a")
    file = tmp_path / "a" / name
    content = file.read_bytes()
    file.unlink()
    if harm == "cut":
        file.write_bytes(content[:-30])
    if name == "events.parquet":
        with pytest.raises(InputError, match=r"missing|damaged"):
            desim.open(tmp_path / "a").store.table("events")
    assert unlike(done, desim.resume(tmp_path / "a")) == []
    assert unlike(done, desim.open(tmp_path / "a")) == []


@pytest.mark.thin(3)
@pytest.mark.parametrize("make", [star, graph])
@pytest.mark.parametrize("times", [1, 7])
def test_a_stopped_run_goes_on(make, times, tmp_path, monkeypatch):
    whole = desim.run(make())
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
    monkeypatch.setattr("desim.engine.compiled.star.BLOCK_ROUNDS", 1)
    told = []

    def press(now):
        told.append(now)
        if len(told) == times:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stopped = desim.run(make(), out=tmp_path / "a", progress=press)
        assert stopped.status == "stopped"
        told.clear()
        if times > 1:  # Ctrl-C again, before the stored rows have come: nothing changes
            times = 2
            with pytest.raises(Behind):
                desim.resume(tmp_path / "a", progress=press)
            assert desim.open(tmp_path / "a").manifest == stopped.manifest
    finally:
        signal.signal(signal.SIGINT, before)
    assert unlike(whole, desim.resume(tmp_path / "a")) == []


def test_a_failed_run_fails_again_with_the_same_log(tmp_path):
    wild = graph(algorithm={"eta": 1e9, "rho": 1e-9}, stop={"rounds": 400})
    wild["problem"].pop("clip")
    for act in (lambda: desim.run(wild, out=tmp_path / "a"), lambda: desim.resume(tmp_path / "a")):
        with pytest.raises(RunError, match="not finite") as caught:
            act()
        assert unlike(desim.open(tmp_path / "a"), caught.value.run) == []


def check_other_run(module, folder, monkeypatch):
    """A log of another seed is not taken for the run's own."""
    killed(star(), folder, monkeypatch, 9, rows=40)
    other = killed(star(seed=77), folder.with_name("other"), monkeypatch, 9, rows=40)
    shutil.copytree(other.directory / "parts", folder / "parts", dirs_exist_ok=True)
    stored = desim.open(folder)
    before = [getattr(stored, name) for name in TABLES]
    monkeypatch.setattr("desim.runs.replay.ResumedTables", module.ResumedTables)
    with pytest.raises(Differs, match=r"row \d+ has .* is stored; data, plug-ins, libraries"):
        desim.resume(folder)
    left = desim.open(folder)
    assert left.status == "interrupted"
    assert all(a.equals(getattr(left, name)) for name, a in zip(TABLES, before, strict=True))


def test_rows_of_another_run_are_noticed(tmp_path, monkeypatch):
    check_other_run(resumed, tmp_path / "a", monkeypatch)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("            self._require_equal(", "            (lambda *_: None)("),
        ("[int(found[0])] if", "[] if"),
    ],
)
def test_a_comparison_that_compares_nothing_is_noticed(right, wrong, tmp_path, monkeypatch):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_other_run(mutant(resumed, right, wrong), tmp_path / "a", monkeypatch)


def damaged_part(folder):
    parts = sorted((folder / "parts").glob("events-*"))
    parts[1].write_bytes(parts[1].read_bytes()[:-200])


def missing_part(folder):
    sorted((folder / "parts").glob("metrics-*"))[0].unlink()


def no_parts(folder):
    shutil.rmtree(folder / "parts")


def merged_already(folder):
    """Killed between the first merged table and the manifest."""
    desim.log.parquet.merge_parts(folder, "events")
    (folder / "parts" / "events-00002.parquet").unlink()


def no_scenario(folder):
    (folder / "scenario.yaml").write_text("")


def half_files(folder):
    for name in (".manifest.json.partial", ".state.npz.partial", "parts/events-00007.partial"):
        (folder / name).write_text("{")


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "harm", [damaged_part, missing_part, no_parts, merged_already, no_scenario, half_files]
)
def test_what_a_kill_or_a_disk_has_spoilt_is_made_again(harm, tmp_path, monkeypatch):
    killed(star(), tmp_path / "a", monkeypatch, 9, rows=40)
    harm(tmp_path / "a")
    assert unlike(desim.run(star()), desim.resume(tmp_path / "a")) == []


def test_a_manifest_that_is_damaged_is_named(tmp_path):
    desim.run(star(), out=tmp_path / "a")
    (tmp_path / "a" / "manifest.json").write_text('{"status": "run')
    with pytest.raises(InputError, match=r"manifest\.json: not a manifest of desim, or damaged"):
        desim.resume(tmp_path / "a")


@pytest.mark.parametrize(("name", "found"), [("metrics.parquet", "is a directory"),
                                             ("scenario.yaml", "no such file")])  # fmt: skip
def test_what_is_not_there_to_go_on_from_is_named_and_nothing_left(name, found, tmp_path):
    desim.run(star(), out=tmp_path / "a")
    (tmp_path / "a" / name).unlink()
    if "directory" in found:
        (tmp_path / "a" / name).mkdir()
    before = {file.name for file in (tmp_path / "a").iterdir()}
    with pytest.raises(InputError, match=rf"{re.escape(name)}: {found}; allowed"):
        desim.resume(tmp_path / "a", overrides={"stop.rounds": 99})
    assert {file.name for file in (tmp_path / "a").iterdir()} == before


def test_only_one_process_writes(tmp_path, monkeypatch):
    killed(star(), tmp_path / "a", monkeypatch, 3)
    with write_lock(tmp_path / "a", "mine"):
        assert desim.open(tmp_path / "a").status == "running"
        with pytest.raises(InputError, match="is being written by another process"):
            desim.resume(tmp_path / "a")
        with pytest.raises(InputError, match="is being written by another process"):
            desim.run(star(), out=tmp_path / "a", force=True)
    assert desim.open(tmp_path / "a").status == "interrupted"


def test_a_run_is_known_to_be_running_while_it_is(tmp_path):
    seen = []
    desim.run(star(), out=tmp_path / "a", progress=lambda now: seen.append(place_status(tmp_path)))
    assert set(seen) <= {"running"}
    assert desim.open(tmp_path / "a").status == "done"


def place_status(folder):
    return desim.open(folder / "a").status


def test_other_data_are_refused(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    A, b = rng.normal(size=(4, 6, 3)), np.sign(rng.normal(size=(4, 6)))
    np.savez(tmp_path / "d.npz", A=A, b=b)
    own = star()
    own["problem"] = {
        "data": {"source": "npz", "file": str(tmp_path / "d.npz")},
        "loss": "logistic",
    }
    killed(own, tmp_path / "a", monkeypatch, 3)
    np.savez(tmp_path / "d.npz", A=A + 1e-12, b=b)
    manifest = (tmp_path / "a" / "manifest.json").read_text()
    with pytest.raises(InputError, match="the data are not those of the run"):
        desim.resume(tmp_path / "a")
    assert (tmp_path / "a" / "manifest.json").read_text() == manifest


def test_another_scenario_is_refused(tmp_path):
    desim.run(star(), out=tmp_path / "a")
    file = tmp_path / "a" / "scenario.yaml"
    manifest = tmp_path / "a" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"status": "stopped"}))
    file.write_text(file.read_text().replace("seed: ", "seed: 1"))
    with pytest.raises(InputError, match=r"scenario\.yaml: has changed since the run"):
        desim.resume(tmp_path / "a")


@pytest.mark.thin(3)
@pytest.mark.parametrize("make", [star, graph])
@pytest.mark.parametrize("end", [{"rounds": 20}, {"time": "2 s"}])
def test_an_end_is_moved(make, end, tmp_path):
    early = {"rounds": 8} if "rounds" in end else {"time": "700 ms"}
    scenario = make()
    scenario["stop"] = early
    desim.run(scenario, out=tmp_path / "a")
    [(key, value)] = end.items()
    later = desim.resume(tmp_path / "a", {f"stop.{key}": value})
    scenario["stop"] = end
    whole = desim.run(scenario)
    assert unlike(whole, later) == []
    assert unlike(whole, desim.resume(tmp_path / "a")) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop.rounds": 5}, r"stop\.rounds: found 5; allowed: at least 12, as the end of "),
        ({"stop.time": 5}, r"stop\.time: the run has no such end .*resume --rounds N\)"),
        ({"algorithm.rho": 5}, r"algorithm\.rho: cannot change in a run; allowed: stop\.rounds"),
    ],
)
def test_nothing_else_is_moved(change, message, tmp_path):
    desim.run(star(), out=tmp_path / "a")
    with pytest.raises(InputError, match=message):
        desim.resume(tmp_path / "a", change)


@pytest.mark.parametrize("make", [star, graph])
def test_a_run_that_is_not_done_is_ended_earlier(make, tmp_path, monkeypatch):
    left = killed(make(stop={"rounds": 60}), tmp_path / "a", monkeypatch, 9, rows=40)
    stored = int(left.events["round"].max()) if len(left.events) else 0
    assert stored < 55
    if stored > 1:
        with pytest.raises(InputError, match=f"at least {stored}, which is stored already"):
            desim.resume(tmp_path / "a", {"stop.rounds": stored - 1})
    end = stored + 4
    ended = desim.resume(tmp_path / "a", {"stop.rounds": end})
    assert unlike(desim.run(make(stop={"rounds": end})), ended) == []
    assert ended.manifest["moved"] == {"stop.rounds": {"was": 60, "is": end}}
    with pytest.raises(InputError, match="as the end of a run that is done only moves later"):
        desim.resume(tmp_path / "a", {"stop.rounds": end - 1})


def test_a_full_disk_is_no_end(tmp_path, monkeypatch):
    whole = desim.run(star())
    written = []

    def write(*part):
        written.append(part)
        if len(written) > 5:
            raise OSError(28, "No space left on device")
        return resumed.write_part(*part)

    with quick_flushes(monkeypatch, 40), monkeypatch.context() as patched:
        patched.setattr("desim.log.parquet.write_part", write)
        patched.setattr("desim.engine.compiled.star.BLOCK_ROUNDS", 1)
        with pytest.raises(RunError, match="No space left on device"):
            desim.run(star(), out=tmp_path / "a")
    left = desim.open(tmp_path / "a")
    assert left.status == "failed"
    assert len(left.events) > 0
    assert unlike(whole, desim.resume(tmp_path / "a")) == []


def test_a_directory_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    killed(star(), tmp_path / "a", monkeypatch, 3)

    def refuse(path, manifest):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(place, "write_manifest", refuse)
    with pytest.raises(InputError, match=r"cannot be written \(Permission denied\)"):
        desim.resume(tmp_path / "a")


def playing(program):
    """The process that plays a scenario into a folder, line by line, each time in a child."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def player():
    yield from playing(PROGRAM)


@pytest.mark.slow
@pytest.mark.parametrize("make", [star, graph])
def test_a_run_killed_at_random_moments_goes_on(make, player, tmp_path):
    """SIGKILL, whatever the process is doing: three times for each kind of method."""
    scenario = merged(make(name="long"), LONG)
    whole = desim.run(scenario)
    draw, took = random.Random(f"moments of {make.__name__}"), np.inf
    for number in range(4):
        folder = tmp_path / str(number)
        player.stdin.write(json.dumps([scenario, str(folder)]) + "\n")
        child = int(player.stdout.readline())
        while not (folder / "manifest.json").exists():
            time.sleep(0.0005)
        began = time.monotonic()
        if number > 0:
            time.sleep(draw.uniform(0.0, took))
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        assert player.stdout.readline() == "ended\n"
        status = desim.open(folder).status
        if status == "done":  # the first loads what later ones have
            took = min(took, time.monotonic() - began)
        assert status in ("interrupted", "done")
        assert unlike(whole, desim.resume(folder)) == []
