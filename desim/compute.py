"""How fast agents compute: per-example gradient evaluations per second."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from desim import keys
from desim.distributions import Distribution
from desim.errors import InputError
from desim.kernels.speed import Speeds
from desim.keys import Stream
from desim.network.measured import arrays, faulty, select

DEVICE = 1  # sub-counter of the draw, apart from that of speeds


@dataclass(frozen=True)
class MeasuredSpeeds:
    """Speeds 1/s of devices, one array each; shuffled: agents draw their device, else in order.

    in_turn: a device goes through its speeds round by round, and at the end begins again (loops)
    or stays at the last; else every speed is drawn among them.
    """

    devices: tuple[NDArray[np.float64], ...]
    shuffled: bool
    in_turn: bool
    loops: bool

    @property
    def shortest(self) -> int:
        """Rounds that the device with the fewest speeds lasts."""
        return min(len(one) for one in self.devices)


def speed_model(
    law: Distribution | MeasuredSpeeds,
    fraction: float,
    factor: float,
    redraw: bool,
    agents: int,
    seed: int,
) -> Speeds:
    """Speeds of `agents` agents: `law` in 1/s, divided by `factor` for some that are drawn.

    There are round(fraction agents) slow agents. redraw: a new speed every round, else one speed
    per agent and run.
    """
    divisors = np.ones(agents)
    count = round(fraction * agents)
    order = keys.permutation(seed, Stream.SPEED, agents)
    divisors[order[:count]] = factor
    if isinstance(law, Distribution):
        drawn = (int(law.kind), float(law.a), float(law.b))
        nothing = np.empty(0), np.empty((2, 0), np.int64), False, False
        return Speeds(np.uint64(seed), drawn, divisors, redraw, *nothing)
    which = np.arange(agents) % len(law.devices)
    if law.shuffled:
        which = keys.integers(
            seed, Stream.SPEED, len(law.devices), agent=np.arange(agents), step=DEVICE
        )[:, 0]
    first = np.cumsum([0, *(len(one) for one in law.devices)])
    whose = np.array([first[which], first[which + 1]])
    measured = np.concatenate(law.devices)
    constant = (0, 1.0, 0.0)
    return Speeds(
        np.uint64(seed), constant, divisors, redraw, measured, whose, law.in_turn, law.loops
    )


def measured_speeds(
    path: Path,
    fields: Sequence[str],
    unit: float,
    durations: bool,
    *,
    shuffled: bool,
    in_turn: bool,
    loops: bool,
    where: str,
) -> MeasuredSpeeds:
    """Read measured speeds, or durations of one gradient, out of arrays (npz) or columns (csv).

    A row of a matrix is a device; (n,) and (n, 1) are one. fields: which arrays, default all; unit:
    1/s (durations: s) of a 1 in the file. InputError at `where` for NaN, 0 and negative values.
    """
    found = arrays(path, where)
    devices: list[NDArray[np.float64]] = []
    for name, values in select(found, fields or list(found), where).items():
        if values.ndim > 2 or not values.size:
            text = f"found {name} of shape {values.shape}; allowed: values, or devices x values"
            raise InputError(f"{where}: {text}")
        faulty(values, where, "a speed", name)
        if not values.all():
            what = "takes no time" if durations else "never ends"
            text = f"found 0 in {name}: a computation that {what}"
            raise InputError(f"{where}: {text}; allowed: values > 0")
        flat = values.ndim == 1 or values.shape[1] == 1
        rows = values.reshape(1, -1) if flat else values
        devices += [1.0 / (row * unit) if durations else row * unit for row in rows]
    if not devices:
        raise InputError(f"{where}: {path} holds no array of numbers; allowed: at least one value")
    return MeasuredSpeeds(tuple(devices), shuffled, in_turn, loops)
