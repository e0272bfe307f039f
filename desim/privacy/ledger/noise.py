"""Noise of releases, drawn at addresses (stream noise, agent, round, step; coordinate).

Only the ledger calls these: who draws noise writes its row.
"""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.network.timeline.together import TOGETHER, normal_pairs
from desim.numerics.jit import kernel, lean_inline
from desim.numerics.keys import Stream, address, counter, exponential, laplace, normal, words

NOISE = int(Stream.NOISE)


@lean_inline
def _place(who: Any, round_: Any, step: int, first: int, last: int, places: Any) -> int:
    """Fill places with blocks first .. last - 1 of every row; return how many there are."""
    p = 0
    for r in range(who.shape[0]):
        k1, c0 = address(NOISE, who[r], -1), counter(round_[r], step)
        for block in range(first, last):
            places[0, p], places[1, p], places[2, p] = k1, c0, block
            p += 1
    return p


@kernel
def normal_into(seed: Any, who: Any, round_: Any, step: int, scale: Any, where: Any, value: Any,
                out: Any) -> None:  # fmt: skip
    """Draws of many agents, TOGETHER pairs at once: as many rows as have them, or part of one."""
    dim, n = value.shape[1], who.shape[0]
    width = (dim + 1) // 2
    rows = max(1, TOGETHER // max(1, width))
    places, pairs = np.empty((3, TOGETHER), np.uint64), np.empty((2, TOGETHER))
    for low in range(0, n, rows):
        high = min(low + rows, n)
        for first in range(0, width, TOGETHER):
            last = min(first + TOGETHER, width)
            drawn = _place(who[low:high], round_[low:high], step, first, last, places)
            normal_pairs(seed, places, pairs[:, :drawn])
            p = 0
            for r in range(low, high):
                if not where[r]:
                    out[r] = value[r]
                    p += last - first
                    continue
                for j in range(first, last):
                    out[r, 2 * j] = value[r, 2 * j] + scale[r] * pairs[0, p]
                    if 2 * j + 1 < dim:
                        out[r, 2 * j + 1] = value[r, 2 * j + 1] + scale[r] * pairs[1, p]
                    p += 1


@kernel
def laplace_into(seed: Any, who: Any, round_: Any, step: int, scale: Any, where: Any, value: Any,
                 out: Any) -> None:  # fmt: skip
    """As `add_laplace`."""
    for r in range(who.shape[0]):
        k1 = address(NOISE, who[r], -1)
        c0 = counter(round_[r], step)
        for j in range(value.shape[1]):
            out[r, j] = value[r, j]
            if where[r]:
                out[r, j] += scale[r] * laplace(seed, k1, c0, j)


def add_normal(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array
) -> Array:
    """Value (n, dim) plus scale (n,) times N(0, I) in the rows `where` (n,)."""
    out = np.empty_like(value)
    normal_into(seed, who, round_, step, scale, where, value, out)
    return out


def add_laplace(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array
) -> Array:
    """Value (n, dim) plus independent Laplace noise of scale b (n,) in the rows `where` (n,)."""
    out = np.empty_like(value)
    laplace_into(seed, who, round_, step, scale, where, value, out)
    return out


@kernel
def _add_spherical(seed: Any, who: Any, round_: Any, step: int, scale: Any, where: Any, value: Any,
                   out: Any) -> None:  # fmt: skip
    for r in range(who.shape[0]):
        c0, k1 = counter(round_[r], step), address(NOISE, who[r], -1)
        length, radius = 0.0, 0.0
        for j in range(value.shape[1]):
            out[r, j] = normal(seed, k1, c0, j)
            length += out[r, j] * out[r, j]
            radius += exponential(seed, address(NOISE, who[r], who[r]), c0, j)
        size = scale[r] * radius / np.sqrt(length) if where[r] else 0.0
        for j in range(value.shape[1]):
            out[r, j] = value[r, j] + size * out[r, j]


def add_spherical(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array
) -> Array:
    """Value (n, dim) plus noise of density exp(-||e|| / scale) in the rows `where` (n,).

    A uniform direction times scale (n,) times Gamma(dim, 1), which is a sum of dim exponentials;
    these have the agent as their peer.
    """
    out = np.empty_like(value)
    _add_spherical(seed, who, round_, step, scale, where, value, out)
    return out


def add_discrete(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array,
    resolution: float,
) -> Array:  # fmt: skip
    """Value (n, dim) rounded to multiples of `resolution`, plus resolution N_Z(0, s^2), exactly.

    s = scale / resolution (n,): the deviation in levels; only the rows `where` (n,) get noise.
    """
    from desim.numerics import discrete_gaussian

    levels = np.rint(value / resolution)
    deviation = np.where(where, scale / resolution, 0.0)
    _, k1, c0, _ = words(0, NOISE, agent=who, round=round_, step=step)
    noise = discrete_gaussian.draws(seed, k1, c0, deviation, value.shape[1])
    return np.asarray(resolution * (levels + noise))
