"""Who is active in a round: a pure function of the seed and the round, blind to data and clocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from desim import keys
from desim.keys import Stream

Who = NDArray[np.int64]


@dataclass(frozen=True)
class Everybody:
    """All agents in every round."""

    agents: int
    uniform: ClassVar[bool] = True  # cohorts of one size, all equally likely

    @cached_property
    def everybody(self) -> Who:
        """All agents, ascending."""
        return np.arange(self.agents)

    @property
    def least(self) -> float:
        """The size of the smallest cohort, or its mean where that is random."""
        return self.agents

    def draw(self, round_: int) -> Who:
        """Return the active agents of `round_` (1, 2, ...), ascending."""
        return self.everybody


@dataclass(frozen=True)
class Bernoulli:
    """Each agent independently with probability p, drawn every round."""

    agents: int
    p: float
    seed: int
    uniform: ClassVar[bool] = False

    @property
    def least(self) -> float:
        """The size of the smallest cohort, or its mean where that is random."""
        return self.p * self.agents

    def draw(self, round_: int) -> Who:
        """Return the active agents of `round_` (1, 2, ...), ascending; may be empty."""
        everybody = np.arange(self.agents)
        u = keys.uniforms(
            self.seed, Stream.PARTICIPATION, agent=everybody, round=round_, size=1
        ).reshape(-1)
        active: Who = everybody[u < self.p]
        return active


@dataclass(frozen=True)
class UniformSubset:
    """`count` agents without replacement, drawn every round."""

    agents: int
    count: int
    seed: int
    uniform: ClassVar[bool] = True

    @property
    def least(self) -> float:
        """The size of the smallest cohort."""
        return self.count

    def draw(self, round_: int) -> Who:
        """Return the active agents of `round_` (1, 2, ...), ascending."""
        chosen = keys.subset(self.seed, Stream.PARTICIPATION, self.agents, self.count, round=round_)
        return np.sort(chosen)


@dataclass(frozen=True)
class Schedule:
    """Given sets of agents, used in turn and from the start again."""

    sets: Sequence[Who]
    uniform: ClassVar[bool] = False

    @property
    def least(self) -> float:
        """The size of the smallest cohort."""
        return min(len(who) for who in self.sets)

    def draw(self, round_: int) -> Who:
        """Return the active agents of `round_` (1, 2, ...), ascending."""
        return self.sets[(round_ - 1) % len(self.sets)]


Participation = Everybody | Bernoulli | UniformSubset | Schedule


def common_length(seed: int, round_: int, p: float) -> int:
    """Return how many local steps all agents make in a round: L = 1, 2, ... ~ Geom(p), mean 1/p.

    The inverse of P(L > l) = (1 - p)^l at a draw of its own.
    """
    u = float(keys.uniforms(seed, Stream.PARTICIPATION, peer=0, round=round_)[0])
    return 1 if p == 1.0 else 1 + int(np.log(u) / np.log1p(-p))
