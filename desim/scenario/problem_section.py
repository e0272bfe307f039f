"""The section `problem`: data, who holds them, the loss and the regulariser."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from desim import losses
from desim.errors import refusal
from desim.fields import Count, Form, NonNegative, Positive, Several, Strict, Text
from desim.fields.choices import OrElse
from desim.fields.numbers import finite
from desim.layers import MOST_CLASSES, LayeredLoss
from desim.plugged import ScalarLoss, plugged
from desim.regularizers import Regularizer
from desim.scenario import registry
from desim.scenario.data_section import DataSection, Npz

TABLES = ("sklearn", "openml", "csv", "parquet", "mnist-idx", "mnist-npz")


def _sizes(value: object) -> object:
    if value == "equal":
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(refusal(value, "equal, or a list of whole numbers, one for each agent"))
    return value


class Partition(Form):
    """How rows of one table are dealt to the agents."""

    words = ("iid", "contiguous")
    examples: ClassVar[Mapping[str, Any]] = {"labels": 2, "by": "hospital"}

    dirichlet: Positive | None = None
    """concentration of each label's split over the agents; small is uneven"""
    labels: Count | None = None
    """labels that each agent holds"""
    by: Text | None = None
    """column whose values are the agents"""


class Softmax(Strict):
    """Softmax regression: a score w_c.a for each class c."""

    examples: ClassVar[Mapping[str, Any]] = {"classes": 10}

    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = None
    """how many; default: as many as the data have"""


class Mlp(Softmax):
    """One hidden layer with biases, and softmax of its scores."""

    hidden: Count
    """hidden units"""
    activation: Literal["sigmoid", "relu"] = "sigmoid"
    """of the hidden units"""


class Loss(Form):
    """The loss of one row a with label b, and r = a.x - b; also the name of a plug-in's loss."""

    words = ("logistic", "squared", "absolute", "huber", "hinge", "softmax")
    examples: ClassVar[Mapping[str, Any]] = {"softmax": {"classes": 10}}

    huber: Positive | None = None
    """knee of the Huber loss: r^2 up to it, linear beyond; the word huber means 1"""
    softmax: Softmax | None = None
    """cross-entropy of a linear model for several classes; the word softmax: classes of the data"""
    mlp: Mlp | None = None
    """cross-entropy of a network with one hidden layer"""

    @classmethod
    def _word(cls, data: str) -> Mapping[str, Any]:
        own = registry.losses()
        if data in own:
            return {"(word)": data}
        if own and data not in (*cls.words, *cls.alternatives()):
            allowed = f"{cls.allowed()}, {', '.join(own)}"
            raise ValueError(refusal(data, allowed, (*cls.words, *cls.alternatives(), *own)))
        return super()._word(data)

    @property
    def kind(self) -> str:
        """The loss's name."""
        return self.word or super().kind

    @property
    def own(self) -> type[ScalarLoss] | None:
        """The class of a plug-in's loss."""
        named = self.word and self.word not in self.words
        return registry.losses().get(self.word) if named else None

    @property
    def knee(self) -> float:
        """The Huber loss's knee; 1 for the others, which have none."""
        return 1.0 if self.huber is None else self.huber

    @property
    def smooth(self) -> bool:
        """Whether the loss is differentiable with a Lipschitz gradient."""
        if self.own is not None:
            return math.isfinite(self.own.curvature)
        return self.kind not in ("absolute", "hinge")

    @property
    def unsaid(self) -> str:
        """What to say where it is not smooth only because a plug-in does not say otherwise."""
        own = () if self.own is None else self.own.__mro__
        if not own or any("curvature" in vars(one) for one in own[: own.index(ScalarLoss)]):
            return ""
        return f"{self.kind} has no `curvature`: give its largest bend"

    @property
    def classification(self) -> bool:
        """Whether labels must be -1 and 1."""
        if self.own is not None:
            return self.own.labels == "signs"
        return self.kind in ("logistic", "hinge")

    @property
    def layered(self) -> bool:
        """Whether labels are class numbers, each with a score."""
        return self.kind in ("softmax", "mlp")

    def made(self) -> losses.Loss:
        """What desim computes; data may still have to tell how many classes there are."""
        if self.mlp is not None:
            given = self.mlp
            return LayeredLoss(
                "mlp",
                classes=given.classes or 0,
                hidden=given.hidden,
                activation=given.activation,
            )
        if self.kind == "softmax":
            return LayeredLoss("softmax", classes=self.softmax.classes or 0 if self.softmax else 0)
        if self.own is not None:
            return plugged(self.own)
        return losses.Loss(self.kind, self.knee)


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


def _written_bounds(value: tuple[float, float]) -> list[Any]:
    return [str(bound) if math.isinf(bound) else bound for bound in value]


Bounds = Annotated[
    Any,
    BeforeValidator(_bounds),
    PlainSerializer(_written_bounds),
    WithJsonSchema({"type": "array", "minItems": 2, "maxItems": 2, "description": "[low, high]"}),
]


class Penalty(Form):
    """One regulariser, added once to the sum over all agents."""

    modifiers = ("at",)
    examples: ClassVar[Mapping[str, Any]] = {"box": [0, 1]}

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


class Problem(Strict):
    """What is learnt: min over x of the sum of the agents' losses plus the regulariser."""

    examples: ClassVar[Mapping[str, Any]] = {"sizes": [1, 1, 2]}

    agents: Count | None = None
    """number of agents; not needed where the data or the graph say it"""
    data: DataSection
    """where the rows come from"""
    partition: Partition = Partition.of("iid")
    """how one table is dealt to the agents; default iid, and contiguous for generated rows"""
    sizes: Annotated[
        Several[Count],
        BeforeValidator(_sizes),
        PlainSerializer(lambda value: list(value) or "equal"),
        WithJsonSchema({"anyOf": [{"enum": ["equal"]}, {"type": "array"}]}),
    ] = ()
    """rows of each agent: equal, or a list of relative sizes, one for each agent"""
    loss: Loss
    """loss of one row: logistic, squared, absolute, huber, hinge, softmax, or mlp with its keys"""
    average: Literal["mean", "sum"] = "mean"
    """over an agent's rows"""
    regularizer: Annotated[
        tuple[Penalty, ...],
        BeforeValidator(_penalties),
        PlainSerializer(_written_penalties),
        OrElse(({"enum": ["none"]},), single=True),
    ] = ()
    """none, {l2: c}, {l1: c}, {elastic_net: {l1, l2}}, {box: [low, high]}, or a list of them"""
    clip: Positive | None = None
    """largest norm of one row's gradient, over all parameters; default: not clipped"""
    precision: Literal["float64", "float32"] = "float64"
    """softmax and mlp: type of rows and of a gradient's arithmetic; models are float64"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the partition that suits the source."""
        written = super().mapping(data)
        section = written.get("data")
        table = isinstance(section, Mapping) and section.get("source") in TABLES
        return written if table else {"partition": "contiguous", **written}

    def regularizers(self, has_prox: bool) -> tuple[Regularizer, Regularizer]:
        """The whole regulariser: the part at the agents (1/N each), the part in the prox."""
        agents, coordinator = Regularizer(), Regularizer()
        for penalty in self.regularizer:
            here, there = penalty.pieces(has_prox)
            agents, coordinator = agents + here, coordinator + there
        return agents, coordinator

    @model_validator(mode="after")
    def _arrays_as_they_are(self) -> "Problem":
        if isinstance(self.data, Npz) and (self.partition.kind != "contiguous" or self.sizes):
            key = "sizes" if self.sizes else "partition"
            raise ValueError(f"found {key} with source npz, whose arrays are taken as they are")
        if self.sizes and self.partition.kind not in ("iid", "contiguous"):
            found = f"found sizes with partition {self.partition.kind}, which decides them itself"
            raise ValueError(f"{found}; allowed: sizes with iid or contiguous")
        if self.sizes and self.agents is not None and len(self.sizes) != self.agents:
            raise ValueError(f"sizes: found {len(self.sizes)} sizes for {self.agents} agents")
        return self
