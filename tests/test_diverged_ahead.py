"""A model that is not finite ends compiled rounds as it ends others, though the clock is ahead."""

import pytest
from cases import CASES

from desim.log.parquet import Tables
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
