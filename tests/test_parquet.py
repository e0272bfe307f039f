"""Tables: what is appended is what is read, whatever the flushes, however the run ended."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutant import mutant

from desim.columns import Deferred, Words
from desim.errors import InputError
from desim.log import parquet, schemas
from desim.log.parquet import Tables, dataset_of, read_table
from desim.log.schemas import SCHEMAS, concatenated, table_of

KINDS = ["compute", "send", "deliver"]


def event_columns(rows, first=0):
    """Rows first..first+rows-1 of one endless log."""
    seq = np.arange(first, first + rows)
    return {
        "time": 0.25 * (seq // 3),
        "seq": seq,
        "kind": pd.Categorical.from_codes(seq % 3, KINDS),
        "agent": seq % 7 - 1,
        "peer": -1 + 0 * seq,
        "round": seq // 10,
        "bytes": 136 * (seq % 2),
        "seconds": 0.1 * (seq % 5),
        "value": np.full(rows, np.nan),
        "release": np.where(seq % 4 == 0, seq, -1),
    }


METRICS = {
    "time": [0.0, 0.5],
    "round": [0, 1],
    "metric": ["error", "accuracy"],
    "agent": [-1, 3],
    "value": [1.0, 0.5],
}
RELEASES = {
    "time": [0.5],
    "agent": [2],
    "round": [1],
    "release": [12],
    "mechanism": np.array(["gaussian"]),
    "sensitivity": [np.inf],
    "scale": [0.1],
    "sampling": [np.nan],
    "seen_by": np.array(["coordinator"], object),
    "delivered": [1],
}


def fill(tables, cuts):
    for first, last in pairwise(cuts):
        tables.append("events", event_columns(last - first, first))
    return tables


def check_flushes_do_not_matter(module, folder, cuts):
    """The file of a run flushed at `cuts` has the bytes of one that was flushed once."""
    files = []
    for number, way in enumerate(([0, cuts[-1]], cuts)):
        file = module.Growing(folder / f"{number}.growing", "events")
        for first, last in pairwise(way):
            file.append(table_of("events", event_columns(last - first, first)))
        file.close(folder / f"{number}.parquet")
        files.append((folder / f"{number}.parquet").read_bytes())
    assert files[0] == files[1]
    assert pq.read_table(folder / "1.parquet")["seq"].to_pylist() == list(range(cuts[-1]))


@pytest.mark.parametrize(
    "cuts", [[0, 1, 2, 500], [0, 200, 200, 500], list(range(0, 501, 20)), [0, 128, 256, 384]]
)
def test_the_file_does_not_depend_on_the_flushes(tmp_path, monkeypatch, cuts):
    monkeypatch.setattr(parquet, "GROUP", 128)
    check_flushes_do_not_matter(parquet, tmp_path, cuts)
    assert pq.ParquetFile(tmp_path / "1.parquet").num_row_groups == -(-cuts[-1] // 128)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("[whole.slice(rows)]", "[whole.slice(rows + 1)]"),
        ("whole.slice(0, rows).combine_chunks()", "whole.combine_chunks()"),
        ("if self._rows:", "if self._rows > GROUP:"),
        ("while self._rows >= self._group", "if self._rows >= self._group"),
    ],
)
def test_row_groups_that_lose_or_mix_rows_are_noticed(tmp_path, right, wrong):
    twin = mutant(parquet, right, wrong)
    twin.GROUP = 128
    with pytest.raises((AssertionError, ValueError)):
        check_flushes_do_not_matter(twin, tmp_path, list(range(0, 481, 20)))


def check_parts(module, folder, monkeypatch):
    """Rows that were settled are read from parts, in order, before the run has ended; and merged.

    The merged file has the bytes of the one that grew.
    """
    folder.mkdir()
    monkeypatch.setattr(module, "PART_SECONDS", -1.0)
    tables = fill(module.Tables(folder), list(range(0, 121, 10)))
    tables.settle()
    assert len(list((folder / "parts").glob("events-*.parquet"))) == 12
    assert read_table(folder, "events")["seq"].tolist() == list(range(120))
    module.merge_parts(folder, "events")
    merged = (folder / "events.parquet").read_bytes()
    tables.finish()
    assert (folder / "events.parquet").read_bytes() == merged


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("tables.clear()", "pass"),
        ("int(path.stem", "-int(path.stem"),
        ("name, tables)\n\n\ndef _write", "name, list(tables)[1:])\n\n\ndef _write"),
    ],
)
def test_parts_hold_all_rows_once_and_in_order(tmp_path, monkeypatch, right, wrong):
    check_parts(parquet, tmp_path / "right", monkeypatch)
    with pytest.raises(AssertionError):
        check_parts(mutant(parquet, right, wrong), tmp_path / "wrong", monkeypatch)


@pytest.mark.parametrize("directory", [True, False])
def test_deferred_columns_are_computed_when_they_are_needed(tmp_path, directory):
    asked = []

    def columns():
        asked.append(True)
        return event_columns(20)

    tables = Tables(tmp_path if directory else None)
    tables.append("events", Deferred(20, columns))
    tables.append("events", Deferred(0, columns))
    assert len(asked) <= directory
    for _ in range(2):
        pd.testing.assert_frame_equal(tables.read("events"), fill(Tables(), [0, 20]).read("events"))
    assert len(asked) == 1


def test_what_is_read_is_what_was_appended(tmp_path):
    stored, kept = fill(Tables(tmp_path), [0, 20, 50]), fill(Tables(), [0, 20, 50])
    for tables in (stored, kept):
        tables.append("metrics", METRICS)
        tables.append("releases", RELEASES)
    stored.settle()
    flushed = {name: read_table(tmp_path, name) for name in SCHEMAS}
    stored.finish()
    for name, columns in [
        ("events", event_columns(50)),
        ("metrics", METRICS),
        ("releases", RELEASES),
    ]:
        frame = read_table(tmp_path, name)
        pd.testing.assert_frame_equal(frame, flushed[name])
        pd.testing.assert_frame_equal(frame, kept.read(name))
        for column, values in columns.items():
            np.testing.assert_array_equal(frame[column], np.asarray(values))


def test_columns_have_their_types_and_units(tmp_path):
    fill(Tables(tmp_path), [0, 5]).finish()
    frame = read_table(tmp_path, "events")
    assert [str(kind) for kind in frame.dtypes] == (
        "float64 int64 category int32 int32 int32 int64 float64 float64 int64".split()
    )
    assert list(frame["kind"].cat.categories) == sorted(KINDS)
    assert frame.attrs["units"] == {"time": "s", "seconds": "s", "bytes": "B"}


def test_empty_tables_have_their_columns(tmp_path):
    Tables(tmp_path).finish()
    for frame in (read_table(tmp_path, "metrics"), Tables().read("metrics")):
        assert list(frame) == SCHEMAS["metrics"].names
        assert len(frame) == 0
        assert str(frame["metric"].dtype) == "category"


def test_some_columns_only(tmp_path):
    fill(Tables(tmp_path), [0, 5]).finish()
    assert list(read_table(tmp_path, "events", ["kind", "time"])) == ["kind", "time"]


def test_a_killed_run_is_read_from_its_parts(tmp_path):
    fill(Tables(tmp_path), list(range(0, 121, 10))).settle()
    (tmp_path / "parts" / "events-00012.partial").write_bytes(b"ARROW1 torn in the middle")
    assert read_table(tmp_path, "events")["seq"].tolist() == list(range(120))
    assert len(read_table(tmp_path, "releases")) == 0


def test_finish_leaves_three_files(tmp_path):
    fill(Tables(tmp_path), [0, 5, 9]).finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "events.parquet",
        "metrics.parquet",
        "releases.parquet",
    ]


def test_files_are_compressed_as_measured(tmp_path):
    fill(Tables(tmp_path), [0, 5000]).finish()
    group = pq.ParquetFile(tmp_path / "events.parquet").metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    encodings = {column.path_in_schema: column.encodings for column in columns}
    compression = {column.path_in_schema: column.compression for column in columns}
    assert compression["time"] == "ZSTD"
    assert compression["kind"] == "LZ4"
    assert "RLE_DICTIONARY" not in encodings["time"]
    assert "DELTA_BINARY_PACKED" in encodings["seq"]
    assert {one for one in encodings if "RLE_DICTIONARY" in encodings[one]} == {
        "kind", "bytes", "value",
    }  # fmt: skip


def test_tables_have_no_nulls_and_older_ones_that_might_are_read(tmp_path):
    wanted = fill(Tables(tmp_path), [0, 50]).read("events")
    for field in SCHEMAS["events"]:
        assert not field.nullable
    (tmp_path / "old").mkdir()
    table = table_of("events", event_columns(50))
    loose = pa.schema([field.with_nullable(True) for field in table.schema])
    pq.write_table(table.cast(loose), tmp_path / "old" / "events.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "old", "events"), wanted)
    found = dataset_of(tmp_path / "old", "events").to_table()
    pd.testing.assert_frame_equal(found.to_pandas(), wanted, check_categorical=False)


def test_words_come_in_any_order(tmp_path):
    codes = np.array([0, 1, 1, 0, 2, 2, 0, 1, 2], np.int8)
    tables, wanted = Tables(tmp_path), []
    for words in (["a", "b", "c"], ["d", "b", "a"], ["d"]):
        own = np.minimum(codes, len(words) - 1).astype(np.int8)
        tables.append("events", event_columns(9) | {"kind": Words(own, words)})
        wanted += [words[code] for code in own]
    tables.finish()
    assert list(read_table(tmp_path, "events")["kind"]) == wanted


def by_pandas(table):
    """The frame that Arrow makes, with the categories that occur, in alphabetic order."""
    frame = table.to_pandas()
    for name in {"kind"} & {*frame}:
        words = frame[name].cat.remove_unused_categories()
        frame[name] = words.cat.set_categories(sorted(words.cat.categories))
    return frame


def unlike(frame_of):
    """Tables of which `frame_of` makes another frame than Arrow does."""
    some, other = event_columns(5), event_columns(4, 1) | {"kind": ["lost", "b", "a", "b"]}
    for parts in ([], [some], [event_columns(0)], [some, event_columns(0), other], [other, some]):
        whole = concatenated(SCHEMAS["events"], [table_of("events", one) for one in parts])
        for table in (whole, whole.slice(1, 2), whole.select(["kind", "agent"])):
            try:
                pd.testing.assert_frame_equal(frame_of(table, "events"), by_pandas(table))
            except (AssertionError, ValueError, IndexError):
                yield table


def test_frames_are_those_of_arrow():
    assert not [*unlike(schemas.frame_of)]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("key=values.words.__getitem__", "key=int"),
        ("np.unique(values.codes).tolist()", "range(len(values.words))"),
        ("place[values.codes]", "values.codes"),
        ("[values.words[code] for code in used]", "sorted(values.words)[: len(used)]"),
    ],
)
def test_wrong_frames_are_noticed(right, wrong):
    assert [*unlike(mutant(schemas, right, wrong).frame_of)]


def foreign():
    """Tables of another tool: one with nulls in its words, the others of other types."""
    whole, words = table_of("events", event_columns(4)), ["send", None, "lost", "send"]
    yield whole.set_column(
        2, "kind", pa.array(words).dictionary_encode().cast(SCHEMAS["events"].field("kind").type)
    )
    yield whole.set_column(2, "kind", pa.array(["send", "x", "lost", "send"]))
    yield whole.set_column(2, "kind", pa.array(["send", "x", "lost", "x"]).dictionary_encode())


def misread(frame_of):
    for table in foreign():
        try:
            kinds = frame_of(table, "events")["kind"].astype(object)
            right = kinds.where(kinds.notna(), None).tolist() == table["kind"].to_pylist()
        except (ValueError, NotImplementedError, RuntimeWarning):
            right = False
        if not right:
            yield table


def test_tables_of_other_tools_are_read():
    assert not [*misread(schemas.frame_of)]


@pytest.mark.parametrize("wrong", ["one.type != SCHEMAS[name].field(key).type", "one.null_count"])
def test_tables_of_other_tools_that_are_read_as_own_ones_are_noticed(wrong):
    assert [*misread(mutant(schemas, wrong, "False").frame_of)]


@pytest.mark.parametrize("directory", [True, False])
def test_buffers_may_be_used_again(tmp_path, directory):
    buffer = np.linspace(0.0, 0.9, 8)
    columns = event_columns(4) | {"time": buffer[:4]}
    tables = Tables(tmp_path if directory else None)
    tables.append("events", columns)
    buffer[:] = 99.0
    assert tables.read("events")["time"].max() < 1.0


def test_rows_must_be_whole():
    columns = event_columns(4)
    with pytest.raises(ValueError, match="different lengths"):
        Tables().append("events", columns | {"time": columns["time"][:3]})
    with pytest.raises(ValueError, match="unknown columns speed"):
        Tables().append("events", columns | {"speed": columns["time"]})
    del columns["release"]
    with pytest.raises(ValueError, match="columns release"):
        Tables().append("events", columns)


def test_a_damaged_file_is_bad_input(tmp_path):
    fill(Tables(tmp_path), [0, 500]).finish()
    path = tmp_path / "events.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"events\.parquet: not a table of desim, or damaged"):
        read_table(tmp_path, "events")


def test_a_part_that_cannot_be_written_leaves_the_others(tmp_path):
    tables = fill(Tables(tmp_path), [0, 5])
    tables.settle()
    (tmp_path / "parts" / "events-00001.partial").mkdir()
    tables.append("events", event_columns(5, 5))
    for again in (tables.settle, tables.finish):
        with pytest.raises(OSError, match="events-00001"):
            again()
    assert len(read_table(tmp_path, "events")) == 5


def test_a_flipped_byte_is_noticed(tmp_path):
    """Every page has a checksum: damage that can still be read is not taken for the log.

    Some bits of the headers before the pages mean nothing to a reader.
    """
    fill(Tables(tmp_path), [0, 500]).finish()
    file, wanted = tmp_path / "events.parquet", read_table(tmp_path, "events")
    whole, noticed = file.read_bytes(), 0
    places = range(10, 1100, 20)
    for place in places:
        flipped = bytes([whole[place] ^ 1])
        file.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        try:
            pd.testing.assert_frame_equal(read_table(tmp_path, "events"), wanted)
        except InputError:
            noticed += 1
    assert noticed > 0.9 * len(places)
