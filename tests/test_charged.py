"""What is charged is what was drawn and said: of late replies, of some agents, of chosen ones."""

from pathlib import Path

import numpy as np
import pytest
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import arguments
from desim.engine import us as us_module
from desim.engine.clients import Assignment, Assignments, Clients
from desim.errors import RunError
from desim.privacy.ledger import exposure
from desim.privacy.ledger.ledger import Ledger, Mechanism, Terms, View, plain

PLUGIN = Path(__file__).resolve().parent / "plugins" / "charges.py"
RING = {"edges": [[i, (i + 1) % 6] for i in range(6)], "directed": True}


def scenario(name, how, **changes):
    """Six agents of unequal speeds."""
    link = {"latency": {"uniform": ["2 ms", "90 ms"]}}
    network = {"topology": {"edges": RING["edges"]}} if name == "wrong" else {}
    return {
        "seed": 3, "plugins": [str(PLUGIN)],
        "problem": {
            "agents": 6, "loss": "logistic",
            "data": {"source": "synthetic", "kind": "classification", "rows": 4, "dim": 3},
        },
        "algorithm": {"name": name, "how": how}, "network": {**network, "link": link},
        "compute": {"speed": {"uniform": [20, 500]}}, "stop": {"rounds": 8}, **changes,
    }  # fmt: skip


def played(name, how, **changes):
    """The run on both engines, which are equal."""
    runs = [desim.run(scenario(name, how, engine=one, **changes)) for one in ("agents", "cohort")]
    assert differences(*runs) == []
    return runs[0]


def odd_scales(monkeypatch, how, **changes):
    """Replies whose noise has another scale than the ledger says, of all that were collected."""
    drawn, noised = {}, Clients.noised

    def noted(us, value):
        scales = us._terms.scale[us.who]
        drawn.update(zip(zip(us.who.tolist(), us.round.tolist(), strict=True), scales, strict=True))
        return noised(us, value)

    monkeypatch.setattr(Clients, "noised", noted)
    table = played("falling", how, **changes).releases
    rows = table[["agent", "round", "scale"]].itertuples(index=False)
    ledger = {(agent, k): scale for agent, k, scale in rows}
    assert len(drawn) >= 8
    return [one for one in drawn if drawn[one] != ledger[one]]


@pytest.mark.thin(3)
@pytest.mark.parametrize("policy", ["each", {"buffer": 2}, {"quorum": 3, "late": "carry"}])
@pytest.mark.parametrize("how", ["plain", "two"])
def test_a_late_reply_has_the_noise_that_its_call_was_charged_for(monkeypatch, policy, how):
    assert odd_scales(monkeypatch, how, policy=policy) == []


@pytest.mark.parametrize(("name", "policy"), [("one", "each"), ("groups", {"buffer": 3})])
def test_noise_of_the_latest_call_would_be_noticed(name, policy, monkeypatch):
    def latest(self, who):
        yield self._of(self.number), np.arange(len(who))

    twins = {"groups": latest, "one": lambda self, who: self._of(self.number)}
    monkeypatch.setattr(Assignments, name, twins[name])
    assert odd_scales(monkeypatch, "plain", policy=policy) != []


def test_each_agent_gets_its_own_row_whatever_the_order_of_the_call():
    run = played("falling", "backwards", stop={"rounds": 2})
    assert run.state["x"][:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("busy", "which owes a reply; allowed: agents that owe none"),
        ("wider", "found 2 numbers while agents owe replies to 1"),
    ],
)
def test_agents_that_owe_a_reply_are_not_called_again(how, words):
    for engine in ("agents", "cohort"):
        with pytest.raises(RunError, match=words):
            desim.run(scenario("falling", how, engine=engine, policy={"buffer": 2}))


def restarted(**more):
    """How often each agent has begun, as it remembers after its losses."""
    churn = {"up": {"exponential": "0.2 s"}, "down": {"exponential": "50 ms"}, "memory": "lost"}
    run = desim.run(scenario("wrong", "counts", churn=churn, stop={"rounds": 20}, **more))
    assert (run.events["kind"] == "up").any()
    return run.state["begun"].max()


def test_what_a_crash_takes_is_all_of_the_state(monkeypatch):
    assert restarted() == 1.0
    monkeypatch.setattr(
        us_module.Cohort, "begin_anew", lambda us, past: us._set(_past=past, turn=past + 1)
    )
    assert restarted() > 1.0


def test_two_trainings_of_a_round_have_keys_of_their_own(monkeypatch):
    terms = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, *np.ones((3, 2)))
    ledger = Ledger(5, 2)
    keys = {int(ledger.noise_key(terms, number)) for number in range(300)}
    assert len(keys) == 300
    assert int(ledger.noise_key(terms)) == int(ledger.seed)
    assert played("wrong", "trained").status == "done"
    monkeypatch.setattr(Ledger, "noise_key", lambda self, terms, number=0: self.seed)
    with pytest.raises(RunError, match="two trainings have one key"):
        played("wrong", "trained")


class Jobs:
    """Two jobs of one method."""

    def first(self, us, x):
        """One."""

    def second(self, us, x):
        """The other."""


def recalled(newest):
    """What was asked of agent 1 before a run was stopped, once `newest` is asked of agent 0."""
    terms, jobs, owing = plain(3, View.COORDINATOR), Jobs(), np.array([1])
    before, after = Assignments(3), Assignments(3)
    before.note(owing, Assignment(jobs.first, terms, 0), np.zeros(3, np.int64))
    after.recall(owing, {name: np.array(one) for name, one in before.remembered(owing).items()})
    after.note(np.array([0]), Assignment(newest, terms, 0), np.array([0, 1, 0]))
    ((given, _),) = after.groups(owing)
    return given.job


def test_a_late_reply_has_its_own_job_after_a_resume(monkeypatch):
    assert recalled(Jobs().second).__name__ == "first"
    with pytest.raises(RunError, match="found replies to a job first of before the run was stop"):
        recalled(print)
    monkeypatch.setattr("desim.engine.clients.job_name", lambda job: "")
    assert recalled(Jobs().second).__name__ == "second"


def bare(how):
    """(agent, round) of what was charged without bound."""
    table = played("wrong", how).releases
    rows = table[(table["scale"] == 0.0) & np.isinf(table["sensitivity"])]
    return {(agent, k) for agent, k in rows[["agent", "round"]].itertuples(index=False)}


def test_who_did_not_release_is_charged_for_what_it_says():
    """Odd agents have no work and nothing to say in even rounds."""
    assert bare("partial") == {(i, k) for i in (1, 3, 5) for k in (1, 3, 5, 7)}
    assert bare("silent") == {(i, k) for i in (1, 3, 5) for k in (2, 3, 5, 7)}


def test_a_release_of_some_does_not_cover_all(monkeypatch):
    monkeypatch.setattr(exposure, "difference", lambda agents, mask: False)
    assert bare("partial") == set()


def test_who_is_left_of_some_agents():
    some = np.array([True, False])
    assert exposure.difference(True, some).tolist() == [False, True]
    assert exposure.difference(some, some) is False
    assert exposure.union(some, ~some).all()


def test_a_choice_that_may_come_from_data_is_charged():
    kinds = played("wrong", "raw").releases["mechanism"].value_counts()
    assert kinds["sparse-vector"] == 6 * 8


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("twice", "us.send: found a second us.send before us.gather"),
        ("deaf", "us.gather: found no us.send before it"),
    ],
)
def test_a_message_and_a_wait_take_turns(how, words):
    for engine in ("agents", "cohort"):
        with pytest.raises(RunError, match=words):
            desim.run(scenario("wrong", how, engine=engine))


def test_two_messages_at_once_would_be_played(monkeypatch):
    careless = mutant(arguments, "if sends is us._sent:", "if False:")
    monkeypatch.setattr(arguments, "demand_turn", careless.demand_turn)
    assert desim.run(scenario("wrong", "twice", engine="cohort")).status == "done"


def test_who_loses_its_memory_says_one_thing_a_round():
    churn = {"up": {"exponential": "1 s"}, "down": {"exponential": "0.2 s"}, "memory": "lost"}
    with pytest.raises(RunError, match=r"found message 2 of agent \d in round 1"):
        desim.run(scenario("wrong", "again", churn=churn))


def test_replies_that_are_discarded_are_forgotten():
    some = {"participation": {"bernoulli": 0.6}, "stop": {"rounds": 60}}
    assert played("falling", "plain", policy={"quorum": 2}, **some).status == "done"


def test_noise_ahead_of_some_agents_is_the_same_noise_on_both_engines():
    assert played("wrong", "ahead").status == "done"


def test_noise_ahead_of_some_agents_that_only_they_know_of_is_noticed(monkeypatch):
    wrong = mutant(exposure, "        if self._ahead:", "        if self._covered is not False:")
    monkeypatch.setattr(us_module, "Exposure", wrong.Exposure)
    with pytest.raises(AssertionError):
        played("wrong", "ahead")
