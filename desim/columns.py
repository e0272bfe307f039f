"""Columns of a table as arrays: words as codes, and rows that are put in order later."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

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


class Pieces(Sequence[Columns]):
    """The rows of a table in their order, piece by piece, each read when it is asked for.

    first (n + 1,): number of the first row of each piece, and of all rows; read(k): columns of
    piece k. Words of pieces may have other codes.
    """

    def __init__(self, rows: Sequence[int], read: Callable[[int], Columns]) -> None:
        self.first = np.cumsum([0, *rows])
        self._read = read

    def __len__(self) -> int:
        return len(self.first) - 1

    @overload
    def __getitem__(self, place: int) -> Columns: ...
    @overload
    def __getitem__(self, place: slice) -> list[Columns]: ...
    def __getitem__(self, place: int | slice) -> Columns | list[Columns]:
        if isinstance(place, slice):
            return [self._read(k) for k in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self._read(place % len(self))


def pieces_of(table: Any) -> Pieces:
    """A table as pieces: a data frame, or columns, are one."""
    if isinstance(table, Pieces):
        return table
    columns = columns_of(table)
    one = next(iter(columns.values()), ())
    return Pieces([len(one.codes if isinstance(one, Words) else one)], lambda _: columns)


def joined(parts: Sequence[Columns]) -> Columns:
    """The rows of all parts, at least one, in turn; words are those of all of them."""
    if len(parts) == 1:
        return parts[0]
    whole: Columns = {}
    for name, one in parts[0].items():
        columns = [part[name] for part in parts]
        whole[name] = _spelled(columns) if isinstance(one, Words) else np.concatenate(columns)
    return whole


def _spelled(columns: Sequence[Words]) -> Words:
    words = list(dict.fromkeys(word for column in columns for word in column.words))
    codes = []
    for column in columns:
        known = np.array([words.index(word) for word in column.words] + [-1], np.int64)
        codes.append(known[np.maximum(column.codes, -1)].astype(np.int8))
    return Words(np.concatenate(codes), words)


def gathered(pieces: Pieces, where: Callable[[Columns], Any] | None = None) -> Columns:
    """All rows of pieces as one, or those for which `where` has a mask or indices."""
    return joined([one if where is None else rows_of(one, where(one)) for one in pieces])
