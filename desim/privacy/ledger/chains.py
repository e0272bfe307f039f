"""Noise of agents that is correlated over their rounds: what each of them remembers.

The noise of an agent's round t is a row of a matrix times draws of its own of rounds up to t, at
the addresses that independent noise would have, see `desim.privacy.correlated.factors`. It is made
for one release in every round: a second one would have the same noise, and whoever leaves one out
is charged for it by nobody.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.privacy.ledger.mechanisms import Gaussian, Mechanism

ONE = "noise is correlated over rounds; allowed: one release of each agent in every round"


@dataclass(frozen=True)
class Chain:
    """How the noise of an agent's releases is correlated: one a round, none left out.

    factor: see `desim.privacy.correlated.factors`; apart (agents,): a record is in every apart-th
    round; step (agents,): how far C moves, in this round, what a record moves by 1; moved
    (agents,): how far a record moves a value of any round.
    """

    factor: Any
    round: int
    apart: NDArray[np.int64]
    step: NDArray[np.float64]
    moved: NDArray[np.float64]

    def of(self, who: Any) -> "Chain":
        """Rows (n,) of agents who (n,)."""
        rows = self.apart[who], self.step[who], self.moved[who]
        return Chain(self.factor, self.round, *rows)


@dataclass(frozen=True)
class Chained(Gaussian):
    """Gaussian noise that is correlated over an agent's rounds: sigma w_t, w = A^-1 B z.

    Bellet, Cyffers, Frey, Gaudel, Lereverend, Taiani 2026 (arXiv 2510.17480). factor: C and B, as
    they are streamed; cyclic: whether a record is in every 1 / sampling-th round, else it may be in
    all.
    """

    factor: Any = None
    cyclic: bool = False
    mechanism: ClassVar[Mechanism] = Mechanism.CHAINED_GAUSSIAN

    @property
    def constant(self) -> bool:
        """No: each round has a row of C of its own."""
        return False

    def chain(self, round_: int, moved: Array, sampling: Array) -> Chain:
        """That of agents whose values move so far (n,), of such shares (n,) of their rows."""
        apart = np.ones(len(sampling), np.int64)
        if self.cyclic:
            apart = np.rint(1.0 / sampling).astype(np.int64)
        step = np.empty(len(apart))
        for one in np.unique(apart).tolist():
            step[apart == one] = self.factor.steps(one)[round_ - 1]
        return Chain(self.factor, round_, apart, step, moved)


class Chains:
    """latest (agents,): the round of each agent's latest release; memory (m, agents, dim).

    terms (3, agents): how far a record moves its values, scale, and rounds apart, of all rounds.
    """

    def __init__(self, agents: int) -> None:
        self.latest, self.terms = np.zeros(agents, np.int64), np.zeros((3, agents))
        self.memory: Array | None = None

    def added(
        self, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array,
        chain: Chain, draws: Callable[..., Array],
    ) -> Array:  # fmt: skip
        """Value (n, dim) plus scale (n,) times w_t in the rows `where` (n,), of rounds t (n,).

        draws(who, rounds, number, dim): independent ones. RuntimeError for what is not one release
        in each round.
        """
        out, rows = np.array(value, float), np.flatnonzero(where)
        if not len(rows):
            return out
        own, rounds, factor = who[rows], round_[rows], chain.factor
        now = int(rounds[0])
        if step or (rounds != now).any() or (self.latest[own] != now - 1).any():
            text = f"found one of agent {own[0]} in round {now}, number {step >> 24}, after that "
            raise RuntimeError(f"us.release: {text}of round {self.latest[own[0]]}, but {ONE}")
        if now > factor.rounds:
            text = f"found round {now} of noise for {factor.rounds}"
            raise RuntimeError(f"us.release: {text}; allowed: stop.rounds")
        self._refuse_other(own, now, chain, np.array([chain.moved, scale, chain.apart])[:, rows])
        if self.memory is None:
            self.memory = np.zeros((factor.memory, len(self.latest), out.shape[1]))
        everybody = np.array_equal(own, np.arange(len(self.latest)))
        memory = self.memory if everybody else self.memory[:, own]
        fresh = draws(own, rounds, factor.draws(now), out.shape[1])
        out[rows] += scale[rows, None] * factor.noise(now, memory, fresh)
        if not everybody:
            self.memory[:, own] = memory
        self.latest[own] = now
        return out

    def _refuse_other(self, own: Int, now: int, chain: Chain, terms: Array) -> None:
        """RuntimeError for terms (3, n) that are not those of agents own (n,) in this round.

        What a row costs is how much a matrix makes of one sensitivity over one scale: rows of
        others, or those of another round, would add up to less than all releases tell.
        """
        if chain.round != now:
            text = f"found terms of round {chain.round} in round {now}"
            raise RuntimeError(f"us.release: {text}, but {ONE}")
        if now == 1:
            self.terms[:, own] = terms
        other = np.flatnonzero((self.terms[:, own] != terms).any(0))
        if len(other):
            text = f"found another sensitivity, scale or batch of agent {own[other[0]]} in round "
            raise RuntimeError(f"us.release: {text}{now}, but {ONE}, all alike")
