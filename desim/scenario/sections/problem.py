"""The section `problem`: the data, who holds them, the model, the loss and the regulariser."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from desim.errors import refusal
from desim.fields import Count, Form, NonNegative, Positive, Several, Strict, Text
from desim.fields.numbers import finite, positive, text
from desim.fields.strict import OrElse
from desim.losses.plugged import ScalarLoss, plugged
from desim.problem.losses import scalar as losses
from desim.problem.losses.layers import CLASS_LIMIT, LayeredLoss
from desim.problem.losses.regularizers import Regularizer
from desim.problem.models.user_model import Model
from desim.scenario import registry
from desim.scenario.own import LAYERED
from desim.scenario.sections.data import DataSection, Npz

# The key `problem.regularizer`: penalties, and where they act.


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


# The section `problem.model`: a model of a plug-in, its parameters; and `problem.augment`.

MODEL = "model"  # the kind of a loss that a model brings
SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    ]
}


class ModelChoice(registry.Named):
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


def read_model(value: object, info: ValidationInfo) -> ModelChoice | None:
    """{name: ..., parameter: ...} as a choice whose parameters the model's class has checked."""
    known = registry.plugged().models
    return None if value is None else ModelChoice.read(value, info, known, known.__getitem__)


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


# The section as a whole: who holds which rows, the loss, and bounds on rows.

DEALT = ("synthetic", "npz")  # sources whose rows belong to agents already


UNSEEING = ("Iid", "Linear", "Square", "Exponential", "Size")  # partitioners that see no rows


def _sizes(value: object) -> object:
    if value == "equal":
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(refusal(value, "equal, or a list of whole numbers, one for each agent"))
    return value


class Partitioner(NamedTuple):
    """A class of flwr-datasets and its own arguments: {DirichletPartitioner: {alpha: 0.3}}."""

    name: str
    arguments: Mapping[str, Any] = {}


def partitioner(value: object) -> Partitioner | None:
    """What a scenario says: the name alone, or one name with arguments; None for another form."""
    if value is None:
        return None
    if isinstance(value, str):
        return Partitioner(text(value))
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, arguments)] = value.items()
        if isinstance(name, str) and isinstance(arguments, Mapping):
            return Partitioner(text(name), dict(arguments))
    allowed = "a class of flwr-datasets, or {IidPartitioner: {...}} with its arguments"
    raise ValueError(refusal(value, allowed))


_OF_FLOWER = {
    "type": ["string", "object"],
    "additionalProperties": {"type": "object"},
    "maxProperties": 1,
    "minProperties": 1,
}


class Partition(Form):
    """How rows of one table are dealt to the agents."""

    words = ("iid", "contiguous")
    examples = {
        "labels": 2,
        "by": "hospital",
        "flwr": {"ShardPartitioner": {"shard_size": 50}},
    }

    dirichlet: Positive | None = None
    """concentration of each label's split over the agents; small is uneven"""
    labels: Count | None = None
    """labels that each agent holds"""
    by: Text | None = None
    """column whose values are the agents"""
    flwr: Annotated[
        Partitioner | None,
        PlainValidator(partitioner),
        PlainSerializer(
            lambda one: one and ({one.name: one.arguments} if one.arguments else one.name)
        ),
        WithJsonSchema(_OF_FLOWER),
    ] = None
    """a partitioner of flwr-datasets: its name, or {ShardPartitioner: {shard_size: 50}}"""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns beside the label by whose values rows are dealt."""
        named = self.by if self.flwr is None else self.flwr.arguments.get("partition_by", "label")
        return (str(named),) if named not in (None, "label") or self.by else ()

    @property
    def counts(self) -> bool:
        """Whether it may say by itself how many agents there are."""
        return self.by is not None or self.flwr is not None

    @property
    def by_label(self) -> bool:
        """Whether it deals rows by labels of all agents."""
        own = self.flwr
        some = own is not None and not own.name.startswith(UNSEEING) and not self.columns
        return some or self.kind in ("dirichlet", "labels")


class Softmax(Strict):
    """Softmax regression: a score w_c.a for each class c."""

    examples = {"classes": 10}

    classes: Annotated[int, Field(ge=2, le=CLASS_LIMIT)] | None = None
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
    examples = {"softmax": {"classes": 10}}

    huber: Positive | None = None
    """knee of the Huber loss: r^2 up to it, linear beyond; the word huber means 1"""
    softmax: Softmax | None = None
    """cross-entropy of a linear model for several classes; the word softmax: classes of the data"""
    mlp: Mlp | None = None
    """cross-entropy of a network with one hidden layer"""

    @classmethod
    def _word(cls, data: str) -> Mapping[str, Any]:
        own = registry.plugged().losses
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
        return registry.plugged().losses.get(self.word) if named else None

    @property
    def knee(self) -> float:
        """The Huber loss's knee; 1 for the others, which have none."""
        return 1.0 if self.huber is None else self.huber

    @property
    def smooth(self) -> bool:
        """Whether the loss is differentiable with a Lipschitz gradient."""
        own = self.own
        if self.modelled:
            return True
        return self.made().smooth if own is None else math.isfinite(own.curvature)

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
        own = self.own
        if self.modelled:
            return False
        return self.made().classification if own is None else own.labels == "signs"

    @property
    def modelled(self) -> bool:
        """Whether it is that of problem.model."""
        return self.word == MODEL

    @property
    def layered(self) -> bool:
        """Whether labels are class numbers, each with a score."""
        return self.kind in LAYERED

    def made(self) -> losses.Loss:
        """What desim computes; data may still have to tell how many classes there are."""
        if self.mlp is not None:
            mlp = self.mlp
            return LayeredLoss(
                "mlp",
                classes=mlp.classes or 0,
                hidden=mlp.hidden,
                activation=mlp.activation,
            )
        if self.kind == "softmax":
            return LayeredLoss("softmax", classes=self.softmax.classes or 0 if self.softmax else 0)
        if self.own is not None:
            return plugged(self.own)
        return losses.Loss(self.kind, self.knee)


class RowNorm(Form):
    """Public bound on the Euclidean norm of every training row, its intercept included.

    A number refuses longer rows, as {refuse: ...} does.
    """

    examples = {"refuse": 1.5, "clip": 1.5}

    refuse: Positive | None = None
    """longer rows are refused"""
    clip: Positive | None = None
    """longer rows, test rows too, are shortened to it; an intercept stays 1"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; a bare number is the bound that longer rows are refused at."""
        if isinstance(data, Mapping):
            return super().mapping(data)
        try:
            return {"refuse": positive(data)}
        except ValueError:
            raise ValueError(refusal(data, "a number > 0, {refuse: ...} or {clip: ...}")) from None


class Problem(Strict):
    """What is learnt: min over x of the sum of the agents' losses plus the regulariser."""

    examples = {"sizes": [1, 1, 2], "model": "my-network"}

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
    """loss of one row: logistic, squared, absolute, huber, hinge, softmax, or mlp with its keys; a
    model brings its own"""
    model: ModelSection | None = None
    """a model of a plug-in: its name, or {name: ..., its parameters}"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where the model computes; bits are promised on the cpu"""
    augment: Augments = ()
    """with a model, what is done at random to a row whenever it is trained on, not when it is
    measured: none, flip (left and right exchanged with probability 1/2), {crop: pixels}, {noise:
    deviation}, or a list of them, in which order they act"""
    average: Literal["mean", "sum"] = "mean"
    """over an agent's rows"""
    regularizer: Penalties = ()
    """none, {l2: c}, {l1: c}, {elastic_net: {l1, l2}}, {box: [low, high]}, or a list of them"""
    clip: Positive | None = None
    """largest norm of one row's gradient, over all parameters; default: not clipped"""
    row_norm: Annotated[RowNorm | None, OrElse(({"type": "number", "exclusiveMinimum": 0},))] = None
    """public bound on the norm of a training row: a number, which longer rows are refused at, or
    {clip: 1.5}; what one row adds to the curvature rests on it wherever an epsilon needs that.
    Default: what `normalize`, `scale` and `intercept` guarantee"""
    precision: Literal["float64", "float32"] = "float64"
    """softmax, mlp and models: type of rows and of a gradient's arithmetic; parameters between two
    calls are float64. Default for a model: float32. With noise all is float64, whatever is said
    here: singles are rounded by the data, which noise that is not far above that does not hide"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the partition that suits the source."""
        written = super().mapping(data)
        section = written.get("data")
        source = section.get("source") if isinstance(section, Mapping) else DEALT[0]
        if written.get("model") is not None:
            if "loss" in written and not isinstance(written["loss"], Loss):
                text = "found loss beside model, which brings its own; allowed: one of the two"
                raise ValueError(text)
            written = {"loss": Loss.model_construct(word=MODEL), "precision": "float32", **written}
        return {"partition": "contiguous", **written} if source in DEALT else written

    def regularizers(self, has_prox: bool) -> tuple[Regularizer, Regularizer]:
        """The whole regulariser: the part at the agents (1/N each), the part in the prox."""
        agents, coordinator = Regularizer(), Regularizer()
        for penalty in self.regularizer:
            here, there = penalty.pieces(has_prox)
            agents, coordinator = agents + here, coordinator + there
        return agents, coordinator

    @model_serializer(mode="wrap")
    def _without_its_loss(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.model is not None:
            del written["loss"]
        return written

    @model_validator(mode="after")
    def _arrays_as_they_are(self) -> "Problem":
        if isinstance(self.data, Npz) and (self.partition.kind != "contiguous" or self.sizes):
            key = "sizes" if self.sizes else "partition"
            raise ValueError(f"found {key} with source npz, whose arrays are taken as they are")
        shortest = self.row_norm.clip if self.row_norm is not None else None
        if shortest is not None and getattr(self.data, "intercept", False) and shortest <= 1.0:
            raise ValueError(f"row_norm.clip: {refusal(shortest, 'above 1, the intercept')}")
        if self.sizes and self.partition.kind not in ("iid", "contiguous"):
            found = f"found sizes with partition {self.partition.kind}, which decides them itself"
            raise ValueError(f"{found}; allowed: sizes with iid or contiguous")
        if self.sizes and self.agents is not None and len(self.sizes) != self.agents:
            raise ValueError(f"sizes: found {len(self.sizes)} sizes for {self.agents} agents")
        return self
