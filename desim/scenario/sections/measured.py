"""Measurements in a scenario: files that stand for a bandwidth, a speed or the latencies."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, PlainValidator, TypeAdapter, WithJsonSchema, model_validator

from desim import units
from desim.errors import refusal
from desim.fields import BandwidthDist, File, Several, Speed, Strict, Text, Whole
from desim.fields.numbers import text, whole, written
from desim.fields.strict import OrElse, OrRead
from desim.numerics.distributions import Distribution

PACES = units.speed, units.seconds


def _unit(value: object, *readers: Any) -> str:
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

    unit: Annotated[Text, BeforeValidator(lambda v: _unit(v, units.bits_per_second))]
    """what a rate of 1 means"""
    end: Literal["loop", "hold", "error"] = "loop"
    """after its end a trace begins again, or keeps its last rate, or may not end before the run"""
    offset: Literal["none", "random"] = "none"
    """loop: whether agents begin at random places of their traces"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if its keys agree."""
        return shifted_in_loops(super().mapping(data))


class SpeedTrace(Trace):
    """Measured speeds, scores, or durations of one gradient: rows of a matrix are devices.

    order time: rows (time in s, speed), a speed that changes during a computation.
    """

    unit: Annotated[Text, BeforeValidator(lambda v: _unit(v, *PACES))] | None = None
    """what a 1 means: gradients (or operations) per time, or (ms, s) the duration of a gradient;
    needed without median"""
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
        if self.unit is None and self.median is None:
            allowed = "what a 1 in the file means, such as /s or ms, or median"
            raise ValueError(f"unit: missing; allowed: {allowed}")
        return self


def _places(value: object) -> object:
    if value in ("first", "random"):
        return value
    if isinstance(value, list | tuple) and value:
        return tuple(whole(site, 0) for site in value)
    raise ValueError(refusal(value, "first, random, or a list of sites"))


Places = Annotated[
    str | tuple[int, ...],
    PlainValidator(_places),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["first", "random"]},
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
            ]
        }
    ),
]


class LatencyMatrix(Strict):
    """Measured latencies between sites, and where the agents sit; added to link.latency."""

    examples = {"field": "rtt_ms", "unit": "ms", "coordinator": 12}

    file: File
    """npz (one square matrix, or several slices of it) or csv without a header"""
    field: Text | None = None
    """name of the array in the npz; default: the only square one"""
    slice: Whole = 0
    """which matrix of an array of several"""
    unit: Annotated[Text, BeforeValidator(lambda v: _unit(v, units.seconds))] | None = None
    """what a 1 means; default: as the array's name ends (_us, _ms, _s)"""
    measured: Literal["round-trip", "one-way"] = "round-trip"
    """a row's site measured round trips, of which half is one way, or one way itself"""
    missing: Literal["error", "mirror", "median"] = "error"
    """0 and NaN: an error, the opposite direction's, or that and else the median of all"""
    places: Places = "first"
    """sites of the agents: the first ones, drawn ones, or a list"""
    coordinator: Whole | None = None
    """star: its site; default: the next one, or a drawn one"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """The file alone, or the mapping."""
        return {"file": data} if isinstance(data, str) else super().mapping(data)


def or_trace(drawn: Any, trace: type[Trace]) -> OrRead:
    """Annotation of a trace that stands in place of what `drawn` reads."""
    law: TypeAdapter[Distribution] = TypeAdapter(drawn)
    return OrRead(law.validate_python, written, law.json_schema, {"trace": trace})


if TYPE_CHECKING:
    BandwidthLaw = Distribution | BandwidthTrace
else:
    BandwidthLaw = Annotated[BandwidthTrace, or_trace(BandwidthDist, BandwidthTrace)]
