"""The tables of a run in Arrow: how columns become tables, and tables data frames."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from desim.columns import Words
from desim.log.described import COLUMNS, KINDS, METRICS, ROWS, described
from desim.log.fields import FIELDS, Columns

if TYPE_CHECKING:
    import pandas as pd

WORD = pa.dictionary(pa.int8(), pa.string())
TYPES = {"f8": pa.float64(), "i8": pa.int64(), "i4": pa.int32(), "word": WORD}


def _field(table: str, name: str, kind: str) -> pa.Field:
    """A column, with what it means and its unit in its metadata."""
    unit, meaning = COLUMNS[table][name]
    return pa.field(
        name, TYPES[kind], metadata={"help": meaning, **({"unit": unit} if unit else {})}
    )


def _about(table: str) -> dict[str, str]:
    """What a table's file says of it: its row, and what its words mean."""
    words = {"events": ("kinds", KINDS), "metrics": ("metrics", METRICS)}.get(table)
    return {"row": ROWS[table]} | ({words[0]: json.dumps(words[1])} if words else {})


SCHEMAS = {
    table: pa.schema([_field(table, *field) for field in fields.items()], metadata=_about(table))
    for table, fields in FIELDS.items()
}


def table_of(name: str, columns: Columns) -> pa.Table:
    """The rows of table `name`: `columns` as `checked` returns them."""
    schema = SCHEMAS[name]
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def columns_of(table: pa.Table) -> dict[str, Any]:
    """The columns of a table as `checked` returns them."""
    return {name: _column(table.column(name)) for name in table.column_names}


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """A column in Arrow's memory layout; `pa.array` would import pandas to ask what it is."""
    if isinstance(values, Words):
        texts = [word.encode() for word in values.words]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
        words = pa.Array.from_buffers(pa.string(), len(texts), parts)
        return pa.DictionaryArray.from_arrays(
            _array(np.ascontiguousarray(values.codes, np.int8), pa.int8()), words
        )
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


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
        return schema.empty_table()  # imports pandas
    return pa.concat_tables(tables).unify_dictionaries()


def frame_of(table: pa.Table, name: str) -> "pd.DataFrame":
    """Table `name` as a DataFrame, with what its columns are in `.attrs`.

    Its categories are those that occur, in alphabetic order, whatever the parts.
    """
    frame: pd.DataFrame = table.to_pandas()
    for field in table.schema:
        if field.type == WORD:
            words = frame[field.name].cat.remove_unused_categories()
            frame[field.name] = words.cat.set_categories(sorted(words.cat.categories))
    return described(frame, name)
