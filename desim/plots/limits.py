"""What of curves an axis leaves out so that they can be told apart: how they begin."""

from collections.abc import Sequence

import numpy as np

from desim.arrays import Array

Line = tuple[Array, ...]  # abscissae, values, and the two ends of a band where there is one
START = 0.2  # of each curve's own length
GAIN = 0.5  # an axis shorter than this part of the whole is worth it
MARGIN = 0.06
RARE = 0.05  # of a band's ends


def beginning(lines: Sequence[Line], rising: bool) -> tuple[float, list[float]] | None:
    """The limit of an ordinate that leaves out how two curves or more begin, and where they begin.

    rising: whether larger values are better; the limit is on the other side. What curves come to
    after their first fifth stays, and nearly all of their bands. None where that does not stretch
    the axis to twice its length, or a curve never gets better than it began: its beginning is then
    all there is.
    """
    if len(lines) < 2:
        return None
    every = np.concatenate([value for _, *values in lines for value in values])
    later = np.concatenate([_kept(value[_after(x) :]) for x, value, *_ in lines])
    ends = np.concatenate([later, *(_kept(one[_after(x) :], RARE) for x, _, *band in lines
                                    for one in band)])  # fmt: skip
    every = every[np.isfinite(every)]
    firsts = [float(values[0][0]) for _, *values in lines]
    if not len(later) or not np.isfinite(firsts).all():
        return None
    low, high = float(ends.min()), float(ends.max())
    span = high - low
    edge = low - MARGIN * span if rising else high + MARGIN * span
    outside = [one < edge if rising else one > edge for one in firsts]
    gone = (every.max() - edge) if rising else (edge - every.min())
    if not all(outside) or not 0.0 < gone < GAIN * (every.max() - every.min()):
        return None
    return edge, firsts


def _kept(values: Array, rare: float = 0.0) -> Array:
    """The finite ones, without so large a share of the least and of the largest."""
    known = values[np.isfinite(values)]
    if not len(known):
        return known
    return np.quantile(known, [rare, 1.0 - rare], method="nearest")


def _after(x: Array) -> int:
    """The first value (n,) that still holds after the first part of a curve."""
    begin = x[0] + START * (x[-1] - x[0])
    return int(np.searchsorted(x, begin, side="right")) - 1
