"""I1: the same bits in states, log, metrics and releases, whatever the engine, batch or threads."""

from dataclasses import replace

import numpy as np
import pytest
from cases import CASES, GRAPH, STAR, one_each
from laws import check_log
from mutant import mutant

import desim
from desim.engine import play
from desim.engine.cohort import graph as graph_cohort
from desim.engine.cohort import star as star_cohort
from desim.log.parquet import Tables
from desim.numerics import jit
from desim.scenario import registry
from desim.scenario.build import build

TABLES = ("events", "metrics", "releases")


def bits(array):
    """The bits of an array; None of none."""
    return None if array is None else np.asarray(array).tobytes()


def differences(one, other, keys=("status", "reason", "time", "rounds")):
    """What differs between two runs, to the last bit."""
    found = [key for key in keys if one.manifest[key] != other.manifest[key]]
    for name in TABLES:
        a, b = getattr(one, name), getattr(other, name)
        if not a.equals(b) or bits(a.select_dtypes(float)) != bits(b.select_dtypes(float)):
            found.append(name)
    for name in {*one.state, *other.state}:
        if bits(one.state.get(name)) != bits(other.state.get(name)):
            found.append(name)
    arrays = ("iterates", "model")
    return found + [n for n in arrays if bits(getattr(one, n)) != bits(getattr(other, n))]


def run(name, **overrides):
    return desim.run(CASES[name], overrides=overrides)


@pytest.mark.parametrize("name", one_each(CASES))
def test_the_engines_agree_to_the_last_bit(name):
    cohort, agents = run(name, engine="cohort"), run(name, engine="agents")
    assert (cohort.manifest["engine"], agents.manifest["engine"]) == ("cohort", "agents")
    assert len(cohort.events) > 20
    assert differences(cohort, agents) == []
    check_log(cohort)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("nfl", '"clock"], request.seconds', '"clock"], 1.0000001 * request.seconds'),
        ("nfl", "self.sent = payload.copy()", "self.sent = 0.0 * payload"),
        ("nfl-time", "us.clock <= end) &", "us.clock <= 1.2 * end) &"),
    ],
)
def test_a_wrong_cohort_engine_is_noticed(monkeypatch, name, right, wrong):
    broken = mutant(graph_cohort, right, wrong)
    agents = run(name, engine="agents")
    monkeypatch.setitem(play.ENGINES, ("graph", "cohort"), broken.play)
    assert differences(run(name, engine="cohort"), agents)


def test_a_wrong_collection_is_noticed(monkeypatch):
    broken = mutant(star_cohort, "arrived = due <= close", "arrived = due < close")
    agents = run("plt-quorum", engine="agents")
    monkeypatch.setitem(play.ENGINES, ("coordinator", "cohort"), broken.play)
    assert differences(run("plt-quorum", engine="cohort"), agents)


def test_a_lost_reply_that_is_waited_for_is_noticed(monkeypatch):
    broken = mutant(star_cohort, "hub.calls.pending[pending[gone]] = 0", "late = 0")
    agents = run("plt-lossy-carry", engine="agents")
    monkeypatch.setitem(play.ENGINES, ("coordinator", "cohort"), broken.play)
    assert differences(run("plt-lossy-carry", engine="cohort"), agents)


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize(
    "name",
    ["plt-noisy", "plt-buffer", "fedlin-quorum", "led", "nfl", "qsgd", "dp-admm-noise", "gd"],
)
def test_the_size_of_a_batch_changes_no_bit(name, engine):
    simulation = build(desim.load(CASES[name], {"engine": engine}))
    kept = []
    for limit in (1, 2, 1 << 30):
        tables = Tables()
        settings = replace(simulation.settings, batch_limit=limit)
        outcome = replace(simulation, settings=settings).play(tables)
        kept.append((outcome, tables.read("events"), tables.read("metrics")))
    for outcome, events, metrics in kept[1:]:
        assert events.equals(kept[0][1])
        assert metrics.equals(kept[0][2])
        for name_, array in kept[0][0].state.items():
            assert array.tobytes() == outcome.state[name_].tobytes()


@pytest.mark.parametrize("name", ["plt-noisy", "nfl", "d-zoa-noise"])
@pytest.mark.slow
def test_threads_change_no_bit(monkeypatch, name):
    monkeypatch.setattr(jit, "PARALLEL_WORK", 0)
    runs = []
    for threads in (1, 2):
        monkeypatch.setenv("DESIM_THREADS", str(threads))
        runs.append(run(name))
    assert differences(*runs) == []


def test_every_algorithm_is_in_the_cases():
    used = {scenario["algorithm"]["name"] for scenario in CASES.values()}
    assert used >= set(registry.OWN)
    assert len(GRAPH) > 10
    assert len(STAR) > 20
