"""What a message meets between two nodes: transport, latency, bandwidth, losses, and traces."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
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
    File,
    Flag,
    Form,
    Fraction,
    Several,
    Strict,
    Text,
)
from desim.fields.numbers import counted, quantity, sized, text, whole, wholes, within, written
from desim.fields.strict import OrElse, OrRead
from desim.numerics.distributions import Distribution

# Measurements in files, in place of a bandwidth or a speed.


def unit_of(value: object, *readers: Any) -> str:
    """Text such as ms or 50 /s, what a 1 in the file means; ValueError unless a reader takes it."""
    found, why = text(value), ""
    for read in readers if found.strip()[-1].isalpha() else ():
        try:
            if 0.0 < scale(found, read) < float("inf"):
                return found
        except ValueError as error:
            why = why or f"; {error}"
    allowed = "a unit such as Mbit/s, /s or ms, or a value with its unit such as 50 /s"
    raise ValueError(refusal(value, allowed) + why)


def scale(unit: str, read: Any) -> float:
    """What a 1 in a file means in desim's units: Mbit/s is 1e6, 2 ms is 0.002."""
    return float(read(unit if unit.strip()[:1].isdigit() else f"1 {unit}"))


def lasting(unit: str) -> bool:
    """Whether a unit of speeds says how long one gradient takes."""
    return "/" not in unit


def names(value: object) -> object:
    """One name as a list of it."""
    return (value,) if isinstance(value, str) else value


def shifted_in_loops(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was written of a trace; ValueError for random places of one that does not loop."""
    if found.get("offset") == "random" and found.get("end", "loop") != "loop":
        raise ValueError(f"found offset random with end {found['end']}; allowed: with loop")
    return found


class Played:
    """What has traces of a file: keys assign, end and offset, some of which may not be there."""

    @property
    def ways(self) -> dict[str, bool]:
        """How agents play them, as `Traces` takes it."""
        loops, shifted = getattr(self, "end", "loop"), getattr(self, "offset", "none")
        shuffled = getattr(self, "assign", "random") == "random"
        return {"loops": loops == "loop", "shuffled": shuffled, "shifted": shifted == "random"}


class Trace(Strict, Played):
    """Values of a file, and which agent's they are."""

    trace: File
    """npz or csv file of measured values"""
    field: Annotated[Several[Text], BeforeValidator(names), OrElse((), single=True)] = ()
    """names of arrays in an npz, of columns in a csv; default: all of them"""
    assign: Literal["random", "in-order"] = "random"
    """which agent's they are: each draws one array or row, or takes its own in turn"""


class BandwidthTrace(Trace):
    """Rates over time, constant from one sample to the next: rows (time in s, rate)."""

    unit: Annotated[Text, BeforeValidator(lambda v: unit_of(v, units.bits_per_second))]
    """what a rate of 1 means"""
    end: Literal["loop", "hold", "error"] = "loop"
    """after its end a trace begins again, or keeps its last rate, or may not end before the run"""
    offset: Literal["none", "random"] = "none"
    """loop: whether agents begin at random places of their traces"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if its keys agree."""
        return shifted_in_loops(super().mapping(data))


def or_trace(drawn: Any, trace: type[Trace]) -> OrRead:
    """Annotation of a trace that stands in place of what `drawn` reads."""
    law: TypeAdapter[Distribution] = TypeAdapter(drawn)
    return OrRead(law.validate_python, written, law.json_schema, {"trace": trace})


if TYPE_CHECKING:
    BandwidthLaw = Distribution | BandwidthTrace
else:
    BandwidthLaw = Annotated[BandwidthTrace, or_trace(BandwidthDist, BandwidthTrace)]


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
    LossLaw = float | BurstLoss
else:
    _READ = OrRead(_fraction, lambda share: share, lambda: quantity(units.SHARE), {"": BurstLoss})
    LossLaw = Annotated[BurstLoss, _READ]


class Link(Strict):
    """What a message meets between two nodes."""

    examples = {"backoff": 2}

    latency: DurationDist = "10 ms"  # type: ignore[assignment]
    """time on the way; a distribution is drawn once for each link; with latency_matrix 0"""
    bandwidth: BandwidthLaw = "100 Mbit/s"  # type: ignore[assignment]
    """bits leaving in a second; inf: sending takes no time; {trace: file, ...}: as measured"""
    directions: Literal["same", "own"] = "same"
    """whether drawn latencies and bandwidths of a link are the same in both directions"""
    jitter: FactorDist = "none"  # type: ignore[assignment]
    """random factor on the latency of each message: none, {lognormal: 0.3}, {normal: 0.2}, ..."""
    loss: LossLaw = 0.0
    """probability that a message is lost, or {gilbert_elliott: {good: 10 s, bad: 1 s}}"""
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
        return self.loss, self.loss

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

    latency: DurationDist | None = None
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
