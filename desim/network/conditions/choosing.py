"""Whom a coordinator invites who remembers: choices that follow from what it has seen before.

Replies and their times are seen by whoever coordinates; losses are seen only because agents send
them, which is a release. No choice reads rows, and none is a uniform secret draw: a subset that is
chosen so amplifies no privacy.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.numerics import keys
from desim.numerics.keys import Stream

STEP = 1 << 21  # of draws that no other participation and no matching makes
TIES, CANDIDATES, TIER = STEP, STEP + 1, STEP + 2


@dataclass(frozen=True)
class Losses:
    """What each reply says of its agent's losses: their mean, or (power 2) that of their squares.

    clip: each row's loss is cut to [0, clip], None: to nothing; sigma: the standard deviation of
    the noise on the mean.
    """

    power: Literal[1, 2]
    clip: float | None = None
    sigma: float = 0.0


@dataclass
class Seen:
    """What a coordinator has seen of its agents, arrays (agents,), when it invites.

    took: s from the latest call to its reply, at least as long as it was waited for; heard: the
    round in which the latest reply was taken in, 0 for none; picks: how often each was invited;
    loss: what the latest reply said of the agent's losses, nan for none; rows: how many it has;
    own: what the chooser itself remembers, by name.
    """

    took: Array
    heard: Int
    picks: Int
    loss: Array
    rows: Int
    own: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Chooser:
    """`count` agents a round, chosen of those that are free: they owe nothing, and are not retired.

    available: of those that are up, too; losses: what replies say of them, None for nothing.
    """

    agents: int
    count: int
    seed: int
    available: bool = False
    losses: Losses | None = None
    uniform: ClassVar[bool] = False  # cohorts are no uniform draw
    remembers: ClassVar[bool] = True

    @property
    def least(self) -> float:
        """The size of a cohort, where so many agents are free."""
        return self.count

    def start(self) -> dict[str, NDArray[Any]]:
        """What it remembers before the first round, by name."""
        return {}

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents (n,) of the free ones, in any order; asked once a round."""
        raise NotImplementedError

    def learnt(self, round_: int, who: Int, seen: Seen) -> None:
        """Replies of agents who (n,) have been taken in and noted in `seen`."""

    def lots(self, round_: int, who: Int, step: int, weight: Array | None = None) -> Array:
        """Numbers (n,) whose order is random; weight (n,): the first k are a draw by weight.

        Successive draws without replacement in proportion to the weights (Efraimidis, Spirakis
        2006): exponential draws over weights, the smallest first.
        """
        place = {"agent": who, "round": round_, "step": step}
        drawn: Array = keys.exponentials(self.seed, Stream.PARTICIPATION, **place)[:, 0]
        return drawn if weight is None else drawn / weight

    def first(self, round_: int, free: Int, *ranks: Array) -> Int:
        """Those `count` of the free agents whose ranks (n,) are least, the first one counts most.

        Ties are broken by lot.
        """
        order = np.lexsort((self.lots(round_, free, TIES), *ranks[::-1]))
        return free[order[: self.count]]


class Fastest(Chooser):
    """The least time to the latest reply first; whoever was never invited comes before."""

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents by time s, those never invited at -1."""
        return self.first(round_, free, np.where(seen.picks[free] > 0, seen.took[free], -1.0))


class Oldest(Chooser):
    """The greatest age first: rounds since an agent was heard.

    Yang, Arafa, Quek, Poor 2020, "Age-based scheduling policy for federated learning in mobile edge
    networks" (ICASSP, arXiv 1910.14648), where all links are alike. Who is never in time stays old.
    """

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents by the round in which they were heard."""
        return self.first(round_, free, seen.heard[free].astype(float))


class RoundRobin(Chooser):
    """In turn, by number; whoever is not free when its turn comes misses it."""

    def start(self) -> dict[str, NDArray[Any]]:
        """Whose turn is next."""
        return {"next": np.zeros(1, np.int64)}

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents from the one on whose turn it is."""
        chosen = free[np.argsort((free - seen.own["next"]) % self.agents)[: self.count]]
        if len(chosen):
            seen.own["next"][0] = (chosen[-1] + 1) % self.agents
        return chosen


class Available(Chooser):
    """Uniformly of those that are free and up."""

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents by lot."""
        return self.first(round_, free)


@dataclass(frozen=True)
class PowerOfChoice(Chooser):
    """Of `candidates` drawn by their shares of the rows, those with the greatest losses.

    Cho, Wang, Joshi 2020, "Client selection in federated learning: convergence analysis and
    power-of-choice selection strategies" (arXiv 2010.01243), Section 3, variant rpow-d: losses are
    those of the latest replies, infinite before the first one. There they are means over local
    training; here over the agent's rows, at its model x: with FedAvg and its like the model that it
    was sent, before it trained, with others the one that it trained.
    """

    candidates: int = 1

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Candidates by loss, ties by lot."""
        drawn = self.lots(round_, free, CANDIDATES, seen.rows[free] / seen.rows.sum())
        some = free[np.argsort(drawn, kind="stable")[: self.candidates]]
        loss = seen.loss[some]
        return self.first(round_, some, -np.where(np.isnan(loss), np.inf, loss))
