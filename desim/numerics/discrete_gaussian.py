"""Discrete Gaussian noise on the integers, exactly as Canonne, Kamath, Steinke sample it (2020).

N_Z(0, sigma^2) has P(k) proportional to exp(-k^2 / (2 sigma^2)); a rounded normal has not. Each
coin of the algorithm compares addressed random words with a number. The kernel compares doubles and
gives up where their rounding could matter (once in 1e12 draws); such a draw is made again, from the
same words, with fractions. So the law is exact, for the double that sigma is.
"""

import math
from fractions import Fraction

import numpy as np

from desim.numerics.jit import inline, kernel
from desim.numerics.keys import threefry

UNSURE = -(1 << 62)  # no draw: its place is taken by `exact`
GUARD = 1e-13  # wider than all rounding errors of a coin's probability together
LARGEST = float(1 << 44)  # sigma up to here leaves GUARD its margin
TRUE, FALSE, PERHAPS = 1, 0, -1
_11, _28, _32, _63 = np.uint64(11), np.uint64(28), np.uint64(32), np.uint64(63)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@inline
def _word(k0, k1, c0, j, n):
    """First word of the n-th pair of draw j."""
    return threefry(k0, k1, c0, (np.uint64(j) << _32) | np.uint64(n))[0]


@inline
def _coin(word, p, guard):
    """Whether the uniform number that begins with `word` is below p, as far as doubles tell."""
    u = np.float64(word >> _11) * 2.0**-53
    if p >= 1.0 or u < p - guard:
        return TRUE
    return FALSE if p <= 0.0 or u > p + guard else PERHAPS


@kernel
def _short(k0, k1, c0, j, n, gamma, guard):
    """(coin with P(1) = exp(-gamma), next n) for 0 <= gamma <= 1 (their Algorithm 1)."""
    k = 1
    while True:
        side = _coin(_word(k0, k1, c0, j, n), gamma / k, guard)
        n += 1
        if side == PERHAPS:
            return PERHAPS, n
        if side == FALSE:
            return k % 2, n
        k += 1


@kernel
def _long(k0, k1, c0, j, n, gamma, guard):
    """(coin with P(1) = exp(-gamma), next n) for gamma >= 0."""
    whole = np.floor(gamma)
    passed = 0.0
    while passed < whole:
        side, n = _short(k0, k1, c0, j, n, 1.0, guard)
        if side != TRUE:
            return side, n
        passed += 1.0
    rest, wide = gamma - whole, guard * (1.0 + gamma)
    state = TRUE
    if rest >= wide:
        state, n = _short(k0, k1, c0, j, n, rest, wide)
    if state == TRUE and (rest < wide or rest > 1.0 - wide):  # gamma on either side of an integer
        if _coin(_word(k0, k1, c0, j, n), 2.0 * wide, 0.0) == TRUE:
            state = PERHAPS
    return state, n


@kernel
def _laplace(k0, k1, c0, j, n, t, guard):
    """(state, k, next n): P(k) proportional to exp(-|k| / t), t >= 1 (Algorithm 2)."""
    span = np.uint64(t)
    while True:
        word = _word(k0, k1, c0, j, n)
        n += 1
        if word >= _ALL // span * span:
            continue
        u = np.int64(word % span)
        side, n = _short(k0, k1, c0, j, n, u / t, guard)
        if side == FALSE:
            continue
        v = 0
        while side == TRUE:
            side, n = _short(k0, k1, c0, j, n, 1.0, guard)
            v += side == TRUE
        if side == PERHAPS:
            return PERHAPS, 0, n
        negative = _word(k0, k1, c0, j, n) >> _63
        n += 1
        k = u + t * v
        if negative and k == 0:
            continue
        return TRUE, (-k if negative else k), n


@kernel
def discrete_gaussian(k0, k1, c0, j, sigma, guard):
    """Draw j of N_Z(0, sigma^2), or UNSURE; 0 < sigma <= LARGEST (Algorithm 3)."""
    t = np.int64(np.floor(sigma)) + 1
    n = 0
    while True:
        state, k, n = _laplace(k0, k1, c0, j, n, t, guard)
        if state == PERHAPS:
            return UNSURE
        beyond = abs(k) - sigma * sigma / t
        state, n = _long(k0, k1, c0, j, n, beyond * beyond / (2.0 * sigma * sigma), guard)
        if state == PERHAPS:
            return UNSURE
        if state == TRUE:
            return k


@kernel
def fill(k0, k1, c0, sigma, guard, out):
    """Draws 0 .. dim - 1 of out (n, dim) int64 at the addresses k1, c0 (n,) with sigma (n,)."""
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[r, j] = 0
            if sigma[r] > 0.0:
                out[r, j] = discrete_gaussian(k0, k1[r], c0[r], j, sigma[r], guard)


class Coins:
    """The coins of one draw in exact arithmetic, from the words that the kernel reads."""

    def __init__(self, k0, k1, c0, j):
        self.place = np.uint64(k0), np.uint64(k1), np.uint64(c0), int(j)
        self.n = 0

    def words(self, depth=0):
        """The pair of words of this coin, or further ones where those decide nothing."""
        k0, k1, c0, j = self.place
        c1 = np.uint64(j << 32 | depth << 28 | self.n)
        return tuple(int(word) for word in threefry(k0, k1, c0, c1))

    def below(self, p):
        """A coin with P(True) = p, a Fraction: compares a uniform number, bit by bit, with p."""
        outcome, depth = None, 0
        while outcome is None:
            first, second = self.words(depth)
            scaled = p * (1 << 128)
            reached, floor = first << 64 | second, math.floor(scaled)
            if reached != floor:
                outcome = reached < floor
            p, depth = scaled - floor, depth + 1
        self.n += 1
        return outcome

    def decays(self, gamma):
        """A coin with P(True) = exp(-gamma), a Fraction >= 0."""
        while gamma >= 1:
            if not self._short(Fraction(1)):
                return False
            gamma -= 1
        return self._short(gamma)

    def _short(self, gamma):
        k = 1
        while self.below(gamma / k):
            k += 1
        return k % 2 == 1

    def laplace(self, t):
        """An integer with P(k) proportional to exp(-|k| / t)."""
        while True:
            word = self.words()[0]
            self.n += 1
            if word >= int(_ALL) // t * t:
                continue
            u = word % t
            if not self._short(Fraction(u, t)):
                continue
            v = 0
            while self._short(Fraction(1)):
                v += 1
            negative = self.words()[0] >> 63
            self.n += 1
            k = u + t * v
            if not (negative and k == 0):
                return -k if negative else k


def exact(k0, k1, c0, j, sigma):
    """Draw j of N_Z(0, sigma^2) with fractions: as the kernel draws, where that is sure."""
    coins, variance = Coins(k0, k1, c0, j), Fraction(sigma) ** 2
    t = math.floor(sigma) + 1
    while True:
        k = coins.laplace(t)
        if coins.decays((abs(k) - variance / t) ** 2 / (2 * variance)):
            return k


def draws(k0, k1, c0, sigma, dim, guard=GUARD):
    """N_Z(0, sigma[r]^2) at addresses k1, c0 (n,): (n, dim) int64; sigma (n,), 0 gives 0."""
    out = np.empty((len(k1), dim), np.int64)
    fill(k0, k1, c0, sigma, guard, out)
    for r, j in zip(*np.nonzero(out == UNSURE), strict=True):
        out[r, j] = exact(k0, k1[r], c0[r], j, float(sigma[r]))
    return out
