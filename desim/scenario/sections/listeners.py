"""The key `listeners`: what hangs on a play, of a plug-in, with its parameters."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
)

from desim.engine.signals import Listener, Signals
from desim.errors import refusal, show, spelling
from desim.fields import Strict
from desim.scenario import registry
from desim.scenario.sections.problem import FORMS, SCHEMA, NoParameters


class Listening(Strict):
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

    @model_serializer(mode="plain")
    def _written(self) -> dict[str, Any]:
        return {"name": self.name, **self.parameters.model_dump(exclude_none=True)}


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
    if isinstance(value, Listening):
        return value
    known = registry.plugged().listeners
    value = {"name": value} if isinstance(value, str) else value
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, FORMS))
    name = value.get("name")
    if not isinstance(name, str) or name not in known:
        found = (
            f"found name: {show(name)}" if "name" in value else f"found no name in {show(value)}"
        )
        allowed = ", ".join(known) or "none, as no plug-in that is known here brings any (plugins)"
        raise ValueError(f"{found}; allowed: {allowed}{spelling(name, known)}")
    written = {key: item for key, item in value.items() if key != "name"}
    kind = known[name].Parameters or NoParameters
    return Listening(name=name, parameters=kind.model_validate(written, context=info.context))


ListenersSection = Annotated[
    tuple[Annotated[Listening, BeforeValidator(_read)], ...],
    BeforeValidator(_listed),
    AfterValidator(_once),
    WithJsonSchema({"anyOf": [*SCHEMA["anyOf"], {"type": "array", "items": SCHEMA}]}),
]
