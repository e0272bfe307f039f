"""What it takes agents to have a sum made of numbers that nobody sees: SecAgg and SecAgg+.

Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth 2017 (doi
10.1145/3133956.3133982): four exchanges with a coordinator, each with those that are left of the
one before, all of whom hold shares of the others' secrets; Bell, Bonawitz, Gascon, Lepoint,
Raykova 2020 (eprint 2020/704): the same among neighbours on a random circle. Fewer than a threshold
of shares of a secret that is needed, and the round is void. So it is where those whose numbers came
are in several parts of the circle, of which each would have a sum of its own.

    keys      two public keys of each agent
    shares    of its mask's seed and of a secret key, encrypted for each neighbour
    input     numbers, masked by its own seed and by one secret in common with each neighbour
    unmasking shares of the seeds of those whose numbers came, and of the keys of the others

An agent is among its own neighbours where lists are counted: it gets its own keys back, and holds a
share of its own secrets.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.numerics.keys import Stream, permutation

EXCHANGES = ("keys", "shares", "input", "unmasking")
CIRCLE = 4  # step of the address of a round's circle
Kind = Literal["secagg", "secagg+"]


@dataclass(frozen=True)
class Sizes:
    """Bytes of what messages consist of; by default keys of X25519 and shares of 32 bytes.

    key: a public key; cipher: two shares, encrypted; seed_share, key_share: a share of a mask's
    seed, or of a secret key, in the open; agent: an agent's number.
    """

    key: float = 32.0
    cipher: float = 108.0
    seed_share: float = 36.0
    key_share: float = 36.0
    agent: float = 4.0


@dataclass(frozen=True)
class Works:
    """What the parts take; by default on a core of a server of these years, as measured.

    keys: s for one agreement on a secret, or one pair of keys (X25519); expand: bytes by which a
    seed grows in 1 s (ChaCha20); share: s for one share that is made or used, of ten or so.
    """

    keys: float = 35e-6
    expand: float = 4.5e9
    share: float = 1.5e-6


class Exchange(NamedTuple):
    """Bytes of a call, beside what the method asks, and of its reply; seconds (n,) of agents."""

    down: float
    up: float
    seconds: Array


@dataclass(frozen=True)
class Protocol:
    """How many neighbours an agent has and how many shares make a secret known.

    neighbours: of secagg+, a whole even number, None for 2 ceil(log2 n); threshold: how many shares
    make a secret known, up to 1 as a share of a neighbourhood, itself included.
    """

    kind: Kind = "secagg"
    neighbours: int | None = None
    threshold: float = 2.0 / 3.0
    sizes: Sizes = field(default=Sizes())
    works: Works = field(default=Works())

    def degree(self, agents: int) -> int:
        """How many neighbours each of so many agents has."""
        if self.kind == "secagg":
            return max(agents - 1, 0)
        wanted = self.neighbours or 2 * int(np.ceil(np.log2(max(agents, 2))))
        return max(min(wanted, agents - 1), 0)

    def least(self, agents: int) -> int:
        """How many shares of a secret make it known; at least 2."""
        of = 1 if self.threshold > 1.0 else self.degree(agents) + 1
        return max(2, int(np.ceil(self.threshold * of - 1e-9)))


class Circle:
    """One round of agents who (n,): who holds shares of whom, and what is sent and done."""

    def __init__(self, protocol: Protocol, seed: int, round_: int, who: Int) -> None:
        self.protocol, self.who, n = protocol, who, len(who)
        self.degree, self.least = protocol.degree(n), protocol.least(n)
        self.whole = self.degree == n - 1  # everybody is everybody's neighbour
        self.order = permutation(seed, Stream.SUM, n, round=round_, step=CIRCLE)

    def around(self) -> Int:
        """The neighbourhood of each agent: places among the agents (n, degree + 1), its own too."""
        n, half = len(self.who), self.degree // 2
        if self.whole:
            return np.tile(np.arange(n), (n, 1))
        found = np.empty((n, self.degree + 1), np.int64)
        turns = np.arange(n)[:, None] + np.arange(-half, half + 1)
        found[self.order] = self.order[turns % n]
        return found

    def among(self, left: Int) -> Mask:
        """Which of the agents (n,) are in `left` (m,)."""
        return np.isin(self.who, left)

    def near(self, left: Mask) -> Int:
        """How many in the neighbourhood of each agent (n,), itself included, are left (n,)."""
        n = len(self.who)
        if self.whole:
            return np.full(n, np.count_nonzero(left))
        half = self.degree // 2
        turn = left[self.order].astype(np.int64)
        sums = np.concatenate(
            [[0], np.cumsum(np.concatenate([turn[n - half :], turn, turn[:half]]))]
        )
        found = np.empty(n, np.int64)
        found[self.order] = sums[2 * half + 1 :] - sums[:n]
        return found

    def void(self, sharing: Mask, left: Mask) -> bool:
        """Whether a secret of those that shared theirs (n,) is lost with who is left (n,)."""
        return bool((self.near(left)[sharing] < self.least).any()) or not sharing.any()

    def parts(self, came: Mask) -> int:
        """In how many parts those are whose numbers came (n,), between which there are no masks.

        The sum of each part would be known; Bell et al. 2020 have graphs that stay connected.
        """
        places = np.flatnonzero(came[self.order])
        if self.whole or len(places) < 2:
            return 1
        gaps = np.diff(places, append=places[0] + len(came))
        return max(1, int(np.count_nonzero(gaps > self.degree // 2)))

    def exchange(self, number: int, left: Mask, before: Mask, numbers: int, bits: int) -> Exchange:
        """Exchange 0, 1, 2 or 3 with who is left (n,); before (n,): who shared, of the last one.

        numbers: how many each agent adds, of so many bits. Messages are as long as the longest.
        """
        sizes, works, near = self.protocol.sizes, self.protocol.works, self.near(left)
        nothing, many = np.zeros(len(near)), int(near[left].max(initial=0))
        if number == 0:
            return Exchange(0.0, 2.0 * sizes.key, nothing + 2.0 * works.keys)
        if number == 1:
            down = many * (2.0 * sizes.key + sizes.agent)
            up = max(many - 1, 0) * (sizes.cipher + sizes.agent)
            shares = 2.0 * near * works.share
            return Exchange(down, up, np.maximum(near - 1, 0) * works.keys + shares)
        if number == 2:
            down = max(many - 1, 0) * (sizes.cipher + sizes.agent)
            agreed, grown = np.maximum(near - 1, 0) * works.keys, near * self._grown(numbers, bits)
            return Exchange(down, numbers * bits / 8.0, agreed + grown)
        known = int(self.near(before)[left].max(initial=0))
        named = known * sizes.agent
        opened = many * sizes.seed_share + (known - many) * sizes.key_share
        return Exchange(named, named + opened, nothing)

    def unmasked(self, sharing: Mask, came: Mask, numbers: int, bits: int) -> float:
        """Seconds that it takes the coordinator to unmask the numbers that came (n,).

        Of each of these it grows the seed; of each of those that shared and sent none a mask in
        common with every neighbour whose numbers came.
        """
        works, grown = self.protocol.works, self._grown(numbers, bits)
        lost = sharing & ~came
        secrets = np.count_nonzero(came) + np.count_nonzero(lost)
        pairs = int(self.near(came)[lost].sum())
        seeds = np.count_nonzero(came) * grown
        return float(secrets * self.least * works.share + seeds + pairs * (works.keys + grown))

    def _grown(self, numbers: int, bits: int) -> float:
        """Seconds to make so many numbers of a seed."""
        return numbers * bits / 8.0 / self.protocol.works.expand
