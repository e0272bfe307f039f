"""Amounts as people read them: 1.23 MB, 51.8 s, never."""

import math
from collections.abc import Iterable

SIZES = ("B", "kB", "MB", "GB")
NO_NOISE = "infinite (no noise)"  # the epsilon of what is released as it is
WITHOUT_NOISE = "infinite: released without noise"  # how an account flags it


def size(count: float) -> str:
    """Bytes, readable: 1.23 MB."""
    for unit in SIZES:
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def amount(value: float, unit: str = "") -> str:
    """A number with its unit: 1.23 MB, 51.8 s; inf is never, nan -."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never" if value > 0 else "-infinite"
    if unit == "B":
        return size(value)
    return f"{value:.4g}" + (f" {unit}" if unit else "")


def epsilon(value: float, flags: Iterable[str] = ()) -> str:
    """An epsilon, readable: 3.421, infinite; flags: of its account, which may say why."""
    if not math.isinf(value):
        return f"{value:.4g}"
    return NO_NOISE if any(one.startswith(WITHOUT_NOISE) for one in flags) else "infinite"


def duration(seconds: float) -> str:
    """Real time, readable: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
