"""Scenario files: YAML 1.2 in, every error with its line, and the resolved scenario out again."""

import io
import math
import pickle
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from desim.errors import InputError, gathering, refusal, show, spelling
from desim.fields.numbers import FORMS
from desim.fields.strict import Decay, Init
from desim.readers import text_of
from desim.scenario.check import validated
from desim.scenario.schema import SECTIONS, Scenario
from desim.scenario.sections.algorithm import Participation, Policy
from desim.scenario.sections.network import Topology
from desim.scenario.sections.problem import Loss, Partition
from desim.scenario.tree import (
    Place,
    Tree,
    dumped,
    from_python,
    include_network,
    named_file,
    native,
    parser,
    require_mapping,
)

KINDS = "str int float bool null timestamp map seq merge".split()
TAGS = {f"tag:yaml.org,2002:{kind}": kind for kind in KINDS}
CHOICES = (Participation, Policy, Topology, Partition, Loss, Init, Decay)
EXCLUSIVE = {*FORMS, *(key for form in CHOICES for key in form.alternatives())}
MAX_NODES = 2_000_000
SEED = re.compile(r"^seed: \d+$", re.MULTILINE)
SCENARIO = f"a scenario, which is a mapping with {', '.join(SECTIONS)}"


def load(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Scenario:
    """The scenario of a file or dict, checked; InputError lists everything that is wrong with it.

    `source` may name a scenario that comes with desim, as `quickstart` or `papers/fed-plt`; a file
    of that name in the working directory, with or without .yaml, goes first. `overrides` sets
    dotted keys after reading, such as {"algorithm.rho": 0.1}; text is YAML, and null or None leaves
    a key out. Names of files count from the file's folder, those of a dict from `folder` or the
    working directory.
    """
    if not isinstance(source, str | PurePath | Mapping):
        raise InputError(
            f"scenario: {refusal(source, 'a file, the name of a scenario, a mapping')}"
        )
    if not isinstance(overrides, Mapping | None):
        raise InputError(f"overrides: {refusal(overrides, 'a mapping of dotted keys to values')}")
    if isinstance(source, Mapping):
        tree, folder, name = from_python(source), folder or Path(), "scenario"
    else:
        path = named_file(source)
        tree, folder, name = read(path), path.parent, path.name.split(".")[0]
    require_mapping(tree, SCENARIO)
    if "base" in tree.data and not {"problem", "algorithm"} & set(tree.data):
        file = source if isinstance(source, str | Path) else "FILE"
        cure = f"desim study {file} --dry-run checks and lists its cases"
        raise InputError(f"{tree.source}: is a study; allowed: a scenario ({cure})")
    problems: list[str] = []
    for key, value in (overrides or {}).items():
        with gathering(problems):
            _override(tree, key, value)
    tree.data.setdefault("name", name)
    _measure_networks(tree.data)
    before = len(problems)
    with gathering(problems):
        include_network(tree, folder, read)
    if len(problems) > before:
        del tree.data["network"]
        tree.broken.add("network")
    try:
        scenario = validated(tree, folder.resolve())
    except InputError as error:
        raise InputError([*problems, *error.problems]) from error.__cause__
    if problems:
        raise InputError(problems)
    return scenario


def _override(tree: Tree, key: str, value: Any) -> None:
    """Set a dotted key of a tree; InputError where the key or what is written for it is none."""
    if not all(part.strip() for part in key.split(".")):
        raise InputError(f"override: found {show(key)}; allowed: a key such as algorithm.rho")
    if isinstance(value, str):
        if not value.strip():
            allowed = "allowed: a value, or null to leave the key out"
            raise InputError(f"override {key}: found nothing; {allowed}")
        typed = parse(value, f"override {key}")
        if typed.problems:
            raise InputError(f"override {key}: {text}" for _, text in typed.problems)
        value = typed.data
    tree.override(key, native(value), EXCLUSIVE)


def loaded(
    source: Scenario | str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> Scenario:
    """A scenario as it is, or `load` of what it is read from; InputError for overrides of one."""
    if not isinstance(source, Scenario):
        return load(source, overrides)
    if overrides:
        raise InputError("overrides: the scenario is loaded already; give them to desim.load")
    return source


def _measure_networks(data: dict[str, Any]) -> None:
    """A network has no unique optimum to measure the error from: its default metric is the loss."""
    problem, observe = data.get("problem"), data.get("observe", {})
    loss = problem.get("loss") if isinstance(problem, Mapping) else None
    named = isinstance(problem, Mapping) and problem.get("model") is not None
    network = named or (isinstance(loss, Mapping) and "mlp" in loss)
    if network and isinstance(observe, Mapping):
        data["observe"] = {"metrics": ["loss"], **observe}


def resolved_yaml(scenario: Scenario) -> str:
    """`scenario` as a file in SI units with every default; it loads again to an equal scenario."""
    return dumped(scenario.written())


def seeded(text: str, seed: int) -> str:
    """A resolved scenario with another seed: the same text as if it had been resolved with it."""
    return SEED.sub(f"seed: {seed}", text, count=1)


def read(path: Path) -> Tree:
    """The tree of a YAML file; InputError if it cannot be read."""
    try:
        text = text_of(path)
    except IsADirectoryError:
        raise InputError(f"{path}: found a directory; allowed: a file") from None
    except FileNotFoundError:
        near = [file.name for file in path.parent.glob("*.yaml")]
        raise InputError(f"{path}: no such file{spelling(path.name, near)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: found bytes that are not text; allowed: UTF-8") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> Tree:
    """The tree of YAML `text`; InputError with the line for what YAML or desim does not allow."""
    tree: Tree = pickle.loads(_parsed(text, source))
    return tree


@lru_cache(64)
def _parsed(text: str, source: str) -> bytes:
    """That tree, pickled, as whoever loads it changes it: cases of a study have one base."""
    short, runs = _apart(text)
    if runs:
        with suppress(InputError, ValueError):  # which is for the whole text to say
            reader = _Reader(Tree(None, source), runs)
            tree = _composed(short, reader)
            if reader.met == runs.keys() and reader.size <= MAX_NODES:
                return pickle.dumps(tree)
    return pickle.dumps(_composed(text, _Reader(Tree(None, source))))


# Edges take YAML 0.1 ms each, and there may be a hundred thousand: they are read apart.

PAIR = r"\[[0-9]{1,18}, ?[0-9]{1,18}\]"
RUN = re.compile(
    rf"^(?P<dash> *- ){PAIR}\n(?:(?P=dash){PAIR}\n){{99,}}"
    rf"|\[[ \n]*{PAIR}(?:,[ \n]*{PAIR}){{99,}}[ \n]*\]",
    re.MULTILINE,
)
MARK = "pairs-read-apart-"


def _apart(text: str) -> tuple[str, dict[str, list[list[int]]]]:
    """YAML with one word, and as many lines, in place of a long run of pairs; these by the word.

    Nothing is taken out where it is not sure to be missed if a run is no part of a list.
    """
    runs: dict[str, list[list[int]]] = {}

    def word(found: re.Match[str]) -> str:
        numbers = [int(one) for one in re.findall(r"[0-9]+", found[0])]
        mark, lines = f"{MARK}{len(runs)}", "\n" * found[0].count("\n")
        runs[mark] = [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
        return f"{found['dash']}{mark}{lines}" if found["dash"] else f"[{mark}{lines}]"

    return (text, runs) if MARK in text else (RUN.sub(word, text), runs)


def _composed(text: str, reader: "_Reader") -> Tree:
    """The tree of YAML text; InputError where it is none."""
    source = reader.tree.source
    try:
        node = parser().compose(io.StringIO(text))
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{where}: not YAML 1.2: {reason}") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply") from None
    if node is not None:
        reader.tree.data = reader.value(node, ())
    return reader.tree


class _Reader:
    """Turns YAML nodes into plain values, remembering lines; no tag can make anything else.

    runs: what is written apart, by the words that stand for it; an alias meets one again.
    """

    def __init__(self, tree: Tree, runs: dict[str, list[list[int]]] | None = None):
        self.tree, self.runs = tree, runs or {}
        self.size, self.met = 0, set[str]()  # of these words
        self.open: set[int] = set()

    def value(self, node: Node, place: Place) -> Any:
        self.size += 1
        if self.size > MAX_NODES or id(node) in self.open:
            raise InputError(f"{self.tree.source}: found aliases that never end, or too much text")
        kind = TAGS.get(str(node.tag))
        if kind is None or kind == "merge":
            return self._refuse(place, f"found the tag {node.tag}; allowed: no tags")
        if isinstance(node, ScalarNode):
            return self._scalar(node, place, kind)
        self.open.add(id(node))
        found: Any = None
        if isinstance(node, MappingNode):
            found = self._mapping(node, place)
        elif isinstance(node, SequenceNode):
            found = []
            for item in node.value:
                if item.id == "scalar" and item.style is None and item.value in self.runs:
                    self.met.add(item.value)
                    self.size += 3 * len(self.runs[item.value])
                    found += map(list, self.runs[item.value])
                else:
                    found.append(self.value(item, (*place, len(found))))
        self.open.remove(id(node))
        return found

    def _mapping(self, node: MappingNode, place: Place) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.value(key_node, place)
            if not isinstance(key, str):
                self._refuse(place, f"found the key {show(key)}; allowed: text")
                continue
            here, line = (*place, key), key_node.start_mark.line + 1
            if key in found:
                first = self.tree.marks[here].rpartition(":")[2]
                self._refuse(here, f"written twice, first in line {first}; allowed: once")
            self.tree.marks[here] = f"{self.tree.source}:{line}"
            found[key] = self.value(value_node, here)
        return found

    def _scalar(self, node: ScalarNode, place: Place, kind: str) -> Any:
        text = str(node.value)
        if kind in ("int", "float") and node.style is None:
            return self._number(text.replace("_", ""), place, kind)
        if kind == "bool":
            return text.lower() == "true"
        return None if kind == "null" else text

    def _number(self, text: str, place: Place, kind: str) -> Any:
        try:
            if kind == "int":
                sign = -1 if text.startswith("-") else 1
                digits = text.lstrip("+-")
                base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2].lower(), 10)
                return sign * int(digits[2:] if base != 10 else digits, base)
            special = text.lower().lstrip("+-") in (".inf", ".nan")
            number = float(text.replace(".", "", 1) if special else text)
        except ValueError:
            return self._refuse(place, f"found a number of {len(text)} characters; allowed: fewer")
        if math.isinf(number) and not special:
            self._refuse(place, f"found {text}; allowed: numbers up to 1.8e308, or .inf")
        return number

    def _refuse(self, place: Place, text: str) -> None:
        self.tree.problems.append((place, text))
