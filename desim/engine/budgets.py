"""Budgets of agents: who may release once more, and how the others leave the run.

On a graph an agent asks when it releases; a coordinator asks when it calls, and gives back what was
never answered.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.engine.signals import Feature
from desim.engine.world import Exhausted, World
from desim.memory import Tree, recall
from desim.network.timeline.messages import EXCHANGE, FINISH, LOGGED, ROUND, TAKEN
from desim.network.timeline.record import INSTEAD, LEAVING, Kind
from desim.privacy.ledger.ledger import Terms

if TYPE_CHECKING:
    from desim.privacy.ledger.budget import Filter


def admitted(us: Any, world: World, terms: Terms, mask: Mask) -> Mask:
    """Those agents of the cohort where `mask` (n,) that have the budget for a release now.

    The others leave: they retire with the next message, a null, or are gone where the run stops.
    """
    filter_ = world.filter
    assert filter_ is not None
    rows = np.flatnonzero(mask)
    price = filter_.price(us.who[rows], terms, rows)
    fit = filter_.admit(us.who[rows], price, us.clock[rows])
    filter_.spend(us.who[rows[fit]], price[:, fit])
    if fit.all():
        return mask
    refused = np.zeros_like(mask)
    refused[rows[~fit]] = True
    us._set(live=us.live & ~refused)
    if filter_.budget.on_exhausted == "stop":
        us.depart(refused)
    else:
        us._set(leaving=us.leaving | refused)
        for r in rows[~fit]:
            i, k, now = int(us.who[r]), int(us.round[r]), float(us.clock[r])
            world.log.add(Kind.RETIRE, LEAVING, i, k, now, value=filter_.epsilon(i))
            world.observer.leave(i, now)
    return mask & ~refused


class Spending(Feature):
    """The budget as a coordinator's engine uses it; beside (3, agents): what each reply adds."""

    name = "spending"

    def __init__(self, world: World, filter_: "Filter", beside: Array | None = None) -> None:
        agents = world.settings.problem.agents
        self.world, self.filter, self.reported = world, filter_, beside
        self.everybody = np.arange(agents)
        self.terms: Terms | None = None
        self.prices = np.zeros((3, agents))  # of the present terms
        self.latest = np.zeros((3, agents))  # of the latest call that arrived
        self.void: list[tuple[float, int, Array]] = []  # interrupted: when s, whom, price

    def invited(self, hub: Any, who: Int) -> Int:
        """Whoever has not retired."""
        return np.asarray(who[~self.filter.retired[who]])

    def calling(self, hub: Any, who: Int, payload: Array) -> tuple[Int, Array]:
        """Whoever can afford the release, and what they are at work on meanwhile."""
        trust, terms = self.world.settings.trust, hub.terms
        if trust is not None:  # a reply costs what the sum does that it is in
            terms = trust.of_each(hub.round, len(self.everybody))
        fit = self.affordable(who, terms, hub.round, hub.now)
        hub.prices, self.before = self.prices, self.under_way(hub.calls, fit)
        return fit, payload if payload.ndim == 1 else payload[np.isin(who, fit)]

    def affordable(self, who: Int, terms: Terms, round_: int, now: float) -> Int:
        """Those of agents who (n,) whose budgets allow one more release; the others retire."""
        filter_ = self.filter
        self._give_back(now)
        if terms is not self.terms:
            self.terms, self.prices = terms, filter_.price(self.everybody, terms, self.everybody)
            if self.reported is not None:
                self.prices = self.prices + self.reported
        who = who[~filter_.retired[who]]
        fit = filter_.admit(who, self.prices[:, who], np.full(len(who), now))
        if filter_.stopped <= now:
            raise Exhausted
        for i in who[~fit]:
            spent = filter_.epsilon(int(i))
            self.world.log.add(Kind.RETIRE, INSTEAD, int(i), round_, now, value=spent)
        if filter_.retired.all():
            raise Exhausted
        return who[fit]

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        times, agents = [v[0] for v in self.void], [v[1] for v in self.void]
        prices = np.array([v[2] for v in self.void]).reshape(-1, 3)
        return {"latest": self.latest, "times": times, "agents": agents, "prices": prices}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, "latest")
        times, agents = tree["times"].tolist(), tree["agents"].tolist()
        self.void = [(t, int(i), p) for t, i, p in zip(times, agents, tree["prices"], strict=True)]

    def _give_back(self, now: float) -> None:
        due = sorted((v for v in self.void if v[0] <= now), key=lambda v: v[0])
        self.void = [v for v in self.void if v[0] > now]
        for _, i, price in due:
            self.filter.refund(i, price)

    def called(self, hub: Any, who: Int) -> None:
        """Charge the calls just made to agents who (n,), as far as they arrive."""
        calls, (begin, finish, open_) = hub.calls, self.before
        cut = calls.real[who, TAKEN]
        here = calls.whole[who, ROUND] == hub.round
        here &= calls.whole[who, EXCHANGE] == hub.exchange
        void = here & open_ & ((begin >= cut) | (cut < finish))
        for r in np.flatnonzero(void):
            self.void.append((float(cut[r]), int(who[r]), self.latest[:, who[r]].copy()))
        arrived = who[here]
        self.latest[:, arrived] = self.prices[:, arrived]
        self.filter.spend(arrived, self.prices[:, arrived])

    @staticmethod
    def under_way(calls: Any, who: Int) -> tuple[Array, Array, Mask]:
        """Begin s, finish s and openness (n,) of the calls that agents who (n,) work on."""
        return calls.real[who, TAKEN], calls.real[who, FINISH], calls.whole[who, LOGGED] == 0
