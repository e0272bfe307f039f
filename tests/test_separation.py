"""Agents contribute no oftener than every so many rounds: whom that leaves, and the log of it."""

import sys

import numpy as np
import pytest
from mutant import mutant
from test_checkpoints import goes_on, left
from test_engines import differences
from test_invitations import AGENTS, CHURN, LOSSY, log_of, lots, scenario
from test_resume import unlike

import desim
from desim.engine import inviting, world
from desim.errors import InputError, RunError
from desim.runs.reading.traffic import participation

UNIFORM = {"uniform": 2, "separation": 4}
LOSSY_WORLD = {"network": {"link": LOSSY["link"]}, "stop": {"time": "2 s", "rounds": 30}}
CARRIED = {**LOSSY_WORLD, "policy": {"deadline": "70 ms", "late": "carry"}}


def gaps(run):
    """Rounds between two contributions of each agent, from the events alone, one by one."""
    waiting, latest, found = {}, {}, {i: [] for i in range(AGENTS)}
    for event in run.events.itertuples():
        if event.kind == "deliver" and event.agent == -1:
            waiting[event.peer] = event.round
        elif event.kind == "aggregate" and event.agent == -1:
            for agent in [*waiting]:
                called = waiting.pop(agent)
                if called == event.round or run.scenario.policy.late == "carry":
                    found[agent].append(event.round - latest.get(agent, -np.inf))
                    latest[agent] = event.round
    return found


def test_a_uniform_cohort_is_of_those_that_rested():
    """The least of lots, of agents invited in none of the latest three rounds."""
    run, invited = desim.run(scenario(UNIFORM)), []
    for k, entry in enumerate(log_of(run), 1):
        free = [i for i in range(AGENTS) if all(i not in one for one in invited[-3:])]
        expected = sorted(free, key=lambda i, k=k: lots(k, 0)[i])[:2]
        assert set(entry["sent"]) == set(expected)
        invited.append(set(expected))
    assert k == 14


CASES = {
    "all": (UNIFORM, LOSSY_WORLD),
    "a deadline": (UNIFORM, {**LOSSY_WORLD, "policy": {"deadline": "70 ms"}}),
    "late ones": (UNIFORM, CARRIED),
    "a buffer": ({"uniform": 3, "separation": 3}, {**LOSSY_WORLD, "policy": {"buffer": 2}}),
    "each": ({"choose": "oldest", "invite": 2, "separation": 3}, {**LOSSY_WORLD, "policy": "each"}),
    "churn": (
        {"choose": "available", "invite": 2, "separation": 3}, {**LOSSY_WORLD, "churn": CHURN}
    ),
    "losses": ({"choose": "oort", "invite": 2, "separation": 4}, LOSSY_WORLD),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_gap_is_smaller_and_engines_agree(name):
    choice, changes = CASES[name]
    first, second = (desim.run(scenario(choice, engine=one, **changes)) for one in
                     ("cohort", "agents"))  # fmt: skip
    assert differences(first, second, ("status", "reason", "time", "rounds")) == []
    found, table = gaps(first), first.participation()
    assert table["agent"].tolist() == list(range(AGENTS))
    assert table["contributions"].tolist() == [len(one) for one in found.values()]
    least = [min(one[1:], default=np.nan) for one in found.values()]
    assert np.array_equal(table["gap"], least, equal_nan=True)
    assert np.nanmin(least) == choice["separation"]


def test_the_log_shows_what_was_not_enforced():
    """Without a separation there are smaller gaps."""
    assert desim.run(scenario({"uniform": 2})).participation()["gap"].min() < 4


def test_a_late_reply_counts_in_the_round_that_takes_it(monkeypatch):
    """A twin that counts invitations alone lets agents contribute too soon."""
    twin = mutant(inviting, "self.seen.heard[who] = self.latest[who] =", "self.seen.heard[who] =")
    monkeypatch.setitem(sys.modules, "desim.engine.inviting", twin)
    assert desim.run(scenario(UNIFORM, **CARRIED)).participation()["gap"].min() < 4


def often(monkeypatch):
    """A checkpoint after every round."""
    for name in ("FLUSH_SECONDS", "REPORT_SECONDS", "REST"):
        monkeypatch.setattr(world, name, 0.0)


def test_a_killed_run_remembers_who_rests(tmp_path, monkeypatch):
    one = scenario(UNIFORM, stop={"rounds": 20})
    often(monkeypatch)
    shown, whole, computed = goes_on(one, tmp_path / "a", after=9)
    assert computed <= whole - shown + 1
    left(one, tmp_path / "b", after=9)
    twin = mutant(inviting, 'recall(self, tree, "latest")', "pass")
    monkeypatch.setitem(sys.modules, "desim.engine.inviting", twin)
    with pytest.raises((AssertionError, RunError)):
        assert unlike(desim.run(one), desim.resume(tmp_path / "b")) == []


def test_a_table_of_nobody():
    """Who never contributes, or once, has no gap."""
    used = desim.run(scenario({"schedule": [[0, 1], [1, 2]]}, stop={"rounds": 2})).staleness()
    table = participation(used, 4)
    assert table["contributions"].tolist() == [1, 2, 1, 0]
    assert np.array_equal(table["gap"], [np.nan, 1.0, np.nan, np.nan], equal_nan=True)


REFUSED = {
    "more than there are": (
        {"uniform": 2, "separation": 5},
        "participation.separation: found 5 with 2 of 9 agents a round, of which none is left after "
        "5 rounds; allowed: 1 to 4",
    ),
    "of a choice": (
        {"choose": "oldest", "invite": 4, "separation": 3}, "found 3 with 4 of 9 agents a round",
    ),
    "a draw of its own": ({"bernoulli": 0.5, "separation": 3}, "found separation; allowed: with"),
    "a schedule": ({"schedule": [[0]], "separation": 3}, "found separation; allowed: with uniform"),
    "alone": ({"separation": 3}, "separation"),
    "no time": ({"uniform": 2, "separation": 0}, "separation: found 0"),
    "tiers": (
        {"choose": "tiers", "invite": 2, "tiers": 3, "separation": 2},
        "found separation with choose: tiers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    choice, text = REFUSED[name]
    with pytest.raises(InputError) as error:
        desim.load(scenario(choice))
    assert text in str(error.value)
