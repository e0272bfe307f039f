"""Rules that take the place of a mean where some of n replies (n, dim) may be anything.

Pure functions on arrays. Numbers at the ends are those of this file; f is how many replies may be
anything. Rows are taken in an order of their own (`ordered`), so that the order in which agents are
named changes no bit. What is not finite, or has no finite square, is left out by whoever calls
(`sound`).
"""

import numpy as np

from desim.arrays import Array, Int, Mask

LARGEST = 1e140  # of numbers whose squares can still be added up, by dimensions and replies


def sound(rows: Array) -> Mask:
    """Which (n,) of rows (n, dim) have numbers alone that are finite, and whose squares are."""
    return np.asarray((np.abs(rows) <= LARGEST).all(axis=1))


def ordered(rows: Array) -> Array:
    """Rows (n, dim) in an order that follows from their bits alone."""
    texts = [row.tobytes() for row in np.ascontiguousarray(rows, float)]
    return np.asarray(rows, float)[sorted(range(len(texts)), key=texts.__getitem__)]


def mean_of(rows: Array) -> Array:
    """Mean (dim,) of rows (n, dim)."""
    return np.asarray(np.add.reduce(rows, axis=0) / len(rows))


def coordinate_median(rows: Array) -> Array:
    """Median (dim,) of each coordinate of rows (n, dim); the mean of two if n is even.

    Yin, Chen, Ramchandran, Bartlett 2018 (arXiv 1803.01498), Definition 1.
    """
    n, rows = len(rows), np.sort(rows, axis=0)
    return np.asarray(0.5 * (rows[(n - 1) // 2] + rows[n // 2]))  # (1)


def trimmed_mean(rows: Array, b: int) -> Array:
    """Mean (dim,) of each coordinate of rows (n, dim) without its b largest and smallest values.

    Yin, Chen, Ramchandran, Bartlett 2018 (arXiv 1803.01498), Definition 2; 2 b < n.
    """
    rows = np.sort(rows, axis=0)
    return mean_of(rows[b : len(rows) - b])  # (2)


def squared_distances_between(rows: Array) -> Array:
    """||x_i - x_j||^2 (n, n) of rows (n, dim), computed from differences."""
    found = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        found[i, i + 1 :] = np.add.reduce((rows[i + 1 :] - row) ** 2, axis=1)
    return found + found.T


def krum_scores(rows: Array, f: int) -> Array:
    """Scores (n,) of rows (n, dim): squared distances to the n - f - 2 nearest others, summed.

    Blanchard, El Mhamdi, Guerraoui, Stainer 2017 (arXiv 1703.02757), Section 4; n > 2 f + 2.
    """
    nearest = np.sort(squared_distances_between(rows), axis=1)[:, 1 : len(rows) - f - 1]
    return np.asarray(np.add.reduce(nearest, axis=1))  # (3)


def multi_krum(rows: Array, f: int, m: int) -> Array:
    """Mean (dim,) of the m of rows (n, dim) with the least scores: ibid., Section 5.

    Krum is m = 1. Of rows with one score those that are first in their own order count.
    """
    rows = ordered(rows)
    least = np.argsort(krum_scores(rows, f), kind="stable")[:m]
    return mean_of(rows[np.sort(least)])  # (4)


def geometric_median(
    rows: Array, nu: float, iterations: int, start: Array | None = None
) -> Array:  # fmt: skip
    """Where the sum of distances to rows (n, dim) is least, about: smoothed Weiszfeld steps.

    RFA: Pillutla, Kakade, Harchaoui 2022 (arXiv 1912.13445), Algorithm 2, from start (dim,) on; nu:
    the distance below which a row counts as that far away. It starts at the coordinate-wise median,
    which fewer than half of the rows cannot drag away: of the mean, so many steps leave the more of
    a lie, the larger it is.
    """
    rows = ordered(rows)
    v = coordinate_median(rows) if start is None else start
    for _ in range(iterations):
        distance = np.sqrt(np.add.reduce((rows - v) ** 2, axis=1))
        beta = 1.0 / np.maximum(nu, distance)  # (5)
        v = np.add.reduce(beta[:, None] * rows, axis=0) / np.add.reduce(beta)  # (6)
    return np.asarray(v)


def shortened(rows: Array, tau: float) -> Array:
    """Rows (n, dim) times min(1, tau / norm) each; zeros for those that are not `sound`."""
    rows = np.where(sound(rows)[:, None], rows, 0.0)
    norm = np.sqrt(np.add.reduce(rows**2, axis=1))
    return np.asarray(rows * np.minimum(1.0, tau / np.maximum(norm, tau))[:, None])


def centred_clipping(rows: Array, v: Array, tau: float, iterations: int) -> Array:
    """From v (dim,), the latest aggregate, towards rows (n, dim), no row by more than tau / n.

    Karimireddy, He, Jaggi 2021 (arXiv 2012.10333), Algorithm 2: v <- v + mean of (x_i - v) min(1,
    tau / ||x_i - v||), so often.
    """
    rows = ordered(rows)
    for _ in range(iterations):
        v = v + mean_of(shortened(rows - v, tau))  # (7)
    return np.asarray(v)


# What is done to replies before a rule sees them.


def bucket_means(rows: Array, lots: Int, s: int) -> Array:
    """Means (ceil(n / s), dim) of s each of rows (n, dim), in the order of their lots (n,).

    Bucketing: Karimireddy, He, Jaggi 2022 (arXiv 2006.09365), Algorithm 1. The last one may be of
    fewer. Lots are drawn by agent, so that the order of the agents changes nothing.
    """
    order = np.argsort(lots, kind="stable")
    return np.array([mean_of(rows[order[low : low + s]]) for low in range(0, len(rows), s)])  # (8)


def mixed_with_nearest(rows: Array, f: int) -> Array:
    """Rows (n, dim), each of which becomes the mean of its n - f nearest, with itself.

    Nearest-neighbour mixing: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan 2023 (arXiv
    2302.01772), Algorithm 2. Of rows that are as near those that are first in their order count.
    """
    rows = ordered(rows)
    near = np.argsort(squared_distances_between(rows), axis=1, kind="stable")
    near = np.sort(near[:, : len(rows) - f], axis=1)
    return np.array([mean_of(rows[some]) for some in near])  # (9)


# On graphs, where each agent averages what it hears.


def clipped_differences(x: Array, heard: Array, owner: Int, tau: float) -> Array:
    """What agents are to hear in place of values heard (links, dim), of models x (n, dim).

    owner (links,): which row of x hears it. Clipped gossip: He, Karimireddy, Jaggi 2022 (arXiv
    2202.01545), Algorithm 1: x_i + sum_j w_ij (x_j - x_i) min(1, tau / ||x_j - x_i||), with these
    values in place of the x_j.
    """
    own = x[owner]
    return np.asarray(own + shortened(heard - own, tau))  # (10)
