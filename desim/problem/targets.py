"""When a metric has met its target: at the first touch, or from when on it stays there."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.problem.fairness import RISING


def first_met(metric: str, values: NDArray[np.float64], target: float, stays: bool = False) -> int:
    """The first of values (n,), in order of time, that meets the target; -1 where none does.

    Accuracies meet it when they are at least so large, other metrics when at most. stays: the
    first from which on all do.
    """
    met = values >= target if metric in RISING else values <= target
    if stays:
        missed = np.flatnonzero(~met)
        begin = int(missed[-1]) + 1 if len(missed) else 0
        return begin if begin < len(met) else -1
    return int(np.argmax(met)) if met.any() else -1


def time_met(curve: Any, metric: str, target: float, stays: bool = False) -> float:
    """When a curve, a table with columns time s and value, meets the target; inf where never."""
    place = first_met(metric, curve["value"].to_numpy(float), target, stays)
    return float(curve["time"].iloc[place]) if place >= 0 else float("inf")


def improved(value: NDArray[np.float64], rising: bool) -> float | None:
    """What a metric's values (n,) came to, if the run ended better than it began, else None.

    rising: whether larger is better. It is no better moment on the way, which noise may have made
    and the run did not hold; nor is one without a finite end a ground for a target.
    """
    sign = -1.0 if rising else 1.0
    if len(value) < 2 or not sign * value[-1] < sign * value[0]:
        return None
    return float(value[-1])


def best(value: NDArray[np.float64], rising: bool) -> float:
    """The best of a metric's values (n,): how near a run came to a target that it never met."""
    finite = value[np.isfinite(value)]
    if not len(finite):
        return np.nan
    return float(finite.max() if rising else finite.min())
