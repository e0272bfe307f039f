"""How fast an agent computes, as a scenario says it: laws, traces, or this machine's own speed."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, WithJsonSchema

from desim import units
from desim.errors import refusal
from desim.fields import (
    Count,
    Form,
    NonNegative,
    Positive,
    ScaleDist,
    SizeDist,
    SpeedDist,
    Strict,
    Text,
)
from desim.fields.choices import OneOf, OrRead
from desim.fields.draws import Reader, written
from desim.fields.numbers import quantity
from desim.numerics.distributions import CONSTANT, Distribution
from desim.scenario.sections.measured import SpeedTrace, Trace

UNIT = "FLOP/s"  # what units of speeds end with that count operations
AS_IT_IS = Distribution(CONSTANT, 1.0)


class ScoreTrace(Trace):
    """Scores of devices in a benchmark: rows of a matrix are devices, of which each draws one."""

    examples = {"trace": "scores.npz", "reference": 830}

    reference: Positive
    """this machine's own score: a device that scores twice that is twice as fast"""


_scale: TypeAdapter[Distribution] = TypeAdapter(ScaleDist)

if TYPE_CHECKING:
    ScaleLaw = Distribution | ScoreTrace
else:
    ScaleLaw = Annotated[
        ScoreTrace, OrRead(_scale.validate_python, written, _scale.json_schema, "trace")
    ]


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


_speed: TypeAdapter[Distribution] = TypeAdapter(SpeedDist)


def _speeds(value: object) -> Distribution | tuple[float, ...]:
    """A speed, a law of speeds, or a list with one for each agent."""
    if isinstance(value, Distribution) or not isinstance(value, list | tuple):
        return _speed.validate_python(value)
    return _each(value, partial(units.speed, above=True, infinite=False))


def _each(value: Sequence[object], read: Reader) -> tuple[float, ...]:
    """The entries of a list with one for each agent; ValueError with the place of a wrong one."""
    if not value:
        raise ValueError(refusal(value, "one entry for each agent"))
    found = []
    for agent, one in enumerate(value):
        try:
            found.append(read(one))
        except ValueError as error:
            raise ValueError(f"of agent {agent}: {error}") from None
    return tuple(found)


def _listed(value: Distribution | tuple[float, ...]) -> Any:
    return written(value) if isinstance(value, Distribution) else list(value)


def _speed_schema() -> dict[str, Any]:
    """Of a speed, a law, or a list of speeds."""
    form = _speed.json_schema()
    return {**form, "anyOf": [*form["anyOf"], {"type": "array", "items": form["anyOf"][0]}]}


if TYPE_CHECKING:
    SpeedLaw = Distribution | tuple[float, ...] | SpeedTrace | MeasuredSpeed
else:
    SpeedLaw = Annotated[
        SpeedTrace | MeasuredSpeed,
        OneOf(
            (("trace", SpeedTrace), ("measured", MeasuredSpeed)),
            ("measured",),
            _speeds,
            _listed,
            _speed_schema,
        ),
    ]


def _memory(value: object) -> Distribution | tuple[float, ...]:
    """A size, a law of sizes, or a list with one for each agent."""
    if isinstance(value, Distribution) or not isinstance(value, list | tuple):
        return _size.validate_python(value)
    return _each(value, partial(units.size, above=True))


_size: TypeAdapter[Distribution] = TypeAdapter(SizeDist)

Memory = Annotated[
    Distribution | tuple[float, ...],
    PlainValidator(_memory),
    PlainSerializer(_listed),
    WithJsonSchema(
        {
            **(form := _size.json_schema()),
            "anyOf": [*form["anyOf"], {"type": "array", "items": quantity(units.SIZE)}],
        }
    ),
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
