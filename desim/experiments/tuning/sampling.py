"""Who proposes candidates: at random, all of a grid, or a sampler of Optuna that learns.

A batch has as many candidates as the file says, whatever the number of workers, and what a sampler
is told, it is told in their order: so the same file gives the same candidates in the same order.
"""

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from desim.arrays import Array
from desim.experiments.studies.ranges import Range, Vary

TRIES = 1000  # draws in a row that were all known before a sampler has nothing more to say

Values = dict[str, Any]


class Sampler(Protocol):
    """What proposes candidates and is told how they fared."""

    def ask(self, count: int) -> list[Values]:
        """At most so many candidates that were not proposed before; none: there are no more."""

    def tell(self, scores: Sequence[Array | None]) -> None:
        """What the latest candidates needed (goals,) each, in order; None where none could be."""


def size(vary: Vary) -> float:
    """How many candidates there are; inf where a range has no steps."""
    total = 1.0
    for one in vary.values():
        if isinstance(one, Range):
            total *= one.high - one.low + 1 if one.kind == "integer" else np.inf
        else:
            total *= len(one)
    return total


def at(vary: Vary, shares: Mapping[str, float]) -> Values:
    """The values at a share in [0, 1) of each key's list or range."""
    return {
        key: one.at(shares[key]) if isinstance(one, Range) else one[int(shares[key] * len(one))]
        for key, one in vary.items()
    }


class Random:
    """Candidates drawn alike and independently; the n-th depends on seed, n and its keys alone.

    again: whether one that was drawn before is proposed once more.
    """

    def __init__(self, vary: Vary, seed: int, again: bool = False) -> None:
        self.vary, self.seed, self.again = vary, seed, again
        self.drawn = 0
        self.known: set[str] = set()

    def ask(self, count: int) -> list[Values]:
        """New candidates."""
        found: list[Values] = []
        tries = 0
        while len(found) < count and tries < TRIES and len(self.known) < size(self.vary):
            values = at(self.vary, self._shares())
            tries += 1
            if repr(values) not in self.known:
                self.known |= set() if self.again else {repr(values)}
                found.append(values)
                tries = 0
        return found

    def _shares(self) -> dict[str, float]:
        draws = {
            key: np.random.default_rng([self.seed, self.drawn, zlib.crc32(key.encode())])
            for key in self.vary
        }
        self.drawn += 1
        return {key: float(rng.random()) for key, rng in draws.items()}

    def tell(self, scores: Sequence[Array | None]) -> None:
        """Nothing is learnt."""


class Grid:
    """All combinations of lists and of ranges of whole numbers."""

    def __init__(self, vary: Vary) -> None:
        self.left: Iterator[tuple[Any, ...]] = itertools.product(*map(steps, vary.values()))
        self.keys = list(vary)

    def ask(self, count: int) -> list[Values]:
        """The next combinations, in the order of the file."""
        some = itertools.islice(self.left, count)
        return [dict(zip(self.keys, values, strict=True)) for values in some]

    def tell(self, scores: Sequence[Array | None]) -> None:
        """Nothing is learnt."""


def steps(one: Any) -> Sequence[Any]:
    """Every value of a list or of a range of whole numbers."""
    if isinstance(one, Range):
        return [one.written(number) for number in range(int(one.low), int(one.high) + 1)]
    return tuple(one)
