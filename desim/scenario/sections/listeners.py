"""The key `listeners`: what hangs on a play, of a plug-in, with its parameters."""

from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
)

from desim.engine.signals import Listener, Signals
from desim.errors import show
from desim.fields import Strict
from desim.scenario import registry
from desim.scenario.sections.problem import SCHEMA


class Listening(registry.Named):
    """A listener by name, and its own parameters."""

    examples = {"name": "energy-meter"}

    name: str
    """one of desim list listeners"""
    parameters: SerializeAsAny[Strict]
    """the listener's Parameters"""

    @property
    def of(self) -> type[Listener]:
        """The class that the registry holds under this name."""
        found: type[Listener] = registry.plugged().listeners[self.name]
        return found

    @property
    def changes(self) -> bool:
        """Whether it hears what happens inside rounds, which it may change."""
        return Signals([self.of()]).inside

    def one(self) -> Listener:
        """A new one, that has heard nothing."""
        listener = self.of()
        listener.parameters = self.parameters
        return listener


def _listed(value: object) -> object:
    """One listener may stand alone."""
    return value if isinstance(value, list | tuple) else [value]


def _once(found: tuple[Listening, ...]) -> tuple[Listening, ...]:
    names = [one.name for one in found]
    if twice := next((one for one in names if names.count(one) > 1), ""):
        raise ValueError(f"found {twice} twice; allowed: once")
    return found


def _read(value: object, info: ValidationInfo) -> Listening:
    """A name, or {name: ..., parameter: ...}, as a choice that its class has checked."""
    known, nameless = registry.plugged().listeners, f"found no name in {show(value)}"
    return Listening.read(value, info, known, known.__getitem__, nameless=nameless)


ListenersSection = Annotated[
    tuple[Annotated[Listening, BeforeValidator(_read)], ...],
    BeforeValidator(_listed),
    AfterValidator(_once),
    WithJsonSchema({"anyOf": [*SCHEMA["anyOf"], {"type": "array", "items": SCHEMA}]}),
]
