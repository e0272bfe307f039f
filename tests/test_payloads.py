"""A call may bring each agent a payload of its own, on every engine and however late it is."""

from pathlib import Path

import pytest
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import clients, hub
from desim.errors import RunError

PLUGIN = Path(__file__).parent / "plugins" / "personal.py"
LINK = {"latency": {"uniform": ["2 ms", "90 ms"]}, "loss": "20 %", "timeout": "30 ms"}


def scenario(**changes):
    return {
        "seed": 3, "plugins": [str(PLUGIN)], "algorithm": {"name": "personal"},
        "problem": {
            "agents": 5, "loss": "squared",
            "data": {"source": "synthetic", "kind": "regression", "rows": 3, "dim": 2},
        },
        "network": {"link": LINK}, "compute": {"speed": {"uniform": [50, 500]}},
        "observe": {"iterates": True}, "stop": {"rounds": 4}, **changes,
    }  # fmt: skip


def check_rows():
    run = desim.run(scenario(engine="cohort"))
    assert run.state["x"].tolist() == [[i + 4.0] * 2 for i in range(5)]
    sent = run.events[run.events["kind"] == "send"]
    assert set(sent["bytes"]) == {16}


def test_each_agent_gets_its_row(monkeypatch):
    check_rows()
    wrong = mutant(clients, "else payload[order]", "else payload")
    monkeypatch.setattr(hub, "ascending", wrong.ascending)
    with pytest.raises(AssertionError):
        check_rows()


@pytest.mark.parametrize("policy", ["all", {"deadline": "120 ms"}, {"buffer": 2}])
def test_engines_give_the_same_bits(policy):
    runs = [desim.run(scenario(policy=policy, engine=one)) for one in ("cohort", "agents")]
    assert differences(*runs) == []


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_too_few_rows_are_told(engine):
    with pytest.raises(RunError, match=r"payload: found an array of float64, shape \(4, 2\); al"):
        desim.run(scenario(engine=engine, algorithm={"name": "personal", "wrong": True}))
