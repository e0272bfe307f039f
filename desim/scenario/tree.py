"""Scenarios as they are written, plain dicts and lists with the place of each key, and as YAML.

Scenarios, studies and network conditions may go by a name. A wheel carries those that come with
desim inside the package; a checkout has them beside it.
"""

import contextlib
import io
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from desim.errors import InputError, refusal, spelling

# YAML of what is plain, fifty times as fast as by the library, which writes whatever there is.


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
            if type(item) is str:
                yield _entry(key, item)
            elif _flat(item):
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


def _entry(key: Any, text: str) -> str:
    """A line of a mapping. For an odd word there a section of many edges is not the library's."""
    try:
        return f"{_word(key)}: {_word(text)}"
    except Unplain:
        written = library_text(pickle.dumps({key: text})).removesuffix("\n")
        if "\n" in written or WIDTH < 2 * len(written):  # where it breaks depends on what it is in
            raise
        return written


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
    if type(value) in (str, float, int, bool):
        return value
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


# The YAML that desim writes: version 1.2, in the order of the schema.

HEAD = "# Resolved by desim: every default is explicit; s, bit/s and 1/s\n"


def parser() -> YAML:
    """The one kind of YAML that is read and written."""
    return YAML(typ="safe", pure=True)


def plain(text: str) -> dict[str, Any]:
    """The sections of a resolved scenario's text, unchecked; ValueError where it is none."""
    try:
        found = parser().load(text)
    except (YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError("not a mapping")
    return found


def dumped(sections: Mapping[str, Any]) -> str:
    """The sections of a resolved scenario as text."""
    return HEAD + "".join(_section({name: one}) for name, one in sections.items())


def _section(section: dict[str, Any]) -> str:
    try:
        return plain_text(section)
    except Unplain:
        return library_text(pickle.dumps(section))


@lru_cache(512)
def library_text(pickled: bytes) -> str:
    """One section, pickled to be a key: runs of a study differ in few, and the library is slow."""
    section = pickle.loads(pickled)
    (value,) = section.values()
    yaml = parser()
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.default_flow_style = None if isinstance(value, dict | list) else False
    yaml.allow_unicode = True
    yaml.width = 1000
    text = io.StringIO()
    yaml.dump(section, text)
    return text.getvalue()


# What comes with desim and goes by a name: scenarios, studies and network conditions.

Kind = Literal["scenario", "study"]

HOME = Path(__file__).resolve().parents[1]
PLACES = (HOME / "scenarios", HOME.parent / "scenarios")
FOLDER = next((one for one in PLACES if (one / "quickstart.yaml").is_file()), PLACES[0])
NETWORKS, STUDIES = FOLDER / "networks", FOLDER / "studies"
MARK = "base:"  # the key that makes a file a study


def networks() -> dict[str, Path]:
    """The network files by name."""
    return {file.stem: file for file in sorted(NETWORKS.glob("*.yaml"))}


@cache
def studies() -> dict[str, Path]:
    """The study files by name."""
    files = {file.stem: file for file in sorted(STUDIES.glob("*.yaml"))}
    lines = {name: file.read_text("utf-8").splitlines() for name, file in files.items()}
    return {n: f for n, f in files.items() if any(one.startswith(MARK) for one in lines[n])}


@cache
def scenarios() -> dict[str, Path]:
    """The scenario files by name, which is their path: `quickstart`, `papers/fed-plt`."""
    apart = {*networks().values(), *studies().values()}
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return {named(file): file for file in files if file not in apart}


def named(file: Path) -> str:
    """The name of a shipped file."""
    return file.relative_to(FOLDER).with_suffix("").as_posix()


def named_file(source: str | Path, kind: Kind = "scenario", folder: Path | None = None) -> Path:
    """The file that `source` names: NAME or NAME.yaml in `folder`, else what desim brings.

    InputError, with both places, where there is none; whatever exists is left for its reader.
    """
    path = (folder or Path()) / source
    with contextlib.suppress(OSError, ValueError):
        for file in (path, path.with_name(f"{path.name}.yaml")):
            if file.is_file():
                return file
    known = studies() if kind == "study" else scenarios()
    name = Path(source).as_posix()
    if name in known:
        return known[name]
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{source}: {_missing(path, name, kind)}") from None
    except (OSError, ValueError):
        pass
    return path


def _missing(path: Path, name: str, kind: Kind) -> str:
    """Why there is no such file, and what is spelt most like it in either place."""
    known, others = scenarios(), studies()
    if kind == "study":
        known, others = others, known
    bare = name.removesuffix(".yaml")
    if bare in others:
        other = "a study: desim study" if kind == "scenario" else "a scenario: desim run"
        return f"no such file, and what comes with desim is {other} {bare}"
    if bare in known:
        return f"no such file; what comes with desim has no .yaml in its name: {bare}"
    near = spelling(path.name, [file.name for file in path.parent.glob("*.yaml")])
    if near:
        return f"no such file{near}"
    words = "scenarios" if kind == "scenario" else "studies"
    missing = f"no {kind} of that name comes with desim (desim list {words})"
    return f"no such file, and {missing}{spelling(bare, known)}"


# `network: wifi`: network conditions that live in a file of their own, shared by scenarios.

FILES = ("trace", "file")


def include_network(tree: Tree, folder: Path, read: Callable[[Path], Tree]) -> None:
    """Replace the name of a network in `tree` by what its file says; the scenario's own keys win.

    The file holds `network` and perhaps `compute`; tables that it names may stand beside it.
    InputError if there is no such file.
    """
    written = tree.data.get("network")
    if isinstance(written, str):
        written = tree.data["network"] = {"include": written}
    if not isinstance(written, dict) or "include" not in written:
        return
    name = written.pop("include")
    file = _find(tree, name, folder)
    other = read(file)
    require_mapping(other, "a mapping with network, and perhaps compute")
    _check(other)
    _anchor(other.data, file.parent, folder)
    for section in ("network", "compute"):
        tree.lay_under(other, section)


def _find(tree: Tree, name: object, folder: Path) -> Path:
    place = ("network", "include") if ("network", "include") in tree.marks else ("network",)
    if not isinstance(name, str) or not name.strip():
        raise InputError(tree.line(place, refusal(name, "the name of a file in networks/")))
    folders = (folder / "networks", folder, NETWORKS)
    for directory in folders:
        for file in (directory / f"{name}.yaml", directory / name):
            with contextlib.suppress(OSError, ValueError):
                if file.is_file():
                    return file
    own = (folder / "networks").glob("*.yaml")
    known = sorted({*(file.stem for file in own), *networks()})
    raise InputError(
        tree.line(place, refusal(name, f"{', '.join(known)}, or a file") + spelling(name, known))
    )


def _anchor(data: Any, beside: Path, folder: Path) -> None:
    """Let names of files that stand beside the included one, and not in `folder`, lead there."""
    for key, value in data.items():
        if isinstance(value, dict):
            _anchor(value, beside, folder)
        elif key in FILES and isinstance(value, str):
            with contextlib.suppress(OSError, ValueError):
                if not (folder / value).is_file() and (beside / value).is_file():
                    data[key] = str((beside / value).resolve())


def _check(other: Tree) -> None:
    problems = [other.line(place, text) for place, text in other.problems]
    problems += [
        other.line((key,), "unknown key in a network file; allowed: network, compute")
        for key in other.data
        if key not in ("network", "compute")
    ]
    network = other.data.get("network")
    if not isinstance(network, dict):
        problems.append(f"{other.source}: found no network; allowed: network: {{...}}")
    elif "include" in network:
        problems.append(other.line(("network", "include"), "an included file includes no other"))
    if problems:
        raise InputError(problems)
