"""Thrift's compact protocol, as far as Parquet's headers and footers need it."""

from collections.abc import Mapping
from typing import Any

BINARY, LIST, STRUCT, I32, I64, TRUE, FALSE = 8, 9, 12, 5, 6, 1, 2


class Int32(int):
    """A number whose field has 32 bits; others have 64."""


def number(value: int) -> bytes:
    """A number of variable length, not negative."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def struct(fields: Mapping[int, Any]) -> bytes:
    """Fields by their number, in its order: bool, Int32, int, bytes, str, list, or a mapping."""
    out, last = bytearray(), 0
    for field, value in fields.items():
        kind = _kind(value)
        out.append((field - last) << 4 | kind)
        if kind not in (TRUE, FALSE):
            out += _body(value)
        last = field
    out.append(0)
    return bytes(out)


class Struct(bytes):
    """A struct that is written already."""


def _kind(value: Any) -> int:
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return I32 if isinstance(value, Int32) else I64
    if isinstance(value, Struct | Mapping):
        return STRUCT
    return LIST if isinstance(value, list) else BINARY


def _body(value: Any) -> bytes:
    if isinstance(value, int):
        return number(value << 1 ^ value >> 63)
    if isinstance(value, Struct):
        return value
    if isinstance(value, Mapping):
        return struct(value)
    if isinstance(value, list):
        size, kind = len(value), _kind(value[0]) if value else STRUCT
        head = bytes([size << 4 | kind]) if size < 15 else bytes([240 | kind]) + number(size)
        return head + b"".join(map(_body, value))
    text = value.encode() if isinstance(value, str) else value
    return number(len(text)) + text
