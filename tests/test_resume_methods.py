"""Every method, and every way to wait, end or fail, goes on after a kill to the same log."""

import pytest
from cases import CASES, LOSSY, graph, star
from test_resume import killed, unlike

import desim

METHODS = {case["algorithm"]["name"]: case for case in CASES.values()}
CHURN = {"up": {"exponential": "300 ms"}, "down": {"exponential": "200 ms"}}
BUDGET = {"noise": {"kind": "gaussian", "sigma": 0.5}, "budget": 6.0}
CONDITIONS = {
    "churn": {**star(), "churn": CHURN},
    "churn on a graph": {**graph(), "churn": CHURN},
    "each reply": star(policy="each", stop={"rounds": 60}),
    "each neighbour": graph(policy="each", network={"topology": "ring", **LOSSY}),
    "late replies": star(policy={"deadline": "80 ms", "late": "carry"}, network=LOSSY),
    "a target on a graph": graph(stop={"rounds": 60, "metric": {"consensus": 0.2}}),
    "a budget": graph(privacy=BUDGET),
    "a budget that stops all": graph(privacy={**BUDGET, "on_exhausted": "stop"}),
    "instants": star(observe={"metrics": ["error"], "every": "30 ms"}),
    "a time": graph(stop={"time": "400 ms"}),
}


@pytest.mark.parametrize(
    "name", [*CONDITIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS)]
)
def test_goes_on_after_a_kill(name, tmp_path, monkeypatch):
    scenario = {"name": "case", **{**METHODS, **CONDITIONS}[name]}
    killed(scenario, tmp_path / "a", monkeypatch, 2, rows=20)
    went_on = desim.resume(tmp_path / "a")
    assert unlike(desim.run(scenario), went_on) == []


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("ipp-admm")])
def test_flushes_change_no_release(name, engine, monkeypatch):
    """The answer of a sparse vector waits for the message that may carry it a computation later."""
    scenario = {"name": "case", **CASES[name], "engine": engine}
    whole = desim.run(scenario)
    monkeypatch.setattr("desim.engine.world.FLUSH_SECONDS", -1.0)
    assert unlike(whole, desim.run(scenario)) == []


def test_an_answer_that_does_not_wait_is_noticed(monkeypatch):
    monkeypatch.setattr(
        "desim.privacy.ledger.ledger.Ledger.settled", lambda ledger, frontier: frontier
    )
    with pytest.raises(RuntimeError, match="a release must be sent before its agent yields again"):
        test_flushes_change_no_release("ipp-admm", "cohort", monkeypatch)
