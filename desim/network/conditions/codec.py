"""How messages are coded before they are sent: what is left of them, and how many bits it takes.

The length of a message follows from its dimension alone, never from its values: clocks are known
when it is sent, and its length tells nothing of data. Sparse messages have values and either
indices of ceil(log2 dim) bits or a bitmap of dim bits, whichever is shorter.
"""

from dataclasses import dataclass
from math import ceil, log2, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from desim.arrays import Array

BITS = {"none": 64, "float64": 64, "float32": 32, "float16": 16}  # of one number
ROUNDED = ("float32", "float16")
DUALS = "the duals of a link answer to the same two models at both of its ends"
DRIFTS = "an average that hears less than whole models moves the mean of all, which choco-sgd keeps"
KEEPS = "what its agents keep moves by all that they send, of which others would hear a part"
LOSSY = ("top-k", "random-k", "quantise")
NORM = 32  # bits of the norm that goes with quantised numbers

Kind = Literal["none", "float32", "float16", "top-k", "random-k", "quantise"]
Memory = Literal["none", "error", "known"]


@dataclass(frozen=True)
class Codec:
    """kind, and of lossy kinds: kept, a share (float) or a number (int) of coordinates, or bits.

    numbers: how a sparse message writes values; seeded: both ends draw the coordinates of random-k.
    memory: error, the sender adds what earlier messages lost; known, it codes the difference to
    what the receiver has; none, random-k and quantise are unbiased.
    """

    kind: Kind = "none"
    amount: float | int = 0
    numbers: str = "float32"
    seeded: bool = False
    memory: Memory = "none"

    @property
    def lossy(self) -> bool:
        """Whether it leaves more out than the last digits of numbers."""
        return self.kind in LOSSY

    def coordinates(self, dim: int) -> int:
        """How many of `dim` coordinates a sparse message has, at least one."""
        many = self.amount if isinstance(self.amount, int) else int(self.amount * dim + 0.5)
        return min(max(many, 1), dim)

    @property
    def most(self) -> int:
        """The paper's s of quantise: levels are -s .. s, which `amount` bits hold."""
        return (1 << (int(self.amount) - 1)) - 1

    def bits(self, dim: int) -> int:
        """Bits of a message of `dim` numbers."""
        if not self.lossy:
            return BITS[self.kind] * dim
        if self.kind == "quantise":
            return NORM + int(self.amount) * dim
        k = self.coordinates(dim)
        indices = 0 if self.seeded else min(k * ceil(log2(dim)), dim)
        return k * BITS[self.numbers] + indices

    def delta(self, dim: int) -> float:
        """The delta with E|x - C(x)|^2 <= (1 - delta)|x|^2 of its contractive form."""
        if not self.lossy:
            return 1.0
        return 1.0 / self.tau(dim) if self.kind == "quantise" else self.coordinates(dim) / dim

    def tau(self, dim: int) -> float:
        """1 + min(dim / s^2, sqrt(dim) / s), with E|Q(x)|^2 <= tau |x|^2 (QSGD, Lemma 3.1)."""
        return 1.0 + min(dim / self.most**2, sqrt(dim) / self.most)

    def coded(self, seed: int, x: Array, unbiased: bool, **place: Any) -> Array:
        """What a receiver reads of x (n, dim), whose draws have the address (seed, CODEC, *place).

        unbiased: random-k over its share, quantise as it is; else the contraction, random-k as it
        is and quantise over tau. Top-k is a contraction, and biased.
        """
        if not self.lossy:
            return x if self.kind == "none" else rounded(x, self.kind)
        from desim.problem.kernels.codecs import encoded

        return np.asarray(encoded(self, seed, x, unbiased, **place))


def rounded(x: Array, number: str) -> Array:
    """What x (n, dim) is once it was written in the format `number`: post-processing."""
    with np.errstate(over="ignore"):
        return x.astype(number).astype(float)


class Codecs(NamedTuple):
    """up: of what agents send, to a coordinator or to each other; down: of what they are sent."""

    up: Codec = Codec()
    down: Codec = Codec()

    @property
    def plain(self) -> bool:
        """Whether messages go out as they are."""
        return self.up.kind == self.down.kind == "none"


AS_THEY_ARE = Codecs()
