"""Oort: agents with much to learn from that are quick, and some that nobody has seen yet.

Lai, Zhu, Madhyastha, Chowdhury 2021, "Oort: efficient federated learning via guided participant
selection" (OSDI, arXiv 2010.06081), Algorithm 1 and Section 4. Printed there, the pacer looks back
in every round; here, as in the authors' program (github.com/SymbioticLab/Oort), once in a window:
losses fall as a model learns, and looking each round would slacken the pace each round. All else is
the paper's, where the program has other rules: it slackens the pace where two windows differ by a
tenth at most, tightens it where by five times, has T as a percentile of durations, and scales
utilities to [0, 1] before it adds the temporal uncertainty, which is added here as it is, though
one grows with the rows and the other does not.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.network.conditions.choosing import STEP, Chooser, Seen

EXPLOITED, EXPLORED, REST = STEP + 3, STEP + 4, STEP + 5
FAINT = 1e-9  # share of the greatest utility that the least one counts for in a draw


@dataclass(frozen=True)
class Oort(Chooser):
    """Those with large losses that are quick, and some that were not heard yet: Oort.

    alpha: of the straggler penalty; exploration, decay, least: epsilon and how it falls.

    cutoff: share c of the cut-off utility that admits; quantile: of the utilities, at which they
    are cut; window: W rounds; pace: step of T in s, None: such that T covers W K agents more;
    explore: unseen agents by speed (agents,) or at random; most: picks after which an agent is no
    longer exploited, None for none.
    """

    alpha: float = 2.0
    exploration: float = 0.9
    decay: float = 0.98
    least_exploration: float = 0.2
    cutoff: float = 0.95
    quantile: float = 0.95
    window: int = 20
    pace: float | None = None
    explore: Literal["speed", "random"] = "speed"
    most: int | None = None
    speed: Array | None = None

    def start(self) -> dict[str, NDArray[Any]]:
        """Steps of the pacer, and the utility of each of the latest 2 W rounds."""
        return {"steps": np.ones(1, np.int64), "achieved": np.zeros(2 * self.window)}

    def epsilon(self, round_: int) -> float:
        """Share of explorers: decayed once a round while it is above the least."""
        if self.decay == 1.0:
            return self.exploration
        falls = np.log(self.least_exploration / self.exploration) / np.log(self.decay)
        often = max(0, int(np.ceil(falls - 1e-9)))
        return float(self.exploration * self.decay ** min(round_ - 1, often))

    def learnt(self, round_: int, who: Int, seen: Seen) -> None:
        """Add the utility of agents who (n,) to that of the round."""
        seen.own["achieved"][round_ % (2 * self.window)] += self.statistical(seen)[who].sum()

    def statistical(self, seen: Seen) -> Array:
        """U (agents,): rows times the root of the mean squared loss; 0 where it is not known."""
        mean = np.where(np.isnan(seen.loss), 0.0, np.maximum(seen.loss, 0.0))
        return np.asarray(seen.rows * np.sqrt(mean))

    def utility(self, round_: int, known: Int, seen: Seen) -> Array:
        """Util (n,) of agents known (n,)."""
        u = self.statistical(seen)
        cap = np.quantile(u[~np.isnan(seen.loss)], self.quantile)  # outliers are cut
        util = np.minimum(u[known], cap)
        util = util + np.sqrt(0.1 * np.log(round_) / seen.heard[known])  # temporal uncertainty
        preferred, took = self.preferred(seen), seen.took[known]
        late = took > preferred
        lag = np.where(late, preferred / np.where(late, took, 1.0), 1.0)
        return np.asarray(util * lag**self.alpha)  # global system utility

    def preferred(self, seen: Seen) -> float:
        """T s: how long a round should take."""
        steps = int(seen.own["steps"][0])
        if self.pace is not None:
            return steps * self.pace
        took = np.sort(seen.took[~np.isnan(seen.loss)])
        return float(took[min(steps * self.window * self.count, len(took)) - 1])

    def _look_back(self, round_: int, seen: Seen) -> None:
        """The pacer: T grows by a step where the latest W rounds achieved less than those before.

        And forget the round that is overwritten now.
        """
        achieved, w = seen.own["achieved"], self.window
        if round_ > 2 * w and (round_ - 1) % w == 0:
            latest = achieved[np.arange(round_ - w, round_) % (2 * w)].sum()
            seen.own["steps"] += achieved.sum() - latest > latest
        achieved[round_ % (2 * w)] = 0.0

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """SelectParticipant: (1 - epsilon) K by utility, epsilon K that are not known yet."""
        self._look_back(round_, seen)
        new = np.isnan(seen.loss[free])
        worn = np.zeros(len(free), bool) if self.most is None else seen.picks[free] > self.most
        known, unseen = free[~new & ~worn], free[new]
        k = min(self.count, len(free))
        explorers = min(round(self.epsilon(round_) * k), len(unseen))
        exploited = self._exploited(round_, known, k - explorers, seen)
        explored = self._explored(round_, unseen, k - len(exploited))
        chosen = np.concatenate([exploited, explored])
        rest = np.setdiff1d(free, chosen)  # who is worn out fills up
        lots = np.argsort(self.lots(round_, rest, REST), kind="stable")
        return np.concatenate([chosen, rest[lots[: k - len(chosen)]]])

    def _exploited(self, round_: int, known: Int, k: int, seen: Seen) -> Int:
        """At most k of agents known (n,), drawn by utility of those above the cut-off."""
        if not min(k, len(known)):
            return known[:0]
        util = self.utility(round_, known, seen)
        bar = self.cutoff * np.sort(util)[::-1][min(k, len(util)) - 1]
        known, util = known[util >= bar], util[util >= bar]
        weight = np.maximum(util, FAINT * util.max()) if util.max() > 0.0 else None
        lots = self.lots(round_, known, EXPLOITED, weight)
        return known[np.argsort(lots, kind="stable")[:k]]

    def _explored(self, round_: int, unseen: Int, k: int) -> Int:
        """At most k of agents unseen (n,), by speed or at random."""
        weight = None if self.speed is None else self.speed[unseen]
        lots = self.lots(round_, unseen, EXPLORED, weight)
        return unseen[np.argsort(lots, kind="stable")[:k]]
