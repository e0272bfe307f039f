"""Messages for agents that are down: they wait, or are lost as on a link."""

import numpy as np
import pytest
from cases import graph, merged, star
from laws import check_log
from mutant import mutant

import desim
from desim.errors import InputError
from desim.network.timeline.computations import is_up
from desim.scenario import conditions
from desim.scenario.build import build

CHURN = {"up": {"exponential": "300 ms"}, "down": {"exponential": "120 ms"}, "messages": "lost"}
PATIENT = {"network": {"link": {"timeout": "30 ms", "limit": 100}}}
DSGD = {"name": "dsgd", "alpha": 0.05}


def missed(run):
    """Whether each arrival at an agent was lost, and whether the agent was down then, (2, n)."""
    calendar = build(run.scenario).settings.churn.calendar
    rows = run.events[run.events.kind.isin(["lost", "deliver"]) & (run.events.agent >= 0)]
    down = [not is_up(calendar, i, t)[0] for i, t in zip(rows.agent, rows.time, strict=True)]
    return np.array([rows.kind == "lost", down])


@pytest.mark.parametrize("make", [star, graph])
def test_what_comes_while_an_agent_is_down_is_lost_and_nothing_else(make):
    run = desim.run({**make(**PATIENT), "churn": CHURN})
    lost, down = missed(run)
    assert np.array_equal(lost, down)
    assert lost.sum() > 5
    check_log(run)
    queued = desim.run({**make(**PATIENT), "churn": {**CHURN, "messages": "queued"}})
    lost, down = missed(queued)
    assert down.any()
    assert not lost.any()


@pytest.mark.parametrize("make", [star, graph])
def test_lost_messages_are_sent_again_and_leave_the_iterates(make):
    calm, run = desim.run(make()), desim.run({**make(**PATIENT), "churn": CHURN})
    assert run.iterates.tobytes() == calm.iterates.tobytes()
    sent = run.events[run.events.kind == "send"]
    again = sent[sent.value > 0]
    assert len(again) == (run.events.kind == "lost").sum()


def test_links_lose_besides_what_nobody_takes():
    made = {**star(**merged(PATIENT, {"network": {"link": {"loss": "10 %"}}})), "churn": CHURN}
    lost, down = missed(desim.run(made))
    assert lost[down].all()
    assert 0.03 < lost[~down].mean() < 0.2


def test_with_drop_a_deadline_goes_on_without_them():
    made = star(policy={"deadline": "200 ms"}, stop={"rounds": 20})
    made["network"] = {"link": {**made["network"]["link"], "on_loss": "drop"}}
    run = desim.run({**made, "churn": CHURN})
    assert run.status == "done"
    assert (run.events.kind == "lost").any()
    peers = graph(stop={"rounds": 20}, policy={"deadline": "60 ms", "late": "carry"})
    peers["algorithm"], peers["privacy"] = DSGD, {"relation": "replace-one"}
    peers["network"] = {**made["network"], "topology": "ring"}
    for memory in ("kept", "lost"):
        told = desim.run({**peers, "churn": {**CHURN, "memory": memory}})
        assert told.status == "done"
        assert np.array_equal(*missed(told))


def test_messages_that_reach_whoever_is_away_are_noticed(monkeypatch):
    broken = mutant(conditions, 'said.messages == "queued"', "True")
    monkeypatch.setattr("desim.scenario.build.Conditions", broken.Conditions)
    lost, down = missed(desim.run({**star(**PATIENT), "churn": CHURN}))
    assert not np.array_equal(lost, down)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"network": {"link": {"on_loss": "drop"}}}, "found drop, but with policy all"),
        ({"network": {"contention": "fifo"}}, "found lost with contention fifo"),
        ({"churn": {**CHURN, "messages": "kept"}}, "allowed: queued, lost"),
    ],
)
def test_what_does_not_fit_is_refused(change, told):
    with pytest.raises(InputError, match=told):
        desim.load({**merged(star(), {}), "churn": CHURN, **change})
