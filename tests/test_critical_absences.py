"""The critical path of a run whose agents leave and forget reaches back to its beginning."""

import pytest
from mutant import mutant

import desim
from desim.runs.reading import critical

SCENARIO = {
    "problem": {
        "agents": 8,
        "data": {"source": "synthetic", "kind": "classification", "rows": 9, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 1.0},
    },
    "algorithm": {
        "name": "q-dpsgd-1",
        "alpha": 0.5,
        "mixing": 0.5,
        "bits": 4,
        "resolution": 0.05,
        "deadline": "10 ms",
        "least": 2,
    },
    "network": {
        "topology": "ring",
        "link": {"latency": "10 ms", "bandwidth": "200 kbit/s", "jitter": {"lognormal": 0.9}},
    },
    "compute": {"speed": {"uniform": [20, 600]}, "redraw": "round"},
    "observe": {"metrics": []},
    "stop": {"rounds": 20},
    "churn": {
        "up": {"exponential": "300 ms"},
        "down": {"exponential": "60 ms"},
        "memory": "lost",
        "messages": "queued",
    },
}


def check_paths(module, runs):
    """From 0 s to the last wait that closes, without a gap."""
    for run in runs:
        path = module.critical_path(run.events)
        closed = run.events.loc[run.events["kind"] == "aggregate", "time"].max()
        assert path["begin"].iloc[0] == 0.0
        assert path["end"].iloc[-1] == closed
        assert (path["begin"].to_numpy()[1:] == path["end"].to_numpy()[:-1]).all()


@pytest.fixture(scope="module")
def runs():
    """Several of them: an agent that comes back is not on every path."""
    return [desim.run(SCENARIO | {"seed": seed}) for seed in range(6)]


def test_a_path_begins_at_the_beginning(runs):
    assert any((run.critical_path()["what"] == "away").any() for run in runs)
    check_paths(critical, runs)


def test_a_path_that_ends_at_a_return_is_noticed(runs):
    wrong = mutant(critical, '"compute", "aggregate", "up"', '"compute", "aggregate"')
    with pytest.raises(AssertionError):
        check_paths(wrong, runs)
