"""Gradients with twice the digits, for where rounding leaves more than a tolerance.

The last digit of a parameter moves a gradient by 2^-53 curvature ||a||^2 ||w||, much for long rows.
Here the model is w + low, products and sums have what rounding has taken from them beside them
(Dekker 1971, doi 10.1007/BF01397083), and inner products are Dot2 (Ogita, Rump, Oishi 2005, doi
10.1137/030601818). What is left of a gradient that is found small is known, see `longest_rows`.
"""

import numpy as np

from desim.arrays import Array, Int
from desim.numerics.elementary import exp_
from desim.numerics.foreign import BEND, SLOPE, call
from desim.numerics.jit import inline, kernel
from desim.problem.losses.scalar import HUBER, OWN, SQUARED, slope

LENGTHS = 100  # that are tried along a step
STEEP = 0.25  # of a step's first slope, what may be left of it at its end
SPLIT = 2.0**27 + 1.0
HALF = 2.0**-53  # rounding of one operation, relative
MODELS = 1e6  # norm of models up to which a tolerance is kept, whatever the rows


def longest_rows(
    tolerance: float, weight: Array, curvature: float, total: Array, rows: Int, dim: int
) -> Array:
    """Norm L (agents,) up to which no rows keep minimisers from a gradient norm of `tolerance`.

    weight: ridge and penalty; total: the sum of scale over an agent's rows; all (agents,). K =
    curvature total L^2 bounds what rows add to the Hessian H >= weight. H is formed and solved with
    an error of at most (rows + 3 + dim (3 dim + 1)) HALF (weight + K) (Higham 2002, (3.5) and
    Theorem 10.4). While that is weight/4 at most, a step descends, and misses the end of its
    quadratic by a third of its way at most. Dot2 is off by 2 (dim + 2)^2 HALF^2 L ||w||, a gradient
    by K/L times that: by tolerance/4 at most while ||w|| <= MODELS. So both bound K. That
    steps find which slopes are clipped is tested, not proved.
    """
    solved = weight / (4.0 * HALF * (rows + 3.0 + dim * (3.0 * dim + 1.0))) - weight
    resolved = tolerance / (8.0 * (dim + 2.0) ** 2 * HALF**2 * MODELS)
    K = np.maximum(0.0, np.minimum(solved, resolved))
    return np.asarray(np.sqrt(K / (curvature * total)))


def least_tolerance(clip: float, total: Array) -> float:
    """A quarter of it is what rounding of slopes, 4 HALF each, leaves of gradients up to `clip`."""
    return float(16.0 * HALF * clip * np.max(total))


@inline
def _sum(a, b):
    """A + b, and what rounding has taken from it."""
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


@inline
def _product(a, b):
    """A b, and what rounding has taken from it."""
    p, t = a * b, SPLIT * a
    a_high = t - (t - a)
    a_low, t = a - a_high, SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@inline
def _dot(a, w, low):
    """The product of a and w + low, as a sum of two."""
    high, rest = 0.0, 0.0
    for j in range(a.size):
        p, e = _product(a[j], w[j])
        high, f = _sum(high, p)
        rest += (e + f) + a[j] * low[j]
    return _sum(high, rest)


@kernel
def _slope_and_bend(code, high, low, b, knee, c, pace):
    """Clipped slope of a row's loss at high + low and its derivative there; 0 for what is none.

    pace: below 1, u goes that much slower away from b.
    """
    high, low = _sum(high, low)
    if pace < 1.0 and code != SQUARED and code != HUBER:
        high, low = b + pace * (high - b), pace * low
    if code == SQUARED or code == HUBER:
        r, e = _sum(high, -b)
        s, bend = 2.0 * pace * (r + (e + low)), 2.0
        if code == HUBER:
            c = min(c, 2.0 * knee)
    elif code == OWN:
        s, bend = call(SLOPE, knee, high, b), call(BEND, knee, high, b)
    else:
        e = exp_(-abs(high))
        s, bend = slope(code, high, b, knee), e / ((1.0 + e) * (1.0 + e))
    if not bend < np.inf:
        bend = 0.0
    if code != SQUARED and code != HUBER:
        s += bend * low
    if not abs(s) < c:
        bend = 0.0
    s = -c if s < -c else s
    s = c if s > c else s
    return (s if s - s == 0.0 else 0.0), pace * bend


@kernel
def gradient(w, low, block, scale, weight, v, data, memory):
    """Set u + rest, s, bend (scaled) and g at w + low; return the norm of g. Reads pace."""
    g, lost, rows = memory.g, memory.r, block.rows
    for j in range(w.size):
        p, e = _product(weight, w[j])
        g[j], f = _sum(p, -v[j])
        lost[j] = (e + f) + weight * low[j]
    for h in range(block.b.size):
        high, rest = _dot(rows[h], w, low)
        b, c = block.b[h], block.limit[h]
        s, bend = _slope_and_bend(data.code, high, rest, b, data.knee, c, memory.pace[h])
        s *= scale
        memory.u[h], memory.rest[h], memory.s[h], memory.bend[h] = high, rest, s, scale * bend
        for j in range(w.size):
            p, e = _product(s, rows[h, j])
            g[j], f = _sum(g[j], p)
            lost[j] += e + f
    total = 0.0
    for j in range(w.size):
        g[j] += lost[j]
        total += g[j] * g[j]
    return np.sqrt(total)


@kernel
def length(block, scale, weight, data, memory):
    """How far to go along d: where the slope, at first g.d < 0, has become a small part of that."""
    first, square, d = 0.0, 0.0, memory.d
    for j in range(d.size):
        first += memory.g[j] * d[j]
        square += weight * d[j] * d[j]
    low, high, t = 0.0, np.inf, 1.0
    for _ in range(LENGTHS):
        there = first + t * square
        for h in range(block.b.size):
            rest = memory.rest[h] + t * memory.du[h]
            b, c = block.b[h], block.limit[h]
            s, _bend = _slope_and_bend(
                data.code, memory.u[h], rest, b, data.knee, c, memory.pace[h]
            )
            there += (scale * s - memory.s[h]) * memory.du[h]
        if abs(there) <= -STEEP * first:
            break
        if there < 0.0:
            low = t
        else:
            high = t
        t = 2.0 * low if high == np.inf else 0.5 * (low + high)
    return t


@inline
def move(w, low, t, d):
    """Add t d to w + low."""
    for j in range(w.size):
        high, e = _sum(w[j], t * d[j])
        w[j], low[j] = _sum(high, e + low[j])
