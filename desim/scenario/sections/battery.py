"""The section `battery`: what agents run on, when that is empty, and what charges it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from desim import units
from desim.errors import refusal
from desim.fields import DurationDist, EnergyDist, FractionDist, Strict, Text
from desim.fields.numbers import Duration
from desim.fields.strict import OrElse
from desim.numerics.distributions import Distribution, bounds
from desim.scenario.sections.links import law_or_list
from desim.scenario.sections.power import Law, WattsLaw, takes
from desim.scenario.sections.trace_files import Trace, scale, shifted_in_loops, unit_of

EnergyLaw = Annotated[Law, *law_or_list(EnergyDist, units.joules)]
ShareLaw = Annotated[Law, *law_or_list(FractionDist, units.fraction)]


class WattsTrace(Trace):
    """Watts of chargers over time, constant from one sample to the next: rows (time in s, W)."""

    examples = {"trace": "sun.csv", "unit": "mW"}

    unit: Annotated[Text, BeforeValidator(lambda value: unit_of(value, units.watts))] = "W"
    """what a 1 means"""
    end: Literal["loop", "hold", "error"] = "loop"
    """after its end a trace begins again, or keeps its last watts, or may not end before the run"""
    offset: Literal["none", "random"] = "none"
    """loop: whether agents begin at random places of their traces"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if its keys agree."""
        return shifted_in_loops(super().mapping(data))

    @property
    def watts(self) -> float:
        """W of a 1 in the file."""
        return scale(self.unit, units.watts)


class Plugged(Strict):
    """The same hours of each day."""

    examples = {"start": {"normal": ["22 h", "90 min"]}, "lasting": "8 h", "day": "24 h"}

    start: DurationDist
    """when in its day a device is plugged in, drawn once for each"""
    lasting: DurationDist
    """for how long, drawn once for each; all of the day where it is as long"""
    day: Duration = "24 h"  # type: ignore[assignment]
    """how long a day is; runs begin at 0 h"""

    @model_validator(mode="after")
    def _charges(self) -> "Plugged":
        if bounds(self.lasting)[1] == 0.0:
            raise ValueError("lasting: found 0 s; allowed: a duration > 0")
        return self


class Charger(Strict):
    """What charges a battery: watts, all the time, some hours of a day, or as a file has them."""

    examples = {
        "power": "5 W",
        "daily": {"start": "22 h", "lasting": "8 h"},
        "trace": {"trace": "sun.csv", "unit": "mW"},
    }

    power: WattsLaw = "0 W"  # type: ignore[assignment]
    """a value, a law that each draws from, or a list"""
    daily: Plugged | None = None
    """only then: {start: 22 h, lasting: 8 h}; default: always"""
    trace: WattsTrace | None = None
    """instead of power: columns time and watts of a csv, arrays of an npz: {trace: sun.csv}"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; watts alone, a law or a list of them are always there."""
        if not isinstance(data, Mapping) or (data and not {*cls.model_fields} & {*map(str, data)}):
            return super().mapping({"power": data})
        if isinstance(data.get("trace"), str):
            return super().mapping({"trace": data})
        return super().mapping(data)

    @model_validator(mode="after")
    def _charges(self) -> "Charger":
        if self.trace is not None and (takes(self.power) or self.daily is not None):
            raise ValueError("trace: found with power or daily; allowed: alone")
        if self.trace is None and not takes(self.power):
            raise ValueError("found no watts; allowed: power, trace, or leave the charger out")
        return self


class Battery(Strict):
    """What agents run on. Whoever's is empty is down, until it has been charged to a level.

    Each is a value, a law that each draws from, or a list with an entry for each agent.
    """

    examples = {
        "capacity": {"uniform": ["10 Wh", "15 Wh"]},
        "charge": {"uniform": ["40 %", "100 %"]},
        "charger": {"power": "5 W", "daily": {"start": "22 h", "lasting": "8 h"}},
    }

    capacity: EnergyLaw
    """what it holds"""
    charge: ShareLaw = "100 %"  # type: ignore[assignment]
    """of that, when the run begins"""
    level: ShareLaw = "20 %"  # type: ignore[assignment]
    """of that, at which an agent whose battery was empty comes back"""
    charger: Charger | None = None
    """watts, {power: 5 W, daily: {start: 22 h, lasting: 8 h}}, or {trace: file}; default: none"""

    @model_validator(mode="after")
    def _holds_something(self) -> "Battery":
        for key in ("capacity", "charge", "level"):
            law = getattr(self, key)
            least = bounds(law)[1] if isinstance(law, Distribution) else min(law)
            if least == 0.0:
                raise ValueError(f"{key}: found 0, a battery that is empty; allowed: above 0")
        return self


def _battery(value: object) -> object:
    if value in ("none", None):
        return None
    if not isinstance(value, Mapping | Battery):
        raise ValueError(refusal(value, "none, or {capacity: 10 Wh, charger: 5 W}"))
    return value


MaybeBattery = Annotated[Battery | None, BeforeValidator(_battery), OrElse(({"enum": ["none"]},))]
