"""The sections `algorithm`, `participation` and `policy`: the method, and who acts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from desim.errors import refusal, show, spelling
from desim.fields import Count, Duration, File, Form, Several, Share, Strict, Whole
from desim.methods.shared.method import Method
from desim.scenario import registry
from desim.scenario.sections.staleness import Weighing, weighable


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


class Participation(Form):
    """Which agents a coordinator invites to a round."""

    words = ("all",)
    modifiers = ("end",)
    examples = {"uniform": 5, "schedule": [[0, 2], [1, 3]], "end": "hold"}

    bernoulli: Share | None = None
    """each agent independently with this probability"""
    uniform: Count | None = None
    """this many agents, without replacement"""
    schedule: Several[Several[Whole]] | None = None
    """lists of agents, one for each round, repeated from the start"""
    trace: File | None = None
    """csv with columns round (1, 2, ...) and agent, or npz array rounds x agents of 1 and 0"""
    end: Literal["loop", "hold", "error"] | None = None
    """trace: it begins again (default), its last round stays, or the run must end before"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; only a trace ends."""
        written = super().mapping(data)
        if "trace" in written:
            return {"end": "loop", **written}
        if "end" in written:
            raise ValueError("found end without trace; allowed: with trace")
        return written


class Policy(Form):
    """Whom a coordinator waits for before it goes on; on a graph, agents for their neighbours.

    each: a coordinator goes on with every reply; on a graph an agent waits for nobody.
    """

    words = ("all", "each")
    modifiers = ("late", "staleness")
    examples = {"deadline": "2 s", "quorum": 8, "buffer": 5, "staleness": {"polynomial": 0.5}}

    deadline: Duration | None = None
    """time after the invitation, on a graph after the agent's own message, at which a wait ends"""
    quorum: Count | None = None
    """a collection closes with this many replies to its own invitation"""
    buffer: Count | None = None
    """a collection closes with this many replies, whenever they were invited"""
    late: Literal["discard", "carry"] | None = None
    """replies that come too late: discard them, or carry them to the next collection; for a
    deadline discard by default, on a graph carry"""
    staleness: Weighing | None = None
    """what replies to older models weigh: constant (default), {polynomial: a}, {hinge: {a: ..,
    b: ..}}; with each, {buffer: 1, staleness: ...} says the same"""

    @model_validator(mode="after")
    def _weighable(self) -> "Policy":
        return weighable(self)

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
