"""Parameters that many algorithms have in common: decaying steps, starts, local training."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from desim.errors import refusal, spelling
from desim.fields.numbers import (
    Count,
    File,
    NonNegative,
    Positive,
    number,
    positive,
    share,
    whole,
    within,
)
from desim.fields.strict import Form, Strict

T = TypeVar("T")
EXPONENTS = {"constant": 0.0, "linear": 1.0, "sqrt": 0.5}
SOLVERS = ("gradient", "accelerated", "sgd", "noisy", "exact")

POWER = within("a number, 0 to 30", lambda x: 0 <= x <= 30, minimum=0, maximum=30)


class Decay(Form):
    """How a step shrinks over rounds k = 1, 2, ...: value / k^power."""

    words = ("constant", "sqrt", "linear")

    power: Annotated[float, *POWER] | None = None  # infinite in no number of rounds
    """the power of k"""

    @property
    def exponent(self) -> float:
        """The power of k, whichever way it was written."""
        return EXPONENTS[self.word] if self.word else float(self.value)


class Step(Strict):
    """A step size, constant or decaying over rounds: a number, or {initial: 0.3, decay: sqrt}."""

    initial: Positive
    """the step of round 1"""
    decay: Decay = Decay.of("constant")
    """constant, sqrt, linear, or {power: p}"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """A bare number is a constant step."""
        if isinstance(data, Mapping):
            return data
        try:
            return {"initial": positive(data)}
        except ValueError:
            allowed = (
                "a number > 0, or {initial: ..., decay: constant | sqrt | linear | {power: p}}"
            )
            raise ValueError(refusal(data, allowed)) from None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A number, or the mapping."""
        whole = handler.resolve_ref_schema(handler(core))
        about = (cls.__doc__ or "").strip()
        number = {"type": "number", "exclusiveMinimum": 0}
        return {"title": cls.__name__, "description": about, "anyOf": [number, {**whole}]}

    @model_serializer(mode="plain")
    def _written(self) -> Any:
        if self.decay.kind == "constant":
            return self.initial
        return {"initial": self.initial, "decay": self.decay.model_dump(exclude_none=True)}

    def at(self, k: int | NDArray[np.int64]) -> Any:
        """The step of round k = 1, 2, ...: a float, or an array like `k` with the same bits."""
        if isinstance(k, np.ndarray):
            rounds, place = np.unique(k, return_inverse=True)
            return np.array([self.at(int(one)) for one in rounds])[place].reshape(k.shape)
        if (exponent := self.decay.exponent) == 0.0:
            return self.initial
        if of := getattr(k, "of", None):  # a round that is not played yet
            return of(self.at)
        return self.initial / float(k) ** exponent


AutoStep = Annotated[
    Literal["auto"] | Step, BeforeValidator(lambda x: x if x == "auto" else Step.model_validate(x))
]

AutoShare = Annotated[
    Literal["auto"] | float, BeforeValidator(lambda x: x if x == "auto" else share(x))
]
StepOrNone = Annotated[
    Literal[0] | Step, BeforeValidator(lambda x: 0 if x == 0 else Step.model_validate(x))
]


class Init(Form):
    """Where the iterates start: zeros; model: where problem.model says, its default."""

    words: ClassVar[tuple[str, ...]] = ("zeros", "model")
    examples = {"npz": "init.npz"}

    normal: NonNegative | None = None
    """standard deviation of a normal start, each agent's its own"""
    common: NonNegative | None = None
    """standard deviation of a normal start that all agents share"""
    npz: File | None = None
    """arrays x0, z0 (agents, dim), as the method needs"""


def _some(
    read: Callable[[object], T],
    form: dict[str, Any],
    allowed: str,
    *words: str,
    several: bool = True,
) -> tuple[PlainValidator, WithJsonSchema]:
    """How one of `words` is read, or what `read` takes, or `several` of that; and the JSON Schema.

    form: JSON Schema of what `read` takes.
    """

    def some(value: object) -> str | T | tuple[T, ...]:
        if value in words:
            return str(value)
        if several and isinstance(value, list | tuple) and value:
            return tuple(read(one) for one in value)
        try:
            return read(value)
        except ValueError:
            raise ValueError(refusal(value, allowed) + spelling(value, words)) from None

    word = {"enum": [*words]}
    forms = [word, form] if words and form != word else [form]
    forms += [{"type": "array", "items": form, "minItems": 1}] if several else []
    return PlainValidator(some), WithJsonSchema({"anyOf": forms})


def _solver(value: object) -> str:
    if value in SOLVERS:
        return str(value)
    raise ValueError(refusal(value, SOLVING) + spelling(value, SOLVERS))


SOLVING = f"{', '.join(SOLVERS)}, or a list of them, one for each agent"
STEPS = "auto, per-agent, a number > 0, or a list of numbers, one for each agent"
COUNTS = "a whole number >= 1, or a list of them, one for each agent"
ABOVE_ZERO: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0}
AT_LEAST_ONE: dict[str, Any] = {"type": "integer", "minimum": 1}
MOMENTUM: tuple[Any, ...] = (
    lambda value: number(value, "a number >= 0 and below 1", lambda x: 0 <= x < 1),
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "auto, from-step, or a number >= 0 and below 1", "auto", "from-step",
)  # fmt: skip

Momentum = Annotated[str | float, *_some(*MOMENTUM, several=False)]
LocalMomentum = Annotated[str | float | tuple[float, ...], *_some(*MOMENTUM)]
Solver = Annotated[str | tuple[str, ...], *_some(_solver, {"enum": [*SOLVERS]}, SOLVING, *SOLVERS)]
LocalStep = Annotated[
    str | float | tuple[float, ...], *_some(positive, ABOVE_ZERO, STEPS, "auto", "per-agent")
]
Counts = Annotated[
    int | tuple[int, ...], *_some(lambda value: whole(value, 1), AT_LEAST_ONE, COUNTS)
]


class Local(Strict):
    """How an agent trains on its own data between two messages."""

    solver: Solver = "gradient"
    """gradient, accelerated, sgd, noisy or exact; a list gives every agent its own"""
    epochs: Count = 1
    """local steps in a round"""
    step: LocalStep = "auto"
    """auto: best for the worst moduli of all agents; per-agent: for each agent's own; or numbers"""
    momentum: LocalMomentum = "auto"
    """accelerated: auto, from the moduli; from-step, that of the smoothness 1/step; or numbers"""
    batch: Count | None = None
    """sgd: rows in a batch, drawn afresh for each step"""
    tau: NonNegative = 0.0
    """noisy: standard deviation; each step adds sqrt(2 gamma) N(0, tau^2 I)"""
    scaling: Literal["unbiased", "printed"] = "unbiased"
    """sgd: divide by the batch size, or by the number of rows as Fed-PLT's paper prints"""

    @property
    def solvers(self) -> tuple[str, ...]:
        """The solvers in use, once each, in a fixed order."""
        used = (self.solver,) if isinstance(self.solver, str) else self.solver
        return tuple(name for name in SOLVERS if name in used)

    @model_validator(mode="after")
    def _consistent(self) -> "Local":
        if "sgd" in self.solvers and self.batch is None:
            raise ValueError("solver sgd needs batch; allowed: batch: a whole number of rows >= 1")
        for key, found, solver in (
            ("batch", self.batch is not None, "sgd"),
            ("momentum", self.momentum != "auto", "accelerated"),
            ("tau", self.tau > 0, "noisy"),
        ):
            if found and solver not in self.solvers:
                allowed = f"{key} with solver {solver}"
                raise ValueError(f"found {key} with solver {self.solver}; allowed: {allowed}")
        return self
