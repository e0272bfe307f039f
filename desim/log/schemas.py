"""The schemas of the tables in Arrow, and how columns become tables and tables data frames."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from desim.columns import Columns, Deferred, Words
from desim.log.column_meanings import COLUMNS, KINDS, METRICS, ROWS, described
from desim.numerics.later import pd

WORD = pa.dictionary(pa.int8(), pa.string())
TYPES = {"f8": pa.float64(), "i8": pa.int64(), "i4": pa.int32(), "word": WORD}
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


def _field(table: str, name: str, kind: str) -> pa.Field:
    """A column without nulls, with what it means and its unit in its metadata."""
    unit, meaning = COLUMNS[table][name]
    about = {"help": meaning, **({"unit": unit} if unit else {})}
    return pa.field(name, TYPES[kind], nullable=False, metadata=about)  # and cheaper to encode


def _about(table: str) -> dict[str, str]:
    """What a table's file says of it: its row, and what its words mean."""
    words = {"events": ("kinds", KINDS), "metrics": ("metrics", METRICS)}.get(table)
    return {"row": ROWS[table]} | ({words[0]: json.dumps(words[1])} if words else {})


SCHEMAS = {
    table: pa.schema([_field(table, *field) for field in fields.items()], metadata=_about(table))
    for table, fields in FIELDS.items()
}


def table_of(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """The rows of table `name`; `columns` are arrays, lists or Words of one length.

    Views of other arrays are copied, unless the columns are deferred: those are nobody else's.
    Raise ValueError where a column is missing, unknown or of another length.
    """
    schema = SCHEMAS[name]
    if odd := sorted(set(columns) ^ set(schema.names)):
        raise ValueError(f"table {name}: missing or unknown columns {', '.join(odd)}")
    lent = not isinstance(columns, Deferred)
    arrays = [
        _words(columns[one]) if kind == "word" else _numbers(columns[one], TYPES[kind], kind, lent)
        for one, kind in FIELDS[name].items()
    ]
    if len(set(map(len, arrays))) > 1:
        lengths = dict(zip(schema.names, map(len, arrays), strict=True))
        raise ValueError(f"table {name}: columns of different lengths {lengths}")
    return pa.Table.from_arrays(arrays, schema=schema)


def columns_of(table: pa.Table) -> Columns:
    """The columns of a table as arrays and Words."""
    return {name: _column(table.column(name)) for name in table.column_names}


def _numbers(values: Any, kind: pa.DataType, dtype: str, lent: bool) -> pa.Array:
    """A column in Arrow's memory layout; `pa.array` would import pandas to ask what it is."""
    own = np.ascontiguousarray(values, dtype)
    own = own.copy() if lent and not own.flags.owndata else own
    return pa.Array.from_buffers(kind, len(own), [None, pa.py_buffer(own)])


def _words(values: Any) -> pa.DictionaryArray:
    if hasattr(values, "categories"):
        values = Words(values.codes, list(values.categories))
    if not isinstance(values, Words):
        words, codes = np.unique(np.asarray(values, str), return_inverse=True)
        values = Words(codes, words.tolist())
    codes = _numbers(values.codes, pa.int8(), "i1", False)
    return pa.DictionaryArray.from_arrays(codes, _dictionary(tuple(values.words)))


@lru_cache(maxsize=64)
def _dictionary(words: tuple[str, ...]) -> pa.Array:
    texts = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(texts), parts)


def _column(values: pa.ChunkedArray) -> Any:
    if values.type != WORD:
        return _plain(values.combine_chunks())
    whole = values.unify_dictionaries().combine_chunks()
    return Words(_plain(whole.indices).astype(np.int8), whole.dictionary.to_pylist())


def _plain(column: pa.Array) -> Any:
    """The numbers of an Arrow array; its own conversion imports pandas."""
    if column.null_count:  # in a file that desim has not written
        return column.to_numpy(zero_copy_only=False)
    first, kind = column.offset, column.type.to_pandas_dtype()
    data = column.buffers()[1]
    return np.frombuffer(data or b"", kind)[first : first + len(column)]


def concatenated(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables in turn."""
    if not tables:
        return pa.Table.from_batches([], schema)  # `empty_table` would import pandas
    return pa.concat_tables(tables).unify_dictionaries()


def frame_of(table: pa.Table, name: str) -> "pd.DataFrame":
    """Table `name` as a DataFrame, with what its columns are in `.attrs`.

    Its categories are those that occur, in alphabetic order, whatever the parts.
    """
    known = zip(table.column_names, table.columns, strict=True)
    if any(one.null_count or one.type != SCHEMAS[name].field(key).type for key, one in known):
        return described(_foreign(table), name)
    columns = columns_of(table).items()
    found = {
        one: _category(values) if isinstance(values, Words) else values for one, values in columns
    }
    return described(pd.DataFrame(found), name)


def _foreign(table: pa.Table) -> "pd.DataFrame":
    """The frame of a file that desim has not written, with nulls or of other types."""
    frame: pd.DataFrame = table.to_pandas()
    for field in table.schema:
        if field.type == WORD:
            words = frame[field.name].cat.remove_unused_categories()
            frame[field.name] = words.cat.set_categories(sorted(words.cat.categories))
    return frame


def _category(values: Words) -> Any:
    used = sorted(np.unique(values.codes).tolist(), key=values.words.__getitem__)
    place = np.zeros(len(values.words), np.int8)
    place[used] = np.arange(len(used))
    words = [values.words[code] for code in used]
    kind = pd.CategoricalDtype(words)
    return pd.Categorical.from_codes(place[values.codes], dtype=kind, validate=False)
