"""Estimates as people read them: never, infinite and diverged are three things."""

import math
from collections.abc import Iterable
from typing import Any

from desim.amounts import NO_NOISE, amount, epsilon


def is_final(measure: str) -> bool:
    """Whether a measure is the value of a metric at the end."""
    return measure.startswith("final ")


def awaited(measure: str) -> str:
    """The measure that is infinite where this one's target was never met; "" where it has none."""
    kind, to, target = measure.partition(" to ")
    return f"time to {target}" if to and not is_final(kind) else ""


def estimate(row: Any, seeds: int, bare: bool = False) -> str:
    """The estimate over so many seeds; row: measure, unit, value, never, diverged.

    bare: what is private was released without noise.
    """
    if is_final(row.measure):
        if math.isnan(row.value):
            return "diverged" if row.diverged else amount(row.value)
        some = f" ({row.diverged} of {seeds} diverged)" if row.diverged else ""
        return amount(row.value, row.unit) + some
    if row.measure.startswith("epsilon") and not (math.isinf(row.value) and 2 * row.never >= seeds):
        return one_epsilon(row.value, bare)
    return amount(row.value, row.unit)


def one_epsilon(value: float, bare: bool = False) -> str:
    """An epsilon of something that happened: infinite, never never."""
    if math.isinf(value) and bare:
        return NO_NOISE
    return amount(value) if math.isnan(value) else epsilon(value)


def seeds_played(seeds: Iterable[int]) -> str:
    """Seeds as a caption says them: seeds 0 to 9; seeds 1, 4, 7."""
    found = sorted(seeds)
    if len(found) == 1:
        return f"seed {found[0]}"
    if found == list(range(found[0], found[-1] + 1)):
        return f"seeds {found[0]} to {found[-1]}"
    return f"seeds {', '.join(map(str, found))}" if len(found) <= 8 else f"{len(found)} seeds"


def ratio(row: Any) -> str:
    """A ratio or difference of pairs; row: measure, unit, value, pairs, counted, neither.

    With how many pairs are behind it where that is not all of them.
    """
    if not row.counted:
        if row.neither == row.pairs:
            return "neither met it"
        if is_final(row.measure):
            return "diverged"
        return "both infinite" if row.measure.startswith("epsilon") else "both 0"
    endless = math.isinf(row.value) and row.measure.startswith("epsilon")
    value = "infinite" if endless else amount(row.value, row.unit)
    return value if row.counted == row.pairs else f"{value} ({row.counted} of {row.pairs} pairs)"
