"""Amplification of sums: by which runs it is claimed, and what it would cost to claim more.

Wrong twins: conditions left out under which what others add follows from who was invited.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from mutant import mutant
from scipy.optimize import brentq
from scipy.stats import norm
from test_trust import Z, scenario, terms
from test_trust_accounts import spent, trust

import desim
from desim.columns import columns_of
from desim.engine.trusted import Quantile, Trusted
from desim.errors import InputError
from desim.methods.fedavg import FedAvg
from desim.privacy.accounting import accountants
from desim.privacy.ledger.mechanisms import CLIPS, Mechanism
from desim.runs.privacy import foreseen
from desim.scenario import trusting
from desim.scenario.build import build
from desim.scenario.load import load

EACH, SOME = {"bernoulli": 0.5}, {"uniform": 2}
LONG = {"deadline": "30 s", "late": "discard"}
DEADLINE = {"deadline": "30 ms", "late": "discard"}
CHURN = {"up": "400 ms", "down": "30 ms"}
BOTH = ("poisson-sum", "subset-sum")
CLAIMED = [
    ({}, BOTH),
    ({"policy": DEADLINE}, BOTH),
    ({"policy": DEADLINE, "network": {"uplink": {"loss": 0.1, "on_loss": "drop"}}}, BOTH),
    ({"churn": CHURN}, BOTH),
    ({"churn": {**CHURN, "memory": "lost"}}, BOTH),
    ({"algorithm": {"name": "scaffold"}}, ("poisson-sum", "sum")),
    ({"algorithm": {"name": "feddyn"}, "churn": CHURN}, ("poisson-sum", "sum")),
    ({"algorithm": {"name": "feddyn"}, "churn": {**CHURN, "memory": "lost"}}, ("sum", "sum")),
    ({"codec": {"downlink": "float32"}}, BOTH),
    ({"policy": {**DEADLINE, "at_least": 1}}, ("sum", "sum")),
    ({"policy": {**DEADLINE, "late": "carry"}}, ("sum", "sum")),
    ({"policy": DEADLINE, "network": {"contention": "fifo"}}, ("sum", "sum")),
    ({"policy": DEADLINE, "churn": CHURN}, ("sum", "sum")),
]


def laws(changes, module=trusting):
    """By which draws sums are amplified, of agents drawn each by itself and in a fixed number."""
    for part in (EACH, SOME):
        made = build(load(scenario(participation=part, engine="auto", **changes)))
        method = type(made.method)
        law, _ = module.drawn(made.settings, vars(method).get("forgetful", False))
        assert module is not trusting or law == made.settings.trust.law
        yield law.name.lower().replace("_", "-")


@pytest.mark.parametrize(("changes", "expected"), CLAIMED, ids=str)
def test_a_theorem_is_used_only_where_nobody_elses_reply_follows_from_an_invitation(
    changes, expected
):
    assert tuple(laws(changes)) == expected


@pytest.mark.parametrize(
    ("place", "right", "wrong"),
    [
        (5, "if waits and forgetful and isinstance", "if waits and isinstance"),
        (7, "settings.churn is None or not settings.churn.forgets", "True"),
        (9, " and policy.at_least == 0", ""),
        (10, 'policy.late == "discard"', "True"),
        (11, "one.contention != NONE", "False"),
        (12, "settings.churn is None and settings.speeds.steady", "True"),
    ],
)
def test_without_one_condition_more_would_be_claimed(place, right, wrong):
    changes, expected = CLAIMED[place]
    assert tuple(laws(changes, mutant(trusting, right, wrong))) != expected


GRID = np.linspace(-30.0, 40.0, 200_001)


def exact(one, other, delta):
    """Epsilon of two laws, densities on GRID, each way."""
    step = GRID[1] - GRID[0]

    def excess(e, p, q):
        return float(np.maximum(p - np.exp(e) * q, 0.0).sum() * step - delta)

    pairs = [(p, q) for p, q in ((one, other), (other, one)) if excess(0.0, p, q) > 0.0]
    return max(brentq(excess, 0.0, 60.0, args=pair) for pair in pairs)


@pytest.mark.parametrize(("z", "share"), [(1.0, 0.02), (1.0, 0.5), (2.0, 0.1)])
def test_where_a_wait_goes_on_until_somebody_came_a_theorem_would_say_too_little(z, share):
    """Two agents; one is always late, and in the sum only where the other was not invited.

    So the sum is S with the share, else -S; with the first left out, 0 with the share.
    """
    inside, outside = share * norm.pdf(GRID, 1 / z), (1 - share) * norm.pdf(GRID, -1 / z)
    left_out = share * norm.pdf(GRID) + outside
    happens = exact(inside + outside, left_out, 1e-5)
    claimed = spent(trust(z, Mechanism.POISSON_SUM, share), 1).worst
    alone = inside + (1 - share) * norm.pdf(GRID)  # nobody else follows from it
    assert exact(alone, norm.pdf(GRID), 1e-5) == pytest.approx(claimed, rel=1e-3)
    assert happens > claimed + 0.4
    assert happens <= spent(trust(z), 1).worst


def doubled(self, hub):
    """FedAvg whose replies come in two exchanges, both in one sum."""
    state = hub.memory(x=np.zeros(self.problem.dim))
    hub.start(x=self.x0)
    hub.publish(state.x)
    while hub.open:
        parts = []
        for _ in range(2):
            hub.call(hub.invite(), self.train, state.x, work=self.local.work)
            parts.append((yield hub.collect()))
        if self.settings.policy.kind == "all":
            parts = [type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))]
        state.x = state.x + sum(hub.total(one)[0] for one in parts)
        hub.publish(state.x)


@pytest.mark.parametrize(
    ("policy", "words"), [("all", "two replies of an agent"), (LONG, "two sums in a round")]
)
def test_an_agent_is_in_one_sum_of_a_round_and_once(policy, words, monkeypatch):
    monkeypatch.setattr(FedAvg, "coordinator", doubled)
    written = scenario(policy=policy, stop={"rounds": 1})
    with pytest.raises(Exception, match=words):
        desim.run(written)
    with monkeypatch.context() as patched:
        patched.setattr(Trusted, "refuse_more", lambda *_: None)
        account = desim.run(written).account()
    if policy == "all":  # twice S in one sum, but a row for each reply: the price of twice a sum
        happened = exact(norm.pdf(GRID, 2 / Z), norm.pdf(GRID), 1e-5)
        assert account.worst < happened - 0.5
    else:
        assert account.worst > foreseen(load(written)).worst + 0.5


def test_a_clip_stays_where_squares_are_numbers():
    quantile = Quantile(0.5, 500.0, 1.0)
    assert quantile.moved(1.0, 1.0) == CLIPS[0]
    assert quantile.moved(1.0, -1.0) == CLIPS[1]
    rows = np.array([[1e-170, 1e-170]])
    one = SimpleNamespace(clip=1e-180)  # whose square is 0, as that of the row
    replies = SimpleNamespace(weight=np.ones(1), _replace=lambda payload: payloads(payload))
    assert np.linalg.norm(Trusted.shortened(one, replies, rows) * 1e170) > 1e-9
    for start in (1e-180, 1e200, {"start": 1e-101, "quantile": 0.5, "rate": 0.2, "noise": 4}):
        with pytest.raises(InputError, match="beyond what doubles hold"):
            load(scenario(privacy=terms(clip=start)))
    for start in CLIPS:
        assert desim.run(scenario(privacy=terms(clip=start), stop={"rounds": 2})).account().worst


def payloads(rows):
    """Replies that weigh 1."""
    return SimpleNamespace(weighed=rows)


def test_an_agent_is_sent_what_all_sums_are_made_of():
    run = desim.run(scenario(stop={"rounds": 2}))
    alone, models = (run.account(view=f"{kind}:0") for kind in ("direct", "neighbour"))
    assert alone.final[0] == 0.0 < alone.final[1] == models.final[1] < np.inf
    right = 'who.kind == "direct"'
    twin = mutant(accountants, right, "False").account
    table, rows = columns_of(run.releases), np.full(6, 8)
    events = columns_of(run.events)
    assert not twin(table, rows=rows, view="direct:0", events=events).final.any()
