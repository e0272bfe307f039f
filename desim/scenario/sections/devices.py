"""The sections `compute` and `churn`: how fast agents are, and when they are away."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from desim import units
from desim.errors import refusal
from desim.fields import (
    Count,
    Duration,
    DurationDist,
    File,
    Form,
    Fraction,
    NonNegative,
    Positive,
    ScaleDist,
    Several,
    SizeDist,
    Speed,
    SpeedDist,
    Strict,
    Text,
)
from desim.fields.numbers import number
from desim.fields.strict import OrElse, OrRead
from desim.numerics.distributions import CONSTANT, Distribution, mean
from desim.scenario.sections.links import or_list, or_trace
from desim.scenario.sections.power import ComputePower
from desim.scenario.sections.trace_files import (
    Played,
    Trace,
    format_of,
    lasting,
    names,
    shifted_in_loops,
    unit_of,
)

# How fast an agent computes, as a scenario says it: laws, traces, or this machine's own speed.

UNIT = "FLOP/s"  # what units of speeds end with that count operations
AS_IT_IS = Distribution(CONSTANT, 1.0)


class SpeedTrace(Trace):
    """Measured speeds, scores, or durations of one gradient: rows of a matrix are devices.

    order time: rows (time in s, speed), a speed that changes during a computation.
    """

    unit: (
        Annotated[Text, BeforeValidator(lambda v: unit_of(v, units.speed, units.seconds))] | None
    ) = None
    """what a 1 means: gradients (or operations) per time, or (ms, s) the duration of a gradient;
    needed without median; of FedScale's devices 3 ms, as a gradient takes three inferences"""
    median: Speed | None = None
    """instead of unit, for benchmark scores: the speed of the median of all values"""
    order: Literal["random", "measured", "time"] = "random"
    """whether a speed is drawn among the agent's, a round takes the next one, or times are given"""
    end: Literal["loop", "hold", "error"] = "loop"
    """order measured or time, after the last: the first again, the last, or the run ends before"""
    offset: Literal["none", "random"] = "none"
    """order time, end loop: whether agents begin at random places of their traces"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if its keys agree."""
        found = super().mapping(data)
        if "median" in found and found.get("unit", "/s") != "/s":
            raise ValueError("found unit and median; allowed: only one of them")
        timed = found.get("order") == "time"
        if "median" in found and timed:
            raise ValueError("found median with order time; allowed: unit")
        if timed and isinstance(found.get("unit"), str) and lasting(found["unit"]):
            unit = found["unit"]
            raise ValueError(f"found unit {unit} with order time; allowed: a rate such as /s")
        shifted = found.get("offset", "none") != "none"
        if shifted and not (timed and found.get("end", "loop") == "loop"):
            raise ValueError("found offset random; allowed: with order time and end loop")
        return found

    @model_validator(mode="after")
    def _says_what_it_means(self) -> "SpeedTrace":
        if self.of_clients:
            if self.order != "random":
                text = f"order: found {self.order} with FedScale's devices, which have one speed"
                raise ValueError(f"{text} each; allowed: random, or leave it out")
            if not lasting(self.meaning):
                text = f"unit: found {self.unit} with FedScale's devices, which have ms for a row"
                raise ValueError(f"{text}; allowed: 3 ms, or another duration")
        elif self.unit is None and self.median is None:
            allowed = "what a 1 in the file means, such as /s or ms, or median"
            raise ValueError(f"unit: missing; allowed: {allowed}")
        return self

    @property
    def of_clients(self) -> bool:
        """Whether it is FedScale's file of devices."""
        return format_of(self.trace) == "FedScale"

    @property
    def meaning(self) -> str:
        """What a 1 means."""
        return self.unit or ("3 ms" if self.of_clients else "/s")


class ScoreTrace(Trace):
    """Scores of devices in a benchmark: rows of a matrix are devices, of which each draws one."""

    examples = {"trace": "scores.npz", "reference": 830}

    reference: Positive
    """this machine's own score: a device that scores twice that is twice as fast"""


if TYPE_CHECKING:
    ScaleLaw = Distribution | ScoreTrace
else:
    ScaleLaw = Annotated[ScoreTrace, or_trace(ScaleDist, ScoreTrace)]


class Timing(Strict):
    """This machine's own time for a step, scaled by device; a run stores what it has measured.

    What is timed is the gradient of a batch, by one thread, alone, of the agent with the median
    number of rows: the median of many, after some that warm up.
    """

    examples = {"rate": 41200, "machine": "Intel Xeon, Linux 6.1 x86_64", "spread": 0.03}

    factor: ScaleLaw = AS_IT_IS
    """how many times as fast as this machine devices are; {trace: file, reference: score}"""
    rate: Positive | None = None
    """gradients of one row in a second, as measured before; default: measured as a run begins"""
    spread: NonNegative | None = None
    """of what was measured: relative standard deviation of a step, by the median deviation"""
    batch: Count | None = None
    """of what was measured: rows in a step"""
    steps: Count | None = None
    """of what was measured: how many"""
    machine: Text | None = None
    """of what was measured: on what, and by which libraries"""


class MeasuredSpeed(Strict):
    """The speed of this machine's own steps."""

    examples = {"measured": {"factor": {"uniform": [0.1, 1]}}}

    measured: Timing
    """how devices compare with this machine, and what it has measured"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """The word alone is what is measured here, without a factor."""
        if data in ("measured", {"measured": None}):
            return {"measured": {}}
        return super().mapping(data)


if TYPE_CHECKING:
    SpeedLaw = Distribution | tuple[float, ...] | SpeedTrace | MeasuredSpeed
else:
    SpeedLaw = Annotated[
        SpeedTrace | MeasuredSpeed,
        OrRead(
            *or_list(SpeedDist, partial(units.speed, above=True, infinite=False)),
            {"trace": SpeedTrace, "measured": MeasuredSpeed},
            ("measured",),
        ),
    ]


_read, _written, _schema = or_list(SizeDist, partial(units.size, above=True))
Memory = Annotated[
    Distribution | tuple[float, ...],
    PlainValidator(_read),
    PlainSerializer(_written),
    WithJsonSchema(_schema()),
]


class Work(Form):
    """What work is counted in: gradients of rows, or the floating point operations of these."""

    words = ("rows", "flops")
    examples = {"flops": 2.3e6}

    flops: Positive | None = None
    """operations of the gradient of one row; the word alone: as the model's library counts them"""


def units_fit(speed: object, counted: bool) -> None:
    """ValueError unless the units of a speed, as written, are those of the work; counted: FLOP."""
    for text in _texts(speed):
        unit = text.strip().lstrip("+.0123456789eE-").strip()
        if unit.endswith(UNIT) and not counted:
            raise ValueError(f"speed: found {text!r} with work: rows; allowed: with work: flops")
        if unit and not unit.endswith(UNIT) and counted:
            allowed = "allowed: operations in a second, such as 10 GFLOP/s"
            raise ValueError(f"speed: found {text!r} with work: flops; {allowed}")


def _texts(speed: object) -> list[str]:
    """Quantities, and units of traces, that are written as text in a speed."""
    if isinstance(speed, Mapping):
        if "trace" in speed:
            return [str(speed[key]) for key in ("unit", "median") if speed.get(key) is not None]
        return (
            [] if "measured" in speed else [text for one in speed.values() for text in _texts(one)]
        )
    if isinstance(speed, list | tuple):
        return [text for one in speed for text in _texts(one)]
    return [speed] if isinstance(speed, str) and speed[:1].isdigit() else []


# The sections `compute` and `churn`.

SLOWER = "a number >= 1, by which the speed is divided"
SHORTEST = 1e-6  # s of two turns of an agent: a compiled loop goes through a million in a blink
Slowdown = Annotated[float, BeforeValidator(lambda x: number(x, SLOWER, lambda f: f >= 1))]


class Slow(Strict):
    """Agents that are slower than the rest for the whole run."""

    fraction: Fraction = 0.0
    """share of the agents, drawn at random"""
    factor: Slowdown = 1.0
    """their speed is divided by this"""


class Spells(Strict):
    """Times in which an agent is slower, as by other work or heat; all begin at full speed."""

    examples = {"factor": 4, "every": {"exponential": "60 s"}, "lasting": {"exponential": "10 s"}}

    factor: Slowdown
    """the speed is divided by this during a spell, also in the middle of a computation"""
    every: DurationDist
    """time at full speed between two spells; with exponential times the speed is a Markov chain"""
    lasting: DurationDist
    """how long a spell lasts"""

    @model_validator(mode="after")
    def _moves(self) -> "Spells":
        _passes(self.every, "every")
        _turns(self.every, self.lasting, "every")
        return self


class Intake(Strict):
    """What it takes a coordinator to take replies in, one after the other, before it goes on.

    What arrives meanwhile waits, and is there when the next collection opens.
    """

    examples = {"reply": "1 ms", "number": "10 ns"}

    reply: DurationDist = "0 s"  # type: ignore[assignment]
    """for every reply that a collection has, drawn for each of them"""
    number: DurationDist = "0 s"  # type: ignore[assignment]
    """for every number of a reply: for each 64 bits that it is sent in"""

    @model_validator(mode="after")
    def _takes_time(self) -> "Intake":
        if self.number.kind != CONSTANT:
            raise ValueError("number: found a distribution; allowed: a duration; reply is drawn")
        if mean(self.reply) == 0.0 and self.number.a == 0.0:
            raise ValueError(
                "found nothing that takes time; allowed: reply, number, or leave it out"
            )
        return self


class Compute(Strict):
    """How fast agents compute, in gradients of one row per second, and how much they hold."""

    examples = {
        "time": {"shifted_exponential": ["1 ms", "0.5 ms"]},
        "spells": {"factor": 4, "every": {"exponential": "60 s"}, "lasting": "10 s"},
        "overhead": "5 ms",
    }

    speed: SpeedLaw | None = "1000 /s"  # type: ignore[assignment]
    """gradients of one row in a second, or with work: flops operations (10 GFLOP/s); inf: computing
    takes no time; a list: one for each agent; measured: this machine's own, {measured: {factor:
    ...}}; {trace: file, ...}"""
    work: Work = Work.of("rows")
    """what speed counts: rows; flops: operations of the gradient, counted; {flops: of one row}"""
    time: DurationDist | None = None
    """how long the gradient of one row takes, instead of speed: {shifted_exponential: [..]}, ..."""
    redraw: Literal["run", "round"] = "run"
    """when a random speed is drawn: once for each agent, or every round"""
    slow: Slow = Slow()
    """a set of slow agents: {fraction: 20 %, factor: 4}"""
    spells: Spells | None = None
    """times in which an agent is slower: {factor: 4, every: {exponential: 60 s}, lasting: ...}"""
    overhead: DurationDist | None = None
    """what every computation takes besides, drawn for each agent and round; slow devices need no
    more of it, spells make it longer; where a method plans by the time that it has, out of that"""
    memory: Memory | None = None
    """what an agent has, one value, a law or a list: a model whose steps need more is refused"""
    power: ComputePower | None = None
    """what a device takes: {idle: 2 W, computing: 5 W}, computing on top of idle; a law, a list"""
    coordinator: Intake | None = None
    """what the coordinator's work takes: {reply: 1 ms, number: 10 ns}; default: none"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; a time of gradients takes the place of their speed."""
        found = super().mapping(data)
        work = found.get("work", "rows")
        counted = work == "flops" or (isinstance(work, Mapping) and "flops" in work)
        units_fit(found.get("speed"), counted)
        if counted and found.get("speed") is None:
            key = "time" if "time" in found else "no speed"
            text = f"speed: found {key} with work: flops"
            raise ValueError(f"{text}; allowed: operations in a second, such as 10 GFLOP/s")
        if "time" in found and found.get("speed") is not None:
            raise ValueError("found speed and time; allowed: only one of them")
        return {**found, "speed": None} if "time" in found else found

    @model_validator(mode="after")
    def _turns(self) -> "Compute":
        trace = self.speed if isinstance(self.speed, SpeedTrace) else None
        order = trace.order if trace else ""
        if self.work.kind == "flops" and isinstance(self.speed, MeasuredSpeed):
            raise ValueError("speed: found measured with work: flops; allowed: work: rows")
        if self.work.kind == "flops" and trace and lasting(trace.meaning):
            unit = trace.meaning
            raise ValueError(f"speed: found unit {unit} with work: flops; allowed: FLOP/s")
        if order == "measured" and self.redraw != "round":
            raise ValueError("speed: found order measured with redraw run; allowed: redraw round")
        if order == "time" and self.spells is not None:
            raise ValueError("spells: found with order time; allowed: in the trace itself")
        return self


class Daily(Strict):
    """Agents that are up once a day, as phones that charge at night."""

    examples = {"up": "8 h", "start": {"normal": ["22 h", "90 min"]}, "day": "24 h"}

    up: DurationDist
    """how long an agent is up, drawn every day; at most the day"""
    start: DurationDist | None = None
    """when in its day an agent comes up, drawn once for each; default: any time, uniformly"""
    day: Duration = "24 h"  # type: ignore[assignment]
    """how long a day is"""

    @model_validator(mode="after")
    def _moves(self) -> "Daily":
        _passes(self.up, "up")
        _turns(Distribution(CONSTANT, self.day), Distribution(CONSTANT, 0.0), "day")
        return self


COMMON = ("memory", "messages")
OWN = {
    "up": ("up", "down"),
    "trace": ("trace", "field", "assign", "end", "offset"),
    "daily": ("daily",),
}


class Churn(Form, Played):
    """Agents that leave and come back: none, or when they are up and down.

    A computation in progress is lost when its agent leaves and begun again when it is back.
    """

    modifiers = ("down", "field", "assign", "end", "offset", *COMMON)
    examples = {
        "up": {"exponential": "300 s"},
        "down": {"exponential": "30 s"},
        "trace": "states.npz",
        "daily": {"up": "8 h"},
        "field": ["phone_1", "phone_2"],
    }

    up: DurationDist | None = None
    """time until an agent leaves; all begin up"""
    down: DurationDist | None = None
    """time until it comes back"""
    trace: File | None = None
    """npz (arrays of rows (time in s, 1 or 0)) or csv (columns time and one for each device, or
    time, agent and up), or FedScale's client_behave_trace"""
    daily: Daily | None = None
    """once a day: {up: 8 h, start: {normal: [22 h, 90 min]}}"""
    field: Annotated[Several[Text] | None, BeforeValidator(names), OrElse((), single=True)] = None
    """trace: names of arrays in an npz, of columns in a csv; default: all of them"""
    assign: Literal["random", "in-order"] | None = None
    """trace: each agent draws one of them (default), or takes its own in turn"""
    end: Literal["loop", "hold", "error"] | None = None
    """trace: it begins again (default), keeps its last state, or may not end before the run"""
    offset: Literal["none", "random"] | None = None
    """trace, loop: whether agents begin at random places of it; default none"""
    memory: Literal["kept", "lost"] = "kept"
    """what an agent that leaves does with its own state: find it again, or begin anew"""
    messages: Literal["queued", "lost"] = "queued"
    """what comes for an agent that is down waits for it, or is lost, as on a link: the sender then
    sends it again, or does not, as link.on_loss says; what has come before it left waits"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if its keys agree; a trace's defaults are made explicit."""
        found = super().mapping(data)
        kind = next((key for key in OWN if key in found), "up")
        odd = [key for key in found if key in cls.keys() and key not in (*OWN[kind], *COMMON)]
        if odd:
            allowed = ", ".join([*OWN[kind], *COMMON])
            raise ValueError(f"found {odd[0]} with {kind}; allowed: {allowed}")
        if kind == "up" and "down" not in found:
            raise ValueError("found up without down; allowed: both")
        if kind != "trace":
            return found
        played = {"field": (), "assign": "random", "end": "loop", "offset": "none"}
        return shifted_in_loops({**played, **found})

    @model_validator(mode="after")
    def _moves(self) -> "Churn":
        if self.up is not None and self.down is not None:
            _passes(self.up, "up")
            _turns(self.up, self.down, "up")
        return self


def _passes(law: Distribution, key: str) -> None:
    if mean(law) == 0.0:
        raise ValueError(f"{key}: found 0; allowed: a duration > 0, or a distribution")


def _turns(first: Distribution, second: Distribution, key: str) -> None:
    """Turns that are much shorter than anything that happens meanwhile take for ever to play."""
    if mean(first) + mean(second) < SHORTEST:
        text = f"found turns of {mean(first) + mean(second):.3g} s on average"
        raise ValueError(f"{key}: {text}; allowed: at least 1 us for two of them")


def _churn(value: object) -> object:
    """None for none, else what was written."""
    if isinstance(value, str) and value != "none":
        raise ValueError(refusal(value, "none, " + Churn.allowed()))
    return None if value == "none" else value


STATELESS = Churn.model_construct(memory="kept", messages="queued")  # whatever makes agents leave
MaybeChurn = Annotated[Churn | None, BeforeValidator(_churn), OrElse(({"enum": ["none"]},))]
