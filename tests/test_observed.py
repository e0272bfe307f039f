"""Observing changes nothing, shows what was true at its time, and costs what was looked at."""

import re

import numpy as np
import pytest
from cases import CASES
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import observer, play
from desim.engine.compiled import star as star_compiled
from desim.errors import Diverged
from desim.problem.kernels import tally
from desim.scenario import build as build_module
from desim.scenario.build import build, check

ENGINES = ("compiled", "cohort", "agents")
PLAIN = {**CASES["plt-noisy"], "policy": "each", "stop": {"rounds": 90}}
INSTANTS = {"metrics": ["error"], "every": "90 ms"}
TARGETS = {"metrics": ["loss", "error"], "every": "35 ms"}


def observed(engine="compiled", observe=INSTANTS, **overrides):
    return desim.run({**PLAIN, "observe": observe}, overrides={"engine": engine, **overrides})


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("observe", "changes"),
    [
        (INSTANTS, {}),
        ({**INSTANTS, "metrics": ["consensus", "error", "loss"]}, {"policy": {"buffer": 2}}),
        ({**INSTANTS, "every": "1 ms"}, {"policy": "all"}),
        ({"metrics": ["loss", "error"]}, {}),
        ({"metrics": ["error"]}, {"problem.agents": 150, "stop.rounds": 400}),
        ({"metrics": ["error", "consensus"]}, {}),
        (TARGETS, {"stop.metric": {"error": 3.0}}),
        (TARGETS, {"stop.metric": {"loss": 3.3, "error": 1e-9}}),
        ({"metrics": ["error"]}, {"stop.metric": {"error": 3.0}}),
    ],
    ids=str,
)
def test_every_engine_sees_the_same(observe, changes):
    one, *others = (observed(engine, observe, **changes) for engine in ENGINES)
    assert [differences(one, other) for other in others] == [[], []]
    assert len(one.metrics) > 3
    assert ("stop.metric" in changes) == one.manifest["reason"].startswith("stop.metric")


def instants(module, monkeypatch):
    """Errors at instants, and those of the iterates that were there at the time."""
    monkeypatch.setitem(play.ENGINES, ("coordinator", "compiled"), module.play)
    found = observed().metrics
    whole = observed(observe={"metrics": ["error"], "iterates": True})
    best = build(desim.load(PLAIN)).observation.optimum
    error = ((whole.iterates - best) ** 2).sum((1, 2)) / (best @ best)
    since = whole.metrics["time"].to_numpy()
    then = np.searchsorted(since, found["time"], side="right") - 1
    np.testing.assert_array_equal(found["time"], 0.09 * np.arange(len(found)))
    return found["round"].tolist() == then.tolist() and np.allclose(
        found["value"], error[then], rtol=1e-13, atol=0.0
    )


def test_an_instant_shows_what_was_true_then(monkeypatch):
    assert instants(star_compiled, monkeypatch)
    monkeypatch.setattr(star_compiled, "SEEN_NUMBERS", 1)
    assert instants(star_compiled, monkeypatch)


def test_models_of_the_wrong_time_are_noticed(monkeypatch):
    wrong = mutant(star_compiled, "zip(places.tolist(), watch.copies,", "zip(places.tolist(), [x],")
    assert not instants(wrong, monkeypatch)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self._held[1][moved] = news", "pass"),
        ("move(np.arange(len(x)) if moved is None else moved, x,", "move(np.arange(1), x,"),
    ],
)
def test_a_wrong_observer_is_noticed(monkeypatch, right, wrong):
    changes = {"stop.metric": {"error": 3.0}}
    true = observed(observe=TARGETS, **changes)
    broken = mutant(observer, right, wrong)
    monkeypatch.setattr(play, "RoundObserver", broken.RoundObserver)
    assert differences(observed("cohort", TARGETS, **changes), true)


def calls(monkeypatch, changes):
    """Compiled calls of an asynchronous run with some observations, and how many these are."""
    made, block = [], star_compiled.Engine.block
    with monkeypatch.context() as patch:
        patch.setattr(star_compiled, "SEEN_NUMBERS", 1)
        patch.setattr(star_compiled.Engine, "block", lambda self: made.append(1) or block(self))
        few = {"metrics": ["error"], "every": "900 ms"}
        run = observed(observe=few, **{"stop.rounds": 900, **changes})
    assert run.manifest["rounds"] == 900
    return len(made), len(run.metrics)


@pytest.mark.parametrize("changes", [{}, {"stop.metric": {"error": 1e-9}}], ids=str)
def test_calls_go_with_the_observations(monkeypatch, changes):
    made, seen = calls(monkeypatch, changes)
    assert 3 < seen < 60
    assert made <= seen + 2
    monkeypatch.setattr(star_compiled, "BLOCK_ROUNDS", 1)
    assert calls(monkeypatch, changes)[0] > seen + 2


@pytest.mark.thin(3)
@pytest.mark.parametrize("policy", ["each", "all"])
@pytest.mark.parametrize("observe", [{"metrics": []}, {"metrics": ["error"]}, INSTANTS], ids=str)
def test_what_goes_wrong_is_told_of_its_round(tmp_path, policy, observe):
    changes = {"algorithm.local.solver": "gradient", "algorithm.local.step": 1e3, "policy": policy}
    base, told, tables = {**CASES["plt-all"], "observe": observe, "stop": {"rounds": 500}}, [], []
    for engine in ("compiled", "cohort"):
        with pytest.raises(Diverged) as caught:
            desim.run(base, tmp_path / engine, overrides={**changes, "engine": engine})
        told.append(str(caught.value))
        tables.append(desim.open(tmp_path / engine))
    assert told[0] == told[1]
    assert "in round 1 " not in told[0]
    assert tables[0].events.equals(tables[1].events)
    assert tables[0].metrics.equals(tables[1].metrics)


def tallies(module):
    """Whether sums agree with NumPy's to the last bit, whoever moves."""
    generator, same = np.random.default_rng(1), True
    for agents in (1, 7, 128, 129, 1000, 4099):
        x, centre = generator.normal(size=(agents, 3)), generator.normal(size=3)
        own = module.tally_for(agents, centre)
        for who in (np.arange(agents), np.array([agents - 1, 0, agents // 2])):
            x[who] = generator.normal(size=(len(who), 3)) * 10.0 ** generator.integers(-3, 3)
            module.move(who, x, tuple(own))
            difference = x - centre
            distances = difference[:, 0] ** 2 + difference[:, 1] ** 2 + difference[:, 2] ** 2
            same &= own.sums[0] == distances.sum()
    return same


@pytest.mark.slow
def test_a_tally_is_the_sum_to_the_last_bit():
    assert tallies(tally)
    assert not tallies(mutant(tally, "while k > 0:", "while k > 2:"))


@pytest.mark.parametrize(
    ("observe", "changes", "told"),
    [
        ({"metrics": ["error", "loss"]}, {}, "loss of each of 90 rounds .* set observe.every to a"),
        ({"metrics": [], "iterates": True}, {}, "each local step; leave observe.iterates out"),
        ({"metrics": ["error"]}, {}, ""),
        ({"metrics": ["loss"], "every": "1 s"}, {}, ""),
        ({"metrics": ["loss"]}, {"policy": "all"}, ""),
        ({"metrics": ["loss"]}, {"policy": {"buffer": 100}}, ""),
    ],
    ids=str,
)
def test_observing_that_takes_longer_than_training_is_told(monkeypatch, observe, changes, told):
    scenario = desim.load({**PLAIN, "observe": observe}, {"problem.agents": 200, **changes})
    assert not any("observe" in text for text in check(scenario).method.warnings)
    monkeypatch.setattr(build_module, "HEAVY", 1000.0)
    found = [text for text in check(scenario).method.warnings if text.startswith("observe")]
    assert len(found) == bool(told)
    assert not told or re.search(told, found[0])
