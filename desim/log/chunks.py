"""A column of a table as Parquet stores it: pages of PAGE rows, and row groups of many pages.

Words and numbers of few values are codes; other whole numbers are differences; other floating
points are what repeats and what does not. That is twice as fast as a general library, which would
also have to be imported before anything is stored.
"""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.columns import Words
from desim.kernels.packing import MOST, PLACES, SLOTS, coded, differences, packed, repeats
from desim.log.fields import TYPES
from desim.log.thrift import Int32, Struct, number, struct

PAGE = 1 << 14  # rows: what is encoded at once stays in a processor's own memory
PLAIN, RLE, DIFFERENCES, CODES = 0, 3, 5, 8  # Parquet's encodings,
NONE, GZIP, LZ4 = 0, 2, 7  # compressions,
PHYSICAL = {"i4": 1, "i8": 2, "f8": 5, "word": 6}  # types,
DICTIONARY_PAGE, DATA_PAGE = 2, 3  # and pages
FEW = ("agent", "peer", "bytes")  # integers of few values in no order
SPARSE = {("events", "release")}  # mostly -1: differences would take as much as the numbers


class Scratch:
    """Memory that the columns of a table use in turn."""

    def __init__(self) -> None:
        self.out = np.empty(9 * PAGE + 100, np.uint8)
        self.places = np.empty(PLACES, np.int32)
        self.codes = np.empty(PAGE, np.uint16)

    def first(self, size: int) -> bytes:
        """The first `size` bytes that were written."""
        return self.out[:size].tobytes()


class Column:
    """Column `name` of `table`: rows are put one after the other, sealed into pages, and taken."""

    def __init__(self, table: str, name: str, kind: str, scratch: Scratch) -> None:
        self.name, self.kind, self._scratch = name, kind, scratch
        self._rows = np.empty(PAGE, TYPES[kind])
        self._sparse = (table, name) in SPARSE
        self._coding = kind in ("f8", "word") or name in FEW
        self._words: list[str] = []  # as their codes come
        self._named: list[str] = []  # those that occur, as their codes are stored
        self._known, self._count = np.empty(MOST, np.uint64), 0
        self._slots = np.full(SLOTS, -1, np.int16)
        self._clear()

    def _clear(self) -> None:
        self._pages: list[bytes] = []
        self._raw, self._encodings, self._codec = 0, {RLE}, GZIP if self._sparse else NONE

    def put(self, values: Any, first: int, last: int, at: int) -> None:
        """Take rows first .. last - 1 of `values` as rows at .. of the page."""
        rows = self._rows[at : at + last - first]
        if isinstance(values, Words):
            self._words += [word for word in values.words if word not in self._words]
            codes = values.codes[first:last]
            if values.words != self._words[: len(values.words)]:
                codes = _codes_in(self._words, values.words)[codes]
            rows[:] = codes
        else:
            rows[:] = values[first:last]

    def seal(self, rows: int) -> None:
        """Make a page of the first `rows` rows."""
        levels = number(rows << 1) + b"\1"  # all rows have a value
        encoding, codec, raw, body = self._encoded(self._rows[:rows])
        head = {
            1: Int32(rows), 2: Int32(0), 3: Int32(rows), 4: Int32(encoding),
            5: Int32(len(levels)), 6: Int32(0), 7: codec != NONE,
        }  # fmt: skip
        self._encodings.add(encoding)
        self._codec = max(self._codec, codec)
        self._add({8: head}, DATA_PAGE, len(levels) + raw, levels + body)

    def take(self, offset: int, rows: int) -> tuple[list[bytes], Struct]:
        """The pages as they stand in the file from `offset` on, and what is said of them."""
        pages = self._pages
        self._pages = []
        coded = CODES in self._encodings
        if coded:
            self._add_dictionary()
        first = sum(map(len, self._pages))
        pages = self._pages + pages
        size = sum(map(len, pages))
        about: dict[int, Any] = {
            1: Int32(PHYSICAL[self.kind]), 2: [Int32(one) for one in sorted(self._encodings)],
            3: [self.name], 4: Int32(self._codec), 5: rows, 6: self._raw, 7: size,
            9: offset + first,
        }  # fmt: skip
        if coded:
            about[11] = offset
        self._clear()
        return pages, Struct(struct({2: 0, 3: about}))

    def _encoded(self, rows: NDArray[Any]) -> tuple[int, int, int, bytes]:
        """(encoding, compression, size before it, bytes) of a page."""
        if self._coding and (codes := self._codes(rows)):
            return CODES, NONE, len(codes), codes
        if self.kind == "f8":
            return PLAIN, LZ4, rows.nbytes, self._lz4(rows.view(np.uint64))
        if self._sparse:
            return PLAIN, GZIP, rows.nbytes, zlib.compress(rows.data, 1, wbits=31)
        used = differences(rows, self._scratch.out)
        return DIFFERENCES, NONE, used, self._scratch.first(used)

    def _lz4(self, words: NDArray[np.uint64]) -> bytes:
        return self._scratch.first(repeats(words, self._scratch.places, self._scratch.out))

    def _codes(self, rows: NDArray[Any]) -> bytes:
        """Codes of the rows; nothing where there are too many, from now on."""
        if self.kind == "word":
            codes = self._codes_of_words(rows)
        else:
            codes = self._scratch.codes[: len(rows)]
            words = rows.astype(np.uint64) if self.kind == "i4" else rows.view(np.uint64)
            count = coded(words, self._slots, self._known, self._count, codes)
            if count < 0:
                self._coding = False
                return b""
            self._count = count
        width = max(self._count - 1, 1).bit_length()
        used = packed(codes, width, self._scratch.out)
        return bytes([width]) + number(-(-len(rows) // 8) << 1 | 1) + self._scratch.first(used)

    def _codes_of_words(self, rows: NDArray[np.int8]) -> NDArray[np.uint16]:
        occur = [self._words[code] for code in np.flatnonzero(np.bincount(rows))]
        self._named += sorted(set(occur) - set(self._named))
        self._count = len(self._named)
        return _codes_in(self._named, self._words)[rows].astype(np.uint16)

    def _add_dictionary(self) -> None:
        """Add the page that says what the codes mean."""
        if self.kind == "word":
            texts = [word.encode() for word in self._named]
            plain = body = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        else:
            words = self._known[: self._count]
            plain = body = words.astype(np.int32 if self.kind == "i4" else np.uint64).tobytes()
            if self._codec == LZ4:
                body = self._lz4(words)
        self._encodings.add(PLAIN)
        self._add({7: {1: Int32(self._count), 2: Int32(PLAIN)}}, DICTIONARY_PAGE, len(plain), body)

    def _add(self, head: dict[int, Any], kind: int, raw: int, body: bytes) -> None:
        """Add a page; `raw` is its size before it is compressed."""
        check = zlib.crc32(body)
        fields = {1: kind, 2: raw, 3: len(body), 4: check - (check >> 31 << 32)}
        whole = struct({field: Int32(value) for field, value in fields.items()} | head)
        self._pages.append(whole + body)
        self._raw += len(whole) + raw


def _codes_in(known: list[str], words: list[str]) -> NDArray[np.int8]:
    """Where each of the words is among those that are known; 0 where it is not."""
    return np.array([known.index(one) if one in known else 0 for one in words], np.int8)
