"""Clocks of hosts brought together: exchanges of stamps, of which the fastest says the most.

A host's clock read `there` between `sent` and `came` of the own one: it is ahead by there - (sent +
came) / 2, to within half of came - sent.
"""

from typing import NamedTuple

EXCHANGES = 20
TOLERANCE = 1e-6  # relative: what good clocks drift by anyway


class Offset(NamedTuple):
    """By how many s a host's clock is ahead of this one's, to within `error` s, at `time` s."""

    ahead: float
    error: float
    time: float


def exchanged(sent: float, there: float, came: float) -> Offset:
    """What one exchange says."""
    return Offset(there - 0.5 * (sent + came), 0.5 * (came - sent), came)


def best(found: list[Offset]) -> Offset:
    """The one with the smallest error."""
    return min(found, key=lambda one: one.error)


def drift(first: Offset, last: Offset) -> float:
    """By how many s a clock has moved for sure between two offsets; 0 within their errors."""
    moved = abs(last.ahead - first.ahead)
    sure = moved - first.error - last.error - TOLERANCE * (last.time - first.time)
    return moved if sure > 0.0 else 0.0
