"""Pages of columns: what Arrow reads from them is what was put, to the last bit."""

import base64
import inspect
import subprocess
import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutant import mutant

from desim.columns import Words
from desim.kernels import packing
from desim.log import chunks, growing, thrift
from desim.log.arrow import PACKED, arrow_schema
from desim.log.fields import FIELDS, TYPES, checked
from desim.log.schemas import SCHEMAS

SIZES = [1, 2, 3, 31, 33, 128, 129, 130, 700]
SEED = np.random.default_rng(7)


def floats(rows):
    """Columns of doubles: none repeats, all repeat, some do, and those that are no numbers."""
    drawn = SEED.random(rows)
    odd = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324])[SEED.integers(0, 6, rows)]
    nan = np.full(rows, 0x7FF800000000BEEF, np.uint64).view(float)
    mixed = np.where(SEED.random(rows) < 0.5, drawn, odd)
    steps = np.cumsum(SEED.integers(0, 2, rows) * drawn * 1e-6) + 1000.0
    return [drawn, np.full(rows, 0.1), odd, nan, mixed, steps, np.repeat(drawn, 3)[:rows]]


def integers(rows):
    """Columns of whole numbers: steady, drawn, of one value, and as far apart as can be."""
    far = np.where(np.arange(rows) % 2, 2**62, -(2**62) + 1)
    return [
        np.arange(rows), np.full(rows, -1), SEED.integers(-1, 40, rows), far,
        SEED.integers(0, 2**62, rows), np.where(SEED.random(rows) < 0.3, np.arange(rows), -1),
    ]  # fmt: skip


def unpacked_differences(data):
    """Parquet's DELTA_BINARY_PACKED, read by the book with Python's numbers."""
    place = 0

    def number():
        nonlocal place
        total = shift = 0
        while True:
            byte = data[place]
            place, total, shift = place + 1, total | (byte & 127) << shift, shift + 7
            if byte < 128:
                return total

    block, minis, count = number(), number(), number()
    value = (folded := number()) >> 1 ^ -(folded & 1)
    found = [value]
    while len(found) < count:
        least = (folded := number()) >> 1 ^ -(folded & 1)
        widths, place = data[place : place + minis], place + minis
        for width in widths:
            if len(found) >= count:
                break
            size = block // minis * width // 8
            bits = int.from_bytes(data[place : place + size], "little")
            place += size
            for k in range(min(block // minis, count - len(found))):
                found.append(found[-1] + least + (bits >> k * width & (1 << width) - 1))
    assert place == len(data)
    return found


def check_kernels(module, sizes=SIZES):
    """Arrow's LZ4 and the book's differences give back what was packed."""
    codec, out = pa.Codec("lz4_raw"), np.empty(9 * 1000 + 100, np.uint8)
    places = np.empty(module.PLACES, np.int32)
    with np.errstate(over="ignore"):  # hashes, where this is not compiled
        for rows in sizes:
            for column in floats(rows):
                words = column.view(np.uint64)
                packed = out[: module.repeats(words, places, out)].tobytes()
                assert codec.decompress(packed, 8 * rows, asbytes=True) == words.tobytes()
            for column in integers(rows):
                packed = out[: module.differences(column, out)].tobytes()
                assert unpacked_differences(packed) == column.tolist()


def test_kernels_write_what_others_read():
    check_kernels(packing)


def plain_twin(right, wrong):
    """The kernels, uncompiled, with one fragment replaced."""
    source = inspect.getsource(packing)
    own = "from desim.jit import lean_inline, lean_kernel"
    for fragment in (right, own):
        assert source.count(fragment) == 1
    twin = ModuleType("packing_twin")
    source = source.replace(own, "lean_inline = lean_kernel = lambda function: function")
    exec(source.replace(right, wrong), vars(twin))
    return twin


def test_kernels_are_the_same_uncompiled():
    check_kernels(
        plain_twin("at, done, i, end = 0, 0, 0, n - 2", "at, done, i, end = 0, 0, 0, n - 2"), [130]
    )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if used else _0", "if used else rest"),
        ("least = min(least, _step(values, k))", "pass"),
        ("words[before] != word:", "words[before] == 0:"),
        ("last, low, length = i - 1, 8 - low, length + low", "last, low = i - 1, 8 - low"),
        ("length -= 255", "length -= 254"),
        ("n - 2  # the last", "n  # the last"),
    ],
)
def test_wrong_kernels_are_noticed(right, wrong):
    with pytest.raises((AssertionError, OSError, IndexError, ValueError, OverflowError)):
        check_kernels(plain_twin(right, wrong), [130])


def tables(rows):
    """Events whose columns are each of those above in turn."""
    real, whole = floats(rows), integers(rows)
    words = Words(SEED.integers(0, 12, rows).astype(np.int8), [f"word{k}" for k in range(12)])
    for turn in range(len(real)):
        kinds = {"f8": real, "i8": whole, "i4": [c for c in whole if abs(c).max() < 2**31]}
        yield {
            name: words if kind == "word" else (few := kinds[kind])[(turn + place) % len(few)]
            for place, (name, kind) in enumerate(FIELDS["events"].items())
        }


def check_file(module, path, parts):
    """Arrow reads the columns that were put, with their types, and checks every page."""
    file = module.Growing(path.with_suffix(".growing"), "events")
    for columns in parts:
        file.append(*checked("events", columns))
    file.close(path)
    kind = pq.ParquetFile(path).metadata.row_group(0).column(2)
    assert kind.dictionary_page_offset < kind.data_page_offset
    table = pq.read_table(path, page_checksum_verification=True)
    assert table.schema == SCHEMAS["events"]
    for name, kind in FIELDS["events"].items():
        own = [columns[name] for columns in parts]
        if kind == "word":
            put = [one.words[code] for one in own for code in one.codes]
            assert table[name].cast(pa.string()).to_pylist() == put
        else:
            put = np.concatenate([np.asarray(one, TYPES[kind]) for one in own])
            assert table[name].to_numpy().tobytes() == put.tobytes()


def check_files(module, path, rows):
    for columns in tables(rows):
        check_file(module, path, [columns])


@pytest.mark.parametrize("rows", [1, 9, 700])
def test_files_hold_what_was_put(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(growing, "PAGE", 64)
    check_files(growing, tmp_path / "a.parquet", rows)


def test_files_hold_more_values_than_there_are_codes(tmp_path):
    """The first pages are codes, the later ones are not."""
    columns = next(tables(40_000))
    few = columns | {"seconds": np.repeat([0.5, 0.25], 20_000), "bytes": np.repeat([1, 2], 20_000)}
    check_file(growing, tmp_path / "a.parquet", [few, columns])


def test_words_come_in_any_order(tmp_path):
    columns = next(tables(9))
    codes = np.array([0, 1, 1, 0, 2, 2, 0, 1, 2], np.int8)
    parts = [
        columns | {"kind": Words(codes, words)} for words in (["a", "b", "c"], ["d", "b", "a"])
    ]
    check_file(growing, tmp_path / "a.parquet", parts)


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        (chunks, "_codes_in(self._named, self._words)[rows]", "rows"),
        (chunks, "max(self._count - 1, 1).bit_length()", "1"),
        (chunks, "9: offset + first", "9: offset"),
        (chunks, "zlib.crc32(body)", "zlib.crc32(body[1:])"),
        (thrift, "value << 1 ^ value >> 63", "value << 1"),
        (thrift, "if size < 15", "if size < 99"),
    ],
)
def test_wrong_files_are_noticed(tmp_path, module, right, wrong):
    twin = mutant(module, right, wrong)
    with pytest.MonkeyPatch.context() as patched:
        for name in ("struct", "number"):
            if module is thrift:
                patched.setattr(chunks, name, getattr(twin, name))
        patched.setattr(growing, "struct", getattr(twin, "struct", thrift.struct))
        patched.setattr(growing, "Column", getattr(twin, "Column", chunks.Column))
        patched.setattr(growing, "PAGE", 64)
        patched.setattr(growing, "PAGES", 2)
        with pytest.raises((AssertionError, OSError, ValueError, pa.ArrowException)):
            check_files(growing, tmp_path / "a.parquet", 2200)


def test_the_schemas_that_are_kept_are_those_of_the_tables():
    assert PACKED.keys() == SCHEMAS.keys()
    for name, schema in SCHEMAS.items():
        assert pa.ipc.read_schema(pa.py_buffer(base64.b64decode(arrow_schema(name)))) == schema


def test_who_only_writes_imports_no_library_for_it(tmp_path):
    code = (
        "import sys; from pathlib import Path; from desim.log.parquet import Tables;"
        f"tables = Tables(Path({str(tmp_path)!r}));"
        "tables.append('metrics', {'time': [0.0], 'round': [0], 'metric': ['loss'], 'agent': [-1],"
        "'value': [1.0]}); tables.finish(); assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert pq.read_table(tmp_path / "metrics.parquet")["metric"].to_pylist() == ["loss"]
