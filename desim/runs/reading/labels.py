"""What runs are called: their names, or what they differ in where they share one."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from desim.amounts import BELOW, best_unit
from desim.errors import DesimError
from desim.runs.declared import model_of, names
from desim.runs.played import Played
from desim.scenario.own import LAYERED

LONGEST = 60  # letters of a label
UNITS = {  # of the numbers that resolved scenarios have in each section, by key
    "network": {"latency": "s", "timeout": "s", "round": "s", "bandwidth": "bit/s"},
    "compute": {"time": "s", "every": "s", "lasting": "s", "speed": "/s", "overhead": "s"}
    | {"reply": "s", "number": "s"},
    "churn": {"up": "s", "down": "s", "start": "s", "day": "s"},
    "policy": {"deadline": "s", "at_most": "s"},
    "participation": {"pace": "s"},
    "stop": {"time": "s"},
}
Place = tuple[str, ...]  # keys of a setting, from the section down
TRAINING = ("augment", "device")  # of the problem: how it is trained, not what it is


def _written(run: Played) -> dict[str, Any]:
    """The resolved scenario; nothing where it cannot be read."""
    try:
        return run.scenario.written()
    except DesimError:
        return {}


def labels(
    groups: Sequence[Sequence[Played]], settings: Callable[[Played], Mapping[str, Any]] = _written
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
    groups: Sequence[Sequence[Played]], settings: Callable[[Played], Mapping[str, Any]]
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
        if len(set(found)) == len(found) and max(map(len, found)) <= LONGEST:
            return found
    seen: Counter[str] = Counter()
    numbered = []
    for run in runs:
        seen[run.name] += 1
        numbered.append(f"{run.name} {seen[run.name]}")
    return [_folders(group) or name for group, name in zip(groups, numbered, strict=True)]


def _folders(group: Sequence[Played]) -> str:
    """Where the runs of a group are: the directory of one, and how many others there are."""
    found = [str(run.directory) for run in group if run.directory]
    return "" if not found else found[0] + (f" and {len(found) - 1} more" if found[1:] else "")


def differing(runs: Sequence[Played]) -> list[Place]:
    """Places of the settings that not all scenarios have with the same value.

    Name and seed are none; scenarios that cannot be read are left out.
    """
    return _unlike([tree for tree in map(_written, runs) if tree])


def other_problems(runs: Sequence[Played]) -> list[str]:
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
    flats = [dict(_leaves(tree, ())) for tree in trees]
    places = dict.fromkeys(place for flat in flats for place in flat)
    return [one for one in places if any(flat.get(one) != flats[0].get(one) for flat in flats)]


def _leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*place, str(key)))
    elif place not in (("name",), ("seed",)):
        yield place, value


def _at(tree: Any, place: Place) -> Any:
    """What a scenario has in a place, which may be a whole section; "none" for nothing."""
    for key in place:
        if not isinstance(tree, Mapping) or key not in tree:
            return "none"
        tree = tree[key]
    return tree
