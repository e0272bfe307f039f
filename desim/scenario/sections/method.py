"""The sections `algorithm` and `policy`: the method, and whom it waits for."""

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
from desim.fields import (
    Count,
    Duration,
    Form,
    NonNegative,
    Positive,
    Share,
    Strict,
)
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


class Adaptive(Form):
    """A deadline that follows how long messages took so far: the latest one of every sender.

    One that did not come in time counts as twice as long as it was waited for, if that was as long
    as anything known of its sender; a shorter wait says nothing. While nothing is known the first
    wait is measured itself, until enough is in to know its limit.
    """

    modifiers = ("times",)
    examples = {"mad": 3, "quantile": "80 %", "times": 1.5}

    mad: NonNegative | None = None
    """the median plus so many median absolute deviations"""
    quantile: Share | None = None
    """the time that this share of the senders needs at most"""
    times: Positive = 1.0
    """by what that is multiplied"""


class Policy(Form):
    """Whom a coordinator waits for before it goes on; on a graph, agents for their neighbours.

    each: a coordinator goes on with every reply; on a graph an agent waits for nobody.
    """

    words = ("all", "each")
    modifiers = ("at_least", "at_most", "late", "staleness")
    examples = {
        "deadline": "2 s", "quorum": 8, "buffer": 5, "adaptive": {"mad": 3},
        "at_least": 5, "at_most": "10 s", "staleness": {"polynomial": 0.5},
    }  # fmt: skip

    deadline: Duration | None = None
    """time after the invitation, on a graph after the agent's own message, at which a wait ends"""
    quorum: Count | None = None
    """a collection closes with this many replies to its own invitation, on a graph a wait with
    the messages of so many neighbours"""
    buffer: Count | None = None
    """a collection closes with this many replies, whenever they were invited"""
    adaptive: Adaptive | None = None
    """a deadline that follows how long messages took so far"""
    at_least: Count | None = None
    """deadline, adaptive, or with at_most: without so many replies no limit ends a wait"""
    at_most: Duration | None = None
    """quorum, buffer, adaptive: time at which a wait ends at the latest"""
    late: Literal["discard", "carry"] | None = None
    """replies that come too late: discard them, or carry them to the next collection; by default
    carry for a buffer and on a graph, else discard"""
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
        if "(word)" in written:
            return {"late": "discard", **written}
        return written  # discard, but on a graph

    @model_validator(mode="after")
    def _combines(self) -> "Policy":
        rule, least = self.kind, self.at_least
        if self.at_most is not None and rule not in ("quorum", "buffer", "adaptive"):
            text = f"at_most: found with {rule}"
            raise ValueError(f"{text}; allowed: with quorum, buffer or adaptive, or a deadline")
        if least is not None and not self.limited:
            text = f"at_least: found with {rule}, where no limit ends a wait"
            raise ValueError(f"{text}; allowed: with deadline, adaptive or at_most")
        if least is not None and rule in ("quorum", "buffer") and least > self.value:
            text = f"at_least: found {least}, but {self.value} replies end a wait"
            raise ValueError(f"{text}; allowed: 1 to {self.value}")
        return self

    @property
    def limited(self) -> bool:
        """Whether a wait may end before all that it needs is there."""
        return self.kind in ("deadline", "adaptive") or self.at_most is not None
