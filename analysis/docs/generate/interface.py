"""The Python interface, from docstrings: what `desim` offers, and what methods are written with."""

import ast
import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from importlib import import_module
from inspect import getattr_static
from types import FunctionType
from typing import Any

import desim
from analysis.docs.generate.markdown import code, escaped, flowing, paragraphs, table
from desim.engine.at_work import OWNED
from desim.engine.us import Cohort

FIRST = ("load", "run", "open")
FOLDED = ("Scenario",)  # the keys are in the reference of scenarios
OF_US = [  # verbs of a program and of its jobs; the rest is the engines'
    name
    for name in sorted({*OWNED, "noise_seed"} & set(dir(Cohort)))
    if isinstance(getattr_static(Cohort, name), FunctionType | property)
]
VERBS: dict[str, Iterable[str] | None] = {  # with the members that are shown; None: all
    "desim.methods.shared.declarations.Method": None,
    "desim.engine.us.Cohort": OF_US,
    "desim.engine.hub.Hub": (
        "memory start open invite call collect publish tell inform now".split()
    ),
    "desim.engine.clients.Clients": ("noised", "released", "noise_key"),
    "desim.privacy.ledger.ledger.Terms": ("of",),
    "desim.privacy.ledger.mechanisms.View": None,
}
SIGNALS = (
    "desim.engine.signals.Listener",
    "desim.engine.signals.Message",
    "desim.engine.signals.Release",
)
RETURNED = (  # what functions of desim return, beside runs and studies
    "desim.runs.store.Checkpoint",
    "desim.experiments.studies.compare.Comparison",
    "desim.experiments.studies.study.StoredStudy",
    "desim.deployments.fidelity.clock_errors.ClockErrors",
    "desim.deployments.measuring.calibration.Calibrated",
    "desim.experiments.ranking.robust.Robust",
)
FUNCTIONS = (
    "desim.privacy.ledger.mechanisms.terms",
    "desim.methods.shared.checked_gradients.gradient",
    "desim.methods.shared.checked_gradients.batch_gradient",
    "desim.network.conditions.topology.random_matching",
    "desim.network.conditions.topology.random_neighbours",
    "desim.network.conditions.mixing.mixing_matrix",
)
WIDTH = 100


def interface() -> str:
    """Functions, classes, errors, and the verbs of methods."""
    names = [name for name in desim.__all__ if not name.startswith("_")]
    functions = [name for name in names if not name[0].isupper()]
    functions.sort(key=lambda name: (name not in FIRST, FIRST.index(name) if name in FIRST else 0))
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and name not in constants]
    errors = [name for name in classes if issubclass(getattr(desim, name), BaseException)]
    nouns = [name for name in classes if name not in errors]
    return paragraphs(
        "## Functions",
        *(_function(f"desim.{name}") for name in functions),
        _function("desim.deployments.measuring.calibration.calibrate_here"),
        "## Classes",
        *(_class(f"desim.{name}", () if name in FOLDED else None) for name in nouns),
        "## What comparisons, stored studies, calibrations and rankings are",
        *map(_class, RETURNED),
        "## Constants",
        *map(_constant, constants),
        "## Errors\n\nEvery error that a user can cause is one of these, and "
        f"{code('exit_code')} is that of the command line.",
        *(_class(f"desim.{name}", ()) for name in errors),
        "## For methods of your own",
        *(_class(name, members) for name, members in VERBS.items()),
        *map(_function, FUNCTIONS),
        "## For listeners of your own",
        *map(_class, SIGNALS),
    )


def _constant(name: str) -> str:
    known = getattr(desim, name).items()
    cells = {key: (about,) if isinstance(about, str) else about for key, about in known}
    rows = [(code(key), *map(escaped, about)) for key, about in cells.items()]
    head = ("", "what it is", "seconds", "value")[: len(rows[0])]
    return paragraphs(f"### desim.{name}", table(head, rows))


def _function(path: str) -> str:
    function = _named(path)
    return paragraphs(f"### {path}", _signature(function, path), _about(function))


def _class(path: str, shown: Iterable[str] | None = None) -> str:
    """A class with those of its members that are shown, all where None is given."""
    owner = _named(path)
    inherited = ", ".join(
        code(f"desim.{one.__name__}" if one.__name__ in desim.__all__ else one.__name__)
        for one in owner.__bases__
        if issubclass(owner, BaseException)
    )
    begin = _signature(owner, path) if "__init__" in vars(owner) and shown != () else ""
    members = list(_members(owner) if shown is None else shown)
    base = f"A kind of {inherited}." if inherited else ""
    rows = (_member(owner, name) for name in members)
    return paragraphs(f"### {path}", begin, _about(owner), base, *rows)


def _members(owner: type) -> Iterable[str]:
    """Its own public functions and properties that say what they do, in the order of the source."""
    for name, one in vars(owner).items():
        plain = getattr(one, "__func__", getattr(one, "func", one))
        callable_ = isinstance(plain, FunctionType | property)
        if not name.startswith("_") and callable_ and inspect.getdoc(plain):
            yield name


def _member(owner: type, name: str) -> str:
    one = getattr_static(owner, name)
    function = getattr(one, "__func__", getattr(one, "func", getattr(one, "fget", one)))
    if isinstance(one, property) or hasattr(one, "func"):
        result = _definition(function).returns
        kind = f": {ast.unparse(result).strip(chr(39))}" if result else ""
        return paragraphs(f"#### {name}", code(f"{name}{kind}"), _about(one))
    return paragraphs(f"#### {name}", _signature(function, name), _about(function))


def _signature(of: Any, path: str) -> str:
    """How it is called, as its source writes it."""
    function = vars(of)["__init__"] if isinstance(of, type) else of
    if is_dataclass(of):  # its own source has no such function
        fields = (f"    {one.name}: {_kind(one.type)}" for one in dataclass_fields(of))
        return "\n".join(["```python", f"{path}(", *fields, ")", "```"])
    node = _definition(function)
    bound = node.args.posonlyargs + node.args.args
    if bound and bound[0].arg in ("self", "cls"):
        (node.args.posonlyargs or node.args.args).pop(0)
    result = "" if node.returns is None or isinstance(of, type) else ast.unparse(node.returns)
    arrow = f" -> {result.strip(chr(39))}" if result else ""
    whole = f"{path}({ast.unparse(node.args)}){arrow}"
    if len(whole) > WIDTH:
        lines = (f"    {one}," for one in _parameters(node.args))
        whole = "\n".join([f"{path}(", *lines, f"){arrow}"])
    return f"```python\n{whole}\n```"


def _parameters(given: ast.arguments) -> Iterable[str]:
    """Each parameter as it is written, with the signs * and / that stand between them."""
    parts, depth, begin, text = [], 0, 0, ast.unparse(given) + ","
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            parts.append(text[begin:place].strip())
            begin = place + 1
    for part in parts:
        name, equals, default = part.partition("=")
        yield f"{name} = {default}" if equals and ":" in name else part


def _kind(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _definition(function: Any) -> ast.FunctionDef:
    parsed = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    found = parsed.body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


def _about(one: Any) -> str:
    text = inspect.getdoc(one) or ""
    return paragraphs(*(escaped(flowing(part)) for part in text.split("\n\n")))


def _named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
