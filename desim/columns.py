"""Columns of a table as arrays: words as codes, and rows that are put in order later."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, Any]  # arrays (n,) by name; of words, a `Words`


class Words(NamedTuple):
    """A column of words: codes (n,) of `words`, which differ; a code below 0 is no word."""

    codes: NDArray[np.integer[Any]]
    words: list[str]

    def equal(self, word: str) -> NDArray[np.bool_]:
        """Which rows (n,) hold the word."""
        code = self.words.index(word) if word in self.words else len(self.words)
        return np.asarray(self.codes == code)


def columns_of(table: Any) -> Columns:
    """The columns of a data frame, or of a mapping that has them already."""
    if isinstance(table, Mapping):
        return dict(table)
    return {str(name): _column(table[name]) for name in table}


def _column(series: Any) -> Any:
    if hasattr(series, "cat"):
        return Words(series.cat.codes.to_numpy(), [str(word) for word in series.cat.categories])
    values = series.to_numpy()
    if values.dtype != object:
        return values
    words, codes = np.unique(values.astype(str), return_inverse=True)
    return Words(np.where(series.isna(), -1, codes), words.tolist())


def rows_of(columns: Mapping[str, Any], where: Any) -> Columns:
    """The rows `where`, a mask or indices, of all columns."""
    return {
        name: Words(one.codes[where], one.words) if isinstance(one, Words) else one[where]
        for name, one in columns.items()
    }


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
