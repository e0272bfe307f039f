"""Random durations, rates and factors, as in {lognormal: [20 ms, 0.3]}, drawn at an address."""

from math import erf, exp, inf, pi, sqrt
from typing import NamedTuple

import numpy as np

from desim.numerics.elementary import exp_, log_
from desim.numerics.jit import inline, kernel, lean_kernel
from desim.numerics.keys import (
    exponential,
    normal,
    normal_pair,
    open_unit,
    threefry,
    uniform,
    words,
)

CONSTANT, UNIFORM, NORMAL, LOGNORMAL, EXPONENTIAL, GAMMA, SHIFTED, HALF_NORMAL = range(8)


class Distribution(NamedTuple):
    """A kind and its two numbers, in the caller's unit.

    constant (value, -), uniform (low, high), normal (mean, deviation) cut at 0, lognormal (median,
    sigma of the logarithm), exponential (mean, -), gamma (mean, shape), shifted exponential (least,
    mean of what comes on top), half-normal (deviation of the normal around 0 whose size it is, -).
    """

    kind: int
    a: float
    b: float = 0.0


@kernel
def _gamma(shape, k0, k1, c0, i):
    """Gamma of scale 1 (Marsaglia, Tsang 2000); attempt t: blocks i + (2t + 1, 2t + 2) 2^40."""
    grown = shape if shape >= 1.0 else shape + 1.0
    d = grown - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    block = np.uint64(i)
    hop = np.uint64(1) << np.uint64(40)
    while True:
        x = normal_pair(k0, k1, c0, block + hop)[0]
        block = block + hop + hop
        v = 1.0 + c * x
        v = v * v * v
        u = open_unit(threefry(k0, k1, c0, block)[0])
        if v > 1e-300 and log_(u) < 0.5 * x * x + d - d * v + d * log_(v):
            break
    if shape < 1.0:
        return d * v * exp_(log_(uniform(k0, k1, c0, i)) / shape)
    return d * v


@inline
def sample(kind, a, b, k0, k1, c0, i):
    """Draw i (below 2^40) of the distribution (kind, a, b) at the address (k0, k1, c0)."""
    return a if kind == CONSTANT else _varied(kind, a, b, k0, k1, c0, i)


@lean_kernel
def _varied(kind, a, b, k0, k1, c0, i):
    """As `sample`, of what is not constant; it stays a function, where so many places draw."""
    if kind == UNIFORM:
        return a + (b - a) * uniform(k0, k1, c0, i)
    if kind == NORMAL:
        return max(0.0, a + b * normal(k0, k1, c0, i))
    if kind == LOGNORMAL:
        return a * exp_(b * normal(k0, k1, c0, i))
    if kind == EXPONENTIAL:
        return a * exponential(k0, k1, c0, i)
    if kind == SHIFTED:
        return a + b * exponential(k0, k1, c0, i)
    if kind == HALF_NORMAL:
        return a * abs(normal(k0, k1, c0, i))
    return a / b * _gamma(b, k0, k1, c0, i)


@kernel
def _fill(kind, a, b, k0, k1, c0, i, out):
    for r in range(out.size):
        out[r] = sample(kind, a, b, k0, k1[r], c0[r], i)


def draw(distribution, seed, stream, *, index=0, **place):
    """Draw `index` at each address (agent, peer, round, step broadcast), float64 of that shape."""
    k0, k1, c0, shape = words(seed, stream, **place)
    out = np.empty(k1.size)
    kind, a, b = distribution
    _fill(int(kind), float(a), float(b), k0, k1, c0, int(index), out)
    return out.reshape(shape)


def mean(distribution: Distribution) -> float:
    """The exact expectation."""
    kind, a, b = distribution
    if kind == UNIFORM:
        return (a + b) / 2
    if kind == LOGNORMAL:
        return a * exp(b * b / 2)
    if kind == SHIFTED:
        return a + b
    if kind == HALF_NORMAL:
        return a * sqrt(2 / pi)
    if kind == NORMAL and b > 0:
        z = a / b
        return a * (1 + erf(z / sqrt(2))) / 2 + b * exp(-z * z / 2) / sqrt(2 * pi)
    return max(0.0, a) if kind == NORMAL else a


def bounds(law: tuple[int, float, float]) -> tuple[float, float]:
    """The least and the largest value that may be drawn; inf where there is none."""
    kind, a, b = law
    if kind == CONSTANT or (kind in (NORMAL, LOGNORMAL) and b == 0.0):
        return a, a
    if kind == UNIFORM:
        return a, b
    return (a, inf) if kind == SHIFTED else (0.0, inf)
