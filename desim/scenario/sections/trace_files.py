"""Measurements in files, in place of a bandwidth, a latency, a loss or a speed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, model_validator

from desim import units
from desim.errors import InputError, refusal
from desim.fields import File, Several, Strict, Text
from desim.fields.numbers import text
from desim.fields.strict import OrElse

EXAMPLES = {units.bits_per_second: "Mbit/s", units.speed: "/s", units.seconds: "ms"}


def unit_of(value: object, *readers: Any) -> str:
    """Text such as ms or 50 /s, what a 1 in the file means; ValueError unless a reader takes it."""
    found, why = text(value), ""
    for read in readers if found.strip()[-1].isalpha() else ():
        try:
            if 0.0 < scale(found, read) < float("inf"):
                return found
        except ValueError as error:
            why = why or f"; {error}"
    such = " or ".join(EXAMPLES[read] for read in readers)
    allowed = f"a unit such as {such}, or a value with its unit such as 50 {such.split()[0]}"
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


def format_of(path: Path) -> str:
    """What a file is by its content: a table, or of FedScale, Mahimahi or NDT."""
    from desim.network.conditions import trace_formats  # which only runs with files need

    return trace_formats.format_of(path)


OF_CLIENTS = ("FedScale", "NDT")  # formats with one number for each client


class BandwidthTrace(Trace):
    """Rates over time, constant from one sample to the next: rows (time in s, rate).

    Also FedScale's devices, Mahimahi's packets and the tests of NDT, as `desim list traces` says.
    """

    unit: Annotated[Text, BeforeValidator(lambda v: unit_of(v, units.bits_per_second))] | None = (
        None
    )
    """what a rate of 1 means; needed but for FedScale (kbit/s), NDT (Mbit/s), Mahimahi (bit/s)"""
    end: Literal["loop", "hold", "error"] = "loop"
    """after its end a trace begins again, or keeps its last rate, or may not end before the run"""
    offset: Literal["none", "random"] = "none"
    """loop: whether agents begin at random places of their traces"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if its keys agree."""
        return shifted_in_loops(super().mapping(data))

    @model_validator(mode="after")
    def _fits_its_format(self) -> Self:
        kind = format_of(self.trace)
        if self.unit is None and kind == "table":
            text = f"unit: missing; {self.trace.name} is no file of FedScale, Mahimahi or NDT"
            raise ValueError(f"{text}; allowed: what a rate of 1 means, such as Mbit/s")
        if kind == "Mahimahi" and self.unit and self.unit.lstrip("0123456789.eE+-_ ") != "bit/s":
            text = f"unit: found {self.unit} with a Mahimahi trace, whose packets have 1500 bytes"
            raise ValueError(f"{text}; allowed: leave it out, or a factor such as 0.5 bit/s")
        if kind in OF_CLIENTS and (self.end, self.offset) != ("loop", "none"):
            key = "end" if self.end != "loop" else "offset"
            text = f"{key}: found {getattr(self, key)} with a file of {kind}, which has no times"
            raise ValueError(f"{text}; allowed: leave it out")
        return self

    @property
    def meaning(self) -> str:
        """What a rate of 1 means."""
        return self.unit or {"FedScale": "kbit/s", "NDT": "Mbit/s"}.get(
            format_of(self.trace), "bit/s"
        )

    @property
    def of_clients(self) -> bool:
        """Whether it has one bandwidth for each client, and not some over time."""
        return format_of(self.trace) in OF_CLIENTS


class LatencyTrace(Trace):
    """Round trips of clients: a csv of NDT's tests with MinRTT in ms, or a column of another."""

    examples = {"trace": "ndt.csv", "field": "a.MinRTT", "unit": "ms"}

    unit: Annotated[Text, BeforeValidator(lambda v: unit_of(v, units.seconds))] = "ms"
    """what a 1 means"""
    measured: Literal["round-trip", "one-way"] = "round-trip"
    """whether half of it is one way, or all"""


class LossTrace(Strict):
    """How often packets were lost: a csv of NDT's tests with LossRate; one rate for all links."""

    examples = {"trace": "ndt.csv", "field": "a.LossRate"}

    trace: File
    """csv file of tests, whose mean rate of loss is meant"""
    field: Annotated[Several[Text], BeforeValidator(names), OrElse((), single=True)] = ()
    """the column, where it is not called LossRate"""
    unit: Literal["share", "%"] = "share"
    """whether a 1 in the file is all packets, or one of a hundred"""

    @model_validator(mode="after")
    def _is_a_rate(self) -> Self:
        try:
            self.rate  # noqa: B018  # what is wrong with it belongs to this key
        except InputError as error:
            text = str(error).removeprefix("here: ").removeprefix("here.")
            raise ValueError(text) from None
        return self

    @property
    def rate(self) -> float:
        """The mean over all tests, a share."""
        from desim.network.conditions import trace_formats

        return trace_formats.mean_loss(self.trace, self.field, self.unit == "%", "here")
