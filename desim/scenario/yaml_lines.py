"""YAML of what is plain, fifty times as fast as by the library, which writes whatever there is.

The text is the same to the byte: resolved scenarios are told apart by its hash. Mappings, lists,
numbers, booleans and simple words are plain.
"""

import re
from collections.abc import Iterator
from typing import Any

WIDTH = 1000  # of a line of flow style, roughly
LONGEST = 100  # of a word: a key from 128 on is written in another way
WORD = re.compile(r"[A-Za-z_/][\w./+-]*(?: [A-Za-z_/][\w./+-]*)*", re.ASCII)
TAKEN = frozenset("true false null yes no on off y n".split())  # in some version of YAML
SPELT = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}


class Unplain(Exception):
    """What is to be written is not plain."""


def plain_text(section: dict[str, Any]) -> str:
    """A section as YAML; Unplain where that is for the library to write."""
    lines = [*_block(section)]
    if any(len(line) > WIDTH for line in lines):  # it would be broken
        raise Unplain
    return "\n".join([*lines, ""])


def _block(value: Any) -> Iterator[str]:
    """The lines of a mapping or list that holds more than scalars."""
    if type(value) is dict:
        for key, item in value.items():
            if _flat(item):
                yield f"{_word(key)}: {_flow(item)}"
            else:
                yield f"{_word(key)}:"
                indent = "  " if type(item) is dict else ""
                yield from (indent + line for line in _block(item))
    else:
        for item in value:
            indent = "- "
            for line in (_flow(item),) if _flat(item) else _block(item):
                yield indent + line
                indent = "  "


def _flat(value: Any) -> bool:
    """Whether it is written in one line: a scalar, or a collection of scalars alone."""
    inside = value.values() if type(value) is dict else value if type(value) is list else ()
    return not any(type(one) is dict or type(one) is list for one in inside)


def _flow(value: Any) -> str:
    if type(value) is dict:
        return "{" + ", ".join(f"{_word(key)}: {_scalar(one)}" for key, one in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(_scalar, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    kind = type(value)
    if kind is int or kind is float:
        return SPELT.get(text := repr(value), text)
    if kind is bool:
        return "true" if value else "false"
    return _word(value)


def _word(text: Any) -> str:
    """A text that means itself, wherever it stands."""
    if type(text) is str and len(text) <= LONGEST and WORD.fullmatch(text):
        if text.lower() not in TAKEN:
            return text
    raise Unplain
