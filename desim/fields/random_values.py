"""Durations, rates and factors that may be random: 20 ms, or {uniform: [10 ms, 30 ms]}."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from desim import units
from desim.errors import refusal, spelling
from desim.fields.numbers import nonnegative, positive, quantity
from desim.numerics.distributions import (
    CONSTANT,
    EXPONENTIAL,
    GAMMA,
    HALF_NORMAL,
    LOGNORMAL,
    NORMAL,
    SHIFTED,
    UNIFORM,
    Distribution,
)

Reader = Callable[[object], float]
LAWS = {
    "uniform": (UNIFORM, "[low, high]"),
    "normal": (NORMAL, "[mean, standard deviation]"),
    "lognormal": (LOGNORMAL, "[median, sigma]"),
    "exponential": (EXPONENTIAL, "mean"),
    "gamma": (GAMMA, "[mean, shape]"),
    "shifted_exponential": (SHIFTED, "[least, mean of what comes on top]"),
    "half_normal": (HALF_NORMAL, "standard deviation of the normal around 0 whose size it is"),
}
SINGLE = ("exponential", "half_normal")  # laws of one number
FORMS = {name: form for name, (_, form) in LAWS.items()}


def distribution(value: object, read: Reader) -> Distribution:
    """The distribution that `value` writes, its numbers in the unit of `read`; else ValueError."""
    if isinstance(value, Distribution):
        return value
    if not isinstance(value, Mapping):
        return Distribution(CONSTANT, read(value), 0.0)
    name, numbers = _single(value)
    if name in SINGLE:
        return Distribution(LAWS[name][0], _finite(numbers, read), 0.0)
    if not isinstance(numbers, list | tuple) or len(numbers) != 2:
        raise ValueError(f"{name}: {refusal(numbers, FORMS[name])}")
    first = _finite(numbers[0], read)
    if name in ("uniform", "normal", "shifted_exponential"):
        second = _finite(numbers[1], read)
    else:
        second = nonnegative(numbers[1]) if name == "lognormal" else positive(numbers[1])
    if name == "uniform" and first > second:
        raise ValueError(f"uniform: {refusal(list(numbers), 'a low end <= the high end')}")
    return Distribution(LAWS[name][0], first, second)


def factor(value: object) -> Distribution:
    """A random factor around 1; one number alone is its spread: {lognormal: 0.3} has median 1."""
    if value == "none":
        return Distribution(CONSTANT, 1.0, 0.0)
    if isinstance(value, Mapping):
        name, number = _single(value)
        if name in ("normal", "lognormal", "gamma") and not isinstance(number, list | tuple):
            value = {name: [1.0, number]}
    elif not isinstance(value, Distribution):
        raise ValueError(refusal(value, f"none, {_forms()}"))
    return distribution(value, nonnegative)


def written(value: Distribution) -> Any:
    """The distribution as a scenario writes it."""
    if value.kind == CONSTANT:
        return value.a
    name = next(name for name, (code, _) in LAWS.items() if code == value.kind)
    return {name: value.a if name in SINGLE else [value.a, value.b]}


def _forms() -> str:
    return ", ".join(f"{{{name}: {form}}}" for name, form in FORMS.items())


def _single(value: Mapping[str, Any]) -> tuple[str, Any]:
    if "trace" in value:
        raise ValueError(f"found a trace; allowed: a value with its unit, {_forms()}")
    if len(value) != 1 or next(iter(value)) not in FORMS:
        near = spelling(next(iter(value), ""), FORMS)
        raise ValueError(refusal(dict(value), f"a value with its unit, {_forms()}") + near)
    return next(iter(value.items()))


def _finite(value: object, read: Reader) -> float:
    number = read(value)
    if number == float("inf"):
        raise ValueError(refusal(value, "a finite value inside a distribution"))
    return number


def _schema(
    what: str, scalar: dict[str, Any], entry: dict[str, Any], example: Any, spread: bool = False
) -> WithJsonSchema:
    pair = {"type": "array", "items": entry, "minItems": 2, "maxItems": 2}
    options = [scalar]
    for name, form in FORMS.items():
        value = entry if name in SINGLE else {"anyOf": [pair, entry]} if spread else pair
        keys = {name: {**value, "description": form}}
        option = {"type": "object", "properties": keys, "required": [name]}
        options.append({**option, "additionalProperties": False})
    return WithJsonSchema({"anyOf": options, "description": what, "examples": [example]})


def _quantity(
    what: str, read: Reader, scale: units.Units, example: Any, words: tuple[str, ...] = ()
) -> Any:
    scalar, entry = quantity(scale, words), quantity(scale)
    return (
        PlainValidator(lambda value: distribution(value, read)),
        PlainSerializer(written),
        _schema(f"{what} ({', '.join(scale)}), constant or random", scalar, entry, example),
    )


_duration = _quantity("a duration", units.seconds, units.TIME, {"uniform": ["10 ms", "30 ms"]})
_speed = _quantity(
    "a speed",
    partial(units.speed, above=True),
    units.SPEED,
    {"lognormal": ["50 /s", 0.5]},
    ("inf",),
)
_size = _quantity("a size > 0", partial(units.size, above=True), units.SIZE, "2 GB")
_bandwidth = _quantity(
    "a bandwidth",
    partial(units.bits_per_second, above=True),
    units.BANDWIDTH,
    "10 Mbit/s",
    ("inf",),
)

DurationDist = Annotated[Distribution, *_duration]
BandwidthDist = Annotated[Distribution, *_bandwidth]
SpeedDist = Annotated[Distribution, *_speed]
SizeDist = Annotated[Distribution, *_size]
ScaleDist = Annotated[
    Distribution,
    PlainValidator(lambda value: distribution(value, positive)),
    PlainSerializer(written),
    _schema(
        "a factor, constant or random",
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "number", "exclusiveMinimum": 0},
        {"uniform": [0.1, 1]},
    ),
]
FactorDist = Annotated[
    Distribution,
    PlainValidator(factor),
    PlainSerializer(
        lambda law: "none" if law == Distribution(CONSTANT, 1.0, 0.0) else written(law)
    ),
    _schema(
        "a random factor; one number alone is its spread around 1",
        {"enum": ["none"]},
        {"type": "number", "minimum": 0},
        {"lognormal": 0.3},
        spread=True,
    ),
]
