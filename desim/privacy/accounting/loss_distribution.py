"""A final epsilon by privacy loss distributions: sharper than divergences, too slow for a curve.

The profile of a release is replaced by its chords between the points of a grid, which dominates it
(Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, "Connect the dots"); losses of releases add
up, by a Fourier transform. What may round the wrong way is added to delta: losses beyond the grid,
which a Chernoff bound limits, and the rounding of the transform.

Known: a Gaussian; a Laplace vector, whose trade-off function is at least that of one coordinate
with the whole L1 sensitivity (Dong, Roth and Su 2022, Thm 2.14, along the coordinates); pure DP; a
Gaussian on a secret batch. Not known: zCDP of vectors.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from math import ceil, exp, expm1, log, log1p, log2, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.privacy.accounting.gaussian import Kind, delta_of, epsilon_of, profile
from desim.privacy.accounting.prices import ORDERS, Counted, Tally, divergences

CURVE_DELTA = 1e-5  # delta at which a curve that is told is as fine as epsilon
LEAST = 1e-10  # delta below which the rounding of the transform counts
TAIL = 1e-6  # part of delta that losses beyond the grid may take
FINE = 2e-5  # variance of the loss that the grid may add, relative
POINTS_FROM, POINTS_TO = 14, 19  # log2 of the number of points
FARTHEST = 256.0  # the largest loss on a grid
STEEPEST = 400.0  # square of tilt times deviation, of a Chernoff bound
DIFFERENT = 256  # tallies that are worth their time
AFFORDED = 1 << 23  # points of the distributions of all kinds together
ROUNDING = 4e-16  # relative, of a factor of the transform


class Grid(NamedTuple):
    """Losses i step, i = -points / 2 .. points / 2; tail: what a kind may have beyond it."""

    step: float
    points: int
    tail: float


class Masses(NamedTuple):
    """What a release has at losses -n .. n steps (2 n + 1,), and at infinite loss."""

    finite: Array
    infinite: float


def epsilon_pld(tally: Tally | None, delta: float) -> float:
    """Epsilon at `delta` of an agent's releases; nan where no distribution is known or affordable.

    An upper bound, and but for some 1e-5 of it what the pairs of `gaussian` cost that dominate.
    """
    if tally is None or tally.counted is None or (tally.counted and delta < LEAST):
        return float("nan")
    if tally.exact or tally.lost:
        return float(epsilon_of(np.sqrt(tally.mu2), delta))
    return float(np.max([_epsilon(parts, delta) for parts in _ways(tally.parts())]))


def _ways(parts: Counted | None) -> list[Counted | None]:
    """The pairs of releases, and the same the other way round where that is another one."""
    back = parts and tuple((kind.back, number) for kind, number in parts)
    return [parts] if back == parts else [parts, back]


def curve_pld(tally: Tally) -> tuple[Array, Array] | None:
    """Points (n,) of epsilon >= 0 and delta that an agent's releases hold to, all of them.

    None where no distribution is known or affordable.
    """
    deltas, step = list[Array](), 0.0
    for parts in [] if tally.lost else _ways(tally.parts()):
        if (found := _together(parts, CURVE_DELTA)) is None:
            return None
        deltas.append(_profile(*found)[0])
        step = found[2]  # both ways have one grid
    if not deltas:
        return None
    return np.arange(len(deltas[0]), dtype=float) * step, np.max(deltas, axis=0)


def delta_at(tally: Tally, epsilon: Array) -> Array:
    """Least delta (n,) at epsilons (n,) that is proved of an agent's releases."""
    if tally.lost:
        return np.ones(len(epsilon))
    if tally.exact:
        return delta_of(epsilon, np.sqrt(tally.mu2))
    found = delta_of(epsilon, np.sqrt(tally.known))
    if (points := curve_pld(tally)) is not None:
        place = np.searchsorted(points[0], epsilon, side="right") - 1  # delta falls
        found = np.minimum(found, points[1][place])
    return np.asarray(np.where(epsilon >= tally.pure, 0.0, found))


def spent(tallies: Sequence[Tally], delta: float) -> tuple[Array, str]:
    """The least epsilons (n,) that are proved, and the method of the largest of them."""
    bounds = [one.bound(delta) for one in tallies]
    final = np.array([epsilon for epsilon, _ in bounds])
    sharp = sharpen(final, dict(enumerate(tallies)), delta)
    worst = int(final.argmax())
    return final, "PLD" if sharp[worst] else bounds[worst][1]


def sharpen(final: Array, counted: Mapping[int, Tally], delta: float) -> NDArray[np.bool_]:
    """Lower epsilons `final` (agents,) to what these tallies cost, where that is less; tell where.

    Of many different tallies, only of those of the agents that have spent most.
    """
    sharp = np.zeros(len(final), bool)
    mixed = {i: one for i, one in counted.items() if one.counted and np.isfinite(final[i])}
    found: dict[Hashable, float] = {}
    for i in sorted(mixed, key=lambda i: -final[i]):
        key = mixed[i].mu2, mixed[i].counted
        if key not in found and len(found) < DIFFERENT:
            found[key] = epsilon_pld(mixed[i], delta)
        if key in found:
            epsilon = found[key]
            sharp[i] = epsilon <= final[i]  # not so where it is nan
            final[i] = epsilon if sharp[i] else final[i]
    return sharp


@lru_cache(maxsize=4096)
def _epsilon(parts: Counted | None, delta: float) -> float:
    found = _together(parts, delta)
    return float("nan") if found is None else _crossing(*found, delta)


def _together(parts: Counted | None, delta: float) -> tuple[Array, float, float] | None:
    """What `composed` says of these releases, and the step of its grid; None if there is none."""
    found = grid(parts, delta) if parts else None
    if parts is None or found is None:
        return None
    lattice, tilt = found
    return *composed(parts, lattice, tilt), lattice.step


def grid(parts: Counted, delta: float) -> tuple[Grid, float] | None:
    """A grid for these releases, and the tilt of the Chernoff bound; None: none would do."""
    number = float(sum(count for _, count in parts))
    total = np.sum([count * divergences(kind) for kind, count in parts], axis=0)
    reach = total - log(TAIL * delta) / (ORDERS - 1.0)
    spread = 2.0 * float(total[0] / ORDERS[0])
    tame = (ORDERS - 1.0) ** 2 * spread < STEEPEST  # else the grid itself counts in the bound
    best = int(np.argmin(np.where(tame, reach, np.inf)))
    farthest = float(reach[best])
    if not farthest < FARTHEST or spread / number <= 0.0:
        return None
    # powers of 2, so that accounts that are much alike share their grid, and what is known of it
    span, fine = log2(2.0 * farthest), log2(sqrt(6.0 * FINE * spread / number))
    largest = min(POINTS_TO, int(log2(AFFORDED / len(parts))))
    step = 2.0 ** ceil(max(min(fine, span - POINTS_FROM), span - largest))
    points = 2 ** ceil(log2(2.0 * farthest / step + 4.0))
    rare = 2.0 ** ceil(log2(number))
    return Grid(step, points, TAIL * delta / rare), float(ORDERS[best] - 1.0)


@lru_cache(maxsize=128)
def masses(kind: Kind, lattice: Grid) -> Masses:
    """The discrete law of the loss of one release: chords of its profile between the points.

    A pair has at -l e^-l of the mass that it has at l the other way round.
    """
    h, most = lattice.step, lattice.points // 2 - 1
    loss = np.arange(most + 1, dtype=float) * h
    known = [profile(one, loss) for one in dict.fromkeys((kind, kind.back))]
    ends = [int(np.searchsorted(-one, -lattice.tail)) for one in known]
    n = max(min(max(ends), most), 1)
    above, back = _above(known[0][: n + 1], h), _above(known[-1][: n + 1], h)
    below = back * np.exp(-h * np.arange(1, n + 1))
    infinite = float(known[0][n])
    at_zero = max(1.0 - infinite - above.sum() - below.sum(), 0.0)
    return Masses(np.concatenate([below[::-1], [at_zero], above]), infinite)


def _above(known: Array, h: float) -> Array:
    """Masses (n,) at losses h, 2 h, .. of a profile (n + 1,) at 0, h, .."""
    fall = np.minimum(np.diff(np.minimum.accumulate(known)), 0.0)
    above = np.empty(len(fall))
    above[:-1] = (fall[1:] - exp(h) * fall[:-1]) / expm1(h)
    above[-1] = fall[-1] / expm1(-h)
    return np.maximum(above, 0.0)


@lru_cache(maxsize=256)
def _log_transform(kind: Kind, lattice: Grid) -> NDArray[np.complex128]:
    finite = masses(kind, lattice).finite
    n = len(finite) // 2
    around = np.zeros(lattice.points)
    around[: n + 1], around[-n:] = finite[n:], finite[:n]
    factor = np.fft.rfft(around)
    return np.asarray(np.log(np.where(np.abs(factor) < 1e-300, 1e-300, factor)))


def composed(parts: Counted, lattice: Grid, tilt: float) -> tuple[Array, float]:
    """Masses (points / 2,) at the losses 0, step, .. of all releases, and what delta has besides.

    Losses beyond the grid come back at its other end; at most E e^(tilt loss) e^(-tilt end) do.
    """
    half = lattice.points // 2
    exponent = np.zeros(half + 1, complex)
    bound, lost, number = -tilt * lattice.step * half, 0.0, 0
    for kind, count in parts:
        exponent += count * _log_transform(kind, lattice)
        finite, infinite = masses(kind, lattice)
        losses = lattice.step * (np.arange(len(finite)) - len(finite) // 2)
        bound += count * (tilt * losses[-1] + log(finite @ np.exp(tilt * (losses - losses[-1]))))
        lost += count * log1p(-infinite) if infinite < 1.0 else -np.inf
        number += count
    around = np.fft.irfft(np.exp(exponent), lattice.points)[:half]
    beyond = exp(min(bound, 0.0))
    return np.maximum(around, 0.0), beyond - expm1(lost) + ROUNDING * (number + 64)


def _crossing(mass: Array, besides: float, step: float, delta: float) -> float:
    """The least epsilon >= 0 with delta >= besides + sum of mass (1 - e^(epsilon - loss)) above."""
    if besides >= delta:
        return float("nan")
    at_points, whole, light = _profile(mass, besides, step)
    first = int(np.argmax(at_points <= delta))
    if first == 0:
        return 0.0 if at_points[0] <= delta else float("nan")
    return log((besides + float(whole[first]) - delta) / float(light[first]))


def _profile(mass: Array, besides: float, step: float) -> tuple[Array, Array, Array]:
    """Delta (n,) at the epsilons 0, step, ..; mass from there on, and the same times e^-loss."""
    weight = np.exp(-step * np.arange(len(mass)))
    whole = np.cumsum(mass[::-1])[::-1]
    light = np.cumsum((mass * weight)[::-1])[::-1]
    return besides + whole - light / weight, whole, light
