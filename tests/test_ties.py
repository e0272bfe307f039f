"""A tie is no slowest agent: what the summary says of agents that are all alike."""

import pytest
from mutant import mutant

import desim
from desim.runs.reading import facts

STAR = {
    "problem": {
        "agents": 4,
        "data": {"source": "synthetic", "kind": "regression", "rows": 6, "dim": 2},
        "loss": "squared",
        "regularizer": {"l2": 0.1},
    },
    "algorithm": {"name": "fedavg", "local": {"epochs": 2, "step": 0.01}},
    "network": {"link": {"latency": "5 ms", "bandwidth": "1 Mbit/s"}},
    "compute": {"speed": "1000 /s"},
    "stop": {"rounds": 3},
}
GRAPH = {"algorithm": {"name": "dsgd", "alpha": 0.1}, "network.topology": "ring"}
SLOW = {"compute.slow": {"fraction": "25 %", "factor": 2}}
ALIKE = "none: all agents alike"


def told(**overrides):
    run = desim.run(STAR, overrides=overrides)
    return run, dict(facts.facts(run))


@pytest.mark.parametrize("kind", [{}, GRAPH], ids=["star", "ring"])
def test_only_one_that_is_slower_is_named(kind):
    _, alike = told(**kind)
    assert alike["slowest"] == ALIKE
    assert alike["computing"].endswith("% of the time, all agents alike")
    assert "longest" not in alike
    _, one = told(**kind, **SLOW)
    assert "last in" in one["slowest"]
    assert " least, " in one["computing"]


def test_one_agent_is_alone_and_a_deadline_is_told():
    assert told(**{"problem.agents": 1})[1]["slowest"] == "agent 0, last in 100% of rounds"
    assert "deadline" in told(policy={"deadline": "1 ms"})[1]["waiting"]


def check_alike(module):
    for overrides, alike in (({}, True), (SLOW, False), ({"problem.agents": 1}, False)):
        run = told(**overrides)[0]
        seen = module.Glance(run.store.pieces("events", module.GLANCED))
        assert seen.alike == alike


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("closed < self._arrived", "closed <= self._arrived"),
        ("== self._last[self.hub]", ">= self._last[self.hub]"),
        ("(to < 0) == centre).sum()", "(to < 0) == centre).size"),
    ],
)
def test_a_wrong_tie_is_noticed(right, wrong):
    check_alike(facts)
    with pytest.raises(AssertionError):
        check_alike(mutant(facts, right, wrong))
