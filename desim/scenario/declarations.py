"""What plug-ins declare: attributes of their classes, held to the types that desim gives them."""

import inspect
import math
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from desim.engine.signals import HEARD, Listener
from desim.errors import refusal, spelling
from desim.fields import Strict
from desim.losses.plugged import FUNCTIONS, ScalarLoss
from desim.methods.shared.method import RULES, Method
from desim.problem.models.model import Model

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
    elif "name" in kind.model_fields:
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
