"""Models that are not finite end a run on every engine alike; those that have grown are told of."""

from dataclasses import replace

import numpy as np
import pytest
from cases import CASES, graph, merged, star
from mutant import mutant
from test_compiled_graphs import unlike

import desim
from desim.engine import observer, patience, play
from desim.engine.agents import clock
from desim.engine.agents import graph as agents_graph
from desim.engine.cohort import graph as cohort_graph
from desim.log import event_log
from desim.log.parquet import Tables
from desim.runs.exports.public import write_public
from desim.runs.reading.facts import facts
from desim.scenario.build import build
from desim.scenario.load import load

STEEP = {"name": "fedavg", "local": {"solver": "gradient", "epochs": 5, "step": 10.0}}
CASE = {**CASES["plt-noisy"], "algorithm": STEEP, "observe": {"metrics": []}}


def failed(engine, changes):
    """What a run that fails leaves: reason, rounds, states and tables."""
    tables = Tables()
    outcome = build(load({**CASE, **changes, "engine": engine})).play(tables)
    assert outcome.status == "failed"
    counts = {name: n for name, n in outcome.counts.items() if name != "play_seconds"}
    states = {name: array.tobytes() for name, array in outcome.state.items()}
    return (outcome.reason, outcome.rounds, counts, states), tables


@pytest.mark.parametrize(
    "changes",
    [
        {"stop": {"rounds": 400}},
        {"policy": "each", "stop": {"rounds": 900}},
        {"policy": {"buffer": 3}, "stop": {"rounds": 400}},
    ],
    ids=str,
)
def test_a_run_that_diverges_is_the_same_on_both_engines(changes):
    (one, left), (other, right) = (failed(engine, changes) for engine in ("compiled", "cohort"))
    assert one == other
    assert left.rows == right.rows
    assert all(left.read(name).equals(right.read(name)) for name in left.rows)


def grown(changes=None, steep=STEEP, of=CASE, **overrides):
    """What a run says of models that have gone far away but are finite."""
    made = {**of, "algorithm": steep, "stop": {"rounds": 40}, **(changes or {})}
    run = desim.run(made, overrides=overrides)
    assert run.status == "done"
    return run


def peers(policy="all"):
    """Agents on a graph with steps that are too long, as different as their data."""
    steep = {"name": "dsgd", "alpha": 30.0}
    return merged(graph(algorithm=steep, policy=policy, stop={"rounds": 40}), GROWING)


GROWING = {"problem": {"loss": "squared"}}
ENGINES = ("compiled", "cohort", "agents")


def test_a_run_whose_models_have_grown_says_so_on_every_engine():
    """However it is observed; and when it ends does not depend on it."""
    watched = {"observe": {"metrics": ["loss"], "every": "70 ms"}}
    runs = [grown(engine=engine) for engine in ENGINES] + [grown(watched)]
    texts = {run.manifest["diverged"] for run in runs}
    assert len(texts) == 1
    (text,) = texts
    assert text.startswith("diverged: the loss of the last models is ")
    assert "lower algorithm.local.step" in text
    assert all(("warning", text) in facts(run) for run in runs)
    calm = grown(steep={**STEEP, "local": {"solver": "gradient", "epochs": 5}})
    assert "diverged" not in calm.manifest
    assert [run.manifest["reason"] for run in (*runs, calm)] == ["stop.rounds: 40 rounds done"] * 5


def test_agents_of_a_graph_are_looked_at_one_by_one():
    one, other = (desim.run(peers(), overrides={"engine": engine}) for engine in ENGINES[1:])
    assert one.manifest["diverged"] == other.manifest["diverged"]
    assert one.state["x"].tobytes() == other.state["x"].tobytes()


def test_growth_is_held_against_the_start_and_against_zeros():
    """A start close to the optimum is no measure of what is far from it."""
    problem = desim.scenario.build.build(desim.load({**CASE, "stop": {"rounds": 1}})).problem
    rng = np.random.default_rng(1)
    one, cures = rng.normal(size=(1, problem.dim)), ("x",)
    far = 1e9 * one

    def told(start, end, optimum=None, of=patience):
        with np.errstate(all="ignore"):
            return of.grown(problem, start, end, optimum, cures)

    def diverged(*terms, **more):
        return [text for text in told(*terms, **more) if text.startswith(patience.DIVERGED)]

    assert diverged(one, far)
    assert not told(far, one)
    assert not told(one, one)
    assert not diverged(one, 1e3 * one)
    assert not diverged(one, 9e2 * one)
    assert "the error of the last models is" in diverged(one, 9e2 * one, 0.5 * one[0])[0]
    assert not told(1e-9 * one, one, 0.5 * one[0])  # the start is close to zeros, not worse
    assert "no longer finite" in told(one, np.full_like(one, 1e308))[0]
    assert not diverged(one, far, of=mutant(patience, "MANY = 1e6", "MANY = 1e300"))


LATE = {"name": "feddyn", "alpha": 1.0, "reply": "model", "local": {"epochs": 5}}
ROUNDS = 100, 250  # until when it has grown a little, and much


def test_a_run_that_ends_worse_than_it_began_says_so_before_it_has_diverged():
    """From a thousand times the loss or the error on, by a run's own curve; below nothing."""

    def check(rounds, of=patience):
        run = grown({"policy": "each", "observe": {"metrics": ["error"]}}, LATE, star(),
                    **{"stop.rounds": rounds})  # fmt: skip
        first, last = run.curve("error").value.iloc[[0, -1]]
        simulation = desim.scenario.build.build(run.known)
        ends = run.model[[0]], run.model[[-1]]
        found = of.grown(simulation.problem, *ends, simulation.observation.optimum, ("x",))
        assert bool(found) == (last > 1e3 * first)
        assert not any(text.startswith(patience.DIVERGED) for text in found)
        told = [one for one in run.manifest["warnings"] if "times that of the start" in one]
        assert len(told) == len(found)
        assert all(("warning", text) in facts(run) for text in told)
        assert "diverged" not in run.manifest
        return last / first

    ratios = [check(rounds) for rounds in ROUNDS]
    assert ratios[0] < 1e3 < ratios[1] < 1e6
    with pytest.raises(AssertionError):
        check(ROUNDS[1], mutant(patience, "WORSE = 1e3", "WORSE = 1e6"))


def test_what_has_grown_is_in_no_mean_of_a_study_or_comparison(tmp_path):
    """It counts as diverged; what a public export shows has no word of it."""
    run = grown({"observe": {"metrics": ["loss"]}})
    told = desim.compare([run])
    row = told.frame[told.frame["measure"] == "final loss"].iloc[0]
    assert np.isfinite(run.curve("loss").value.iloc[-1])
    assert (row["diverged"], np.isnan(row["value"])) == (1, True)
    assert "diverged" in told.written("text")
    write_public(run, tmp_path / "public", anyway=True)
    assert all("diverged" not in path.read_text("utf-8", "ignore").replace("diverged runs", "")
               for path in (tmp_path / "public").iterdir())  # fmt: skip


def test_a_run_that_does_not_look_at_growth_is_noticed(monkeypatch):
    broken = mutant(patience, "if np.array_equal(start, end)", "if True")
    monkeypatch.setattr(play, "grown", broken.grown)
    assert "diverged" not in grown().manifest


# Agents of a graph, each of whom has its own clock, on all engines.

STEEPER = {"name": "dsgd", "alpha": 1e60}
STILL = {"network": {"topology": "ring", "link": {"latency": "0 s", "bandwidth": "inf"}}}
EQUAL = {"network": {"topology": "ring", "link": {"latency": "10 ms"}}, "compute": {"speed": 100}}
LAST = {"name": "push-sum", "alpha": 1e150}  # not finite in the last round at the last agents alone
DIVERGING = {
    "clocks": graph(algorithm=STEEPER),
    "watched": graph(algorithm=STEEPER, observe={"metrics": ["loss"], "every": "70 ms"}),
    "unwatched": graph(algorithm=STEEPER, observe={"metrics": [], "iterates": False}),
    "shared times": {**graph(algorithm=STEEPER), **EQUAL},
    "no time": {**graph(algorithm=STEEPER), **STILL, "compute": {"speed": "inf"}},
    "last round": graph(algorithm=LAST, network={"topology": "star"}, stop={"rounds": 3}),
}  # fmt: skip


def spread(name):
    """What differs on the engines of a run of agents that diverges, written out row by row."""
    scenario = merged(
        DIVERGING[name], {"problem": {"clip": 1e300}, "privacy": {"noise": {"sigma": 0.0}}}
    )
    simulation = build(load(scenario))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_log, "FLUSH_ROWS", 8)
        assert replace(simulation, engine="cohort").play(Tables()).status == "failed"
        return [unlike(simulation, pair) for pair in (ENGINES[:2], ENGINES[1:])]


@pytest.mark.parametrize("name", DIVERGING)
def test_agents_that_diverge_leave_the_same_rows_on_every_engine(name):
    assert spread(name) == [[], []]


@pytest.mark.parametrize(
    ("name", "module", "right", "wrong", "where", "what"),
    [
        ("shared times", clock, "failed.time if failed", "0.0 if failed", agents_graph, "Clock"),
        ("clocks", play, "isinstance(ended.error, Diverged)", "False", None, "Simulation"),
        ("unwatched", cohort_graph, "np.nextafter(end, np.inf)", "np.inf", None, "play"),
        ("shared times", patience, 'getattr(error, "place", ())', "()", observer, "earlier"),
        (
            "no time",
            agents_graph,
            "self.world.hopeless",
            "self.world.observer.failed",
            None,
            "Agent",
        ),
        ("last round", agents_graph, "if world.observer.failed:", "if False:", None, "play"),
    ],
    ids=str,
)
def test_rows_that_only_one_engine_leaves_are_noticed(
    name, module, right, wrong, where, what, monkeypatch
):
    twin = mutant(module, right, wrong)
    if module is play:
        monkeypatch.setattr(play.Simulation, "_cut", twin.Simulation._cut)
    else:
        monkeypatch.setattr(where or module, what, getattr(twin, what))
    assert spread(name) != [[], []]
