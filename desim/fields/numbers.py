"""Numbers with bounds and units as pydantic types; refusals say what was found and allowed."""

import math
import os
import re
from collections.abc import Callable
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
from desim.errors import refusal, show

T = TypeVar("T")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
LARGEST = 2**63 - 1


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


def whole(value: object, least: int, most: int = LARGEST) -> int:
    """`value` as an int within bounds; 1e3 is accepted as 1000, true and 1.5 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    bounds = f"a whole number, {least} to {most}"
    if most >= LARGEST:
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


def _path(what: str, whose: str) -> Any:
    about = f"a {what}, relative to the scenario's{whose}"
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


def wholes(least: int, most: int = LARGEST) -> tuple[Any, Any]:
    """Annotations of a whole number within bounds."""
    bounds = {"minimum": least} | ({} if most == LARGEST else {"maximum": most})
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
Rate = Annotated[float, *_quantity(units.rate, "a rate", units.RATE, "50 /s", "inf")]
Speed = Annotated[float, *_quantity(units.speed, "a speed", units.SPEED, "50 /s", "inf")]
Fraction = Annotated[float, *_quantity(units.fraction, "a fraction, 0 to 1", units.SHARE, "20 %")]
Share = Annotated[float, *_quantity(share, "a fraction above 0, to 1", units.SHARE, "50 %")]
File = Annotated[Path, *_path("file", " folder")]
Folder = Annotated[Path, *_path("folder", "")]
Several = Annotated[tuple[T, ...], BeforeValidator(_list)]
