"""What a message meets between two nodes: codec, transport, latency, bandwidth, losses, traces."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from desim import units
from desim.errors import refusal
from desim.fields import (
    BandwidthDist,
    Duration,
    DurationDist,
    FactorDist,
    Flag,
    Form,
    Fraction,
    Strict,
)
from desim.fields.numbers import (
    Reader,
    counted,
    quantity,
    sized,
    whole,
    wholes,
    within,
    written,
)
from desim.fields.strict import OrRead
from desim.network.conditions import codec
from desim.numerics.distributions import Distribution
from desim.scenario.sections.trace_files import BandwidthTrace, LatencyTrace, LossTrace, Trace


def or_trace(drawn: Any, trace: type[Trace]) -> OrRead:
    """Annotation of a trace that stands in place of what `drawn` reads."""
    law: TypeAdapter[Distribution] = TypeAdapter(drawn)
    return OrRead(law.validate_python, written, law.json_schema, {"trace": trace})


def or_list(drawn: Any, read: Reader) -> tuple[Any, Any, Any]:
    """How what `drawn` reads, or a list with one entry for each agent, is read and written.

    And its JSON Schema, where it is asked for.
    """
    law: TypeAdapter[Distribution] = TypeAdapter(drawn)

    def either(value: object) -> Distribution | tuple[float, ...]:
        if isinstance(value, Distribution) or not isinstance(value, list | tuple):
            return law.validate_python(value)
        if not value:
            raise ValueError(refusal(value, "one entry for each agent"))
        found = []
        for agent, one in enumerate(value):
            try:
                found.append(read(one))
            except ValueError as error:
                raise ValueError(f"of agent {agent}: {error}") from None
        return tuple(found)

    def listed(value: Distribution | tuple[float, ...]) -> Any:
        return written(value) if isinstance(value, Distribution) else list(value)

    def schema() -> dict[str, Any]:
        form = law.json_schema()
        options = form.pop("anyOf")
        return {**form, "anyOf": [{"anyOf": options}, {"type": "array", "items": options[0]}]}

    return either, listed, schema


def law_or_list(drawn: Any, read: Reader) -> tuple[Any, Any, Any]:
    """Annotations of what `drawn` reads, or of a list of what `read` does."""
    either, listed, schema = or_list(drawn, read)
    return PlainValidator(either), PlainSerializer(listed), WithJsonSchema(schema())


if TYPE_CHECKING:
    BandwidthLaw = Distribution | BandwidthTrace
    LatencyLaw = Distribution | LatencyTrace
else:
    BandwidthLaw = Annotated[BandwidthTrace, or_trace(BandwidthDist, BandwidthTrace)]
    LatencyLaw = Annotated[LatencyTrace, or_trace(DurationDist, LatencyTrace)]


# What carries messages on a link: nothing that takes time, or TCP as Linux speaks it.

MAX_SEGMENTS = 1 << 15  # segments under way at once: what a kernel keeps of each is in memory


class Tcp(Strict):
    """Connections of TCP. A connection serves one direction and remembers its window."""

    examples = {
        "congestion": "reno",
        "connection": "new",
        "initial_window": 4,
        "segment": 1400,
        "header": 40,
        "queue": 100,
        "buffer": "128 kB",
    }

    congestion: Literal["cubic", "reno", "bbr"] = "cubic"
    """how the window grows: as CUBIC (Linux's default), Reno, or by BBR's model of the path"""
    connection: Literal["kept", "new"] = "kept"
    """whether one connection is kept for the run, open since before it, or each message opens its
    own, which takes a round trip more"""
    initial_window: Annotated[int, *wholes(1, 1000)] = 10
    """segments that a connection sends before it hears of the first (RFC 6928)"""
    segment: Annotated[int, *wholes(1, 65_495)] = 1448
    """bytes of a message in one segment"""
    header: Annotated[int, *wholes(0, 1000)] = 52
    """bytes of headers that travel with a segment: IPv4, and TCP with timestamps"""
    idle_restart: Flag = True
    """whether a window that was idle for longer than a timeout begins anew (RFC 2861); BBR: no"""
    queue: Annotated[float, *counted("packets, at least 1, or inf")] = math.inf
    """packets that may wait for the link; what finds it full is lost"""
    buffer: Annotated[float, *sized("3 MB")] = 3e6
    """bytes under way at most: what a receiver's window grows to"""

    @property
    def most(self) -> int:
        """Segments under way at most."""
        return max(1, min(MAX_SEGMENTS, int(self.buffer // self.segment)))


class Transport(Form):
    """What carries messages: ideal, tcp, or tcp with its parameters."""

    words = ("ideal", "tcp")
    examples = {"tcp": {"congestion": "reno"}}

    tcp: Tcp | None = None
    """connections of TCP: {congestion: cubic, connection: kept, ...}"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; the word tcp stands for its defaults."""
        return super().mapping({"tcp": {}} if data == "tcp" else data)


IDEAL = Transport.of("ideal")


# Links: latency, bandwidth and losses, and where they differ.

Resends = Annotated[int, *wholes(1, 255)]
Contention = Literal["none", "fifo", "fair"]
FROM_1_TO_10 = within("a number from 1 to 10", lambda x: 1 <= x <= 10, minimum=1, maximum=10)
Backoff = Annotated[float, *FROM_1_TO_10]


def _phase(value: float) -> float:
    if value < SHORTEST:
        raise ValueError(refusal(value, "at least 1 us, as a duration such as 10 s"))
    return value


SHORTEST = 1e-6  # s: shorter ones are one rate of loss, and their number is beyond integers
Phase = Annotated[Duration, AfterValidator(_phase)]


class Bursts(Strict):
    """A channel that is good for exponential times and bad for exponential times."""

    examples = {"good": "10 s", "bad": "1 s", "loss_good": "1 %", "loss_bad": "90 %"}

    good: Phase
    """how long it is good on average"""
    bad: Phase
    """how long it is bad on average"""
    loss_good: Fraction = 0.0
    """probability that a message is lost while it is good"""
    loss_bad: Fraction = 1.0
    """probability that a message is lost while it is bad"""


class BurstLoss(Strict):
    """Losses in bursts: each link has a state in time, the same in both directions."""

    examples = {"gilbert_elliott": {"good": "10 s", "bad": "1 s"}}

    gilbert_elliott: Bursts
    """the channel of Gilbert and Elliott in continuous time"""


def _fraction(value: object) -> float:
    try:
        return units.fraction(value)
    except ValueError as error:
        raise ValueError(f"{error}, {{gilbert_elliott: {{good: 10 s, bad: 1 s}}}}") from None


if TYPE_CHECKING:
    LossLaw = float | BurstLoss | LossTrace
else:
    _READ = OrRead(
        _fraction, lambda share: share, lambda: quantity(units.SHARE),
        {"trace": LossTrace, "": BurstLoss},
    )  # fmt: skip
    LossLaw = Annotated[BurstLoss | LossTrace, _READ]


class Link(Strict):
    """What a message meets between two nodes."""

    examples = {"backoff": 2}

    latency: LatencyLaw = "10 ms"  # type: ignore[assignment]
    """time on the way; a distribution is drawn once for each link; with latency_matrix 0; {trace:
    file, ...}: of clients, as measured"""
    bandwidth: BandwidthLaw = "100 Mbit/s"  # type: ignore[assignment]
    """bits leaving in a second; inf: sending takes no time; {trace: file, ...}: as measured"""
    directions: Literal["same", "own"] = "same"
    """whether drawn latencies and bandwidths of a link are the same in both directions"""
    jitter: FactorDist = "none"  # type: ignore[assignment]
    """random factor on the latency of each message: none, {lognormal: 0.3}, {normal: 0.2}, ..."""
    loss: LossLaw = 0.0
    """probability that a message is lost, or {gilbert_elliott: {good: 10 s, bad: 1 s}}, or {trace:
    file}"""
    on_loss: Literal["resend", "drop"] = "resend"
    """what happens after a loss"""
    timeout: Duration = 1.0
    """resend: time after which the sender sends again"""
    backoff: Backoff = 1.0
    """resend: factor on that time after every resend; 2 doubles it"""
    limit: Resends = 20
    """resend: how often a lost message is sent again at most"""

    transport: Transport = IDEAL
    """what carries messages: ideal (latency and bandwidth alone), tcp, or {tcp: {...}}; with tcp it
    is packets that are lost, which tcp repeats"""

    @property
    def resends(self) -> int:
        """How often a lost message is sent again at most."""
        return 0 if self.on_loss == "drop" else self.limit

    @property
    def losses(self) -> tuple[float, float]:
        """Probability that an attempt is lost, outside bursts and in them."""
        if isinstance(self.loss, BurstLoss):
            return self.loss.gilbert_elliott.loss_good, self.loss.gilbert_elliott.loss_bad
        rate = self.loss.rate if isinstance(self.loss, LossTrace) else self.loss
        return rate, rate

    @property
    def varies(self) -> bool:
        """Whether the bandwidth is one over time."""
        return isinstance(self.bandwidth, BandwidthTrace) and not self.bandwidth.of_clients

    @property
    def bursts(self) -> tuple[float, float]:
        """Rate 1/s at which a link's state is drawn anew, and the share of time in bursts."""
        if not isinstance(self.loss, BurstLoss):
            return 0.0, 0.0
        good, bad = self.loss.gilbert_elliott.good, self.loss.gilbert_elliott.bad
        return 1.0 / good + 1.0 / bad, bad / (good + bad)


class LinkChange(Strict):
    """Keys of `link` that differ in one direction of a star."""

    examples = {"latency": "50 ms", "loss": "1 %", "timeout": "500 ms", "backoff": 2, "limit": 5}

    latency: LatencyLaw | None = None
    """time on the way"""
    bandwidth: BandwidthLaw | None = None
    """bits leaving in a second"""
    jitter: FactorDist | None = None
    """random factor on the latency of each message"""
    loss: LossLaw | None = None
    """probability that a message is lost"""
    on_loss: Literal["resend", "drop"] | None = None
    """what happens after a loss"""
    timeout: Duration | None = None
    """time after which the sender sends again"""
    backoff: Backoff | None = None
    """factor on that time after every resend"""
    limit: Resends | None = None
    """how often a lost message is sent again at most"""
    transport: Transport | None = None
    """what carries messages"""
    contention: Contention | None = None
    """whether the messages of this direction share the coordinator's bandwidth"""

    def applied(self, link: Link) -> Link:
        """`link` with these changes."""
        given = {key: getattr(self, key) for key in self.model_fields_set - {"contention"}}
        changes = {key: new for key, new in given.items() if new is not None}
        return link.model_copy(update=changes) if changes else link


def _nodes(value: object) -> tuple[int, ...]:
    one = (value,) if not isinstance(value, list | tuple) else value
    try:
        return tuple(-1 if node == "coordinator" else whole(node, -1) for node in one)
    except ValueError:
        allowed = "an agent, a list of agents, or coordinator"
        raise ValueError(refusal(value, allowed)) from None


_NODE = {"anyOf": [{"type": "integer", "minimum": -1}, {"const": "coordinator"}]}
Nodes = Annotated[
    tuple[int, ...],
    PlainValidator(_nodes),
    WithJsonSchema({"anyOf": [*_NODE["anyOf"], {"type": "array", "items": _NODE}]}),
]


class LinkOf(Strict):
    """Links that differ from the rest, by the node that sends or the one that receives."""

    examples = {"sender": 3, "latency": "200 ms", "bandwidth": "1 Mbit/s"}

    sender: Nodes | None = None
    """the agents that send, or coordinator; default: all"""
    receiver: Nodes | None = None
    """the agents that receive, or coordinator; default: all"""
    latency: DurationDist | None = None
    """time on the way"""
    bandwidth: BandwidthDist | None = None
    """bits leaving in a second"""
    transport: Transport | None = None
    """what carries messages"""

    @model_validator(mode="after")
    def _says_something(self) -> "LinkOf":
        if (self.latency, self.bandwidth, self.transport) == (None, None, None):
            raise ValueError("missing; allowed: latency, bandwidth, transport, or several")
        return self


# The section `codec`: how messages are coded before they are sent.


ALLOWED = "a share of the coordinates, such as 10 %, or a whole number of them"
SPARSE = ("top-k", "random-k")
UNDERSCORED = {"top_k": "top-k", "random_k": "random-k"}  # also allowed


def _amount(value: object) -> float | int:
    """A share as a float, a number of coordinates as an int."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(refusal(value, ALLOWED))
        return value
    try:
        share = units.fraction(value)
    except ValueError:
        raise ValueError(refusal(value, ALLOWED)) from None
    if share == 0.0:
        raise ValueError(refusal(value, ALLOWED))
    return share


def _feedback(value: object) -> object:
    if isinstance(value, bool) or value == "ef21":
        return value
    raise ValueError(refusal(value, "true, false or ef21"))


Amount = Annotated[
    float | int,
    PlainValidator(_amount),
    WithJsonSchema({**quantity(units.SHARE), "description": ALLOWED, "examples": ["10 %"]}),
]
Levels = Annotated[int, *wholes(2, 32)]

Feedback = Annotated[
    bool | Literal["ef21"],
    PlainValidator(_feedback),
    WithJsonSchema({"enum": [True, False, "ef21"]}),
]


class Quantise(Strict):
    """QSGD: signed multiples of norm / s with s = 2^(bits - 1) - 1, rounded at random."""

    examples: ClassVar[Mapping[str, Any]] = {"bits": 4}

    bits: Levels
    """bits of one number, its sign among them; the norm takes 32 more"""


class OneWay(Form):
    """How messages of one direction are coded: none, float32 and float16 write all numbers."""

    words: ClassVar[tuple[str, ...]] = ("none", "float32", "float16")
    modifiers: ClassVar[tuple[str, ...]] = ("error_feedback", "numbers", "indices")
    examples: ClassVar[Mapping[str, Any]] = {"quantise": {"bits": 4}}

    top_k: Amount | None = Field(None, alias="top-k")
    """the largest coordinates alone, the first of equal ones: a share or a number of them"""
    random_k: Amount | None = Field(None, alias="random-k")
    """coordinates drawn anew for every message: a share or a number of them"""
    quantise: Quantise | None = None
    """levels between minus and plus the norm, rounded at random (QSGD)"""
    error_feedback: Feedback | None = None
    """whether what a message lost is added to the next; ef21: differences to what the receiver
    has are coded instead, as it is always where methods send models; default: true with top-k"""
    numbers: Literal["float64", "float32", "float16"] | None = None
    """top-k, random-k: how values are written; default: float32"""
    indices: Literal["sent", "seeded"] | None = None
    """random-k: sent (default), or both ends draw them from a seed that they share"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, every default explicit."""
        if isinstance(data, Mapping):
            data = {UNDERSCORED.get(key, key): value for key, value in data.items()}
        written = super().mapping(UNDERSCORED.get(data, data) if isinstance(data, str) else data)
        return written if "(word)" in written else {**_defaults(written), **written}

    def codec(self, known: bool) -> codec.Codec:
        """As engines use it; known: differences to what the receiver has are coded."""
        kind: Any = self.kind
        amount = self.quantise.bits if self.quantise else self.value or 0
        memory: Any = "none"
        if kind in codec.LOSSY:
            known = known or self.error_feedback == "ef21"
            memory = "known" if known else "error" if self.error_feedback else "none"
        return codec.Codec(
            kind, amount, self.numbers or "float32", self.indices == "seeded", memory
        )


class Codec(OneWay):
    """How messages are coded before they are sent.

    A word is for both directions, a mapping for what agents send: what a coordinator sends goes
    out whole unless `downlink` says more.
    """

    modifiers = (*OneWay.modifiers, "downlink")
    examples: ClassVar[Mapping[str, Any]] = {
        **OneWay.examples, "uplink": {"top-k": "10 %"}, "downlink": "float32",
    }  # fmt: skip

    uplink: OneWay | None = None
    """what agents send to a coordinator"""
    downlink: OneWay | None = None
    """what a coordinator sends to agents; default: none"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with both directions where they are named."""
        if isinstance(data, Mapping) and data and set(data) <= {"downlink"}:
            data = {"uplink": "none", **data}
        written = super().mapping(data)
        beside = [key for key in OneWay.modifiers if "uplink" in written and key in written]
        if beside:
            raise ValueError(f"found {beside[0]} beside uplink; allowed: inside it")
        return written if "(word)" in written else {"downlink": "none", **written}

    @property
    def up(self) -> OneWay:
        """What agents send, to a coordinator or to each other."""
        return self.uplink or self

    @property
    def down(self) -> OneWay:
        """What a coordinator sends."""
        return self if self.word else self.downlink or OneWay.of("none")

    def codecs(self, known: bool) -> codec.Codecs:
        """As engines use them; known: of what agents send, differences to what is there."""
        return codec.Codecs(self.up.codec(known), self.down.codec(known=True))


def _defaults(written: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the keys that go with what was chosen; ValueError for others."""
    sparse, found = any(one in written for one in SPARSE), dict[str, Any]()
    if sparse or "quantise" in written:
        found["error_feedback"] = "top-k" in written
    if sparse:
        found["numbers"] = "float32"
    elif "numbers" in written and "uplink" not in written:
        raise ValueError("found numbers; allowed: with top-k and random-k")
    if "random-k" in written:
        found["indices"] = "sent"
    elif "indices" in written and "uplink" not in written:
        raise ValueError("found indices; allowed: with random-k")
    return found
