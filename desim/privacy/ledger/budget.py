"""Privacy filters: a release that would take an agent beyond its budget is refused before its draw.

What is spent adds up in one number per agent whose limit is fixed before anything is released, so
that sensitivities and scales may follow from what was released before: mu^2 while all releases are
Gaussian (Smith and Thakurta 2022), else the Renyi divergence at one order (Feldman and Zrnic 2021),
the one at which the agent's first such release could be repeated most often; or mu^2 of batches
that are known, if that is oftener still. Which mechanisms a method uses, and the size of the first
release that is not Gaussian, must not follow from releases. Of a method whose plan is fixed
beforehand releases of at most KINDS kinds may be as many as their loss distribution allows: pairs
that dominate compose (Zhu, Dong and Wang 2022, Thm 10), but for a schedule that follows from
releases that is no filter.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.columns import Words
from desim.memory import Tree, attributes, recall
from desim.privacy.accounting.gaussian import Kind, epsilon_of, mu_of
from desim.privacy.accounting.loss_distribution import epsilon_pld
from desim.privacy.accounting.prices import ORDERS, Prices, Tally, prices
from desim.privacy.ledger.ledger import MECHANISMS, Mechanism, Terms

ROUNDING = 1.0 + 1e-9  # sums of prices round: a target that is also the budget must fit into it
KEPT = "square divergence order known kinds numbers others retired stopped stopper reason"
LAWS = ("laplace", "pure", "batch")
KINDS = 8  # of releases that are not Gaussian, counted apart for each agent
EXACT = (Mechanism.GAUSSIAN, Mechanism.NOISY_GRADIENT, Mechanism.CLIPPED_GAUSSIAN)


@dataclass(frozen=True)
class Budget:
    """Epsilon at `delta` that no agent's releases exceed, for an eavesdropper, under `relation`."""

    epsilon: float
    delta: float = 1e-5
    relation: str = "replace-one"
    on_exhausted: Literal["retire", "stop"] = "retire"
    fixed: bool = False  # whether sensitivities, scales and batches are planned beforehand

    def problems(self, first: Terms, rows: Int, beside: Terms | None = None) -> list[str]:
        """Return one line if some agent cannot afford the release `first` of terms (agents,).

        beside: terms of a Gaussian release that goes with each one.
        """
        filter_ = Filter(self, rows)
        everybody = np.arange(len(rows))
        price = filter_.price(everybody, first, everybody)
        if beside is not None:
            price[:2] += filter_.price(everybody, beside, everybody)[:2]
        short = np.flatnonzero(~filter_.fits(everybody, price))
        if not len(short):
            return []
        i = int(short[0])
        return [
            f"privacy.budget: found {self.epsilon:g}, but the first release of agent {i} costs "
            f"{filter_.cost(i, price[:, i])}; allowed: at least that, or more noise, or "
            "problem.clip where it is infinite"
        ]


class Filter:
    """What every agent has spent of a budget; rows (agents,): how many records each has."""

    def __init__(self, budget: Budget, rows: Int) -> None:
        agents = len(rows)
        self.budget, self.rows = budget, rows
        self.offset = np.log1p(-1.0 / ORDERS) - np.log(budget.delta * ORDERS) / (ORDERS - 1.0)
        self.most = mu_of(budget.epsilon, budget.delta) ** 2 * ROUNDING
        self.square = np.zeros(agents)  # mu^2 spent on Gaussian releases
        self.divergence = np.zeros(agents)  # spent on all others, at the agent's order
        self.order = np.full(agents, -1)  # index of that order, -1: not needed yet
        self.known = np.zeros(agents, bool)  # whose batches are paid for in mu^2
        self.kinds = np.zeros((agents, KINDS, 3))  # law, size and share of others, as they came
        self.numbers = np.zeros((agents, KINDS), np.int64)  # how many there are of each
        self.others = np.zeros(agents, np.int64)  # and of those that have no place there
        self._allowed: dict[int, tuple[float, Int]] = {}  # mu^2 and numbers that were once
        self.retired = np.zeros(agents, bool)
        self.stopped = np.inf  # time s at which the run has to stop
        self.stopper = -1  # the agent that is why
        self.reason = ""  # why the run is over, once it is

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return attributes(self, KEPT)

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, KEPT)

    def price(self, who: Int, terms: Terms, rows: Int) -> Array:
        """Mu^2, divergence and kind (3, n) of a release of agents who (n,), terms[rows].

        kind: 0 for Gaussian, 1 to KINDS of the agent's `kinds`, KINDS + 1 for others.
        """
        if terms.mechanism in EXACT and not (terms.sampling[rows] < 1.0).any():
            whole = terms.mechanism is Mechanism.CLIPPED_GAUSSIAN
            square = self._square(who, terms.sensitivity[rows], terms.scale[rows], whole)
            return np.array([square, np.zeros(len(who)), np.zeros(len(who))])
        table = {
            "agent": who,
            "mechanism": Words(np.zeros(len(who), np.int8), [MECHANISMS[terms.mechanism]]),
            "sensitivity": terms.sensitivity[rows],
            "scale": terms.scale[rows],
            "sampling": terms.sampling[rows],
        }
        costs = prices(table, self.rows, self.budget.relation)
        square = np.where(costs.gaussian, costs.mu2, 0.0)
        divergences = costs._replace(mu2=np.where(costs.gaussian, 0.0, costs.mu2)).divergences()
        kind = self._kind(who, costs)
        self._choose(who, divergences, costs.ratio)
        batches = self.known[who] & (costs.ratio > 0.0)
        square = np.where(batches, costs.ratio**2, square)
        divergence = divergences[np.arange(len(who)), self.order[who]]
        return np.array([square, np.where(batches, 0.0, divergence), np.where(batches, 0.0, kind)])

    def _square(self, who: Int, reach: Array, scale: Array, whole: bool) -> Array:
        """Exact mu^2 (n,) of Gaussian releases of all rows, as `prices` has it.

        whole: the reach is that of all of an agent's rows.
        """
        relation = self.budget.relation
        if relation != "replace-one" and not whole:
            reach = reach * (0.5 if relation == "add-or-remove-one" else self.rows[who])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(reach > 0.0, reach / scale, 0.0)
            return np.asarray(ratio * ratio)

    def _kind(self, who: Int, costs: Prices) -> Array:
        """The place (n,) of each release among its agent's kinds, where new ones are noted."""
        sizes = np.stack([costs.laplace, costs.pure, costs.ratio])
        share = np.where(costs.ratio > 0.0, costs.share, 1.0)
        kind = np.column_stack([np.argmax(sizes > 0.0, axis=0), sizes.max(axis=0), share])
        same = (self.kinds[who] == kind[:, None]).all(axis=2)
        free = self.kinds[who, :, 1] == 0.0
        place = np.where(same.any(axis=1), same.argmax(axis=1), free.argmax(axis=1))
        exact = (same.any(axis=1) | free.any(axis=1)) & (costs.rho == 0.0) & (costs.xi == 0.0)
        exact &= kind[:, 1] > 0.0
        self.kinds[who[exact], place[exact]] = kind[exact]
        return np.where(costs.gaussian, 0.0, np.where(exact, place + 1.0, KINDS + 1.0))

    def _choose(self, who: Int, divergences: Array, ratio: Array) -> None:
        """Fix how agents pay that pay for something not Gaussian for the first time."""
        limit = self.budget.epsilon - self.offset
        new = (self.order[who] < 0) & (divergences[:, -1] > 0.0)
        for row in np.flatnonzero(new):
            often = limit / divergences[row]
            self.order[who[row]] = np.argmax(often)
            secret = ratio[row] > 0.0 and not self.budget.fixed
            self.known[who[row]] = secret and self.most / ratio[row] ** 2 > often.max()

    def fits(self, who: Int, price: Array) -> NDArray[np.bool_]:
        """Whether agents who (n,) stay within the budget if they pay price (3, n) too."""
        square, divergence = self.square[who] + price[0], self.divergence[who] + price[1]
        order = self.order[who]
        limit = (self.budget.epsilon - self.offset[order]) * ROUNDING
        mixed = divergence + 0.5 * ORDERS[order] * square <= limit
        fit = np.where(divergence > 0.0, mixed, square <= self.most)
        counted = ~fit & (divergence > 0.0) & np.isfinite(square) & self.budget.fixed
        for row in np.flatnonzero(counted):
            fit[row] = self._affords(int(who[row]), price[:, row])
        return np.asarray(fit)

    def _affords(self, agent: int, price: Array) -> bool:
        """Whether the loss distribution of all that an agent releases allows a price (3,), too.

        What is less of every kind than something that was allowed needs no distribution.
        """
        numbers, square = self._numbers(agent, price), self.square[agent] + price[0]
        if numbers is None:
            return False
        place = int(price[2])
        most, largest = self._allowed.get(agent, (-1.0, numbers))
        if square <= most and (numbers <= largest).all():
            return True
        further = numbers.copy()
        further[place - 1] += numbers[place - 1] // 64 if place else 0
        for some in (further, numbers):
            epsilon = epsilon_pld(self._counted(agent, some, square), self.budget.delta)
            if epsilon <= self.budget.epsilon:  # not so where it is nan
                self._allowed[agent] = float(square), some
                return True
        return False

    def _tally(self, agent: int, more: Any) -> Tally | None:
        """What an agent has released, with a price (3,) on top; None if not all kinds are known."""
        numbers = self._numbers(agent, more)
        if numbers is None:
            return None
        return self._counted(agent, numbers, float(self.square[agent] + more[0]))

    def _numbers(self, agent: int, more: Any) -> Int | None:
        """How many releases of each kind, with a price (3,) on top; None if not all are known."""
        numbers: Int = self.numbers[agent].copy()
        place = int(more[2])
        if self.others[agent] or place > KINDS:
            return None
        if place:
            numbers[place - 1] += 1
        return numbers

    def _counted(self, agent: int, numbers: Int, square: float) -> Tally:
        pairs = zip(self.kinds[agent].tolist(), numbers.tolist(), strict=True)
        named = ((Kind(LAWS[int(law)], size, share), n) for (law, size, share), n in pairs if n)
        return Tally(float(square), tuple(named))

    def spend(self, who: Any, price: Array, times: int = 1) -> None:
        """Charge price (3, n) to agents who (n,), `times` times."""
        self.square[who] += times * price[0]
        self.divergence[who] += times * price[1]
        place = np.asarray(price[2]).astype(int)
        known = (place > 0) & (place <= KINDS)
        which = np.clip(place - 1, 0, KINDS - 1)
        self.numbers[who, which] += np.where(known, times, 0)
        self.others[who] += np.where(place > KINDS, times, 0)

    def refund(self, who: Any, price: Array) -> None:
        """Give price (3, n) back to agents who (n,), whose releases never came to be."""
        self.spend(who, price, -1)

    def epsilon(self, agent: int, more: Any = (0.0, 0.0, 0.0)) -> float:
        """Epsilon of what an agent has spent, and of a price (3,) on top of it."""
        return self._epsilon_and_method(agent, more)[0]

    def _epsilon_and_method(self, agent: int, more: Any) -> tuple[float, str]:
        """Epsilon of what an agent has spent and of a price (3,), and the method of accounting."""
        square, divergence = self.square[agent] + more[0], self.divergence[agent] + more[1]
        if divergence <= 0.0:
            spent = epsilon_of(np.sqrt(max(square, 0.0)), self.budget.delta)
            return float(spent), "exact GDP"
        order = self.order[agent]
        total = divergence + 0.5 * ORDERS[order] * square
        renyi = max(float(total + self.offset[order]), 0.0)
        if self.budget.fixed and np.isfinite(square):
            sharp = epsilon_pld(self._tally(agent, more), self.budget.delta)
            if sharp <= renyi:  # not so where it is nan
                return sharp, "PLD"
        return renyi, "RDP"

    def cost(self, agent: int, more: Any) -> str:
        """The epsilon that an agent would have spent after a price (3,), in words."""
        (spent, method), budget = self._epsilon_and_method(agent, more), self.budget
        amount = f"{spent:.6g}" if np.isfinite(spent) else "infinite"
        return (
            f"epsilon {amount} (delta {budget.delta:g}, {budget.relation}, eavesdropper, {method})"
        )

    def admit(self, who: Int, price: Array, time: Array) -> NDArray[np.bool_]:
        """Whether agents who (n,) may pay price (3, n) at time (n,) s; who may not is retired.

        If the run has to stop instead, note when and why: the earliest time, the least agent.
        """
        fit = self.fits(who, price) & ~self.retired[who]
        new = np.flatnonzero(~fit & ~self.retired[who])
        if self.budget.on_exhausted == "retire":
            self.retired[who[new]] = True
            if self.retired.all():
                self.reason = "privacy.budget: every agent has retired"
            return np.asarray(fit)
        for r in new:
            if (time[r], who[r]) < (self.stopped, self.stopper):
                self.stopped, self.stopper = float(time[r]), int(who[r])
                self.reason = (
                    f"privacy.budget: agent {who[r]} would spend {self.cost(who[r], price[:, r])} "
                    f"of {self.budget.epsilon:g} at {time[r]:.6g} s"
                )
        return np.asarray(fit)

    def warnings(self) -> list[str]:
        """One line on who has retired, if anybody has."""
        gone = np.flatnonzero(self.retired)
        if not len(gone):
            return []
        named = ", ".join(str(i) for i in gone[:8]) + (", ..." if len(gone) > 8 else "")
        return [
            f"privacy.budget: {len(gone)} of {len(self.rows)} agents retired before their releases "
            f"exceeded {self.budget.epsilon:g}: {named}"
        ]
