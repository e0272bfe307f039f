"""An example of every key: from the shipped scenarios where one has it, else from its type."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from analysis.docs.generate.types import schema_of, sections_in
from desim.fields import Form, Strict
from desim.scenario import registry
from desim.scenario.load import read
from desim.scenario.schema import Scenario
from desim.scenario.sections.data import SOURCES
from desim.scenario.sections.network import Network
from desim.scenario.sections.tabular import MarkedRows, SomeRows

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
FIRST = ("quickstart.yaml", "asynchronous.yaml", "deadline-sgd.yaml", "networked-admm.yaml")
Key = tuple[type, str]


def example(owner: type[Strict], key: str) -> Any:
    """A value that `key` of a section may have, as a scenario writes it; None where none is known.

    The section's own example, that of a shipped scenario, that of the type, a word that is no
    default, or a section with an example of its first key.
    """
    given = owner.example(key)
    if given is None:
        given = shipped().get((home(owner, key), key))
    if given is None:
        given = _of_type(owner, key)
    return given


def home(owner: type[Strict], key: str) -> type:
    """The class that defines a key of `owner`: its examples are those of all that inherit it."""
    key = owner.attribute(key)
    return next(one for one in owner.__mro__ if key in vars(one).get("__annotations__", {}))


def _of_type(owner: type[Strict], key: str) -> Any:
    field = owner.model_fields[owner.attribute(key)]
    for schema in _options(schema_of(field)):
        if "examples" in schema:
            return schema["examples"][0]
        others = [word for word in schema.get("enum", ()) if word not in (field.default, "none")]
        if others:
            return others[-1]
        if "const" in schema:
            return schema["const"]
        if schema.get("type") == "boolean":
            return not field.default
    for section in sections_in(field.annotation):
        return _section(section)
    return None


def _section(section: type[Strict]) -> Any:
    """A section with what it needs, or its first alternative."""
    if issubclass(section, Form):
        first = section.alternatives()[0]
        return {first: example(section, first)}
    needed = [
        key for key in section.keys() if section.model_fields[section.attribute(key)].is_required()
    ]
    return {key: example(section, key) for key in needed or section.keys()[:1]}


def _options(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for one in schema.get("anyOf", ()):
        yield from _options(one)


@cache
def shipped() -> dict[Key, Any]:
    """Values of keys in the shipped scenarios, the first that is found of each."""
    found: dict[Key, Any] = {}
    files = [SCENARIOS / name for name in FIRST]
    for path in dict.fromkeys([*files, *sorted(SCENARIOS.rglob("*.yaml"))]):
        tree = read(path).data
        if "problem" in tree:
            _walk(Scenario, tree, found)
        elif "network" in tree:
            _walk(Network, tree["network"], found)
    return found


def _walk(owner: type[Strict], written: Mapping[str, Any], found: dict[Key, Any]) -> None:
    for key, value in written.items():
        if key not in owner.keys():
            continue
        found.setdefault((home(owner, key), key), value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                for section in _sections(owner, key, one):
                    _walk(section, one, found)


def _sections(owner: type[Strict], key: str, value: Mapping[str, Any]) -> list[type[Strict]]:
    """The sections that a mapping below a key may be."""
    if owner is Scenario and key == "algorithm":
        return [registry.get(value["name"]).Parameters]
    if key == "data":
        return [SOURCES[value["source"]]]
    inside = [*sections_in(owner.model_fields[owner.attribute(key)].annotation)]
    inside += [SomeRows, MarkedRows] if key == "test" else []
    return [one for one in inside if set(value) <= set(one.keys())]
