"""The models that a run has kept where a metric first met a target."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Checkpoint(NamedTuple):
    """The network's model when a metric was first seen to be as good as a target.

    time s and round: from when on the model is true; value: of the metric; model (dim,): the
    coordinator's, or the mean of the agents'.
    """

    metric: str
    target: float
    time: float
    round: int
    value: float
    model: NDArray[np.float64]


def checkpoints_of(arrays: Mapping[str, NDArray[Any]]) -> tuple[Checkpoint, ...]:
    """By time, from what is stored; those of targets that were never met are not there."""
    if not arrays:
        return ()
    columns = [arrays[name].tolist() for name in Checkpoint._fields[:-1]]
    rows = zip(*columns, arrays["model"], strict=True)
    return tuple(Checkpoint(*row) for row in rows)
