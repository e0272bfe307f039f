"""How fast agents compute: per-example gradient evaluations per second."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from desim import keys
from desim.distributions import Distribution, bounds
from desim.errors import InputError
from desim.kernels.speed import DRAWN, IN_TURN, OVER_TIME, Speeds, speeds_into
from desim.keys import Stream, seed_word
from desim.network.measured import arrays, faulty, select, whose
from desim.network.traces import RateTraces
from desim.readers import csv_frame

DEVICE = 1  # sub-counter of the draw, apart from that of speeds
NOTHING = Distribution(0, 1.0)


@dataclass(frozen=True)
class Drawn:
    """Speeds of a law in 1/s, or (inverse) one of the time of a gradient, in s."""

    law: Distribution
    inverse: bool = False


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


@dataclass(frozen=True)
class Slowness:
    """A share `fraction` of agents slower by `factor`, and spells in which all are by `spell`.

    every, lasting: durations s between two spells of an agent, and of one.
    """

    fraction: float = 0.0
    factor: float = 1.0
    spell: float = 1.0
    every: Distribution = NOTHING
    lasting: Distribution = NOTHING


def speed_model(
    law: Drawn | MeasuredSpeeds | RateTraces,
    slow: Slowness,
    redraw: bool,
    agents: int,
    seed: int,
) -> Speeds:
    """Speeds of `agents` agents.

    There are round(fraction agents) slow agents. redraw: a new speed every round, else one speed
    per agent and run.
    """
    devices = np.array([np.ones(agents), np.zeros(agents)])
    order = keys.permutation(seed, Stream.SPEED, agents)
    devices[0, order[: round(slow.fraction * agents)]] = slow.factor
    drawn, measured = law if isinstance(law, Drawn) else Drawn(NOTHING), np.empty((1, 0))
    whose, turns, loops = np.empty((2, 0), np.int64), DRAWN, False
    if isinstance(law, MeasuredSpeeds):
        measured, whose = np.concatenate(law.devices)[None], _devices(law, agents, seed)
        turns, loops = IN_TURN if law.in_turn else DRAWN, law.loops
    elif isinstance(law, RateTraces):
        whose, devices[1] = law.played(np.arange(agents), seed, Stream.SPEED)
        measured, turns, loops = law.samples, OVER_TIME, law.loops
    return Speeds(
        seed_word(seed),
        _plain(drawn.law),
        drawn.inverse,
        devices,
        redraw,
        measured,
        whose,
        turns,
        loops,
        (float(slow.spell), (_plain(slow.every), _plain(slow.lasting))),
        np.zeros((3, agents if slow.spell > 1.0 else 0)),
    )


def fastest(speeds: Speeds) -> NDArray[np.float64]:
    """The most gradients per second (agents,) that each agent ever computes; inf if no law says."""
    factor, agents = speeds.devices[0], np.arange(speeds.devices.shape[1])
    if speeds.measured.shape[1] and (speeds.order == OVER_TIME or speeds.redraw):
        row = 1 if speeds.order == OVER_TIME else 0
        spans = zip(*speeds.whose, strict=True)
        most = np.array([speeds.measured[row, first:last].max() for first, last in spans])
    elif speeds.redraw:
        low, high = bounds(speeds.law)
        with np.errstate(divide="ignore"):
            most = np.full(len(factor), np.divide(1.0, low) if speeds.inverse else high)
    else:
        most = np.empty(len(factor))
        speeds_into(speeds, agents, np.ones(len(factor), np.int64), most)
        return most
    return np.asarray(most / factor)


def _plain(law: Distribution) -> tuple[int, float, float]:
    return int(law.kind), float(law.a), float(law.b)


def _devices(law: MeasuredSpeeds, agents: int, seed: int) -> NDArray[np.int64]:
    """Where the speeds of each agent's device begin and end, (2, agents)."""
    which = np.arange(agents) % len(law.devices)
    if law.shuffled:
        which = keys.integers(
            seed, Stream.SPEED, len(law.devices), agent=np.arange(agents), step=DEVICE
        )[:, 0]
    first = np.cumsum([0, *(len(one) for one in law.devices)])
    return np.array([first[which], first[which + 1]])


def measured_speeds(
    path: Path,
    fields: Sequence[str],
    unit: float,
    durations: bool,
    median: float | None,
    *,
    shuffled: bool,
    in_turn: bool,
    loops: bool,
    where: str,
) -> MeasuredSpeeds:
    """Read measured speeds, or durations of one gradient, out of arrays (npz) or columns (csv).

    A row of a matrix is a device; (n,) and (n, 1) are one. fields: which arrays, default all; unit:
    1/s (durations: s) of a 1 in the file; median: 1/s of the median of all values instead, of which
    the others are multiples, as benchmark scores are. InputError at `where` for NaN, 0 and negative
    values.
    """
    header = () if path.suffix == ".npz" else csv_frame(path, where, nrows=0).columns
    if whose(header):
        text = f"found the columns {', '.join(header)}"
        raise InputError(f"{where}: {text}; allowed: one for each device (with agents: order time)")
    found = arrays(path, where, fields)
    devices: list[NDArray[np.float64]] = []
    for name, values in select(found, fields or list(found), where).items():
        if values.ndim not in (1, 2) or not values.size:
            text = f"found {name} of shape {values.shape}; allowed: values, or devices x values"
            raise InputError(f"{where}: {text}")
        faulty(values, where, "a speed", name)
        if not values.all():
            what = "takes no time" if durations else "never ends"
            text = f"found 0 in {name}: a computation that {what}"
            raise InputError(f"{where}: {text}; allowed: values > 0")
        flat = values.ndim == 1 or values.shape[1] == 1
        rows = values.reshape(1, -1) if flat else values
        with np.errstate(over="ignore", divide="ignore"):
            made = [1.0 / (row * unit) if durations else row * unit for row in rows]
        if not all(((row > 0.0) & np.isfinite(row)).all() for row in made):
            text = f"found {values.min():g} to {values.max():g} in {name}"
            raise InputError(f"{where}: {text}; allowed: speeds that are numbers in 1/s")
        devices += made
    if not devices:
        raise InputError(f"{where}: {path} holds no array of numbers; allowed: at least one value")
    if median is not None:
        share = median / float(np.median(np.concatenate(devices)))
        devices = [row * share for row in devices]
    return MeasuredSpeeds(tuple(devices), shuffled, in_turn, loops)
