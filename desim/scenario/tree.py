"""What was written, as plain dicts and lists, together with where each key was written."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from desim.errors import InputError, refusal

Key = str | int
Place = tuple[Key, ...]
Found = Iterator[tuple[Place, str]]  # what is wrong, and where

MERGED = ("network", "link", "uplink", "downlink", "compute", "slow")


@dataclass
class Tree:
    """`data` as written, for a place in it the file and line, such as "a.yaml:3", and `problems`.

    problems: what reading alone could tell to be wrong, each with its place; broken: sections that
    could not be read as they were meant, with which nothing is compared.
    """

    data: Any
    source: str = "scenario"
    marks: dict[Place, str] = field(default_factory=dict)
    problems: list[tuple[Place, str]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def mark(self, place: Place) -> str:
        """Where `place`, or the nearest place around it that was written, stands."""
        for end in range(len(place), -1, -1):
            if place[:end] in self.marks:
                return self.marks[place[:end]]
        return self.source

    def line(self, place: Place, text: str) -> str:
        """One line of a report: where, which key, what is wrong with it."""
        path = dotted(place)
        return placed(self.mark(place), f"{path}: {text}" if path else text)

    def override(self, key: str, value: Any, exclusive: Set[str] = frozenset()) -> None:
        """Set the dotted `key`, making mappings on the way; of `exclusive` keys one stays.

        None leaves the key out; InputError where it is not written.
        """
        *way, last = place = tuple(key.split("."))
        if value is None:
            self._leave_out(key, place)
            return
        node = self.data
        for depth, step in enumerate(way):
            below = node.get(step)
            if not isinstance(below, dict):
                included = step == "network" and depth == 0 and isinstance(below, str)
                below = {"include": below} if included else {}
            node[step] = below
            node = below
        if last in exclusive:
            for other in exclusive & set(node):
                del node[other]
        node[last] = value
        self._remark(key, place)

    def _leave_out(self, key: str, place: Place) -> None:
        node = self.data
        for step in place[:-1]:
            node = node.get(step) if isinstance(node, dict) else None
        written = node if isinstance(node, dict) else {}
        if place[-1] not in written:
            allowed = ", ".join(written) or "none, as nothing is written there"
            text = refusal(place[-1], allowed, written)
            raise InputError(f"override {key}: null leaves out what is written; {text}")
        del written[place[-1]]
        self._remark(key, place)

    def _remark(self, key: str, place: Place) -> None:
        self.marks = {old: mark for old, mark in self.marks.items() if old[: len(place)] != place}
        self.marks[place] = f"override {key}"

    def lay_under(self, other: "Tree", section: str) -> None:
        """Fill `section` with what `other` says and this tree does not, key by key of a link."""
        if section in other.data:
            mine = {section: self.data[section]} if section in self.data else {}
            self._fill(mine, other, (section,), other.data)
            self.data[section] = mine[section]

    def _fill(self, mine: Any, other: "Tree", place: Place, theirs: Any) -> None:
        key = place[-1]
        both = key in mine and isinstance(mine[key], dict) and isinstance(theirs[key], dict)
        if both and key in MERGED:
            for below in theirs[key]:
                self._fill(mine[key], other, (*place, below), theirs[key])
        elif key not in mine:
            mine[key] = theirs[key]
            found = other.marks.items()
            self.marks.update({old: mark for old, mark in found if old[: len(place)] == place})


def placed(mark: str, line: str) -> str:
    """A line that names a key, with where it stands; an override is named once."""
    kind, _, key = mark.partition(" ")
    return f"{kind} {line}" if kind == "override" and line.startswith(key) else f"{mark}: {line}"


def from_python(data: Mapping[str, Any]) -> Tree:
    """The tree of a dict that Python code made; tuples, paths and NumPy numbers are welcome."""
    return Tree(native(data))


def native(value: Any) -> Any:
    """`value` as YAML would have read it."""
    if isinstance(value, Mapping):
        return {key: native(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "to_numpy"):
        return native(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [native(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def dotted(place: Place) -> str:
    """A place as messages and overrides write it: participation.schedule[0][2]."""
    text = ""
    for key in place:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.removeprefix(".")


def unfit(data: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Every place that holds null or NaN, which no key allows."""
    if isinstance(data, dict):
        for key, item in data.items():
            yield from unfit(item, (*place, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from unfit(item, (*place, index))
    elif data is None:
        yield place, "found nothing (null); allowed: a value, or leave the key out"
    elif isinstance(data, float) and math.isnan(data):
        yield place, "found NaN; allowed: a number"


def require_mapping(tree: Tree, allowed: str) -> None:
    """Raise InputError unless the whole of `tree` is a mapping."""
    if tree.data is None:
        raise InputError(f"{tree.source}: found nothing in it; allowed: {allowed}")
    if not isinstance(tree.data, dict):
        kind = "a list" if isinstance(tree.data, list) else "a single value"
        raise InputError(f"{tree.source}: found {kind}; allowed: {allowed}")
