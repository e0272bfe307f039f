"""The sections `algorithm` and `policy`: the method, and whom it waits for."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from desim.errors import refusal, show, spelling
from desim.fields import Count, Duration, Form, Strict
from desim.methods.shared.method import Method
from desim.scenario import registry


class Algorithm(Strict):
    """A method by name, and its own parameters."""

    name: str
    """one of desim list algorithms"""
    parameters: SerializeAsAny[Strict]
    """the method's Parameters"""

    @property
    def method(self) -> type[Method]:
        """The class that the registry holds under this name."""
        return registry.get(self.name)

    @model_serializer(mode="plain")
    def _written(self) -> dict[str, Any]:
        return {"name": self.name, **self.parameters.model_dump(exclude_none=True)}


def read_algorithm(value: object, info: ValidationInfo) -> Algorithm:
    """{name: ..., parameter: ...} as an Algorithm whose parameters its own class has checked."""
    if isinstance(value, Algorithm):
        return value
    names = registry.names()
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, "a mapping with name and the method's parameters"))
    name = value.get("name")
    if not isinstance(name, str) or name not in names:
        found = f"found name: {show(name)}" if "name" in value else "found no name"
        raise ValueError(f"{found}; allowed: {', '.join(names)}{spelling(name, names)}")
    written = {key: item for key, item in value.items() if key != "name"}
    parameters = registry.get(name).Parameters.model_validate(written, context=info.context)
    return Algorithm(name=name, parameters=parameters)


class _Methods:
    """JSON Schema of the section: one option for each algorithm."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"oneOf": [cls._option(name, handler) for name in registry.names()]}

    @staticmethod
    def _option(name: str, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        method = registry.get(name)
        schema = handler.resolve_ref_schema(handler(method.Parameters.__pydantic_core_schema__))
        properties = {"name": {"const": name, "description": method.summary}}
        return {
            "title": name,
            "description": f"{method.summary} ({method.paper})",
            "type": "object",
            "properties": {**properties, **schema.get("properties", {})},
            "required": ["name", *schema.get("required", [])],
            "additionalProperties": False,
        }


AlgorithmSection = Annotated[Algorithm, BeforeValidator(read_algorithm), _Methods]


class Policy(Form):
    """Whom a coordinator waits for before it goes on; on a graph, agents for their neighbours.

    each: a coordinator goes on with every reply; on a graph an agent waits for nobody.
    """

    words = ("all", "each")
    modifiers = ("late",)
    examples = {"deadline": "2 s", "quorum": 8, "buffer": 5}

    deadline: Duration | None = None
    """time after the invitation, on a graph after the agent's own message, at which a wait ends"""
    quorum: Count | None = None
    """a collection closes with this many replies to its own invitation"""
    buffer: Count | None = None
    """a collection closes with this many replies, whenever they were invited"""
    late: Literal["discard", "carry"] | None = None
    """replies that come too late: discard them, or carry them to the next collection; for a
    deadline discard by default, on a graph carry"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the fate of late replies that suits the policy."""
        written = super().mapping(data)
        if written.get("(word)") == "each":
            return {**written, "late": "carry"}
        if "buffer" in written:
            return {"late": "carry", **written}
        if "deadline" in written:
            return written  # discard, but on a graph
        return {"late": "discard", **written}
