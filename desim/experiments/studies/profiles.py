"""Performance profiles: on what share of problems a method is within a factor of the best.

Dolan, Moré 2002, doi:10.1007/s101070100263. With t_ps what method s takes on problem p:

r_ps = t_ps / min over s of t_ps          the ratio to the best
rho_s(tau) = share of problems with r_ps <= tau

Methods that tie are all the best. A problem that nobody solves counts for nobody, and stays among
all. Data profiles (Moré, Wild 2009) divide evaluations by the price of a simplex gradient, which
seconds and bytes have no counterpart of: the distribution function of times is theirs.
"""

from collections.abc import Sequence

import numpy as np

from desim.arrays import Array, Mask


def ratios(taken: Array) -> Array:
    """Ratios (..., methods, problems) to the best on each problem; inf for never.

    taken: what each takes, inf for never. Where the best takes nothing, ratios are 1 or infinite.
    """
    best = taken.min(axis=-2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = taken / best
    found = np.where(taken == best, 1.0, found)
    return np.asarray(np.where(np.isinf(taken), np.inf, found))


def share_within(values: Array, at: Array) -> Array:
    """Shares (m,) of values (n,) that are at most each of `at` (m,)."""
    places = np.searchsorted(np.sort(values), at, side="right")
    return np.asarray(places / len(values), float)


def steps(values: Array, most: int) -> Array:
    """Where the distribution function of values (n,) rises: at most so many, evenly ranked."""
    found = np.unique(values[np.isfinite(values)])
    if len(found) > most:
        found = found[np.unique(np.linspace(0, len(found) - 1, most).round().astype(int))]
    return np.asarray(found, float)


def ends(shares: Array, level: float) -> tuple[Array, Array]:
    """Lower and upper ends (m,) of the percentile interval of resampled shares (resamples, m)."""
    ordered = np.sort(shares, axis=0)
    cut = int(0.5 * (1.0 - level) * len(ordered))
    return np.asarray(ordered[cut]), np.asarray(ordered[-1 - cut])


def expected_all(spent: Sequence[Array], met: Sequence[Array | Mask], drawn: Array) -> Array:
    """Resampled ERTs (m, pairs) of what runs spent and whether they met it, each (seeds,).

    drawn (m, seeds): how often each seed is in a resample; nan: the seed has no run.
    """
    known = [~np.isnan(one) for one in spent]
    sums = drawn @ np.array([np.where(k, one, 0.0) for k, one in zip(known, spent, strict=True)]).T
    counts = drawn @ np.array([np.where(k, one, 0.0) for k, one in zip(known, met, strict=True)]).T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 0.0, sums / counts, np.inf))
