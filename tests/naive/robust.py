"""Robust rules and attacks by their definitions, in loops over Python numbers."""

from math import floor, inf, sqrt
from statistics import NormalDist, mean, median, stdev


def norm(x):
    return sqrt(sum(a * a for a in x))


def minus(x, y):
    return [a - b for a, b in zip(x, y, strict=True)]


def average(rows):
    return [mean(column) for column in zip(*rows, strict=True)]


def coordinate_median(rows):
    return [median(column) for column in zip(*rows, strict=True)]


def trimmed_mean(rows, b):
    return [mean(sorted(column)[b : len(rows) - b]) for column in zip(*rows, strict=True)]


def krum_score(rows, i, f):
    others = [norm(minus(rows[i], row)) ** 2 for j, row in enumerate(rows) if j != i]
    return sum(sorted(others)[: len(rows) - f - 2])


def multi_krum(rows, f, m):
    order = sorted(range(len(rows)), key=lambda i: krum_score(rows, i, f))
    return average([rows[i] for i in order[:m]])


def geometric_median(rows, nu, iterations, start=None):
    v = coordinate_median(rows) if start is None else start
    for _ in range(iterations):
        beta = [1.0 / max(nu, norm(minus(v, row))) for row in rows]
        v = [
            sum(b * a for b, a in zip(beta, column, strict=True)) / sum(beta)
            for column in zip(*rows, strict=True)
        ]
    return v


def distance_sum(rows, v):
    return sum(norm(minus(v, row)) for row in rows)


def clipped(x, tau):
    size = norm(x)
    return [a * min(1.0, tau / size if size else inf) for a in x]


def centred_clipping(rows, v, tau, iterations):
    for _ in range(iterations):
        pulls = average([clipped(minus(row, v), tau) for row in rows])
        v = [a + p for a, p in zip(v, pulls, strict=True)]
    return v


def bucket_means(rows, lots, s):
    order = sorted(range(len(rows)), key=lambda i: lots[i])
    return [average([rows[i] for i in order[k : k + s]]) for k in range(0, len(rows), s)]


def mixed_with_nearest(rows, f):
    found = []
    for one in rows:
        near = sorted(rows, key=lambda row: norm(minus(one, row)))
        found.append(average(near[: len(rows) - f]))
    return found


def small_shift(honest, z):
    return [mean(column) - z * stdev(column) for column in zip(*honest, strict=True)]


def least_that_is_enough(n, m):
    s = floor(n / 2 + 1) - m
    return NormalDist().inv_cdf((n - m - s) / (n - m))


def negated_mean(honest, epsilon):
    return [-epsilon * a for a in average(honest)]


def clipped_gossip(x, neighbours, weights, tau):
    """x_i + sum_j w_ij clip(x_j - x_i)."""
    moves = [clipped(minus(one, x), tau) for one in neighbours]
    return [
        a + sum(w * move[c] for w, move in zip(weights, moves, strict=True))
        for c, a in enumerate(x)
    ]
