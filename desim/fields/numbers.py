"""Numbers with bounds and units as pydantic types; refusals say what was found and allowed."""

import math
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from desim import units
from desim.errors import refusal, show, spelling
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

T = TypeVar("T")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
MAX_WHOLE = 2**63 - 1


def number(value: object, allowed: str, fits: Callable[[float], bool]) -> float:
    """`value` as a finite float for which `fits` holds; ValueError naming what is `allowed`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            result = float(value)
        except OverflowError:
            raise ValueError(refusal(value, f"{allowed}, within floating point")) from None
        if math.isfinite(result) and fits(result):
            return result
    raise ValueError(refusal(value, allowed))


def whole(value: object, least: int, most: int = MAX_WHOLE) -> int:
    """`value` as an int within bounds; 1e3 is accepted as 1000, true and 1.5 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    bounds = f"a whole number, {least} to {most}"
    if most >= MAX_WHOLE:
        huge = isinstance(value, int) and value > most
        bounds = f"a whole number >= {least}" + (" and below 2^63" if huge else "")
    raise ValueError(refusal(value, bounds))


def flag(value: object) -> bool:
    """`value` as a bool, which YAML 1.2 writes true or false."""
    if isinstance(value, bool):
        return value
    raise ValueError(refusal(value, "true or false"))


def text(value: object) -> str:
    """`value` as non-empty text."""
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError(refusal(value, "text"))


def positive(value: object) -> float:
    """A finite number > 0."""
    return number(value, "a number > 0", lambda x: x > 0)


def nonnegative(value: object) -> float:
    """A finite number >= 0."""
    return number(value, "a number >= 0", lambda x: x >= 0)


def finite(value: object) -> float:
    """A finite number."""
    return number(value, "a finite number", lambda x: True)


TARGET: dict[str, Any] = {
    "anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*(\d+\.?\d*|\.\d+)\s*%\s*$"}]
}


def target(value: object) -> float:
    """A finite number that a metric is to meet, or a percentage: "90 %" is 0.9."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return units.fraction(value)
    return number(value, "a finite number, or a percentage such as 90 %", lambda x: True)


def duration(value: object) -> float:
    """A duration > 0 in seconds."""
    return units.seconds(value, above=True)


def share(value: object) -> float:
    """A fraction in (0, 1]."""
    try:
        result = units.fraction(value)
    except ValueError:
        result = 0.0
    if result == 0:
        raise ValueError(refusal(value, "a fraction above 0 and at most 1, or a percentage"))
    return result


def _list(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(value)
    raise ValueError(refusal(value, "a list"))


def existing(value: object, info: ValidationInfo, what: str = "file") -> Path:
    """The absolute path of a file (or `folder`) that exists, from the context's folder on."""
    if isinstance(value, Path):
        return value
    folder = Path((info.context or {}).get("folder", "."))
    written, why = text(value), f"which does not exist in {folder}"
    unset = [name for name in _VARIABLE.findall(written) if not os.environ.get(name)]
    try:
        path = folder / Path(os.path.expandvars(written)).expanduser()
        if path.is_file() if what == "file" else path.is_dir():
            return path.resolve()
        kind = "directory" if path.is_dir() else "file"
        why = f"which is a {kind}" if path.exists() else why
    except (OSError, ValueError, RuntimeError):
        why = f"which cannot be a {what}"
    if unset:
        why = f"but the environment variable {unset[0]} is not set; set it to a folder"
    guide = folder / "README.md"
    hint = f" ({guide} says how to get it)" if _VARIABLE.search(written) and guide.is_file() else ""
    raise ValueError(
        f"found {show(value)}, {why}{hint}; allowed: a {what}, relative to the scenario's folder"
    )


def quantity(accepted: units.Units, words: tuple[str, ...] = ()) -> dict[str, Any]:
    """JSON Schema of a number >= 0, bare or with one of the `accepted` units, or a word."""
    number = units.NUMBER.removeprefix("[+-]?")
    pattern = rf"^\s*\+?{number}\s*({'|'.join(accepted)})?\s*$"
    options: list[dict[str, Any]] = [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": pattern},
    ]
    options += [{"enum": list(words)}] if words else []
    return {"anyOf": options}


def _read(reader: Callable[..., Any], **schema: Any) -> tuple[PlainValidator, WithJsonSchema]:
    """How a type is read, and its JSON Schema."""
    return PlainValidator(reader), WithJsonSchema(schema)


def _number(reader: Callable[[object], float], what: str, **bounds: Any) -> Any:
    return _read(reader, type="number", **bounds, description=what, examples=[0.5])


def _quantity(
    reader: Callable[[object], float], what: str, accepted: units.Units, example: str, *words: str
) -> Any:
    about = f"{what} ({', '.join(accepted)})"
    return _read(reader, **quantity(accepted, words), description=about, examples=[example])


def _path(what: str, place: str) -> Any:
    about = f"a {what}, relative to the scenario's{place}"
    example = "file.csv" if what == "file" else what
    return (
        PlainSerializer(str),
        *_read(
            lambda value, info: existing(value, info, what),
            type="string", description=about, examples=[example],
        ),
    )  # fmt: skip


def within(allowed: str, fits: Callable[[float], bool], **bounds: Any) -> tuple[Any, Any]:
    """Annotations of a finite number for which `fits` holds; bounds: the same as JSON Schema."""
    return _read(lambda value: number(value, allowed, fits), type="number", **bounds)


def wholes(least: int, most: int = MAX_WHOLE) -> tuple[Any, Any]:
    """Annotations of a whole number within bounds."""
    bounds = {"minimum": least} | ({} if most == MAX_WHOLE else {"maximum": most})
    return _read(lambda value: whole(value, least, most), type="integer", **bounds)


def scalars(allowed: str) -> PlainValidator:
    """Annotation of texts or numbers, of which one may stand for a list of it."""

    def read(value: object) -> tuple[str | int | float, ...]:
        found = tuple(value) if isinstance(value, list | tuple) else (value,)
        if all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in found):
            return found
        raise ValueError(refusal(value, allowed))

    return PlainValidator(read)


def sized(example: str) -> tuple[Any, Any]:
    """Annotations of a number of bytes > 0."""
    read = partial(units.size, above=True)
    return cast("tuple[Any, Any]", _quantity(read, "a size > 0", units.SIZE, example))


def counted(what: str) -> tuple[Any, Any]:
    """Annotations of a whole number >= 1, or inf."""

    def read(value: object) -> float:
        if value in (math.inf, "inf", ".inf"):
            return math.inf
        try:
            return float(whole(value, 1))
        except ValueError:
            raise ValueError(refusal(value, what)) from None

    return _read(read, anyOf=[{"type": "integer", "minimum": 1}, {"enum": ["inf"]}])


_bits_per_second = _quantity(
    units.bits_per_second, "a bandwidth", units.BANDWIDTH, "10 Mbit/s", "inf"
)

Number = Annotated[float, *_number(finite, "a finite number")]
Positive = Annotated[float, *_number(positive, "a number > 0", exclusiveMinimum=0)]
Squared = Annotated[  # whose square is a number, too
    float,
    *within("a number > 0, at most 1e150", lambda x: 0 < x <= 1e150,
            exclusiveMinimum=0, maximum=1e150),
]  # fmt: skip
NonNegative = Annotated[float, *_number(nonnegative, "a number >= 0", minimum=0)]
Count = Annotated[
    int, *_read(lambda value: whole(value, 1), type="integer", minimum=1, examples=[10])
]
Whole = Annotated[
    int, *_read(lambda value: whole(value, 0), type="integer", minimum=0, examples=[1])
]
Flag = Annotated[bool, *_read(flag, type="boolean")]
Text = Annotated[str, *_read(text, type="string")]
Seconds = Annotated[float, *_quantity(units.seconds, "a duration >= 0", units.TIME, "20 ms")]
Duration = Annotated[float, *_quantity(duration, "a duration > 0", units.TIME, "20 ms")]
Bandwidth = Annotated[float, *_bits_per_second]
Power = Annotated[float, *_quantity(units.watts, "a power >= 0", units.POWER, "7.4 W")]
Rate = Annotated[float, *_quantity(units.rate, "a rate", units.RATE, "50 /s", "inf")]
Speed = Annotated[float, *_quantity(units.speed, "a speed", units.SPEED, "50 /s", "inf")]
Fraction = Annotated[float, *_quantity(units.fraction, "a fraction, 0 to 1", units.SHARE, "20 %")]
Share = Annotated[float, *_quantity(share, "a fraction above 0, to 1", units.SHARE, "50 %")]
File = Annotated[Path, *_path("file", " folder")]
Folder = Annotated[Path, *_path("folder", "")]
Several = Annotated[tuple[T, ...], BeforeValidator(_list)]


# Durations, rates and factors that may be random: 20 ms, or {uniform: [10 ms, 30 ms]}.


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


def _law(
    what: str, read: Reader, scale: units.Units, example: Any, words: tuple[str, ...] = ()
) -> Any:
    scalar, entry = quantity(scale, words), quantity(scale)
    return (
        PlainValidator(lambda value: distribution(value, read)),
        PlainSerializer(written),
        _schema(f"{what} ({', '.join(scale)}), constant or random", scalar, entry, example),
    )


_duration = _law("a duration", units.seconds, units.TIME, {"uniform": ["10 ms", "30 ms"]})
_speed = _law(
    "a speed",
    partial(units.speed, above=True),
    units.SPEED,
    {"lognormal": ["50 /s", 0.5]},
    ("inf",),
)
_size = _law("a size > 0", partial(units.size, above=True), units.SIZE, "2 GB")
_bandwidth = _law(
    "a bandwidth",
    partial(units.bits_per_second, above=True),
    units.BANDWIDTH,
    "10 Mbit/s",
    ("inf",),
)

_watts = _law("a power", units.watts, units.POWER, {"uniform": ["5 W", "9 W"]})
_a_byte = _law("joules for a byte", units.joules_a_byte, units.PER_BYTE, "2 uJ/B")
_energy = _law("an energy", units.joules, units.ENERGY, {"uniform": ["10 Wh", "15 Wh"]})
_part = _law("a fraction", units.fraction, units.SHARE, {"uniform": ["40 %", "100 %"]})

DurationDist = Annotated[Distribution, *_duration]
WattsDist = Annotated[Distribution, *_watts]
PerByteDist = Annotated[Distribution, *_a_byte]
EnergyDist = Annotated[Distribution, *_energy]
FractionDist = Annotated[Distribution, *_part]
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
