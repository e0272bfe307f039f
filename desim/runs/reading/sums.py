"""Sums by key over a table that is read piece by piece: the bits are those of one reading.

Floating-point sums depend on the order in which they are formed. Here every key's values are added
one after another, wherever a piece ends.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Int


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


def longer(values: NDArray[Any], places: Int) -> NDArray[Any]:
    """The values, with zeros after them as far as the places reach."""
    lacking = int(places.max(initial=-1)) + 1 - len(values)
    if lacking <= 0:
        return values
    room = max(lacking, len(values) // 2)
    return np.concatenate([values, np.zeros(room, values.dtype)])
