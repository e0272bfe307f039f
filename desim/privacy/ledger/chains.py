"""Noise of agents that is correlated over their rounds: what each of them remembers.

The noise of an agent's round t is a row of a matrix times draws of its own of rounds up to t, at
the addresses that independent noise would have, see `desim.privacy.correlated.factors`. It is made
for one release in every round: a second one would have the same noise, and whoever leaves one out
is charged for it by nobody.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.privacy.ledger.mechanisms import Chain

ONE = "noise is correlated over rounds; allowed: one release of each agent in every round"


class Chains:
    """latest (agents,): the round of each agent's latest release; memory (m, agents, dim)."""

    def __init__(self, agents: int) -> None:
        self.latest = np.zeros(agents, np.int64)
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
