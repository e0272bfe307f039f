"""Columns of a table on their way to it: words as codes, and rows that are put in order later."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Words(NamedTuple):
    """A column of words: codes (n,) int8 of `words`."""

    codes: NDArray[np.int8]
    words: list[str]


class Deferred(Mapping[str, Any]):
    """Columns of `rows` rows that `make` computes when the first of them is asked for."""

    def __init__(self, rows: int, make: Callable[[], dict[str, Any]]) -> None:
        self.rows = rows
        self._make: Callable[[], dict[str, Any]] | None = make

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The columns by name; what they are made of is let go."""
        assert self._make is not None
        make, self._make = self._make, None
        return make()

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)
