"""What a key of a tuner may be: one of a list, or a number of a range that may have a unit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from desim import units
from desim.errors import refusal, spelling
from desim.experiments.studies import varied

KINDS = ("uniform", "log_uniform", "integer")
ALLOWED = "a list of values, {uniform: [a, b]}, {log_uniform: [a, b]} or {integer: [a, b]}"
BETWEEN = 0.381966  # a share of a range whose value is no whole number by chance
DIGITS = 4  # of a number that is drawn from a range
_ENDED = re.compile(rf"\s*({units.NUMBER})\s*(\S+)\s*")
_UNITS = (units.TIME, units.BANDWIDTH, units.SPEED, units.SIZE, units.SHARE)


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; values are written with `unit`.

    kind: uniform, log_uniform or integer.
    """

    kind: str
    low: float
    high: float
    unit: str = ""

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1] of the way: of its logarithm where the range has that."""
        low, high = self.low, self.high
        if self.kind == "integer":
            return self.written(low + min(int(share * (high - low + 1)), int(high - low)))
        if self.kind == "log_uniform":
            return self.written(low * (high / low) ** share)
        return self.written(low + share * (high - low))

    def written(self, number: float) -> Any:
        """A number as a scenario has it, rounded to DIGITS and never beyond an end."""
        value: float = int(number) if self.kind == "integer" else float(f"{number:.{DIGITS}g}")
        value = min(max(value, self.low), self.high)
        return f"{value:g} {self.unit}" if self.unit else value

    @property
    def ends(self) -> tuple[Any, Any]:
        """The least and the largest value, as a scenario has them."""
        return self._end(self.low), self._end(self.high)

    @property
    def some(self) -> tuple[Any, ...]:
        """Both ends and a value between, which has to be one of the key's, too."""
        return (*self.ends, self.at(BETWEEN)) if self.kind != "integer" else self.ends

    def _end(self, number: float) -> Any:
        return f"{number!r} {self.unit}" if self.unit else number

    def plain(self) -> dict[str, Any]:
        """The range as a file has it."""
        return {self.kind: list(self.ends)}


Options = tuple[Any, ...]
Vary = dict[str, Range | Options]


def vary(value: object) -> Vary:
    """The range or the values of each dotted key; ValueError for what is none, or for no key."""
    found: Vary = {}
    for key, one in varied.settings(value).items():
        if key == "seed":
            raise ValueError("seed: all candidates meet the same seeds; allowed: tune.seeds")
        try:
            found[key] = _dimension(one)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    if not found:
        raise ValueError("found nothing to vary; allowed: dotted keys with their values or ranges")
    for key in found:
        if pair := varied.inside(found, [key]):
            raise ValueError(
                f"found {key} and {pair[0]}, one inside the other; allowed: one of them"
            )
    return found


def _dimension(value: object) -> Range | Options:
    if not isinstance(value, Mapping):
        if not isinstance(value, list | tuple | str):
            raise ValueError(refusal(value, ALLOWED))
        return varied.expanded(value)
    if len(value) != 1 or next(iter(value)) not in KINDS:
        kind = next(iter(value), None)
        raise ValueError(refusal(dict(value), ALLOWED) + spelling(kind, KINDS))
    kind, ends = next(iter(value.items()))
    try:
        return _range(kind, ends)
    except ValueError as error:
        raise ValueError(f"{kind}: {error}") from None


def _range(kind: str, ends: object) -> Range:
    numbers, unit = ends, ""
    if isinstance(ends, list | tuple) and any(isinstance(one, str) for one in ends):
        numbers, unit = _without_unit(ends)
    low, high = varied.ends(kind, numbers)
    if kind == "integer" and unit:
        raise ValueError(refusal(list(ends), "whole numbers"))  # type: ignore[call-overload]
    return Range(kind, low, high, unit)


def _without_unit(ends: "list[Any] | tuple[Any, ...]") -> tuple[list[float], str]:
    """Both ends as numbers of the first one's unit, and that unit."""
    parts = [_ENDED.fullmatch(one) if isinstance(one, str) else None for one in ends]
    allowed = "two numbers, or two with units of one kind, as in [500 ms, 20 s]"
    if len(parts) != 2 or None in parts:
        raise ValueError(refusal(list(ends), allowed))
    texts = [(part[1], part[2]) for part in parts if part]
    unit = texts[0][1]
    known = next((one for one in _UNITS if all(name in one for _, name in texts)), None)
    if known is None:
        raise ValueError(refusal(list(ends), allowed))
    return [float(Fraction(number) * known[name] / known[unit]) for number, name in texts], unit
