"""Skellam noise on the integers, exactly: the difference of two Poisson numbers of one mean.

With a variance mu P(k) = exp(-mu) I_k(mu). A draw inverts the law: it is the least k whose
P(X <= k) is above a uniform number, whose bits are addressed random words. The law is computed in
whole numbers, to more bits than a word has, with a bound on its error; where a word is too near to
one of its steps (once in 1e13 draws), more words of the same address are read, and the law is
computed to as many bits. So the law is exact, for the double that mu is.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from desim.numerics.jit import kernel
from desim.numerics.keys import threefry

LARGEST = float(1 << 34)  # variance up to here: the law of 2^17 takes a second or two
BITS = 128  # of the law that words are compared with
WORD = 64
_32 = np.uint64(32)


class Law(NamedTuple):
    """P(X <= k) of k = first, first + 1, ... in units of 2^-bits, and by how much it may be off."""

    first: int
    steps: tuple[int, ...]
    off: int


def reach(variance, bits):
    """A k beyond which there is less than 2^-bits, on either side together (Bernstein)."""
    depth = (bits + 1) * math.log(2.0) / 3.0
    return math.ceil(depth + math.sqrt(depth * (depth + 6.0 * variance))) + 1


def law(variance, bits):
    """The law of a variance > 0 to so many bits.

    I_{k-1} = I_{k+1} + (2 k / mu) I_k downwards from where next to nothing is (Miller): all terms
    are positive, so that each of its roundings counts once; then all sums to one.
    """
    top, (number, part) = reach(variance, bits), Fraction(variance).as_integer_ratio()
    weights = [0] * (top + 2)
    weights[top] = 1 << bits
    for k in range(top, 0, -1):
        weights[k - 1] = weights[k + 1] + 2 * k * part * weights[k] // number
    whole, total, steps = weights[0] + 2 * sum(weights[1:]), 0, []
    for k in range(-top, top + 1):
        total += weights[abs(k)]
        steps.append((total << bits) // whole)
    return Law(-top, tuple(steps), 8 * (top + 2))


@lru_cache(maxsize=4)
def _table(variance):
    """(first k, what a word is surely below, surely above) of the steps of the law, each (n,)."""
    first, steps, off = law(variance, BITS)
    shift, most = BITS - WORD, (1 << WORD) - 1
    low = np.array([max(one - off, 0) >> shift for one in steps], np.uint64)
    high = np.array([min((one + off) >> shift, most) for one in steps], np.uint64)
    return first, low, high


@kernel
def _words(k0, k1, c0, out):
    """The first word of draws 0 .. dim - 1 at the addresses k1, c0 (n,): out (n, dim) uint64."""
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[r, j] = threefry(k0, k1[r], c0[r], np.uint64(j) << _32)[0]


def exact(k0, k1, c0, j, variance):
    """Draw j from as many words as it takes."""
    bits, place = BITS, (np.uint64(k0), np.uint64(k1), np.uint64(c0))
    while True:
        number = 0
        for n in range(bits // BITS):
            one, other = threefry(*place, np.uint64(j << 32 | n))
            number = number << BITS | int(one) << WORD | int(other)
        first, steps, off = law(variance, bits)
        for k, step in enumerate(steps):
            if number < step - off:
                return first + k
            if number <= step + off:
                break
        bits *= 2


def draws(k0, k1, c0, variance, dim):
    """Draws 0 .. dim - 1 at the addresses k1, c0 (n,): (n, dim) int64; 0 <= variance <= LARGEST."""
    words = np.empty((len(k1), dim), np.uint64)
    if variance == 0.0:
        return np.zeros(words.shape, np.int64)
    _words(k0, k1, c0, words)
    first, low, high = _table(float(variance))
    step = np.searchsorted(low, words, side="right")  # the first one that a word is surely below
    before = high[np.maximum(step - 1, 0)]
    unsure = (step == len(low)) | ((step > 0) & (words <= before))
    out = first + step.astype(np.int64)
    for r, j in zip(*np.nonzero(unsure), strict=True):
        out[r, j] = exact(k0, k1[r], c0[r], int(j), float(variance))
    return out
