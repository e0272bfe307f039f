"""What has a name, algorithms to listeners: desim's own, of packages, of files.

A package has an entry point in group desim.plugins that names a module; a file is listed under
`plugins:` in a scenario. What counts is the subclasses of Method, ScalarLoss, Model, Dataset,
Accountant and Listener that they define, whose attributes are checked here.
"""

import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin, get_type_hints

from pydantic import (
    ConfigDict,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_serializer,
)

from desim.engine.signals import HEARD, Listener
from desim.errors import InputError, raised, refusal, show, spelling
from desim.fields import Strict
from desim.losses.plugged import FUNCTIONS, ScalarLoss
from desim.methods.shared.declarations import RULES, Method
from desim.privacy.accounting.plugged import Accountant
from desim.privacy.papers.claims import Bound
from desim.privacy.papers.theorems import BY_NAME
from desim.problem.models.user_model import Dataset, Model
from desim.scenario.own import LOSSES, METHODS

# What plug-ins declare: attributes of their classes, held to the types that desim gives them.

STRICT = "a class that inherits from desim.fields.Strict"
BESIDE = ("kind", "Parameters", "parameters", "bounds", "name")  # that others look at
NAMES = {"policies": RULES, "restarts": RULES}  # what these tuples may hold
WORDS = {bool: "True or False", str: "text", int: "a whole number", float: "a number"}
PROGRAMS = {"coordinator": "coordinator", "graph": "agents", "central": "agents"}  # by kind


def odd(of: type) -> Iterator[str]:
    """Whatever is wrong with what a plug-in's class declares, each with what is allowed."""
    for name, kind in _declared(of):
        value: object = inspect.getattr_static(of, name)
        if not _fits(kind, value):
            yield f"{name}: {refusal(value, _words(kind))}"
        elif name in NAMES and not set(value) <= set(NAMES[name]):  # type: ignore[call-overload]
            yield f"{name}: {refusal(value, 'a tuple of ' + ', '.join(NAMES[name]))}"
    for name, own in _functions(of):
        yield from _uncallable(of, name, own)
    if issubclass(of, ScalarLoss):
        yield from _odd_loss(of)
    elif issubclass(of, Model | Listener):
        yield from _odd_parameters(of)
        if issubclass(of, Listener):
            yield from _arguments(of, "__init__", 1)
            if all(getattr(of, one) is getattr(Listener, one) for one in HEARD):
                near = next((text for one in vars(of) if (text := spelling(one, HEARD))), "")
                yield f"signals: found none that it hears; allowed: {', '.join(HEARD)}{near}"
    elif issubclass(of, Method):
        yield from _arguments(of, PROGRAMS[of.kind], 2)


def _declared(of: type) -> Iterator[tuple[str, Any]]:
    """Attributes that desim's own classes above this one declare, with their types."""
    for one in of.__mro__:
        if one.__module__.startswith("desim."):
            for name, kind in get_type_hints(one).items():
                inner = get_args(kind)[0] if get_origin(kind) is ClassVar else kind
                each = inner is kind and isinstance(
                    inspect.getattr_static(of, name, None), property
                )
                if name not in BESIDE and inner is not Any and hasattr(of, name) and not each:
                    yield name, inner
            return


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def _fits(kind: Any, value: object) -> bool:
    if kind is float and isinstance(value, bool):
        return False
    try:
        _adapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def _words(kind: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if origin is tuple and inner[1:] == (...,):
        return f"a tuple, each {_words(inner[0])}"
    return WORDS.get(kind, str(kind))


def _functions(of: type) -> Iterator[tuple[str, Any]]:
    """Functions of desim's classes above this one, which it may define itself."""
    for one in of.__mro__:
        for name, own in vars(one).items() if one.__module__.startswith("desim.") else ():
            plain = getattr(own, "__func__", own)
            if inspect.isfunction(plain) and not name.startswith("_"):
                yield name, own


def _uncallable(of: type, name: str, own: Any) -> Iterator[str]:
    """What is wrong with what takes the place of desim's own function of that name."""
    value: object = inspect.getattr_static(of, name)
    if not callable(getattr(of, name)):
        yield f"{name}: {refusal(value, 'a function')}"
        return
    plain = getattr(value, "__func__", value)
    if inspect.isfunction(plain) and not plain.__module__.startswith("desim."):
        kinds = inspect.signature(getattr(own, "__func__", own)).parameters.values()
        if not any(one.kind is one.VAR_KEYWORD for one in kinds):
            needed = sum(
                one.default is one.empty and one.kind is not one.VAR_POSITIONAL for one in kinds
            )
            bound = isinstance(own, classmethod) or isinstance(value, classmethod)
            yield from _arguments(of, name, needed - (bound and not isinstance(own, staticmethod)))


def _arguments(of: type, name: str, number: int) -> Iterator[str]:
    """What is wrong with a function that is to be called with so many arguments."""
    try:
        signature = inspect.signature(getattr(of, name))
        signature.bind(*range(number))
    except ValueError:  # of a built-in function, which does not say
        return
    except TypeError:
        found = f"a function of {signature}"
        yield f"{name}: found {found}; allowed: one of {number} arguments"


def _odd_parameters(of: type[Model] | type[Listener]) -> Iterator[str]:
    kind: object = of.Parameters
    if kind is None:
        return
    if not (isinstance(kind, type) and issubclass(kind, Strict)):
        yield f"Parameters: {refusal(kind, STRICT)}"
    elif "name" in kind.keys():
        yield "Parameters: found name, which is the key that chooses it; allowed: another name"


def _odd_loss(of: type[ScalarLoss]) -> Iterator[str]:
    curvature: object = of.curvature
    if isinstance(curvature, float | int) and not (
        curvature > 0 and (math.isinf(curvature) or curvature < 1e300)
    ):
        allowed = "a number above 0, or inf where the slope jumps"
        yield f"curvature: {refusal(curvature, allowed)}"
    for name in FUNCTIONS:
        function: object = getattr(of, name)
        if not inspect.isfunction(getattr(function, "py_func", function)):
            yield f"{name}: {refusal(function, 'a static function of u and b')}"


# What is known by its name, and how plug-ins are loaded.

OWN, OWN_LOSSES = METHODS, LOSSES
FILES = {  # others are called like their methods
    "5gcs": "five_gcs", "dp-nfl": "zcdp_nfl", "admm": "p_admm", "pvp": "p_admm", "m-admm": "dvp",
    **dict.fromkeys(("pflr", "pdfc", "adfc"), "functional_mechanism"),
}  # fmt: skip
NEEDED = {  # attributes of all that is plugged in
    Method: ("kind", "summary", "paper", "Parameters"),
    ScalarLoss: ("summary",),
    Accountant: ("summary",),
    Model: ("summary",),
    Dataset: ("summary",),
    Listener: ("summary",),
}
CALLED = "a function of inputs, releases and delta"
GROUP = "desim.plugins"  # of entry points


class AsItIs(SourceFileLoader):
    """A file's code from its text: kept code is that of another text of its size and second."""

    def get_code(self, fullname: str) -> CodeType:
        """What the text says now."""
        return self.source_to_code(self.get_data(self.path), self.path)


class Known(NamedTuple):
    """Classes of plug-ins by name."""

    methods: dict[str, Any]
    losses: dict[str, Any]
    accountants: dict[str, Any]
    models: dict[str, Any]
    datasets: dict[str, Any]
    listeners: dict[str, Any]

    def with_(self, other: "Known") -> "Known":
        """Those of both; the other's where a name is in both."""
        return Known(*({**one, **more} for one, more in zip(self, other, strict=True)))


_plugged = Known({}, {}, {}, {}, {}, {})  # of files


@cache
def _installed() -> Known:
    """Those of packages, whose entry points in GROUP name a module."""
    found = Known({}, {}, {}, {}, {}, {})
    for entry in entry_points(group=GROUP):
        where = f"plug-in {entry.name} ({entry.value})"
        with _blamed(f"{where}:"):
            loaded = entry.load()
        module = sys.modules.get(getattr(loaded, "__module__", ""), loaded)
        found = found.with_(defined(module, where))
    return found


def defined(module: Any, where: str) -> Known:
    """Those of a module's own; InputError for what lacks something."""
    found = Known(*(_by_name(module, parent, where) for parent in NEEDED))
    if not any(found):
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, tuple(NEEDED)):
                if one.__module__ == module.__name__:
                    raise InputError(f"{where}: {one.__name__} lacks name")
    for parent, classes in zip(NEEDED, found, strict=True):
        for one in classes.values():
            lacking = [key for key in NEEDED[parent] if not hasattr(one, key)]
            if parent is Listener and not one.summary:
                lacking = ["summary"]
            abstract = sorted(getattr(one, "__abstractmethods__", ()))
            lacking += sorted(abstract, key=[*vars(parent), *abstract].index)
            if lacking:
                raise InputError(f"{where}: {one.__name__} lacks {', '.join(lacking)}")
    for method in found.methods.values():
        _shaped(method, f"{where}: {method.__name__}")
    for one in (one for classes in found for one in classes.values()):
        for text in odd(one):
            raise InputError(f"{where}: {one.__name__}.{text}")
    for name in (*found.methods, *found.losses, *found.models):
        if name in (*OWN, *OWN_LOSSES):
            raise InputError(f"{where} defines {name!r}, a name that desim uses itself")
    return found


def _shaped(method: type[Method], where: str) -> None:
    """Raise InputError for a method whose kind, program or parameters are none."""
    if not isinstance(method.kind, str) or method.kind not in PROGRAMS:
        raise InputError(f"{where}.kind: {refusal(method.kind, ', '.join(PROGRAMS))}")
    if not callable(getattr(method, PROGRAMS[method.kind], None)):
        raise InputError(f"{where} lacks its program, {PROGRAMS[method.kind]}")
    if not (isinstance(method.Parameters, type) and issubclass(method.Parameters, Strict)):
        raise InputError(f"{where}.Parameters: {refusal(method.Parameters, STRICT)}")
    bounds: object = method.bounds
    if not isinstance(bounds, tuple) or not all(isinstance(one, Bound) for one in bounds):
        raise InputError(f"{where}.bounds: {refusal(bounds, 'a tuple of desim.method.Bound')}")
    for one in bounds:
        if one.name in BY_NAME:
            raise InputError(f"{where}.bounds: {one.name!r} is a name that desim uses itself")
        if not callable(one.formula):
            raise InputError(f"{where}.bounds: {one.name}: formula: {refusal(one.formula, CALLED)}")


def _by_name(module: Any, parent: type, where: str) -> dict[str, Any]:
    """The subclasses that a module itself defines, and gives a name."""
    found: dict[str, Any] = {}
    own = [one for one in vars(module).values() if isinstance(one, type)]
    for one in (one for one in own if issubclass(one, parent) and hasattr(one, "name")):
        if one.__module__ != module.__name__ or (parent is Listener and not one.name):
            continue
        if not isinstance(one.name, str):
            raise InputError(f"{where}: {one.__name__} lacks a name that is text")
        if (other := found.setdefault(one.name, one)) is not one:
            both = f"{other.__name__} and {one.__name__}"
            raise InputError(f"{where}: {both} have the same name, {one.name!r}")
    return found


def plugged() -> Known:
    """What plug-ins have brought, as far as that is known now."""
    return _installed().with_(_plugged)


def names() -> tuple[str, ...]:
    """Names of all algorithms that are known now."""
    return (*OWN, *sorted(plugged().methods))


def accountant(name: str, key: str) -> type[Accountant]:
    """The class of a plug-in's accountant; InputError, of `key`, where there is none."""
    known = plugged().accountants
    if name in known:
        found: type[Accountant] = known[name]
        return found
    allowed = ", ".join(known) or "none, as no plug-in that is known here brings any"
    raise InputError(f"{key}: {refusal(name, allowed, tuple(known))}")


@cache
def _own(name: str) -> type[Method]:
    """The method of desim's own that has this name."""
    file = importlib.import_module(f"desim.methods.{FILES.get(name, name.replace('-', '_'))}")
    classes = [one for one in vars(file).values() if isinstance(one, type)]
    methods = [one for one in classes if issubclass(one, Method) and "name" in vars(one)]
    return {one.name: one for one in methods}[name]


def get(name: str) -> type[Method]:
    """Return the class of an algorithm; InputError with the nearest spelling if there is none."""
    if name in OWN and name not in _plugged.methods:
        return _own(name)
    found: dict[str, type[Method]] = plugged().methods
    if name in found:
        return found[name]
    raise InputError(f"algorithm.name: {refusal(name, ', '.join(names()), names())}")


def load_plugin(path: Path) -> list[str]:
    """Import a file and register what it defines; return the names of what it has."""
    found = defined(_imported(path), f"plugins: {path}")
    for name in found.accountants:
        other = _plugged.accountants.get(name)
        where = getattr(sys.modules.get(other.__module__), "__file__", path) if other else path
        if Path(where) != path:
            raise InputError(f"plugins: {path}: accountant {name!r} is defined in {where}, too")
    for known, more in zip(_plugged, found, strict=True):
        known.update(more)
    return sorted([*found.methods, *found.losses, *found.models, *found.datasets, *found.listeners])


def module_of(path: Path) -> str:
    """The name of a plug-in's module: the same in all processes, which send each other objects."""
    return f"desim_plugin_{path.stem}_{sha256(str(path.resolve()).encode()).hexdigest()[:16]}"


def _imported(path: Path) -> Any:
    if not path.is_file():
        why = "is no regular file" if path.exists() else "does not exist"
        raise InputError(f"plugins: {path} {why}")
    label = module_of(path)
    spec = importlib.util.spec_from_file_location(label, path)
    if spec is None or spec.loader is None:
        raise InputError(f"plugins: {path} is not a Python file")
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = AsItIs(label, str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module
    try:
        with _blamed(f"plugins: {path}"):
            spec.loader.exec_module(module)
    except InputError:
        del sys.modules[label]
        raise
    return module


@contextmanager
def _blamed(where: str) -> Iterator[None]:
    """Turn whatever the import of a plug-in ends with, other than by Ctrl-C, into InputError."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except InputError as error:
        raise InputError(
            [f"{where.removesuffix(':')}: {line}" for line in error.problems]
        ) from error
    except BaseException as error:
        raise InputError(f"{where} raised {raised(error)}") from error


# What a scenario chooses by its name, with parameters that its class checks.

NONE = "none, as no plug-in that is known here brings any (plugins)"
BY_NAME_OR_KEYS = "its name, or {name: ..., its parameters}"


class NoParameters(Strict):
    """Of what has none."""


class Named(Strict):
    """Something by its name, and its own parameters."""

    name: str
    parameters: SerializeAsAny[Strict]

    @classmethod
    def read(
        cls, value: object, info: ValidationInfo, known: Collection[str],
        class_of: Callable[[str], Any], *, form: str = BY_NAME_OR_KEYS,
        nameless: str = "found no name",
    ) -> Self:  # fmt: skip
        """A name, or {name: ..., parameter: ...}; class_of(name): that of a `known` one.

        form: what it may be, in words; nameless: what to say of a mapping without a name.
        """
        if isinstance(value, cls):
            return value
        value = {"name": value} if isinstance(value, str) else value
        if not isinstance(value, Mapping):
            raise ValueError(refusal(value, form))
        name = value.get("name")
        if not isinstance(name, str) or name not in known:
            found = f"found name: {show(name)}" if "name" in value else nameless
            raise ValueError(f"{found}; allowed: {', '.join(known) or NONE}{spelling(name, known)}")
        written = {key: item for key, item in value.items() if key != "name"}
        kind = class_of(name).Parameters or NoParameters
        return cls(name=name, parameters=kind.model_validate(written, context=info.context))

    @model_serializer(mode="plain")
    def _written(self) -> dict[str, Any]:
        return {"name": self.name, **self.parameters.model_dump(exclude_none=True)}
