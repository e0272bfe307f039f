"""Sums by key over a table that is read piece by piece: the bits are those of one reading.

Floating-point sums depend on the order in which they are formed. Here every key's values are added
one after another, wherever a piece ends.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Array = NDArray[np.float64]
FEW = 32  # keys of which each is summed by itself: more are summed side by side


class Keys:
    """Whole numbers that are found one after another, each with a place from 0 on."""

    def __init__(self) -> None:
        self._sorted, self._places = np.empty(0, np.int64), np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._sorted)

    def of(self, keys: Int) -> Int:
        """The places (n,) of keys (n,); new ones get the next."""
        found, back = np.unique(keys, return_inverse=True)
        new = found[~np.isin(found, self._sorted, assume_unique=True)]
        if len(new):
            at, places = np.searchsorted(self._sorted, new), len(self) + np.arange(len(new))
            self._sorted = np.insert(self._sorted, at, new)
            self._places = np.insert(self._places, at, places)
        return np.asarray(self._places[np.searchsorted(self._sorted, found)][back])

    @property
    def sorted(self) -> tuple[Int, Int]:
        """All keys in order, and their places."""
        return self._sorted, self._places


class Sums:
    """Sums (keys,) of numbers by the places of their keys, as a loop over the rows adds them."""

    def __init__(self, kind: type = float) -> None:
        self.values: NDArray[Any] = np.zeros(0, kind)

    def add(self, places: Int, values: NDArray[Any] | int) -> None:
        """Add values (n,) at places (n,)."""
        self.values = longer(self.values, places)
        np.add.at(self.values, places, values)

    def at(self, places: Int) -> NDArray[Any]:
        """The sums (n,) of places (n,); 0 of those of which nothing was added."""
        return longer(self.values, places)[places]


class CompensatedSums(Sums):
    """The same with what rounding takes from each sum carried along (Kahan), as pandas does it."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: NDArray[Any] = np.zeros(0)

    def add(self, places: Int, values: NDArray[Any] | int) -> None:
        """See Sums."""
        self.values, self.lost = (longer(one, places) for one in (self.values, self.lost))
        order = np.argsort(places, kind="stable")
        at, rows = places[order], np.asarray(values, float)[order]
        first = np.flatnonzero(np.diff(at, prepend=-1))
        number = np.diff(first, append=len(at))
        by = np.argsort(-number, kind="stable")  # who has most comes first, and lasts longest
        first, number = first[by], number[by]
        turn = 0
        while (many := int(np.searchsorted(-number, -turn, side="left"))) > FEW:
            here = first[:many] + turn
            self._step(at[here], rows[here])
            turn += 1
        for start, end in zip(first[:many] + turn, first[:many] + number[:many], strict=True):
            self._run(int(at[start]), rows[start:end])

    def _step(self, at: Int, values: Array) -> None:
        """Add a value to each of several sums."""
        was = self.values[at]
        with np.errstate(invalid="ignore"):
            step = values - self.lost[at]
            now = was + step
            lost = now - was - step
        self.values[at], self.lost[at] = now, np.where(lost == lost, lost, 0.0)

    def _run(self, at: int, values: Array) -> None:
        """Add values to one sum."""
        total, lost = float(self.values[at]), float(self.lost[at])
        for value in values.tolist():
            step = value - lost
            now = total + step
            lost = now - total - step
            lost = lost if lost == lost else 0.0
            total = now
        self.values[at], self.lost[at] = total, lost


def longer(values: NDArray[Any], places: Int) -> NDArray[Any]:
    """The values, with zeros after them as far as the places reach."""
    lacking = int(places.max(initial=-1)) + 1 - len(values)
    if lacking <= 0:
        return values
    room = max(lacking, len(values) // 2)
    return np.concatenate([values, np.zeros(room, values.dtype)])
