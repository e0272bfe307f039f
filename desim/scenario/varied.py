"""What the keys of a study's or a tuner's file may hold: ranges, laws, cases, targets."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

from desim import units
from desim.errors import refusal, show, spelling
from desim.fields.numbers import finite, target
from desim.scenario.schema import SECTIONS
from desim.scenario.sections.observe_and_stop import METRICS
from desim.scenario.tree import native

One = TypeVar("One")
RANGE = re.compile(r"\s*(-?\d{1,15})\s*\.\.\s*(-?\d{1,15})\s*")
MAX_VALUES = 1_000_000  # values of one key, and runs of a study
LAWS = ("uniform", "log_uniform", "integer", "choice")


def expanded(value: object) -> tuple[Any, ...]:
    """The values of a list, or of `0..99`, both ends included; in a list ranges may stand too."""
    if isinstance(value, str) and RANGE.fullmatch(value):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError(refusal(value, "a list of values, or a range such as 0..99"))
    found: list[Any] = []
    for one in value:
        ends = RANGE.fullmatch(one) if isinstance(one, str) else None
        low, high = (int(ends[1]), int(ends[2])) if ends else (0, 0)
        if low > high or high - low >= MAX_VALUES:
            raise ValueError(refusal(one, f"a range upwards, of at most {MAX_VALUES} numbers"))
        found += range(low, high + 1) if ends else [native(one)]
    if not found:
        raise ValueError("found no value; allowed: at least one")
    twice = [one for n, one in enumerate(found) if one in found[:n]] if len(found) < 1000 else []
    if twice or (len(found) >= 1000 and len({repr(one) for one in found}) < len(found)):
        raise ValueError(f"found a value twice{f': {show(twice[0])}' if twice else ''}")
    return tuple(found)


def settings(value: object) -> dict[str, Any]:
    """Values by dotted key of a scenario."""
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, "a mapping of dotted keys, as in {algorithm.rho: 0.1}"))
    for key in value:
        parts = key.split(".") if isinstance(key, str) else [""]
        if not all(part.strip() for part in parts):
            raise ValueError(refusal(key, "a dotted key such as algorithm.rho"))
        if parts[0] not in SECTIONS:
            allowed = f"keys of a scenario: {', '.join(SECTIONS)}"
            raise ValueError(refusal(key, allowed) + spelling(parts[0], SECTIONS))
    return {key: native(one) for key, one in value.items()}


def inside(keys: Iterable[str], others: Iterable[str]) -> tuple[str, str] | None:
    """The first of dotted keys that is inside one of the others, and that one: it would be lost."""
    pairs = ((key, one) for key in keys for one in others if key.startswith(f"{one}."))
    return next(pairs, None)


def against(value: object) -> dict[str, Any]:
    """Values of dotted keys, or the label of an entry of the list."""
    if isinstance(value, Mapping) and set(value) == {"label"} and isinstance(value["label"], str):
        return dict(value)
    if not isinstance(value, Mapping):
        allowed = "a mapping of dotted keys, as in {algorithm.rho: 0.1}, or {label: ...} of a list"
        raise ValueError(refusal(value, allowed))
    return settings(value)


def methods(value: object) -> tuple[str, ...]:
    """Dotted keys or sections that are the method's, or label; one or several."""
    several = value if isinstance(value, list | tuple) else [value]
    for one in several:
        known = isinstance(one, str) and one.partition(".")[0] in (*SECTIONS, "label")
        if not known or not all(part.strip() for part in str(one).split(".")):
            allowed = "keys of the method such as algorithm.name, policy, or label"
            raise ValueError(refusal(one, allowed, [*SECTIONS, "label"]))
    return tuple(map(str, several))


def each(values: Mapping[str, Any], read: Callable[[Any], One]) -> dict[str, One]:
    """What `read` has of each value; its ValueError with the key before it."""
    found: dict[str, One] = {}
    for key, one in values.items():
        try:
            found[key] = read(one)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return found


def grid(value: object) -> dict[str, tuple[Any, ...]]:
    """The values of each dotted key."""
    return each(settings(value), expanded)


def entries(value: object) -> tuple[dict[str, Any], ...]:
    """The cases of a `list`, each a mapping of dotted keys with perhaps a label."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(refusal(value, "a list of mappings, as in [{label: x, policy: all}, ...]"))
    found = []
    for entry in value:
        rest = dict(entry) if isinstance(entry, Mapping) else entry
        label = rest.pop("label", None) if isinstance(rest, dict) else None
        if label is not None and not (isinstance(label, str) and label.strip()):
            raise ValueError(f"label: {refusal(label, 'text')}")
        found.append({**({"label": label} if label else {}), **settings(rest)})
    return tuple(found)


def laws(value: object) -> dict[str, dict[str, Any]]:
    """The law of each dotted key, {name: terms}."""
    found = {}
    for key, law in settings(value).items():
        allowed = "{uniform: [a, b]}, {log_uniform: [a, b]}, {integer: [a, b]}, {choice: [...]}"
        if not isinstance(law, Mapping) or len(law) != 1 or next(iter(law)) not in LAWS:
            raise ValueError(f"{key}: {refusal(law, allowed)}")
        name, terms = next(iter(law.items()))
        try:
            found[key] = {name: list(expanded(terms)) if name == "choice" else ends_of(name, terms)}
        except ValueError as error:
            raise ValueError(f"{key}.{name}: {error}") from None
    return found


def ends_of(name: str, value: object) -> list[float]:
    """The two ends of a law; ValueError for a range that is none, or upside down."""
    least = 0.0 if name == "log_uniform" else -math.inf
    wanted = "[a, b] with a < b" + (", both > 0" if name == "log_uniform" else "")
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(refusal(value, wanted))
    low, high = (finite(one) for one in value)
    whole = name != "integer" or (low.is_integer() and high.is_integer())
    if not least < low < high or not whole:
        raise ValueError(refusal(list(value), wanted + (" whole" if name == "integer" else "")))
    if not math.isfinite(high / low if name == "log_uniform" else high - low):
        within = "of a ratio" if name == "log_uniform" else "of a difference"
        raise ValueError(refusal(list(value), f"{wanted}, {within} within floating point"))
    return [int(low), int(high)] if name == "integer" else [low, high]


def targets(value: object) -> dict[str, tuple[float, ...]]:
    """The values of each metric, one or a list of them."""
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, "a mapping such as {accuracy: 0.93, error: [1e-2, 1e-3]}"))
    for name in value:
        if name not in METRICS:
            raise ValueError(refusal(name, ", ".join(METRICS), METRICS))
    several = {name: one if isinstance(one, list | tuple) else [one] for name, one in value.items()}
    return {name: tuple(map(target, ones)) for name, ones in several.items()}


# Keys of a tuner: one of a list, or a number of a range that may have a unit.
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
    def ends(self) -> tuple[Any, ...]:
        """The least and the largest value, as a scenario has them."""
        both = (self.low, self.high)
        return tuple(f"{one!r} {self.unit}" for one in both) if self.unit else both

    @property
    def some(self) -> tuple[Any, ...]:
        """Both ends and a value between, which has to be one of the key's, too."""
        return (*self.ends, self.at(BETWEEN)) if self.kind != "integer" else self.ends

    def plain(self) -> dict[str, Any]:
        """The range as a file has it."""
        return {self.kind: list(self.ends)}


Options = tuple[Any, ...]
Vary = dict[str, Range | Options]


def vary(value: object) -> Vary:
    """The range or the values of each dotted key; ValueError for what is none, or for no key."""
    if "seed" in (keys := settings(value)):
        raise ValueError("seed: all candidates meet the same seeds; allowed: tune.seeds")
    found = each(keys, _dimension)
    if not found:
        raise ValueError("found nothing to vary; allowed: dotted keys with their values or ranges")
    for key in found:
        if pair := inside(found, [key]):
            raise ValueError(
                f"found {key} and {pair[0]}, one inside the other; allowed: one of them"
            )
    return found


def _dimension(value: object) -> Range | Options:
    if not isinstance(value, Mapping):
        if not isinstance(value, list | tuple | str):
            raise ValueError(refusal(value, ALLOWED))
        return expanded(value)
    if len(value) != 1 or next(iter(value)) not in KINDS:
        kind = next(iter(value), None)
        raise ValueError(refusal(dict(value), ALLOWED) + spelling(kind, KINDS))
    return each(value, partial(_range, *value))[next(iter(value))]


def _range(kind: str, ends: object) -> Range:
    numbers, unit = ends, ""
    if isinstance(ends, list | tuple) and any(isinstance(one, str) for one in ends):
        numbers, unit = _without_unit(ends)
    low, high = ends_of(kind, numbers)
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
