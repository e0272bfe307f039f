"""Budgets of agents: who may release once more, and how the others leave the run.

On a graph an agent asks when it releases; a coordinator asks when it calls, and gives back what was
never answered.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.engine.inviting import LossReports
from desim.engine.world import Exhausted, World
from desim.memory import Tree, recall
from desim.network.timeline.messages import EXCHANGE, FINISH, LOGGED, ROUND, TAKEN
from desim.network.timeline.record import INSTEAD, LEAVING, Kind
from desim.privacy.ledger.ledger import Terms

if TYPE_CHECKING:
    from desim.privacy.ledger.budget import Filter


def admitted(us: Any, world: World, terms: Terms, where: Any) -> NDArray[np.bool_]:
    """Agents (n,) of the cohort that release now where `where`: live, and within their budget.

    The others leave: they retire with the next message, a null, or are gone where the run stops.
    """
    mask, filter_ = us.live if where is None else us.live & np.asarray(where), world.filter
    if filter_ is None or not mask.any():
        return np.asarray(mask)
    rows = np.flatnonzero(mask)
    price = filter_.price(us.who[rows], terms, rows)
    fit = filter_.admit(us.who[rows], price, us.clock[rows])
    filter_.spend(us.who[rows[fit]], price[:, fit])
    if fit.all():
        return np.asarray(mask)
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
    return np.asarray(mask & ~refused)


class Spending:
    """The budget as a coordinator's engine uses it."""

    def __init__(self, world: World, filter_: "Filter", reports: LossReports | None = None) -> None:
        agents = world.settings.problem.agents
        self.world, self.filter, self.reports = world, filter_, reports
        self.everybody = np.arange(agents)
        self.terms: Terms | None = None
        self.prices = np.zeros((3, agents))  # of the present terms
        self.latest = np.zeros((3, agents))  # of the latest call that arrived
        self.void: list[tuple[float, int, Array]] = []  # interrupted: when s, whom, price

    def affordable(self, who: Int, terms: Terms, round_: int, now: float) -> Int:
        """Those of agents who (n,) whose budgets allow one more release; the others retire."""
        filter_ = self.filter
        self._give_back(now)
        if terms is not self.terms:
            self.terms, self.prices = terms, filter_.price(self.everybody, terms, self.everybody)
            if self.reports is not None:
                self.prices = self.prices + self.reports.price
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

    def charge_calls(self, calls: Any, who: Int, round_: int, exchange: int, before: Any) -> None:
        """Charge the calls just made to agents who (n,), as far as they arrive.

        before: (begin s, finish s, open) of their calls so far, from `under_way`.
        """
        begin, finish, open_ = before
        cut = calls.real[who, TAKEN]
        here = (calls.whole[who, ROUND] == round_) & (calls.whole[who, EXCHANGE] == exchange)
        void = here & open_ & ((begin >= cut) | (cut < finish))
        for r in np.flatnonzero(void):
            self.void.append((float(cut[r]), int(who[r]), self.latest[:, who[r]].copy()))
        arrived = who[here]
        self.latest[:, arrived] = self.prices[:, arrived]
        self.filter.spend(arrived, self.prices[:, arrived])

    @staticmethod
    def under_way(calls: Any, who: Int) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Begin s, finish s and openness (n,) of the calls that agents who (n,) work on."""
        return calls.real[who, TAKEN], calls.real[who, FINISH], calls.whole[who, LOGGED] == 0
