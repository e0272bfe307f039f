"""Runs go on from checkpoints to the log of one that never stopped, and compute no round twice."""

import contextlib
import json
import os
import random
import signal
import time
import zipfile
from inspect import getsource

import numpy as np
import pytest
from cases import CASES, LOSSY, graph, merged, star
from mutant import mutant
from test_resume import LONG, PROGRAM, Killed, playing, unlike

import desim
from desim.engine import hub, play, world
from desim.engine.cohort import star as star_cohort
from desim.engine.compiled import star as star_compiled
from desim.errors import RunError
from desim.log.parquet import Worker
from desim.methods.shared import robust_sums
from desim.runs import directory as place
from desim.runs import recording as play_module
from desim.scenario import registry

ASYNCHRONOUS = {"policy": {"buffer": 2}, "participation": {"bernoulli": 0.7}}
CONDITIONS = {
    "each reply": star(policy="each", stop={"rounds": 30}),
    "late replies": star(policy={"deadline": "80 ms", "late": "carry"}, network=LOSSY),
    "quorum": star(policy={"quorum": 3, "late": "carry"}),
    "adaptive": star(policy={"adaptive": {"mad": 1}}, compute={"redraw": "round"}),
    "instants": star(observe={"metrics": ["error"], "every": "30 ms"}),
    "no metrics": star(observe={"metrics": [], "iterates": False}),
    "a target": star(stop={"rounds": 90, "metric": {"error": 0.3}}),
    "rounds only": star(log="rounds"),
    "messages only": star(log="messages", **ASYNCHRONOUS),
    "a budget": merged(CASES["plt-budget"], {"policy": {"buffer": 2}}),
    "a rule that remembers": star(
        algorithm={
            "name": "fedavg",
            "local": {"epochs": 2},
            "aggregate": {"centred-clipping": {"tau": 0.1}},
        },
        engine="cohort",
    ),
    "a time": star(stop={"time": "900 ms"}),
}
METHODS = {case["algorithm"]["name"]: case for case in CASES.values()}
COORDINATED = {
    name: {"name": "case", **case}
    for name, case in {**METHODS, **CONDITIONS}.items()
    if "hub.memory" in getsource(registry.get(case["algorithm"]["name"]))
}


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """A checkpoint after every round of the cohort engine, and every third compiled one."""
    monkeypatch.setattr(world, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(world, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(world, "REST", 0.0)
    monkeypatch.setattr(star_compiled, "BLOCK_ROUNDS", 3)


def left(scenario, folder, after):
    """A run that is killed when it tells of round `after` or a later one; rounds it has shown."""
    told = []

    def step(now):
        told.append(now.round)
        if now.round >= after:
            raise Killed

    workers, begin = [], Worker.__init__

    def noted(worker):
        begin(worker)
        workers.append(worker)

    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(Worker, "__init__", noted)
        desim.run(scenario, out=folder, progress=step)
    for worker in workers:  # a killed process writes no more
        worker.close()
    return told[-1]


@contextlib.contextmanager
def counted():
    """A set of the rounds whose arithmetic is done."""
    rounds, accept, block = set(), hub.Hub.accept, star_compiled.Engine.block

    def accepting(self, who):
        rounds.add(self.round)
        return accept(self, who)

    def blocking(self):
        first = int(self.desk.counts[0])
        why, done = block(self)
        rounds.update(range(first, first + done))
        return why, done

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hub.Hub, "accept", accepting)
        patched.setattr(star_compiled.Engine, "block", blocking)
        yield rounds


def goes_on(scenario, folder, after=4):
    """Kill and resume; rounds that the run has, and that were computed after the kill."""
    whole, shown = desim.run(scenario), left(scenario, folder, after)
    with counted() as rounds:
        assert unlike(whole, desim.resume(folder)) == []
    assert unlike(whole, desim.open(folder)) == []
    assert not (folder / place.CHECKPOINT).exists()
    return shown, whole.manifest["rounds"], len(rounds)


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["compiled", "cohort"])
@pytest.mark.parametrize("changes", [{}, ASYNCHRONOUS], ids=["all", "asynchronous"])
def test_no_round_is_computed_twice(engine, changes, tmp_path):
    scenario = star(name="case", engine=engine, stop={"rounds": 14}, **changes)
    shown, whole, computed = goes_on(scenario, tmp_path / "a")
    ahead = 3 if engine == "compiled" else 1  # the block, or round, in which the kill came
    assert computed <= whole - shown + ahead
    assert computed < whole


def test_without_its_checkpoint_every_round_is(tmp_path):
    scenario = star(name="case", stop={"rounds": 14})
    left(scenario, tmp_path / "a", 4)
    (tmp_path / "a" / place.CHECKPOINT).unlink()
    with counted() as rounds:
        assert unlike(desim.run(scenario), desim.resume(tmp_path / "a")) == []
    assert len(rounds) == 14


def test_what_was_told_of_agents_is_remembered(tmp_path, monkeypatch):
    """Four of six agents turn out to be never done, one after the other: then the run is over."""
    monkeypatch.setattr("desim.engine.presences.TURNS", 400)  # of each of them
    scenario = star(
        seed=0, policy={"buffer": 3}, churn={"up": "200 ms", "down": "10 ms"},
        compute={"speed": {"exponential": 500}, "redraw": "round", "slow": {"fraction": 0}},
        observe={"metrics": ["loss"]},
    )  # fmt: skip
    over = "agent 5 can never finish"
    with pytest.raises(RunError, match=over):
        desim.run(scenario, out=tmp_path / "whole")
    left(scenario, tmp_path / "killed", 6)
    with pytest.raises(RunError, match=over):
        desim.resume(tmp_path / "killed")
    whole, again = desim.open(tmp_path / "whole"), desim.open(tmp_path / "killed")
    assert unlike(whole, again) == []
    assert whole.manifest["warnings"] == again.manifest["warnings"]
    assert sum("can never finish" in text for text in whole.manifest["warnings"]) == 3


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "name",
    [
        *CONDITIONS,
        *(pytest.param(one, marks=pytest.mark.slow) for one in METHODS if one in COORDINATED),
    ],
)
def test_every_coordinator_method_goes_on(name, tmp_path):
    shown, whole, computed = goes_on(COORDINATED[name], tmp_path / "a")
    assert computed < whole or shown in (0, whole) or whole == 1


FORGETFUL = [
    ("recalled(self.own, self.before)", "self.before", {}),
    ("fill(array, tree", 'name == "whole" and fill(array, tree', ASYNCHRONOUS),
    ("note(owing, fitting", "note(owing, 0.0 * fitting", ASYNCHRONOUS),
    ('STORED = "round', 'STORED = "', {}),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("right", "wrong", "changes"), FORGETFUL)
def test_a_hub_that_forgets_is_noticed(right, wrong, changes, tmp_path, monkeypatch):
    scenario = star(name="case", engine="cohort", stop={"rounds": 14}, **changes)
    left(scenario, tmp_path / "a", 7)
    whole = desim.run(scenario)
    monkeypatch.setattr(star_cohort, "Hub", mutant(hub, right, wrong).Hub)
    with pytest.raises((AssertionError, RunError)):
        assert unlike(whole, desim.resume(tmp_path / "a")) == []


def test_a_rule_that_forgets_its_centre_is_noticed(tmp_path, monkeypatch):
    scenario = CONDITIONS["a rule that remembers"] | {"name": "case"}
    left(scenario, tmp_path / "a", 7)
    whole = desim.run(scenario)
    monkeypatch.setattr(robust_sums.Robust, "recall", lambda self, tree: None)
    with pytest.raises((AssertionError, RunError)):
        assert unlike(whole, desim.resume(tmp_path / "a")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("            fill(part, tree", "            (part, tree"),
        ("desk.heard[owing] = fitting", "_ = fitting"),
    ],
)
def test_compiled_rounds_that_forget_are_noticed(right, wrong, tmp_path, monkeypatch):
    scenario = star(name="case", engine="compiled", stop={"rounds": 14}, **ASYNCHRONOUS)
    left(scenario, tmp_path / "a", 4)
    whole, broken = desim.run(scenario), mutant(star_compiled, right, wrong)
    monkeypatch.setitem(play.ENGINES, ("coordinator", "compiled"), broken.play)
    with pytest.raises((AssertionError, RunError)):
        assert unlike(whole, desim.resume(tmp_path / "a")) == []


def torn(file, arrays):
    file.write_bytes(file.read_bytes()[:-300])


def flipped(file, arrays):
    with zipfile.ZipFile(file) as archive:  # between arrays are bytes that mean nothing
        largest = max(archive.infolist(), key=lambda one: one.compress_size)
    data = bytearray(file.read_bytes())
    data[largest.header_offset + 256 + largest.compress_size // 2] ^= 1
    file.write_bytes(data)


def nothing(file, arrays):
    file.write_bytes(b"")


def pickled(file, arrays):
    np.savez(file, **arrays, more=np.array([print], object))


def headless(file, arrays):
    np.savez(file, **{name: array for name, array in arrays.items() if name != "head"})


def other_code(file, arrays):
    head = arrays["head"].tobytes().replace(b'"numpy": "', b'"numpy": "1')
    np.savez(file, **{**arrays, "head": np.frombuffer(head, np.uint8)})


def misshapen(file, arrays):
    np.savez(file, **{**arrays, "log.floats": arrays["log.floats"][:, :2]})


def incomplete(file, arrays):
    np.savez(file, **{name: array for name, array in arrays.items() if name != "now"})


def rows_lost(file, arrays):
    sorted((file.parent / "parts").glob("events-*"))[-1].unlink()


HARMS = (torn, flipped, nothing, pickled, headless, other_code)  # before an engine looks at it


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("harm", "engine"),
    [(harm, "cohort") for harm in HARMS]
    + [
        (one, kind) for one in (misshapen, incomplete, rows_lost) for kind in ("compiled", "cohort")
    ],
)
def test_a_checkpoint_of_no_use_is_not_used(harm, engine, tmp_path):
    scenario = star(name="case", engine=engine, stop={"rounds": 14})
    left(scenario, tmp_path / "a", 6)
    file = tmp_path / "a" / place.CHECKPOINT
    with np.load(file, allow_pickle=False) as found:
        arrays = dict(found)
    harm(file, arrays)
    with counted() as rounds:
        resumed = desim.resume(tmp_path / "a")
    assert len(rounds) == 14
    assert unlike(desim.run(scenario), resumed) == []


def test_a_plugin_that_has_changed_is_another_run(tmp_path, monkeypatch):
    plugin = tmp_path / "mine.py"
    plugin.write_text("")
    scenario = star(name="case", plugins=[str(plugin)])
    left(scenario, tmp_path / "a", 3)
    plugin.write_text("# edited\n")
    with counted() as rounds:
        desim.resume(tmp_path / "a")
    assert len(rounds) == 12


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path):
    scenario, told = star(name="case", stop={"rounds": 14}), []

    def press(now):
        told.append(now)
        if len(told) == 4:
            raise KeyboardInterrupt

    assert desim.run(scenario, out=tmp_path / "a", progress=press).status == "stopped"
    with counted() as rounds:
        resumed = desim.resume(tmp_path / "a")
    assert 0 < len(rounds) < 14
    assert unlike(desim.run(scenario), resumed) == []


def test_a_later_end_begins_anew(tmp_path):
    left(star(name="case", stop={"rounds": 14}), tmp_path / "a", 4)
    later = desim.resume(tmp_path / "a", {"stop.rounds": 20})
    assert unlike(desim.run(star(name="case", stop={"rounds": 20})), later) == []


@pytest.mark.parametrize("scenario", [graph(), star(engine="agents")], ids=["graph", "agents"])
def test_what_has_no_boundaries_leaves_none(scenario, tmp_path):
    left({"name": "case", **scenario}, tmp_path / "a", 5)
    assert not (tmp_path / "a" / place.CHECKPOINT).exists()
    assert unlike(desim.run({"name": "case", **scenario}), desim.resume(tmp_path / "a")) == []


def test_no_room_for_a_checkpoint_is_no_end(tmp_path, monkeypatch):
    def refuse(path, arrays):
        if path.name == place.CHECKPOINT:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(play_module.place, "write_arrays", refuse)
    assert desim.run(star(), out=tmp_path / "a").status == "done"


def test_checkpoints_rest(tmp_path, monkeypatch):
    """The next one comes after FLUSH_SECONDS, and REST times as long as this one took."""
    clock, kept = [100.0], []
    monkeypatch.setattr(world, "FLUSH_SECONDS", 2.0)
    monkeypatch.setattr(world, "REST", 20.0)
    monkeypatch.setattr(world.wall, "monotonic", lambda: clock[0])

    def keep(self, tree):
        kept.append(clock[0])
        clock[0] += 0.05 if len(kept) == 1 else 1.0

    monkeypatch.setattr(play_module.Checkpoints, "keep", keep)

    def step(now):
        clock[0] += 0.5

    desim.run(star(engine="cohort", stop={"rounds": 60}), out=tmp_path / "a", progress=step)
    assert kept == pytest.approx([102.0, 104.05, 125.05])


OFTEN = """
import desim.engine.compiled.star, desim.engine.world
desim.engine.compiled.star.BLOCK_ROUNDS = 4
desim.engine.world.REST = 0.0
"""


@pytest.fixture(scope="module")
def player():
    yield from playing(OFTEN + PROGRAM.replace("FLUSH_SECONDS = 0.05", "FLUSH_SECONDS = 0.0"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "cohort"])
def test_a_run_killed_at_random_moments_goes_on(engine, player, tmp_path, monkeypatch):
    """SIGKILL, whatever the process is doing: three times for each engine, with checkpoints."""
    monkeypatch.setattr(world, "FLUSH_SECONDS", 0.1)
    scenario = merged(star(name="long", engine=engine), {**LONG, "stop": {"rounds": 40}})
    whole = desim.run(scenario)
    draw, took, went_on = random.Random(f"moments of {engine}"), np.inf, []
    for number in range(40):
        if number > 3 and any(went_on):
            break
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
        with counted() as rounds:
            assert unlike(whole, desim.resume(folder)) == []
        went_on.append(0 < len(rounds) < whole.manifest["rounds"])
    assert any(went_on)
