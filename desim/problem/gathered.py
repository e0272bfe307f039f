"""Rows that stay in their file or array, and are read when somebody asks for them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Int

ROOM = 1 << 26  # bytes of rows that are looked at at a time


class Joined:
    """Arrays (rows, ...) one behind the other, as one array that is nowhere copied whole."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *(len(one) for one in parts)])
        self.shape: tuple[int, ...] = (int(self.starts[-1]), *parts[0].shape[1:])
        self.dtype = np.result_type(*(one.dtype for one in parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> NDArray[Any]:
        """Rows by their numbers, an array of any shape."""
        place = np.asarray(place)
        found = np.empty((*place.shape, *self.shape[1:]), self.dtype)
        for part, low in zip(self.parts, self.starts, strict=False):
            here = (place >= low) & (place < low + len(part))
            if here.any():
                found[here] = part[place[here] - low]
        return found


class Gathered:
    """Rows source[order] (rows, ...), read when they are asked for: an array without its copy.

    source: an array, a memory map or Joined; order (rows,): numbers of its rows, by default all;
    kind: type of what is given, by default the source's; divisor: of every number.
    """

    def __init__(
        self, source: Any, order: Int | None = None, kind: Any = None, divisor: float = 1.0
    ) -> None:
        self.source, self.divisor = source, divisor
        self.order = np.arange(len(source)) if order is None else order
        self.dtype = np.dtype(source.dtype if kind is None else kind).newbyteorder("=")
        self.shape: tuple[int, ...] = (len(self.order), *source.shape[1:])
        self.ndim, self.itemsize = len(self.shape), self.dtype.itemsize
        self.size = int(np.prod(self.shape, dtype=object))

    def __reduce__(self) -> tuple[Any, ...]:
        return Gathered, (self.source[self.order], None, self.dtype, self.divisor)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> NDArray[Any]:
        """Rows by number, by numbers (an array of any shape), by a slice or a mask."""
        found = np.asarray(self.source[self.order[place]])
        if self.divisor == 1.0:
            return found.astype(self.dtype, copy=False)
        if found.dtype == np.uint8:
            return np.asarray(np.divide(found, self.divisor, dtype=self.dtype))
        return np.asarray((np.asarray(found, float) / self.divisor).astype(self.dtype))

    def take(self, place: Any, axis: int = 0, out: None = None, mode: str = "") -> NDArray[Any]:
        """Rows by their numbers, as numpy.take asks for them."""
        return self[place]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def copy(self) -> NDArray[Any]:
        """All rows, in memory."""
        return np.array(self[:])

    def rows(self, chosen: Any) -> "Gathered":
        """Some of the rows, by their numbers (n,)."""
        return Gathered(self.source, self.order[chosen], self.dtype, self.divisor)

    def astype(self, kind: Any, copy: bool = False) -> "Gathered":
        """The same rows in another type."""
        return Gathered(self.source, self.order, kind, self.divisor)


def chunks(rows: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """The rows of an array or of Gathered, some at a time, and the number of the first."""
    some = max(1, ROOM // max(1, rows.dtype.itemsize * int(np.prod(rows.shape[1:]))))
    for low in range(0, len(rows), some):
        yield low, np.asarray(rows[low : low + some])


def stored(rows: Any) -> np.dtype[Any]:
    """The type in which rows are kept, whatever they are given as."""
    dtype: np.dtype[Any] = rows.source.dtype if isinstance(rows, Gathered) else rows.dtype
    return dtype


def largest(rows: Any) -> float:
    """The largest number of rows, 0 where there is none."""
    return max((float(part.max(initial=0)) for _, part in chunks(rows)), default=0.0)
