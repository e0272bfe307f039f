"""Runs as readers of tables and plots see them: series, labels, metrics, totals and sites."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.amounts import BELOW, best_unit
from desim.arrays import Array
from desim.errors import DesimError
from desim.runs.premises import model_of, names
from desim.scenario.own import LAYERED

if TYPE_CHECKING:
    from desim.runs.run import Run

# Labels: the names of runs, or what they differ in where they share one.

MAX_LETTERS = 60  # letters of a label
MAX_VALUE_LETTERS = 160  # of a value in a table
UNITS = {  # of the numbers that resolved scenarios have in each section, by key
    "network": {"latency": "s", "timeout": "s", "round": "s", "bandwidth": "bit/s"},
    "compute": {"time": "s", "every": "s", "lasting": "s", "speed": "/s", "overhead": "s"}
    | {"reply": "s", "number": "s"},
    "battery": {"capacity": "J", "power": "W", "start": "s", "lasting": "s", "day": "s"},
    "churn": {"up": "s", "down": "s", "start": "s", "day": "s"},
    "policy": {"deadline": "s", "at_most": "s"},
    "participation": {"pace": "s"},
    "stop": {"time": "s"},
}
Place = tuple[str, ...]  # keys of a setting, from the section down
TRAINING = ("augment", "device")  # of the problem: how it is trained, not what it is


def _written(run: "Run") -> dict[str, Any]:
    """The resolved scenario; nothing where it cannot be read."""
    try:
        return run.scenario.written()
    except DesimError:
        return {}


def labels(
    groups: "Sequence[Sequence[Run]]", settings: "Callable[[Run], Mapping[str, Any]]" = _written
) -> list[str]:
    """What tells each group of runs from the others: the name of its first where no other has it.

    Those that share a name have beside it the one or two settings that tell them all apart, as in
    "quickstart: policy each"; where none do, or are too long, their directories, or numbers.
    settings: of a run, by key; those of its scenario.
    """
    names = Counter(runs[0].name for runs in groups)
    apart = iter(_apart([runs for runs in groups if names[runs[0].name] > 1], settings))
    return [next(apart) if names[runs[0].name] > 1 else runs[0].name for runs in groups]


def _apart(
    groups: "Sequence[Sequence[Run]]", settings: "Callable[[Run], Mapping[str, Any]]"
) -> list[str]:
    """Labels of groups of which each shares its name."""
    runs = [group[0] for group in groups]
    trees = [settings(run) for run in runs]
    places = _unlike(trees) if all(trees) else []
    pairs = itertools.combinations(places, 2)
    for chosen in itertools.chain(((place,) for place in places), pairs):
        found = [
            f"{run.name}: {', '.join(setting(tree, place) for place in chosen)}"
            for run, tree in zip(runs, trees, strict=True)
        ]
        if len(set(found)) == len(found) and max(map(len, found)) <= MAX_LETTERS:
            return found
    seen, found = Counter[str](), []
    for group in groups:
        name = group[0].name
        seen[name] += 1
        folders = [str(run.directory) for run in group if run.directory]
        more = f" and {len(folders) - 1} more" if folders[1:] else ""
        found.append(folders[0] + more if folders else f"{name} {seen[name]}")
    return found


def differing(runs: "Sequence[Run]") -> list[Place]:
    """Places of the settings that not all scenarios have with the same value.

    Name and seed are none; scenarios that cannot be read are left out.
    """
    return _unlike([tree for tree in map(_written, runs) if tree])


def other_problems(runs: "Sequence[Run]") -> list[str]:
    """Keys of `problem` that make the metrics of one run not comparable with another's."""
    keys = dict.fromkeys(place[1] for place in differing(runs) if place[0] == "problem")
    apart = all(names(run)[1] in LAYERED or model_of(run) for run in runs)
    left = (*TRAINING, "clip") if apart else TRAINING  # a linear loss is minimised with its clip
    return [f"problem.{key}" for key in keys if key not in left]


def setting_text(value: Any) -> Any:
    """A value as tables and labels show it: scalars as they are, the rest as flow YAML."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key}: {setting_text(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(setting_text(item)) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else value


def setting(tree: Any, place: Place) -> str:
    """A setting as labels show it, with the unit that reads best: latency 3 ms."""
    return f"{place[-1]} {setting_text(with_unit(_at(tree, place), place))}"


def with_unit(value: Any, place: Place) -> Any:
    """The value of a setting: with the unit that reads best, if it has one, as in 3 ms."""
    unit = UNITS.get(place[0], {}).get(place[-1], "")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (unit and number and math.isfinite(value)):
        return value
    name, factor = best_unit(value, unit) if unit in BELOW else (unit, 1.0)
    return f"{value * factor:.6g} {name}"


def _unlike(trees: Sequence[Mapping[str, Any]]) -> list[Place]:
    flats = [dict(leaves({**tree, "name": "", "seed": 0})) for tree in trees]
    places = dict.fromkeys(place for flat in flats for place in flat)
    return [one for one in places if any(flat.get(one) != flats[0].get(one) for flat in flats)]


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The values of a tree of mappings, each with its place; empty mappings in it are values."""
    if isinstance(value, Mapping) and (value or not place):
        for key, inner in value.items():
            yield from leaves(inner, (*place, str(key)))
    else:
        yield place, value


def flattened(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Dotted keys with their values as text."""
    for place, plain in leaves(tree):
        value = with_unit(plain, place)
        text = value if isinstance(value, str) else json.dumps(
            value, ensure_ascii=False, default=str
        )  # fmt: skip
        yield (
            ".".join(place),
            text if len(text) <= MAX_VALUE_LETTERS else f"{text[: MAX_VALUE_LETTERS - 3]}...",
        )


def _at(tree: Any, place: Place) -> Any:
    """What a scenario has in a place, which may be a whole section; "none" for nothing."""
    for key in place:
        if not isinstance(tree, Mapping) or key not in tree:
            return "none"
        tree = tree[key]
    return tree


# Series: runs that differ in their seeds only belong together, under one label.


@dataclass(frozen=True)
class Series:
    """Runs of one label; all but `runs[0]` differ from it in their seeds only, or are so labelled.

    runs: those that are done where any is, else all; left_out: the others.
    """

    label: str
    runs: "tuple[Run, ...]"
    left_out: "tuple[Run, ...]" = ()

    @property
    def title(self) -> str:
        """The label, and how its runs ended where none is done."""
        ended = dict.fromkeys(run.status for run in self.runs if run.status != "done")
        return f"{self.label} ({', '.join(ended)})" if ended else self.label

    @property
    def lost(self) -> "tuple[Run, ...]":
        """Runs that failed where others are done: they count until a target, not at the end."""
        return tuple(run for run in self.left_out if run.status == "failed")

    @property
    def ends(self) -> dict[str, int]:
        """How many runs are left out, by how they ended."""
        return dict(Counter(run.status for run in self.left_out))


def series_of(runs: "Sequence[Run] | Mapping[str, Sequence[Run]]") -> list[Series]:
    """Series in order: by label where labels are given, else of runs that are alike but for seeds.

    The same run given twice counts once. Another run of a seed that a series has already begins one
    of its own (a plug-in, or desim, may have changed in between), so that nothing is hidden and no
    seed weighs double; under a label that is given it counts with the others. Runs that cannot tell
    what they are alike to stand alone.
    """
    if isinstance(runs, Mapping):
        parts = {label: _parted(_once(some)) for label, some in runs.items() if len(some)}
        return [Series(label, *some) for label, some in parts.items()]
    found = list(_alike(_once(runs)))
    named = labels([counted for counted, _ in found])
    return [Series(label, *parts) for label, parts in zip(named, found, strict=True)]


Parts = tuple[tuple["Run", ...], tuple["Run", ...]]


def _once(runs: "Sequence[Run]") -> "list[Run]":
    """Each run once, be it opened twice."""
    found: dict[object, Run] = {}
    for run in runs:
        found.setdefault(run.directory.resolve() if run.directory else id(run), run)
    return list(found.values())


def _alike(runs: "Sequence[Run]") -> Iterator[Parts]:
    """Those that count, and those left out, of each series."""
    families: dict[object, list[Run]] = {}
    for number, run in enumerate(runs):
        try:
            alike = run.alike
        except (DesimError, UnicodeDecodeError, OSError):
            alike = None  # its scenario cannot be read
        families.setdefault(alike or number, []).append(run)
    for family in families.values():
        counted, left_out = _parted(family)
        seen: Counter[object] = Counter()
        turns: dict[int, list[Run]] = {}
        for run in counted:
            seed = run.manifest.get("seed")
            turns.setdefault(seen[seed], []).append(run)
            seen[seed] += 1
        for turn, some in turns.items():
            yield tuple(some), () if turn else left_out


def _parted(runs: "Sequence[Run]") -> Parts:
    """The runs that are done where any is, else all; and the others."""
    done = tuple(run for run in runs if run.status == "done")
    return (done, tuple(run for run in runs if run.status != "done")) if done else (tuple(runs), ())


# What a run had spent by then: a total that grows with time, of bytes or of epsilon.


@dataclass(frozen=True)
class Meter:
    """What has been spent: times (n,) s in order, and the total (n,) from each of them on."""

    times: Array
    totals: Array

    def by(self, when: Array | float) -> Array:
        """The totals at times (m,) s, all that happens at those instants included."""
        before = np.searchsorted(self.times, when, side="right")
        return np.asarray(np.concatenate([[0.0], self.totals])[before])


def delivered(run: "Run") -> Meter:
    """Bytes of the messages that arrived; InputError where the log leaves messages out."""
    arrived = run.delivered()
    return Meter(arrived["time"].to_numpy(float), np.cumsum(arrived["bytes"].to_numpy(float)))
