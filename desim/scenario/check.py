"""From what was written to a Scenario: each section on its own, then what sections owe each other.

A section that is wrong does not hide errors in the others, so one report lists them all.
"""

import contextlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import TypeAdapter, ValidationError

from desim.errors import (
    DesimError,
    InputError,
    ListenerError,
    ProgramError,
    raised,
    refusal,
    spelling,
)
from desim.fields import Strict
from desim.fields.strict import UNKNOWN_KEY, explain
from desim.scenario import registry
from desim.scenario.checks.consistency import CHECKS, Check
from desim.scenario.schema import SECTIONS, Scenario
from desim.scenario.sections.algorithm import Policy
from desim.scenario.sections.data import SOURCES
from desim.scenario.tree import Place, Tree, dotted, placed, unfit

# Whose fault an unexpected error is: a plug-in's, the machine's that lacks memory, or desim's.


DESIM = Path(__file__).resolve().parents[1]
# What numpy says of sizes beyond an address.
TOO_BIG = ("array is too big", "Maximum allowed", "iterator is too large")
SIZES = "problem.agents, problem.data or network.topology"


@contextlib.contextmanager
def explained(scenario: Scenario) -> Iterator[None]:
    """Turn what goes wrong before a run into InputError, unless it is desim's own fault."""
    try:
        yield
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if (text := blame(error, scenario)) is None:
            raise
        raise InputError(text) from error


def blame(error: BaseException, scenario: Scenario) -> str | None:
    """What to say of an error that a plug-in raised or memory caused; None where desim is wrong."""
    if text := accused(error, scenario.plugins):
        return text
    if isinstance(error, ProgramError):
        return f"{'listeners' if isinstance(error, ListenerError) else 'algorithm'}: {error}"
    beyond = type(error) is ValueError and str(error).startswith(TOO_BIG)
    if isinstance(error, MemoryError) or beyond:
        return f"{SIZES}: too large for the memory of this machine ({error or 'none is left'})"
    return None if isinstance(error, DesimError | OSError) else _unusable(error, scenario)


def _unusable(error: BaseException, scenario: Scenario) -> str | None:
    """What to say of an error in desim that a plug-in's method led to: it gave something odd.

    Such as a constructor that returns a number.
    """
    method = scenario.algorithm.method
    file = getattr(sys.modules.get(method.__module__), "__file__", None)
    places = [index for index, one in enumerate(scenario.plugins) if str(one) == file]
    if not places or not isinstance(error, Exception):
        return None
    last = next(reversed(list(_frames(error))), None)
    place = f" in {Path(last.filename).name}, line {last.lineno}" if last else ""
    what = f"plugins[{places[0]}]: {file}: desim cannot use what {method.__name__} gives it"
    return f"{what}: {raised(error)}{place}"


def accused(error: BaseException, plugins: Sequence[Path]) -> str | None:
    """What to say of an error that passed one of these files; None where it passed none."""
    for frame in reversed(list(_frames(error))):
        for index, file in enumerate(plugins):
            if Path(frame.filename) == file:
                return f"plugins[{index}]: {file}, line {frame.lineno}, raised {raised(error)}"
    return None


def own_access(error: OSError, plugins: Sequence[Path]) -> bool:
    """Whether one of these files, and not desim for it, asked for what the system refused."""
    for frame in reversed(list(_frames(error))):
        file = Path(frame.filename)
        if file in plugins:
            return True
        if file.is_relative_to(DESIM):
            return False
    return False


def _frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """Where `error` passed, then its causes: SimPy raises copies of some."""
    cause: BaseException | None = error
    while cause is not None:
        yield from traceback.extract_tb(cause.__traceback__)
        cause = cause.__cause__


# What was written becomes a Scenario, or a report of all that is wrong with it.
Problem = tuple[Place, str]
TRUSTED = ("clip", "noise", "relation", "target", "view", "budget")
FOLLOWS: dict[Place, list[Place]] = {  # what is wrong with these only where the key is another one
    ("privacy", "trust"): [
        *(("privacy", key) for key in TRUSTED),
        *(("privacy", "noise", key) for key in ("sigma", "multiplier", "correlated")),
    ],
    ("participation", "separation"): [("privacy", "noise", "correlated")],
}
NAMED: tuple[Place, ...] = (("problem", "loss"), ("problem", "model"), ("algorithm",))


def validated(tree: Tree, folder: Path) -> Scenario:
    """The Scenario that `tree` writes; InputError with every problem, in the order of the file.

    Relative file names count from `folder`.
    """
    sections: dict[str, Any] = {}
    try:
        return _validated(tree, folder, sections)
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        accusation = accused(error, sections.get("plugins", ()))
        if accusation is None:
            raise
        raise InputError(f"{tree.source}: {accusation}") from error


def _validated(tree: Tree, folder: Path, sections: dict[str, Any]) -> Scenario:
    problems = [*tree.problems, *unfit(tree.data)]
    broken = tree.broken | {str(place[0]) for place, _ in problems if place}
    for name in (*SECTIONS, *(key for key in tree.data if key not in SECTIONS)):
        problems += _section(name, tree.data, folder, sections)
    if any(place[:1] == ("plugins",) for place, _ in problems):  # a name may be one of theirs
        problems = [one for one in problems if one[0] not in NAMED or "found" not in one[1]]
    missing = {"privacy", "churn", "battery", "attackers"} - {*tree.data}
    absent: dict[str, Any] = dict.fromkeys(sorted(missing))
    _waiting(tree.data, sections)
    right = {**absent, **{name: one for name, one in sections.items() if name not in broken}}
    around = {place[:end] for place, _ in problems for end in range(len(place))}
    wrong = {place for place, _ in problems}
    around |= {place for key, follows in FOLLOWS.items() if key in wrong for place in follows}
    problems += [one for one in _together(right) if one[0] not in around]  # wrong inside already
    if problems:
        raise InputError(_report(tree, problems))
    scenario = Scenario.model_validate(_from_its_model(sections))
    marks = {dotted(place): mark for place, mark in tree.marks.items()}
    return scenario.model_copy(update={"folder": folder, "source": tree.source, "marks": marks})


def _waiting(data: Mapping[str, Any], sections: dict[str, Any]) -> None:
    """Who is waited for where the file does not say: what the method of the section has for it."""
    if "policy" not in data and "algorithm" in sections:
        method = sections["algorithm"].method
        try:
            sections["policy"] = Policy.of(method.waiting)
        except ValidationError as error:
            allowed = "what a scenario's policy may be"
            text = f"{method.__name__}.waiting: {refusal(method.waiting, allowed)}"
            raise InputError(f"scenario: algorithm: {text}") from error


def _from_its_model(sections: dict[str, Any]) -> dict[str, Any]:
    """The sections, where iterates start as the model says unless the file says otherwise."""
    parameters = sections["algorithm"].parameters
    own = "init" in parameters.model_fields_set or "init" not in type(parameters).keys()
    if own or sections["problem"].model is None:
        return sections
    init = type(parameters).model_fields["init"].default.of("model")
    algorithm = sections["algorithm"].model_copy(
        update={"parameters": parameters.model_copy(update={"init": init})}
    )
    return {**sections, "algorithm": algorithm}


def located(scenario: Scenario, error: InputError) -> InputError:
    """`error`, raised by a later stage, with file and line before each key path of the scenario."""
    source = f"{scenario.source}: "
    bare = [line.removeprefix(source) for line in error.problems]
    return InputError(_locate(scenario.marks, line) for line in bare)


def _locate(marks: Mapping[str, str], line: str) -> str:
    path = line.partition(": ")[0].partition("[")[0]
    while path:
        if path in marks:
            return placed(marks[path], line)
        path = path.rpartition(".")[0]
    return line


@cache
def _reader(name: str) -> TypeAdapter[Any]:
    field = Scenario.model_fields[name]
    section: Any = Annotated[field.annotation, field]
    return TypeAdapter(section)


def _section(
    name: str, data: Mapping[str, Any], folder: Path, sections: dict[str, Any]
) -> Iterator[Problem]:
    """Put section `name` into `sections` if it is right; else yield what is wrong with it."""
    field = Scenario.model_fields.get(name)
    if field is None or name not in SECTIONS:
        allowed = ", ".join(SECTIONS)
        text = f"unknown key; allowed: {allowed}{spelling(name, SECTIONS)}{belongs((name,))}"
        yield (name,), text
    elif name not in data:
        if field.is_required():
            yield (name,), f"missing; this key is required: {Scenario.about(name)}"
        elif name == "engine" or field.default is not None:
            sections[name] = field.default
    else:
        try:
            sections[name] = _reader(name).validate_python(data[name], context={"folder": folder})
        except ValidationError as error:
            wrong = {details["loc"][0] for details in error.errors() if details["loc"]}
            _stand_in(name, data[name], wrong, folder, sections)
            for details in error.errors(include_url=False):
                place = (name, *details["loc"])
                hint = belongs(place) if details["type"] == UNKNOWN_KEY else ""
                yield place, explain(details) + hint
        else:
            if name == "plugins":
                yield from _plugins(sections[name])


LEANING = {"levels": "topology"}  # keys that mean nothing without another of their section


def _stand_in(
    name: str, written: Any, wrong: set[Any], folder: Path, sections: dict[str, Any]
) -> None:
    """Put what is right of a section into `sections`: other sections can be held against that."""
    if isinstance(written, Mapping) and wrong:
        wrong = wrong | {one for one, other in LEANING.items() if other in wrong}
        rest = {key: value for key, value in written.items() if key not in wrong}
        with contextlib.suppress(ValidationError, InputError):
            sections[name] = _reader(name).validate_python(rest, context={"folder": folder})


def _plugins(files: Iterable[Path]) -> Iterator[Problem]:
    brought: dict[str, Path] = {}
    for index, file in enumerate(files):
        try:
            names = registry.load_plugin(file)
        except InputError as error:
            yield ("plugins", index), str(error)
            continue
        for name in names:
            if (other := brought.setdefault(name, file)) != file:
                text = f"found {name!r} in {file.name}, and in {other}, too"
                yield ("plugins", index), f"{text}; allowed: one file for each name"


def _together(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems between sections, of those checks whose sections are all right."""
    known = dict(sections)
    if "problem" in known:
        known["agents"] = known["problem"].agents
    if "algorithm" in known and "network" in known:
        known["kind"] = known["algorithm"].method.kind_on(known["network"].topology.kind)
    return _disagreements(known, CHECKS)


def unfit_for(agents: int, scenario: Scenario) -> list[str]:
    """What is wrong with a scenario now that the data say how many agents there are."""
    known = {name: getattr(scenario, name) for name in SECTIONS}
    of_agents = [one for one in CHECKS if "agents" in _needed(one)]
    found = _disagreements({**known, "kind": scenario.kind, "agents": agents}, of_agents)
    return [f"{dotted(place)}: {text}" for place, text in found]


def _disagreements(known: Mapping[str, Any], checks: Iterable[Check]) -> Iterator[Problem]:
    """What those of the checks say all of whose sections are known.

    Besides sections they may ask for `kind`, what the method is on the network, and `agents`, how
    many there are, None where that is not known yet.
    """
    for check in checks:
        needed = _needed(check)
        if needed <= known.keys():
            yield from check(**{name: known[name] for name in needed})


@cache
def _needed(check: Check) -> frozenset[str]:
    return frozenset(inspect.signature(check).parameters)


def _report(tree: Tree, problems: list[Problem]) -> list[str]:
    order = {place: index for index, place in enumerate(tree.marks)}
    texts: dict[Place, str] = {}
    for place, text in problems:
        if not any(place[: len(other)] == other and other != place for other in texts):
            texts.setdefault(place, text)
    ranked = sorted(texts, key=lambda place: _rank(place, order))
    return [tree.line(place, texts[place]) for place in ranked]


def _rank(place: Place, order: Mapping[Place, int]) -> int:
    for end in range(len(place), 0, -1):
        if place[:end] in order:
            return order[place[:end]]
    return len(order)


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
        for below in _models(model.model_fields[model.attribute(key)].annotation):
            _collect(below, f"{path}.{key}", found)


def _models(annotation: Any) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
