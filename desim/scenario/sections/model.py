"""The section `problem.model`: a model of a plug-in, its parameters; and `problem.augment`."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
)

from desim.errors import refusal, show, spelling
from desim.fields import Count, Form, Positive, Strict
from desim.fields.choices import OrElse
from desim.problem.models.model import Model
from desim.scenario import registry

MODEL = "model"  # the kind of a loss that a model brings
FORMS = "its name, or {name: ..., its parameters}"
SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    ]
}


class NoParameters(Strict):
    """Of a model that has none."""


class ModelChoice(Strict):
    """A model by name, and its own parameters."""

    examples = {"name": "my-network"}

    name: str
    """one of desim list models"""
    parameters: SerializeAsAny[Strict]
    """the model's Parameters"""

    @property
    def of(self) -> type[Model]:
        """The class that the registry holds under this name."""
        found: type[Model] = registry.plugged().models[self.name]
        return found

    @model_serializer(mode="plain")
    def _written(self) -> dict[str, Any]:
        return {"name": self.name, **self.parameters.model_dump(exclude_none=True)}


def read_model(value: object, info: ValidationInfo) -> ModelChoice | None:
    """{name: ..., parameter: ...} as a choice whose parameters the model's class has checked."""
    if value is None or isinstance(value, ModelChoice):
        return value
    known = registry.plugged().models
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, FORMS))
    name = value.get("name")
    if not isinstance(name, str) or name not in known:
        found = f"found name: {show(name)}" if "name" in value else "found no name"
        allowed = ", ".join(known) or "none, as no plug-in that is known here brings any (plugins)"
        raise ValueError(f"{found}; allowed: {allowed}{spelling(name, known)}")
    written = {key: item for key, item in value.items() if key != "name"}
    kind = known[name].Parameters or NoParameters
    return ModelChoice(name=name, parameters=kind.model_validate(written, context=info.context))


ModelSection = Annotated[ModelChoice | None, BeforeValidator(read_model), WithJsonSchema(SCHEMA)]


class Augment(Form):
    """A change of a row, drawn anew whenever the row is trained on."""

    words = ("flip",)
    examples = {"crop": 2, "noise": 0.1}

    crop: Count | None = None
    """pixels by which an image is moved at most, up, down, left and right; zeros come in"""
    noise: Positive | None = None
    """standard deviation of the normal number that is added to each number of a row"""


def _changes(value: object) -> object:
    if isinstance(value, str) and value == "none":
        return ()
    if not isinstance(value, list | tuple):
        return (Augment.model_validate(value),)
    found = [Augment.model_validate(one) for one in value]
    kinds = [one.kind for one in found]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise ValueError(f"found {kind} twice; allowed: once")
    return tuple(found)


def _written_changes(value: tuple[Augment, ...]) -> Any:
    return [one.model_dump(exclude_none=True) for one in value] or "none"


Augments = Annotated[
    tuple[Augment, ...],
    BeforeValidator(_changes),
    PlainSerializer(_written_changes),
    OrElse(({"enum": ["none", "flip"]},), single=True),
]
