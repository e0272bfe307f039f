"""What the tables of a run hold, and how columns become Arrow tables and data frames."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from desim.columns import Words
from desim.log.described import described

if TYPE_CHECKING:
    import pandas as pd

WORD = pa.dictionary(pa.int8(), pa.string())
TYPES = {"f8": pa.float64(), "i8": pa.int64(), "i4": pa.int32(), "word": WORD}
COLUMNS = {
    "events": "time f8, seq i8, kind word, agent i4, peer i4, round i4, bytes i8, seconds f8, "
    "value f8, release i8",
    "metrics": "time f8, round i4, metric word, agent i4, value f8",
    "releases": "time f8, agent i4, round i4, release i8, mechanism word, sensitivity f8, "
    "scale f8, sampling f8, seen_by word, delivered i4",
}
SCHEMAS = {
    table: pa.schema([(name, TYPES[kind]) for name, kind in map(str.split, columns.split(", "))])
    for table, columns in COLUMNS.items()
}


def table_of(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """The rows of table `name`: `columns` are arrays or lists of one length.

    Raise ValueError where a column is missing, unknown or of another length.
    """
    schema = SCHEMAS[name]
    if set(columns) != set(schema.names):
        odd = sorted(set(columns) ^ set(schema.names))
        raise ValueError(f"table {name}: missing or unknown columns {', '.join(odd)}")
    arrays = {
        one: len(values.codes if isinstance(values, Words) else values)
        for one, values in columns.items()
    }
    if len(set(arrays.values())) > 1:
        raise ValueError(f"table {name}: columns of different lengths {arrays}")
    return pa.Table.from_arrays(
        [_array(columns[one.name], one.type) for one in schema], schema=schema
    )


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """`values` as an Arrow array; whole arrays are taken as they are, views of others copied."""
    if kind != WORD:
        own = np.asarray(values, kind.to_pandas_dtype())
        return pa.array(own if own.flags.owndata else own.copy())
    if isinstance(values, Words):
        return pa.DictionaryArray.from_arrays(pa.array(values.codes), pa.array(values.words))
    if hasattr(values, "categories"):
        return pa.array(values).cast(WORD)
    return pa.array(values, pa.string()).dictionary_encode().cast(WORD)


def concatenated(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables in turn."""
    return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


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
