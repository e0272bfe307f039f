"""The sections `algorithm`, `participation`, `policy`, `privacy`: the method, and who acts."""

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
from desim.fields import Count, Duration, Form, NonNegative, Positive, Several, Share, Strict, Whole
from desim.scenario import registry


class Algorithm(Strict):
    """A method by name, and its own parameters."""

    name: str
    """one of desim list algorithms"""
    parameters: SerializeAsAny[Strict]
    """the method's Parameters"""

    @property
    def method(self) -> Any:
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
    later = {"trace": "participation from a trace; write it as {schedule: [[0, 2], [1, 3]]}"}

    bernoulli: Share | None = None
    """each agent independently with this probability"""
    uniform: Count | None = None
    """this many agents, without replacement"""
    schedule: Several[Several[Whole]] | None = None
    """lists of agents, one for each round, repeated from the start"""


class Policy(Form):
    """Whom a coordinator waits for before it goes on."""

    words = ("all", "each")
    modifiers = ("late",)

    deadline: Duration | None = None
    """time after the invitation at which a collection closes"""
    quorum: Count | None = None
    """a collection closes with this many replies to its own invitation"""
    buffer: Count | None = None
    """a collection closes with this many replies, whenever they were invited"""
    late: Literal["discard", "carry"] | None = None
    """replies that come too late: dropped, or used in the next collection"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the fate of late replies that suits the policy."""
        written = super().mapping(data)
        if written.get("(word)") == "each":
            return {**written, "late": "carry"}
        if "buffer" in written:
            return {"late": "carry", **written}
        return {"late": "discard", **written}


def _noise_kind(value: object) -> object:
    if value == "laplace":
        raise ValueError("not available yet: Laplace noise; allowed: gaussian")
    return value


class Noise(Strict):
    """Noise on what the method perturbs: {kind, sigma, decay}, or zCDP-NFL's {phi, growth}."""

    kind: Annotated[Literal["gaussian"] | None, BeforeValidator(_noise_kind)] = None
    """distribution; default gaussian, with sigma"""
    sigma: NonNegative | None = None
    """standard deviation per coordinate, in the first round"""
    decay: Share | None = None
    """factor on the variance each round; default 1"""
    phi: Positive | None = None
    """zCDP that the first round spends; the variance follows from it"""
    growth: Positive | None = None
    """round n spends phi / growth^(n - 1)"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the defaults of the form it takes."""
        written = super().mapping(data)
        direct = [key for key in ("sigma", "kind", "decay") if key in written]
        paper = [key for key in ("phi", "growth") if key in written]
        if direct and paper:
            found = f"found {direct[0]} and {paper[0]}"
            raise ValueError(f"{found}; allowed: {{kind, sigma, decay}} or {{phi, growth}}")
        if paper:
            needed = [key for key in ("phi", "growth") if key not in written]
            if needed:
                raise ValueError(f"found no {needed[0]}; allowed: {{phi: ..., growth: ...}}")
            return written
        if "sigma" not in written and not set(written) - {"kind", "decay"}:
            raise ValueError("found no sigma; allowed: {kind, sigma, decay} or {phi, growth}")
        return {"kind": "gaussian", "decay": 1.0, **written}

    @property
    def scheduled(self) -> bool:
        """Whether the paper's own schedule {phi, growth} sets the noise."""
        return self.phi is not None


def _relation(value: object) -> object:
    if value == "add-or-remove-one":
        raise ValueError("not available yet: add-or-remove-one; allowed: replace-one")
    return value


class Privacy(Strict):
    """Noise, and the terms in which privacy is stated."""

    later = {
        "target": "noise calibrated from a target epsilon; give privacy.noise.sigma instead",
        "budget": "privacy budgets",
        "on_exhausted": "privacy budgets",
    }

    noise: Noise | None = None
    """noise on what the method perturbs; default: none"""
    relation: Annotated[Literal["replace-one"], BeforeValidator(_relation)] = "replace-one"
    """neighbouring data sets: one row replaced"""
    view: Literal["eavesdropper", "coordinator", "neighbour", "final-model"] = "eavesdropper"
    """what the adversary sees: every message, the uploads, one neighbour's inbox, the last model"""
