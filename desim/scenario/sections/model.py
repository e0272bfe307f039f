"""The section `problem.model`: a model of a plug-in, and its own parameters."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
)

from desim.errors import refusal, show, spelling
from desim.fields import Strict
from desim.models.model import Model
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
