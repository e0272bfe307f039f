"""Noise on a trusted coordinator's sums that is correlated over rounds: DP-FTRL and its like.

The noise of round t is a row of a matrix times independent draws of rounds up to t, see
`desim.privacy.correlated.factors`. A round has one sum; one without any has its noise all the same,
which nobody sees.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.trusted import Trust, Trusted
from desim.memory import Tree, recall
from desim.network.timeline.record import SUMMED, WHOLE, release_id


class Correlating(Trusted):
    """The sums of one play, and what their noise remembers: memory (m, dim)."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        assert self.trust.factor is not None
        self.factor = self.trust.factor
        self.memory = np.zeros((self.factor.memory, 0))

    def noised(self, total: Array, round_: int) -> Array:
        """The sum (dim,) of replies of a round as it is released."""
        if not self.memory.shape[1]:
            self.memory = np.zeros((self.factor.memory, len(total)))
        for one in range(self.latest + 1, round_ + 1):
            steps = range(self.factor.draws(one))
            fresh = np.array([self.drawn(np.zeros(len(total)), one, h, 1.0) for h in steps])
            noise = self.factor.noise(one, self.memory, fresh)
        return np.asarray(total + self.trust.deviation(round_, self.clip) * noise)

    def charge(self, hub: Any, replies: Any, terms: tuple[Any, ...]) -> None:
        """Write the rows of a sum, and of rounds without one, from which its noise follows, too."""
        for one in range(self.latest + 1, int(hub.round)):
            whole = int(release_id(hub.agents, 0, one, SUMMED | WHOLE))
            row = self.trust.terms(one, self.clip)
            self.world.ledger.charge_one(hub.now, -1, one, whole, row, 1)
        super().charge(hub, replies, terms)

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return {**super().remembered(), "memory": self.memory, "latest": self.latest}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        super().recall(tree)
        self.memory = np.zeros((self.factor.memory, np.shape(tree["memory"])[-1]))
        recall(self, tree, "memory latest")


@dataclass(frozen=True)
class Correlated(Trust):
    """A trusted coordinator with a factor, by which noise is correlated."""

    def feature(self, world: Any) -> Correlating:
        """What hangs on a coordinator's calls."""
        return Correlating(world)
