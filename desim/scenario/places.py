"""Where a key lives that was written in the wrong section."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from desim.fields import Strict
from desim.scenario import registry
from desim.scenario.schema import SECTIONS, Scenario
from desim.scenario.sections.data import SOURCES
from desim.scenario.tree import Place


def belongs(place: Place) -> str:
    """The end of a message that says where the key at `place` belongs, or nothing."""
    key, inside = place[-1], ".".join(str(part) for part in place[:-1])
    homes = [home for home in dict.fromkeys(_places().get(str(key), ())) if home != inside]
    methods = [name for name in registry.names() if key in registry.get(name).Parameters.keys()]
    if inside == "algorithm" and methods:
        homes = [f"algorithm {name}" for name in methods]
    elif methods:
        homes.append("algorithm")
    return f"; {key} belongs to {' or '.join(homes[:3])}" if homes else ""


@cache
def _places() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for section in SECTIONS:
        found.setdefault(section, []).append("the top level")
        for model in _models(Scenario.model_fields[section].annotation):
            _collect(model, section, found)
    for source in SOURCES.values():
        _collect(source, "problem.data", found)
    return found


def _collect(model: type[Strict], path: str, found: dict[str, list[str]]) -> None:
    for key in model.keys():
        found.setdefault(key, []).append(path)
        for below in _models(model.model_fields[key].annotation):
            _collect(below, f"{path}.{key}", found)


def _models(annotation: Any) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
