"""The sections `observe`, `stop`, `listeners`: what is measured, what ends a run, who hears it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from desim.engine.signals import CHANGING, Listener
from desim.errors import refusal, show
from desim.fields import Count, Duration, Flag, Several, Strict
from desim.fields.numbers import TARGET, duration, target
from desim.scenario import registry
from desim.scenario.sections.problem import SCHEMA

# The key `listeners`: what hangs on a play, of a plug-in, with its parameters.


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
        return any(getattr(self.of, name) is not getattr(Listener, name) for name in CHANGING)

    def one(self) -> Listener:
        """A new one, that has heard nothing."""
        listener = self.of()
        listener.parameters = self.parameters
        return listener


def _several(value: object) -> object:
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
    BeforeValidator(_several),
    AfterValidator(_once),
    WithJsonSchema({"anyOf": [*SCHEMA["anyOf"], {"type": "array", "items": SCHEMA}]}),
]


Metric = Literal[
    "error", "loss", "accuracy", "consensus", "gradient", "positive_rate", "risk_difference",
    "positive_rate_protected", "positive_rate_others", "accuracy_protected", "accuracy_others",
    "client_accuracy", "client_accuracy_weighted", "client_accuracy_worst_decile",
    "client_accuracy_min", "client_accuracy_spread", "client_loss",
]  # fmt: skip
METRICS: tuple[str, ...] = get_args(Metric)


def round_or_duration(value: object, allowed: str) -> str | float:
    """The word round, or a duration in s."""
    try:
        return "round" if value == "round" else duration(value)
    except ValueError:
        raise ValueError(refusal(value, allowed, ["round"])) from None


def _pairs(value: object, many: bool) -> tuple[tuple[str, float], ...]:
    """{metric: target} as pairs; many: or a list of targets, each once."""
    if isinstance(value, tuple):
        return value
    if not isinstance(value, Mapping) or not value:
        shape = "{metric: [targets]}" if many else "{metric: value}"
        raise ValueError(refusal(value, f"{shape} with {', '.join(METRICS)}"))
    for name in value:
        if name not in METRICS:
            raise ValueError(refusal(name, ", ".join(METRICS), METRICS))
    found = []
    for name, targets in value.items():
        several = targets if many and isinstance(targets, list | tuple) else [targets]
        found += [(str(name), target(one)) for one in several]
        if not several or len(set(several)) < len(several):
            raise ValueError(f"{name}: {refusal(targets, 'one or more targets, each once')}")
    return tuple(found)


def _metrics(each: dict[str, Any]) -> WithJsonSchema:
    """JSON Schema of a mapping from metrics."""
    properties = dict.fromkeys(METRICS, each)
    return WithJsonSchema(
        {"type": "object", "properties": properties, "additionalProperties": False}
    )


def _listed(pairs: tuple[tuple[str, float], ...]) -> dict[str, list[float]]:
    """Pairs as a file writes them."""
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


EVERY = WithJsonSchema({"anyOf": [{"enum": ["round"]}, {"type": ["number", "string"]}]})
OFTEN = "round, or a duration > 0 such as 100 ms"
Every = Annotated[str | float, PlainValidator(lambda x: round_or_duration(x, OFTEN)), EVERY]
NUMBERS = {"anyOf": [*TARGET["anyOf"], {"type": "array", "items": TARGET}]}
Targets = Annotated[
    tuple[tuple[str, float], ...],
    PlainValidator(lambda x: _pairs(x, False)),
    PlainSerializer(dict),
    _metrics(TARGET),
]
Checkpoints = Annotated[
    tuple[tuple[str, float], ...],
    PlainValidator(lambda x: _pairs(x, True)),
    PlainSerializer(_listed),
    _metrics(NUMBERS),
]


class Observe(Strict):
    """What is measured along the way."""

    examples = {"checkpoints": {"accuracy": [0.5, 0.8]}, "sample": 500}

    metrics: Several[Metric] = ("error",)
    """error, loss, accuracy, consensus, gradient; of test rows positive_rate, risk_difference, and
    positive_rate and accuracy of the groups _protected and _others; with problem.data.test: own, of
    each client and all of them client_accuracy, client_loss, and of accuracies the mean _weighted
    by rows, the mean of the _worst_decile, _min, and the standard deviation, _spread; [] measures
    nothing"""
    every: Every = "round"
    """round, or a duration such as 100 ms"""
    iterates: Flag = False
    """keep every agent's model of every round"""
    models: Literal["own", "released"] = "own"
    """on a graph, of which models metrics are: own, before noise, which the agent alone sees, or
    released, with the noise that it has added"""
    sample: Count | None = None
    """measure metrics of test rows on so many of them, drawn once; default: on all. loss, gradient,
    error are always of all training rows"""
    checkpoints: Checkpoints | None = None
    """keep the network's model when a metric is first as good as this: {accuracy: [0.5, 0.8]}"""

    @model_validator(mode="after")
    def _once(self) -> "Observe":
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError(f"metrics: {refusal(list(self.metrics), 'each metric once')}")
        for name, _ in self.checkpoints or ():
            if name not in self.metrics:
                allowed = ", ".join(self.metrics) or "none, as observe.metrics is empty"
                raise ValueError(f"checkpoints: found {name}; allowed: what metrics has: {allowed}")
        return self


class Stop(Strict):
    """When a run ends: the first of these that holds."""

    rounds: Count | None = None
    """after this many rounds"""
    time: Duration | None = None
    """at this time"""
    metric: Targets = ()
    """when a metric is as good as this: {error: 1e-8}; accuracy at least, every other at most"""

    @property
    def targets(self) -> dict[str, float]:
        """The metrics that end the run, and their values; empty without `metric`."""
        return dict(self.metric)

    def limits(self) -> str:
        """In words: 40 rounds or error 1e-08."""
        limits = [f"{self.rounds} rounds"] if self.rounds else []
        limits += [f"{self.time:g} s"] if self.time else []
        return " or ".join([*limits, *(f"{name} {value:g}" for name, value in self.metric)])

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value != {}}

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if it names at least one condition."""
        written = super().mapping(data)
        if not written:
            raise ValueError("found nothing; allowed: at least one of rounds, time, metric")
        return written
