"""Privacy filters: a release that would take an agent beyond its budget is refused before its draw.

What is spent adds up in one number per agent whose limit is fixed before anything is released, so
that sensitivities and scales may follow from what was released before: mu^2 while all releases are
Gaussian (Smith and Thakurta 2022), else the Renyi divergence at one order (Feldman and Zrnic 2021),
the one at which the agent's first such release could be repeated most often. Which mechanisms a
method uses must not follow from releases.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.columns import Words
from desim.memory import Tree, recall, told
from desim.privacy.gaussian import epsilon_of, mu_of
from desim.privacy.ledger import MECHANISMS, Mechanism, Terms
from desim.privacy.prices import prices
from desim.privacy.renyi import ORDERS

Array = NDArray[np.float64]
Int = NDArray[np.int64]
ROUNDING = 1.0 + 1e-9  # sums of prices round: a target that is also the budget must fit into it
KEPT = "square divergence order retired stopped stopper reason"
EXACT = (Mechanism.GAUSSIAN, Mechanism.NOISY_GRADIENT)


@dataclass(frozen=True)
class Budget:
    """Epsilon at `delta` that no agent's releases exceed, for an eavesdropper, under `relation`."""

    epsilon: float
    delta: float = 1e-5
    relation: str = "replace-one"
    on_exhausted: Literal["retire", "stop"] = "retire"

    def problems(self, first: Terms, rows: Int) -> list[str]:
        """Return one line if some agent cannot afford the release `first` of terms (agents,)."""
        filter_ = Filter(self, rows)
        everybody = np.arange(len(rows))
        price = filter_.price(everybody, first, everybody)
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
        self.retired = np.zeros(agents, bool)
        self.stopped = np.inf  # time s at which the run has to stop
        self.stopper = -1  # the agent that is why
        self.reason = ""  # why the run is over, once it is

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return told(self, KEPT)

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, KEPT)

    def price(self, who: Int, terms: Terms, rows: Int) -> Array:
        """Mu^2 and divergence (2, n) of one more release of agents who (n,), in terms[rows]."""
        if terms.mechanism in EXACT and not (terms.sampling[rows] < 1.0).any():
            square = self._square(who, terms.sensitivity[rows], terms.scale[rows])
            return np.array([square, np.zeros(len(who))])
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
        self._choose(who, divergences)
        return np.array([square, divergences[np.arange(len(who)), self.order[who]]])

    def _square(self, who: Int, reach: Array, scale: Array) -> Array:
        """Exact mu^2 (n,) of Gaussian releases of all rows, as `prices` has it."""
        relation = self.budget.relation
        if relation != "replace-one":
            reach = reach * (0.5 if relation == "add-or-remove-one" else self.rows[who])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(reach > 0.0, reach / scale, 0.0)
            return np.asarray(ratio * ratio)

    def _choose(self, who: Int, divergences: Array) -> None:
        """Fix the order of agents that pay a divergence for the first time."""
        limit = self.budget.epsilon - self.offset
        new = (self.order[who] < 0) & (divergences[:, -1] > 0.0)
        for row in np.flatnonzero(new):
            self.order[who[row]] = np.argmax(limit / divergences[row])

    def fits(self, who: Int, price: Array) -> NDArray[np.bool_]:
        """Whether agents who (n,) stay within the budget if they pay price (2, n) too."""
        square, divergence = self.square[who] + price[0], self.divergence[who] + price[1]
        order = self.order[who]
        limit = (self.budget.epsilon - self.offset[order]) * ROUNDING
        mixed = divergence + 0.5 * ORDERS[order] * square <= limit
        return np.asarray(np.where(divergence > 0.0, mixed, square <= self.most))

    def spend(self, who: Any, price: Array) -> None:
        """Charge price (2, n) to agents who (n,)."""
        self.square[who] += price[0]
        self.divergence[who] += price[1]

    def refund(self, who: Any, price: Array) -> None:
        """Give price (2, n) back to agents who (n,), whose releases never came to be."""
        self.spend(who, -price)

    def epsilon(self, agent: int, more: Any = (0.0, 0.0)) -> float:
        """Epsilon of what an agent has spent, and of a price (2,) on top of it."""
        square, divergence = self.square[agent] + more[0], self.divergence[agent] + more[1]
        if divergence > 0.0:
            order = self.order[agent]
            total = divergence + 0.5 * ORDERS[order] * square
            return max(float(total + self.offset[order]), 0.0)
        return float(epsilon_of(np.sqrt(max(square, 0.0)), self.budget.delta))

    def cost(self, agent: int, more: Any) -> str:
        """The epsilon that an agent would have spent after a price (2,), in words."""
        spent, budget = self.epsilon(agent, more), self.budget
        amount = f"{spent:.6g}" if np.isfinite(spent) else "infinite"
        mixed = self.divergence[agent] + more[1] > 0.0
        return (
            f"epsilon {amount} (delta {budget.delta:g}, {budget.relation}, eavesdropper, "
            f"{'RDP' if mixed else 'exact GDP'})"
        )

    def admit(self, who: Int, price: Array, time: Array) -> NDArray[np.bool_]:
        """Whether agents who (n,) may pay price (2, n) at time (n,) s; who may not is retired.

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
