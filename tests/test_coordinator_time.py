"""compute.coordinator: replies are taken in one after the other before the next round begins."""

import numpy as np
import pytest
from cases import graph, star
from laws import check_log
from test_engines import differences

import desim
from desim.errors import InputError
from desim.runs.reading.facts import facts

EVEN = {"network": {"link": {"latency": "10 ms", "bandwidth": "inf", "jitter": "none"}}}
STEADY = {"speed": "inf", "slow": {"fraction": 0}}
POLICIES = [
    "all", "each", {"buffer": 2}, {"quorum": 4, "late": "carry"}, {"quorum": 4, "late": "discard"},
    {"deadline": "120 ms", "late": "carry"}, {"deadline": "120 ms", "late": "discard"},
]  # fmt: skip


def worked(run):
    """Rows of the coordinator's work."""
    return run.events[(run.events.kind == "compute") & (run.events.agent == -1)]


def plays(scenario, engines=("agents", "cohort", "compiled")):
    return [desim.run(scenario, overrides={"engine": one}) for one in engines]


def batches(due, again, reply, rounds):
    """When collections of one reply or more end that take `reply` s each; a plain recursion.

    due: when s the first replies arrive; again: s from a call to the reply's arrival.
    """
    due, now, ends = list(due), 0.0, []
    for _ in range(rounds):
        close = max(now, min(due))
        here = [i for i, time in enumerate(due) if time <= close]
        now = close
        for _ in here:
            now += reply
        for i in here:
            due[i] = now + again
        ends.append((close, now, len(here)))
    return ends


def test_a_barrier_waits_for_the_work():
    coordinator = {"reply": "3 ms", "number": "1 ms"}
    run = desim.run(star(**EVEN, compute={**STEADY, "coordinator": coordinator}))
    rows, dim = worked(run), 5
    assert len(rows) == 12
    np.testing.assert_allclose(rows.seconds, 6 * (0.003 + dim * 0.001), rtol=1e-12)
    assert set(rows.value) == {6.0}
    np.testing.assert_allclose(rows.time, np.arange(1, 13) * (0.02 + 0.048), rtol=1e-12)
    shown = run.metrics[(run.metrics.metric == "loss") & (run.metrics.agent == -1)]
    assert shown.time.to_list()[1:] == rows.time.to_list()


@pytest.mark.parametrize(("twin", "same"), [(0.03, True), (0.029, False)])
def test_a_busy_coordinator_is_a_queue(twin, same):
    reply = {"coordinator": {"reply": "30 ms"}}
    scenario = star(**EVEN, policy="each", compute={**STEADY, **reply}, stop={"rounds": 40})
    run = desim.run(scenario)
    rows = worked(run)
    expected = batches([0.02] * 6, 0.02, twin, 40)
    found = np.column_stack([rows.time - rows.seconds, rows.time, rows.value])
    assert np.allclose(found, expected, rtol=1e-9, atol=0.0) == same
    assert rows.value.sum() / rows.time.iloc[-1] <= 1.0 / 0.03  # replies in a second


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("reply", ["20 ms", {"exponential": "20 ms"}], ids=["constant", "drawn"])
def test_the_engines_agree(policy, reply):
    coordinator = {"reply": reply, "number": "100 us"}
    first, *others = plays(star(policy=policy, compute={"coordinator": coordinator}))
    assert len(worked(first))
    check_log(first)
    for other in others:
        assert differences(first, other) == []


@pytest.mark.parametrize("policy", ["all", "each", {"deadline": "120 ms", "late": "discard"}])
def test_time_may_end_in_the_middle_of_the_work(policy):
    made = star(policy=policy, compute={"coordinator": {"reply": "20 ms"}})
    row = worked(desim.run(made)).iloc[3]
    stop = {"time": float(row.time - 0.5 * row.seconds)}
    first, *others = plays({**made, "stop": stop})
    assert len(worked(first)) == 3
    assert first.manifest["rounds"] == 3
    assert (first.events.kind == "aggregate").sum() == 4
    for other in others:
        assert differences(first, other) == []


def test_it_changes_clocks_of_barriers_and_not_models():
    made = star()
    plain, slow = desim.run(made), desim.run(star(compute={"coordinator": {"reply": "9 ms"}}))
    assert plain.iterates.tobytes() == slow.iterates.tobytes()
    assert not len(worked(plain))
    compute = {**made["compute"], "coordinator": {"reply": "9 ms"}}
    assert differences(desim.retime(plain, compute=compute), slow) == []


def test_the_coordinator_is_no_agent_that_computes():
    run = desim.run(star(compute={"coordinator": {"reply": "9 ms"}}))
    assert run.utilisation().agent.to_list() == list(range(6))
    assert "computing" in dict(facts(run))
    path = run.critical_path()
    own = path[(path.what == "compute") & (path.source == -1)]
    assert len(own)
    assert np.allclose(path.begin.to_numpy()[1:], path.end.to_numpy()[:-1])


@pytest.mark.parametrize(
    ("make", "coordinator", "words"),
    [
        (graph, {"reply": "1 ms"}, "no coordinator"),
        (star, {"reply": "0 s"}, "nothing that takes time"),
        (star, {"number": {"exponential": "1 us"}}, "number: found a distribution"),
        (star, {"reply": "-1 ms"}, "coordinator.reply"),
    ],
)
def test_what_cannot_be_is_refused(make, coordinator, words):
    with pytest.raises(InputError, match=words):
        desim.load(make(compute={"coordinator": coordinator}))
