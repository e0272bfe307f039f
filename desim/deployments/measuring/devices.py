"""How fast devices compute, by how long their computations took: fixed costs and costs per row."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.deployments.measuring.robust import TO_DEVIATION, fitted
from desim.deployments.measuring.samples import Samples

LEAST = 3  # computations of which anything is told
ALIKE = 1.2  # times the least work that the most must be, to tell a fixed cost
UNTOLD = 0.5  # relative standard error from which on a fixed cost is not told
TINY = 1e-3  # of a computation: a fixed cost below is none
VARIES = 0.05  # a spread within a device that is told
STEADY = 0.02  # a spread that is left out
FAR = 2.0  # times the spread within devices that the one between them must be, to tell them apart


@dataclass(frozen=True)
class Devices:
    """Gradients of one row per second, and what a computation costs besides.

    speeds (agents,): of each device, 1/s, nan where it is not known; speed, error: their median,
    with its relative standard error; spread: sigma of the logarithms between devices; within: of
    one device's computations; overhead s, its relative error, and whether the work tells it; left,
    late, r2 (of logarithms): how well that fits; work: the least and the most; measured: speeds
    (n,) of each.
    """

    speeds: Array
    speed: float
    error: float
    spread: float
    within: float
    overhead: float
    overhead_error: float
    told: bool
    computations: int
    left: float
    late: float
    r2: float
    work: tuple[float, float]
    measured: tuple[Array, ...]

    @property
    def varies(self) -> bool:
        """Whether the speed of a device changes from computation to computation."""
        return self.within > VARIES

    @property
    def sigma(self) -> float:
        """Of the logarithm of a law of all speeds: between devices and within them."""
        return float(np.hypot(self.spread * self.differ, self.within * self.varies))

    @property
    def differ(self) -> bool:
        """Whether devices are told apart: they differ by more than their own computations do."""
        return self.spread > max(STEADY, FAR * self.within / float(np.sqrt(self._each)))

    @property
    def _each(self) -> float:
        return max(1.0, self.computations / max(1, int(np.isfinite(self.speeds).sum())))


def like(one: Devices, share: Array) -> Devices:
    """Devices that are `share` (n,) times as fast as one, in their fixed costs, too.

    Of these the median's is told, as all have the same.
    """
    speeds = one.speed * share
    middle = float(np.median(share))
    spread = float(np.std(np.log(share)))
    return replace(
        one, speeds=speeds, speed=one.speed * middle, spread=spread, within=0.0,
        overhead=one.overhead / middle, measured=tuple(speeds[:, None]),
    )  # fmt: skip


def devices_of(samples: Samples) -> Devices | None:
    """What the computations tell of the devices; None where there are too few."""
    table = samples.computations
    table = table[(table["seconds"] > 0.0) & (table["work"] > 0.0)]
    if len(table) < LEAST:
        return None
    work, seconds = (table[name].to_numpy(float) for name in ("work", "seconds"))
    who = table["agent"].to_numpy(np.int64)
    fixed = _fixed(work, seconds, who)
    overhead = fixed.seconds
    rest = np.maximum(seconds - overhead, 1e-3 * seconds)
    pace = work / rest
    speeds = np.full(int(who.max()) + 1, np.nan)
    for one in np.unique(who):
        speeds[one] = np.median(pace[who == one])
    if len(fixed.speeds) == len(np.unique(who)):
        speeds[np.unique(who)] = fixed.speeds
    known = speeds[np.isfinite(speeds)]
    said = overhead + work / speeds[who]
    spread = TO_DEVIATION * float(np.median(np.abs(np.log(known / np.median(known)))))
    spread = max(spread, float(np.std(np.log(known))) if len(known) < 5 else 0.0)
    off = np.abs(np.log(seconds / said))
    within = TO_DEVIATION * float(np.median(off))
    r2 = 1.0 - np.mean(off**2) / max(float(np.var(np.log(seconds))), 1e-300)
    share = 1.2533 * np.hypot(spread / np.sqrt(len(known)), within / np.sqrt(len(pace)))
    if overhead:  # its error is that of every speed
        share = np.hypot(1.2533 * spread / np.sqrt(len(known)), np.median(fixed.errors))
    return Devices(
        speeds, float(np.median(known)), float(share), spread, within, overhead, fixed.error,
        fixed.told, len(table), float(np.median(off)), float(np.quantile(off, 0.95)), float(r2),
        (float(work.min()), float(work.max())),
        tuple(pace[who == one] for one in range(len(speeds))),
    )  # fmt: skip


@dataclass(frozen=True)
class Fixed:
    """A fixed cost s, its relative error, whether the work tells it; speeds 1/s beside it.

    speeds, errors (k,): of each device, or (1,) of all as one; (0,) where no cost is told.
    """

    seconds: float
    error: float
    told: bool
    speeds: Array = field(default_factory=lambda: np.empty(0))
    errors: Array = field(default_factory=lambda: np.empty(0))


def _fixed(work: Array, seconds: Array, who: NDArray[np.int64]) -> Fixed:
    """The fixed cost: by the works of each device, where these differ; else by those of all."""
    names, place = np.unique(who, return_inverse=True)
    wide = [work[who == one].max() >= ALIKE * work[who == one].min() for one in names]
    if not any(wide) and work.max() < ALIKE * work.min():
        return Fixed(0.0, np.inf, False)
    several = all(wide)
    place = place if several else np.zeros(len(work), np.int64)
    count = len(names) if several else 1
    begin = np.array([np.median((work / seconds)[place == one]) for one in range(count)]) * 1.2
    start = np.concatenate([[0.2 * float(seconds.min())], begin])
    fit = fitted(
        lambda at: at[0] + work / at[1:][place], seconds, start,
        None if several else who, whole=True,
    )  # fmt: skip
    error, none = float(fit.errors[0]), bool(fit.values[0] < TINY * float(np.median(seconds)))
    if error > UNTOLD or none:
        return Fixed(0.0, error, none)
    return Fixed(float(fit.values[0]), error, True, fit.values[1:], fit.errors[1:])
