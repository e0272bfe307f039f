"""TiFL: agents in tiers by how long they take, and in each round agents of one tier.

Chai, Ali, Zawad, Truex, Anwar, Baracaldo, Zhou, Ludwig, Yan, Cheng 2020, "TiFL: a tier-based
federated learning system" (HPDC, arXiv 2001.09249), Algorithm 2. Its adaptive form asks for the
accuracy of each tier on test rows of that tier, which agents would have to give away; here tiers
are told apart by the mean of the losses that came with the latest replies. Agents that profiling
does not hear are dropouts there; here they are the last of the slowest tier.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.network.conditions.choosing import TIER, Chooser, Seen
from desim.numerics import keys
from desim.numerics.keys import Stream

SAME = 1e-9  # of a loss: a smaller difference is one of rounding


@dataclass(frozen=True)
class Tiers(Chooser):
    """Some agents of one tier, drawn each round; tiers are told apart by reply times: TiFL.

    `tiers` of equally many agents, profiled in the first `profile` rounds, which invite all.

    probabilities (tiers,): of drawing each, fastest first; credits (tiers,): how often each may
    be drawn, None for no end; interval: rounds after which the adaptive form looks at losses.
    """

    tiers: int = 2
    profile: int = 1
    probabilities: tuple[float, ...] = ()
    credits: tuple[int, ...] | None = None
    interval: int | None = None

    def start(self) -> dict[str, NDArray[Any]]:
        """Each agent's tier (-1 before profiling), what is left, and the losses of an interval."""
        left = np.full(self.tiers, -1) if self.credits is None else np.array(self.credits)
        return {
            "tier": np.full(self.agents, -1),
            "credits": left,
            "probabilities": np.array(self.probabilities),
            "before": np.full(self.tiers, np.nan),
            "current": np.zeros(1, np.int64),
        }

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents of one tier by lot; all while they are profiled."""
        if round_ <= self.profile or not len(free):
            return free
        own = seen.own
        if own["tier"][0] < 0:
            order = np.lexsort((np.arange(self.agents), seen.took, seen.heard == 0))
            for number, members in enumerate(np.array_split(order, self.tiers)):
                own["tier"][members] = number
        self._look_back(round_ - self.profile, seen)
        current = self._drawn(round_, free, own)
        return self.first(round_, free[own["tier"][free] == current])

    def _drawn(self, round_: int, free: Int, own: dict[str, NDArray[Any]]) -> int:
        """A tier by its probability, of those with credits and free agents; it pays a credit.

        Where none of these is to be drawn, all of them are alike; where none has credits, all with
        free agents.
        """
        there = np.isin(np.arange(self.tiers), own["tier"][free])
        rich = there & (own["credits"] != 0)
        weights = (np.where(rich, own["probabilities"], 0.0), rich * 1.0, there * 1.0)
        weight = next(one for one in weights if one.any())
        u = float(keys.uniforms(self.seed, Stream.PARTICIPATION, round=round_, step=TIER)[0])
        sums = np.cumsum(weight)
        current = int(np.searchsorted(sums, u * sums[-1], side="right"))
        own["current"][0] = current
        own["credits"][current] -= own["credits"][current] > 0
        return current

    def _look_back(self, r: int, seen: Seen) -> None:
        """ChangeProbs, where the latest tier is no better than an interval ago (Algorithm 2)."""
        own = seen.own
        if self.interval is None or (r - 1) % self.interval:
            return
        losses, current = self.losses_of_tiers(seen), own["current"][0]
        if losses[current] >= own["before"][current]:
            rank = ranks_of(losses)
            own["probabilities"][:] = rank / rank.sum()  # the greatest loss has the most
        own["before"][:] = losses

    def losses_of_tiers(self, seen: Seen) -> Array:
        """Mean (tiers,) of what the latest replies of each tier's agents said; -inf for none."""
        known = ~np.isnan(seen.loss)
        tier = np.asarray(seen.own["tier"], np.int64)[known]
        number = np.bincount(tier, minlength=self.tiers)
        total = np.bincount(tier, seen.loss[known], minlength=self.tiers)
        return np.where(number > 0, total / np.maximum(number, 1), -np.inf)


def ranks_of(losses: Array) -> Array:
    """Ranks (n,) of losses (n,), 1 for the least; those equal but for rounding share their mean.

    So tiers that nobody has trained yet, whose losses are those of the start, are drawn alike.
    """
    near = SAME * np.where(np.isfinite(losses), np.abs(losses), 0.0)
    above = (losses[:, None] > losses + near).sum(axis=1)
    below = (losses[:, None] < losses - near).sum(axis=1)
    return np.asarray(0.5 * (1.0 + above + len(losses) - below))
