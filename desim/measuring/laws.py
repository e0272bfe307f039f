"""Forward laws: how long messages take by a latency and a rate, one after the other on a line."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array


@dataclass(frozen=True)
class Sent:
    """Messages (n,): when they were handed over, s; how large they are, bits; on which line."""

    begin: Array
    bits: Array
    line: NDArray[np.int64]


Law = Callable[[float, float, Sent], Array]


def ideal(latency: float, rate: float, sent: Sent) -> Array:
    """Seconds (n,) of messages that meet a latency s and a rate bit/s, and nothing else."""
    return latency + sent.bits / rate


LAWS: dict[str, Law] = {"ideal": ideal}
