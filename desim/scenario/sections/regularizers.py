"""The key `problem.regularizer`: penalties, and where they act."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from desim.errors import refusal
from desim.fields import Form, NonNegative, Strict
from desim.fields.choices import OrElse
from desim.fields.numbers import finite
from desim.problem.losses.regularizers import Regularizer


class ElasticNet(Strict):
    """l1 ||x||_1 + (l2/2) ||x||^2."""

    l1: NonNegative
    """coefficient of ||x||_1"""
    l2: NonNegative
    """coefficient of ||x||^2 / 2"""


def _bounds(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 2:
        low, high = (_bound(one) for one in value)
        if low < high:
            return (low, high)
    raise ValueError(refusal(value, "[low, high] with low < high; -inf and inf for one side"))


def _bound(value: object) -> float:
    infinite = {"inf": math.inf, "-inf": -math.inf}
    if isinstance(value, str) and value in infinite:
        return infinite[value]
    return value if value in (math.inf, -math.inf) else finite(value)


Bounds = Annotated[
    Any,
    BeforeValidator(_bounds),
    PlainSerializer(lambda ends: [str(one) if math.isinf(one) else one for one in ends]),
    WithJsonSchema({"type": "array", "minItems": 2, "maxItems": 2, "description": "[low, high]"}),
]


class Penalty(Form):
    """One regulariser, added once to the sum over all agents."""

    modifiers = ("at",)
    examples = {"box": [0, 1]}

    l2: NonNegative | None = None
    """c of (c/2) ||x||^2"""
    l1: NonNegative | None = None
    """c of c ||x||_1"""
    elastic_net: ElasticNet | None = None
    """both: {l1: c, l2: c}"""
    box: Bounds | None = None
    """[low, high] of every coordinate"""
    at: Literal["agents", "coordinator"] | None = None
    """where it acts; default: l2 at the agents, others in the coordinator's prox if it has one"""

    def pieces(self, has_prox: bool) -> tuple[Regularizer, Regularizer]:
        """What acts at the agents (1/N of it each) and what in the coordinator's prox."""
        net = self.elastic_net or ElasticNet(l1=self.l1 or 0.0, l2=self.l2 or 0.0)
        low, high = self.box or (-math.inf, math.inf)
        whole, nothing = Regularizer(net.l1, net.l2, low, high), Regularizer()
        in_prox = has_prox and not whole.smooth if self.at is None else self.at == "coordinator"
        return (nothing, whole) if in_prox else (whole, nothing)


def _penalties(value: object) -> object:
    if isinstance(value, str) and value == "none":
        return ()
    if isinstance(value, str):
        raise ValueError(refusal(value, f"none, {Penalty.allowed()}, or a list of them"))
    return tuple(value) if isinstance(value, list | tuple) else (Penalty.model_validate(value),)


def _written_penalties(value: tuple[Penalty, ...]) -> Any:
    written = [penalty.model_dump(exclude_none=True) for penalty in value]
    return written[0] if len(written) == 1 else written or "none"


Penalties = Annotated[
    tuple[Penalty, ...],
    BeforeValidator(_penalties),
    PlainSerializer(_written_penalties),
    OrElse(({"enum": ["none"]},), single=True),
]
