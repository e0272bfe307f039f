"""Text such as "20 ms" as a float in desim's units: s, bit/s, 1/s, B, W, J.

No other file parses units. Bare numbers are already in desim's units. Every function raises
ValueError, with the text found and the units allowed, on a wrong unit, a negative number, NaN, and
infinity where it has no meaning. Conversion is exact and rounds once: "20 ms" is the float 0.02.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from desim.errors import refusal, spelling

Units = Mapping[str, Fraction]

MILLI, MICRO, NANO = Fraction(1, 10**3), Fraction(1, 10**6), Fraction(1, 10**9)
TIME: Units = {
    "ns": NANO,
    "us": MICRO,
    "µs": MICRO,
    "ms": MILLI,
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
BANDWIDTH: Units = {
    "bit/s": Fraction(1),
    "kbit/s": Fraction(10**3),
    "Mbit/s": Fraction(10**6),
    "Gbit/s": Fraction(10**9),
    "B/s": Fraction(8),
    "kB/s": Fraction(8 * 10**3),
    "MB/s": Fraction(8 * 10**6),
    "GB/s": Fraction(8 * 10**9),
}
RATE: Units = {
    "/s": Fraction(1),
    "/ms": Fraction(10**3),
    "/min": Fraction(1, 60),
    "/h": Fraction(1, 3600),
}
OPERATIONS: Units = {
    "FLOP/s": Fraction(1),
    "kFLOP/s": Fraction(10**3),
    "MFLOP/s": Fraction(10**6),
    "GFLOP/s": Fraction(10**9),
    "TFLOP/s": Fraction(10**12),
}
SPEED: Units = {**RATE, **OPERATIONS}
SIZE: Units = {
    "B": Fraction(1),
    "kB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "MiB": Fraction(2**20),
    "GiB": Fraction(2**30),
}
POWER: Units = {"W": Fraction(1), "mW": MILLI, "uW": MICRO, "kW": Fraction(10**3)}
PER_BYTE: Units = {  # joules for a byte
    "J/B": Fraction(1),
    "mJ/B": MILLI,
    "uJ/B": MICRO,
    "nJ/B": NANO,
    "J/kB": MILLI,
    "J/MB": MICRO,
    "J/GB": NANO,
    "uJ/bit": 8 * MICRO,
    "nJ/bit": 8 * NANO,
    "kWh/GB": 3_600_000 * NANO,
}
ENERGY: Units = {
    "J": Fraction(1),
    "kJ": Fraction(10**3),
    "MJ": Fraction(10**6),
    "mWh": Fraction(36, 10),
    "Wh": Fraction(3600),
    "kWh": Fraction(3_600_000),
}
SHARE: Units = {"%": Fraction(1, 100)}
FRACTION = "a fraction from 0 to 1, or a percentage such as 1 %"

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"\s*({NUMBER})\s*(\S.*?)?\s*")
_INFINITE = ("inf", "+inf", ".inf")


def seconds(value: object, above: bool = False) -> float:
    """A finite duration in seconds: "20 ms" is 0.02. above: 0 is none, here as below."""
    return _read(value, TIME, "a duration such as 20 ms", above=above)


def bits_per_second(value: object, above: bool = False) -> float:
    """A bandwidth in bit/s: "10 Mbit/s" is 1e7, "1 MB/s" is 8e6; inf: sending takes no time."""
    return _read(value, BANDWIDTH, "a bandwidth such as 10 Mbit/s", True, above)


def rate(value: object) -> float:
    """A rate in 1/s: "50 /s" is 50; inf: the work takes no time."""
    return _read(value, RATE, "a rate such as 50 /s", infinite=True)


def speed(value: object, above: bool = False, infinite: bool = True) -> float:
    """A rate in 1/s, or floating point operations in a second: "10 GFLOP/s" is 1e10."""
    return _read(value, SPEED, "a speed such as 50 /s or 10 GFLOP/s", infinite, above)


def size(value: object, above: bool = False) -> float:
    """A finite number of bytes: "2 GB" is 2e9."""
    return _read(value, SIZE, "a size such as 2 GB", above=above)


def watts(value: object) -> float:
    """A finite power: "800 mW" is 0.8."""
    return _read(value, POWER, "a power such as 7.4 W")


def joules_a_byte(value: object) -> float:
    """What a byte costs: "2 uJ/B" is 2e-6."""
    return _read(value, PER_BYTE, "joules for a byte such as 2 uJ/B")


def joules(value: object, above: bool = False) -> float:
    """An energy: "10 Wh" is 36000."""
    return _read(value, ENERGY, "an energy such as 10 Wh", above=above)


def fraction(value: object) -> float:
    """A fraction in [0, 1]: "1 %" is 0.01."""
    share = _read(value, SHARE, FRACTION)
    if share > 1:
        raise ValueError(refusal(value, FRACTION))
    return share


def _read(
    value: object, units: Units, what: str, infinite: bool = False, above: bool = False
) -> float:
    least = "> 0" if above else ">= 0"
    allowed = f"{what} ({', '.join(units)}), or a bare number {least}" if units != SHARE else what
    allowed += ", or inf" if infinite else ""
    if isinstance(value, str):
        number = _parse(value, units, allowed)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.nan
    else:
        raise ValueError(refusal(value, allowed))
    out = number < 0 or (above and number == 0) or (math.isinf(number) and not infinite)
    if math.isnan(number) or out:
        raise ValueError(refusal(value, allowed))
    return number


def _parse(text: str, units: Units, allowed: str) -> float:
    if text.strip() in _INFINITE:
        return math.inf
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(refusal(text, allowed))
    unit = match[2] or ""
    if unit and unit not in units:
        raise ValueError(
            f"found unit {unit!r} in {text!r}; allowed: {allowed}{spelling(unit, units)}"
        )
    number = float(match[1])
    if number == 0 or math.isinf(number):
        if math.isinf(number):
            raise ValueError(f"found {text!r}, which is too large; allowed: {allowed}")
        return 0.0
    try:
        return float(Fraction(match[1]) * units.get(unit, Fraction(1)))
    except OverflowError:
        raise ValueError(f"found {text!r}, which is too large; allowed: {allowed}") from None
