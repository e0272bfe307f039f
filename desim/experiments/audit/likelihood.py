"""The log-likelihood ratio of a pair of data sets, given what one play has released."""

import numpy as np

from desim.arrays import Array
from desim.experiments.audit.pairs import PairReleases
from desim.privacy.ledger.ledger import Mechanism

EXACT = frozenset({"GAUSSIAN", "CLIPPED_GAUSSIAN", "DISCRETE_GAUSSIAN"} | {"LAPLACE", "L2_LAPLACE"})
NORMAL = frozenset({"GAUSSIAN", "CLIPPED_GAUSSIAN", "DISCRETE_GAUSSIAN", "NOISY_GRADIENT"})
VARIANCE = {"GAUSSIAN": 1.0, "CLIPPED_GAUSSIAN": 1.0, "LAPLACE": 2.0}  # of noise of scale 1


def likelihood_ratio(pair: PairReleases) -> tuple[float, bool]:
    """(log-likelihood ratio of the data played to their neighbour, whether it is exact).

    The sum over the releases o of log p - log p', where log p is -|o - m|^2 / (2 s^2) - d ln s for
    Gaussian noise and -|o - m| / s - d ln s, in L1 or L2, for Laplace noise, with the mean m given
    the past and the scale s under one side's data and d numbers. Noise inside a kernel is scored as
    if it were Gaussian at the end: a score, but not exact; so is discrete noise of two scales.
    Infinite where something tells the two apart for certain.
    """
    if pair.apart:
        return np.inf, True
    total, exact = 0.0, not pair.partial
    moved = (pair.mean != pair.other).any(axis=1) | (pair.scale != pair.other_scale)
    for code in np.unique(pair.mechanism[moved]):
        name = Mechanism(int(code)).name
        rows = moved & (pair.mechanism == code)
        scales = pair.scale[rows], pair.other_scale[rows]
        exact &= name in EXACT
        exact &= name != "DISCRETE_GAUSSIAN" or bool((scales[0] == scales[1]).all())
        if not (scales[0] > 0.0).all() or not (scales[1] > 0.0).all():
            return np.inf, exact
        total += _sum(name, pair.output[rows], pair.mean[rows], pair.other[rows], *scales)
        if (scales[0] != scales[1]).any():
            total += float((pair.size[rows] * np.log(scales[1] / scales[0])).sum())
    return (0.0, False) if np.isnan(total) else (total, exact)


def _sum(name: str, output: Array, mean: Array, other: Array, s: Array, t: Array) -> float:
    """What the distances of output (n, dim) to mean and other say, at scales s and t (n,)."""
    if name == "LAPLACE":
        one, two = (np.abs(output - m).sum(axis=1) for m in (mean, other))
        return float((two / t - one / s).sum())
    if name == "L2_LAPLACE":
        one, two = (np.linalg.norm(output - m, axis=1) for m in (mean, other))
        return float((two / t - one / s).sum())
    if name not in NORMAL:
        return 0.0
    if (s == t).all():
        middle = output - (mean + other) / 2
        return float((middle * (mean - other) / s[:, None] ** 2).sum())
    one, two = (np.square(output - m).sum(axis=1) for m in (mean, other))
    return float((0.5 * two / t**2 - 0.5 * one / s**2).sum())


def noise_drawn(pair: PairReleases) -> tuple[int, float]:
    """How many noisy numbers there are, and the sum of their squares over declared variance."""
    squares = [
        ((pair.output - pair.mean)[rows] / pair.scale[rows, None]) ** 2 / variance
        for name, variance in VARIANCE.items()
        if (rows := (pair.mechanism == Mechanism[name]) & (pair.scale > 0.0)).any()
    ]
    noise = np.concatenate([np.zeros(0), *(part.ravel() for part in squares)])
    return noise.size, float(noise.sum())


def divergence(pair: PairReleases) -> tuple[bool, float]:
    """(Whether a play tells two data sets apart for certain, how far apart its releases are).

    The sum over releases of |m - m'|^2 / s^2 where there is one scale, else of the two relative
    entropies of normal laws, which come to the same; without noise s is the sensitivity.
    """
    moved = np.linalg.norm(pair.other - pair.mean, axis=1)
    noisy = (pair.scale > 0.0) & (pair.other_scale > 0.0)
    s, t = (np.where(noisy, one, pair.sensitivity) for one in (pair.scale, pair.other_scale))
    fit = np.isfinite(s) & (s > 0.0)
    s, t = np.where(fit, s, 1.0), np.where(fit, t, 1.0)
    far = 0.5 * moved**2 * (1.0 / s**2 + 1.0 / t**2)
    wide = 0.5 * pair.size * ((s / t) ** 2 + (t / s) ** 2 - 2.0)
    return bool(pair.apart), float(np.where(fit, far + wide, 0.0).sum())
