"""The columns of the tables of a run and their types: what is handed over is held to them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from desim.columns import Deferred, Words

TYPES: Mapping[str, Any] = {"f8": np.float64, "i8": np.int64, "i4": np.int32, "word": np.int8}
FIELDS = {  # table -> column -> type
    table: dict(map(str.split, columns.split(", ")))
    for table, columns in {
        "events": "time f8, seq i8, kind word, agent i4, peer i4, round i4, bytes i8, seconds f8, "
        "value f8, release i8",
        "metrics": "time f8, round i4, metric word, agent i4, value f8",
        "releases": "time f8, agent i4, round i4, release i8, mechanism word, sensitivity f8, "
        "scale f8, sampling f8, seen_by word, delivered i4",
    }.items()
}
Columns = Mapping[str, Any]


def checked(name: str, columns: Columns) -> tuple[int, dict[str, Any]]:
    """How many rows, and the columns of table `name` as arrays of their types, and Words.

    `columns` are arrays or lists of one length; views of others are copied, unless the columns are
    deferred: those are nobody else's. Raise ValueError where a column is missing, unknown or of
    another length.
    """
    fields = FIELDS[name]
    if set(columns) != set(fields):
        odd = sorted(set(columns) ^ set(fields))
        raise ValueError(f"table {name}: missing or unknown columns {', '.join(odd)}")
    kept = isinstance(columns, Deferred)
    own = {one: _own(columns[one], kind, kept) for one, kind in fields.items()}
    lengths = {
        one: len(values.codes if isinstance(values, Words) else values)
        for one, values in own.items()
    }
    if len(set(lengths.values())) > 1:
        raise ValueError(f"table {name}: columns of different lengths {lengths}")
    return lengths["time"], own


def _own(values: Any, kind: str, kept: bool) -> Any:
    if kind != "word":
        own = np.asarray(values, TYPES[kind])
        whole = own.flags.c_contiguous and (kept or own.flags.owndata)
        return own if whole else own.copy()
    if isinstance(values, Words):
        return values
    if hasattr(values, "categories"):
        return Words(np.asarray(values.codes, np.int8), list(values.categories))
    words, codes = np.unique(np.asarray(values, str), return_inverse=True)
    return Words(codes.astype(np.int8), words.tolist())
