"""Addressed randomness: every draw is a function of its address, never of a position in a stream.

Threefry-2x64 with 13 rounds (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as
1, 2, 3") maps key = (seed; stream, agent, peer) and counter = (round, step; index) to two words. An
observer, an agent or a thread more shifts no other draw. One address serves one kind of draw.
"""

from enum import IntEnum

import numpy as np

from desim.numerics.elementary import log_, sincos_turn
from desim.numerics.jit import inline, kernel
from desim.numerics.lanes import float_of, places, root, spread, store_pairs, width


class Stream(IntEnum):
    """What a draw is for; the highest byte of its key."""

    DATA = 1
    INIT = 2
    PARTICIPATION = 3
    BATCH = 4
    NOISE = 5
    CODEC = 6
    LINK = 7
    SPEED = 8
    CHURN = 9
    USER = 10
    DIRECTION = 11
    BURST = 12
    PACKET = 13
    MODEL = 14
    SUM = 15
    SHARED = 16
    POWER = 17
    ATTACK = 18


_1 = np.uint64(1)
_12 = np.uint64(12)
_28 = np.uint64(28)
_32 = np.uint64(32)
_56 = np.uint64(56)
_64 = np.uint64(64)
_LOW = np.uint64(0xFFFFFFFF)
_PARITY = np.uint64(0x1BD11BDAA9FC1A22)
_ONE_BITS = np.uint64(0x3FF0000000000000)
_HALF_STEP = 2.0**-53
_ROTATIONS = np.array([16, 42, 12, 31, 16, 32, 24, 21], dtype=np.uint64)
_R = tuple(np.uint64(r) for r in _ROTATIONS)


@inline
def _mix(a, b, r):
    a = a + b
    return a, ((b << r) | (b >> (_64 - r))) ^ a


@kernel
def threefry_rounds(k0, k1, c0, c1, rounds):
    """Threefry-2x64 with any number of rounds: the readable form, oracle of the unrolled one."""
    schedule = (k0, k1, _PARITY ^ k0 ^ k1)
    a, b = c0 + k0, c1 + k1
    for r in range(rounds):
        a, b = _mix(a, b, _ROTATIONS[r % 8])
        if r % 4 == 3:
            s = r // 4 + 1
            a += schedule[s % 3]
            b += schedule[(s + 1) % 3] + np.uint64(s)
    return a, b


@inline
def _thirteen_rounds(k0, k1, c0, c1):
    """`threefry` of uint64 numbers or lanes."""
    k2 = _PARITY ^ k0 ^ k1
    a, b = c0 + k0, c1 + k1
    a, b = _mix(a, b, _R[0])
    a, b = _mix(a, b, _R[1])
    a, b = _mix(a, b, _R[2])
    a, b = _mix(a, b, _R[3])
    a, b = a + k1, b + k2 + _1
    a, b = _mix(a, b, _R[4])
    a, b = _mix(a, b, _R[5])
    a, b = _mix(a, b, _R[6])
    a, b = _mix(a, b, _R[7])
    a, b = a + k2, b + k0 + np.uint64(2)
    a, b = _mix(a, b, _R[0])
    a, b = _mix(a, b, _R[1])
    a, b = _mix(a, b, _R[2])
    a, b = _mix(a, b, _R[3])
    a, b = a + k0, b + k1 + np.uint64(3)
    return _mix(a, b, _R[4])


@inline
def threefry(k0, k1, c0, c1):
    """The two 64-bit words of Threefry-2x64-13 at key (k0, k1) and counter (c0, c1)."""
    return _thirteen_rounds(np.uint64(k0), np.uint64(k1), np.uint64(c0), np.uint64(c1))


@inline
def address(stream, agent, peer):
    """key1 = stream << 56 | (agent + 1) << 28 | (peer + 1); agent, peer in -1 .. 2^27 - 1."""
    return (np.uint64(stream) << _56) | (np.uint64(agent + 1) << _28) | np.uint64(peer + 1)


@inline
def counter(round, step):
    """First counter word: round << 32 | step, both in 0 .. 2^32 - 1."""
    return (np.uint64(round) << _32) | np.uint64(step)


@inline
def open_unit(word):
    """A word's upper 52 bits as a float64 in (0, 1), never 0 or 1."""
    return float_of((word >> _12) | _ONE_BITS) - 1.0 + _HALF_STEP


@inline
def uniform(k0, k1, c0, i):
    """Draw i, uniform in (0, 1)."""
    return open_unit(threefry(k0, k1, c0, np.uint64(i))[0])


@inline
def _normals(a, b):
    """Two independent standard normals from two words, or lanes of them (Box, Muller 1958)."""
    radius = root(-2.0 * log_(open_unit(a)))
    sine, cosine = sincos_turn(open_unit(b))
    return radius * cosine, radius * sine


@inline
def normal_pair(k0, k1, c0, block):
    """Draws 2j and 2j + 1 of `normal`, which share block j."""
    a, b = threefry(k0, k1, c0, block)
    return _normals(a, b)


@inline
def normal(k0, k1, c0, i):
    """Draw i, standard normal."""
    first, second = normal_pair(k0, k1, c0, np.uint64(i) >> _1)
    return second if np.uint64(i) & _1 else first


@inline
def normals_into(k0, k1, c0, out):
    """Draws 0 .. len(out) - 1 of `normal`, with the same bits; out (n,) is C-contiguous."""
    k0, k1, c0 = np.uint64(k0), np.uint64(k1), np.uint64(c0)
    blocks = places(spread(max(1, (out.size + 1) // 2)))
    for i in range(0, out.size, 2 * width(blocks)):
        a, b = _thirteen_rounds(k0, k1, c0, blocks + np.uint64(i // 2))
        first, second = _normals(a, b)
        store_pairs(out, i, first, second)


@inline
def exponential(k0, k1, c0, i):
    """Draw i, exponential with mean 1."""
    return -log_(uniform(k0, k1, c0, i))


@inline
def laplace(k0, k1, c0, i):
    """Draw i, Laplace with scale 1 (variance 2)."""
    u = uniform(k0, k1, c0, i)
    return log_(2.0 * u) if u < 0.5 else -log_(2.0 * (1.0 - u))


@inline
def integer(k0, k1, c0, i, n):
    """Draw i, uniform in 0 .. n - 1 (n < 2^32): floor(word * n / 2^64), bias below n / 2^64."""
    word = threefry(k0, k1, c0, np.uint64(i))[0]
    m = np.uint64(n)
    return np.int64(((word >> _32) * m + (((word & _LOW) * m) >> _32)) >> _32)


@kernel
def permutation_into(k0, k1, c0, out):
    """A uniform order of 0 .. len(out) - 1 (Fisher, Yates 1938)."""
    for j in range(out.size):
        out[j] = j
    for j in range(out.size - 1):
        other = j + integer(k0, k1, c0, j, out.size - j)
        out[j], out[other] = out[other], out[j]


@kernel
def subset_with(k0, k1, c0, pool, out):
    """A uniform subset of 0 .. len(pool) - 1 for out, ascending; pool (int64) is scratch."""
    for j in range(pool.size):
        pool[j] = j
    for j in range(out.size):
        other = j + integer(k0, k1, c0, j, pool.size - j)
        pool[j], pool[other] = pool[other], pool[j]
        out[j] = pool[j]
    pool[:] = 0
    for j in range(out.size):
        pool[out[j]] = 1
    j = 0
    for row in range(pool.size):
        if pool[row]:
            out[j] = row
            j += 1


@kernel
def subset_into(k0, k1, c0, n, out):
    """Fill the rows of out with uniform subsets of 0 .. n - 1, ascending; k1, c0: a word a row."""
    pool = np.empty(n, np.int64)
    for r in range(out.shape[0]):
        subset_with(k0, k1[r], c0[r], pool, out[r])


@kernel
def _fill(kind, k0, k1, c0, out):
    for r in range(out.shape[0]):
        if kind == 1:
            normals_into(k0, k1[r], c0[r], out[r])
        else:
            for i in range(out.shape[1]):
                if kind == 0:
                    out[r, i] = uniform(k0, k1[r], c0[r], i)
                elif kind == 2:
                    out[r, i] = exponential(k0, k1[r], c0[r], i)
                else:
                    out[r, i] = laplace(k0, k1[r], c0[r], i)


@kernel
def _fill_integers(high, k0, k1, c0, out):
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = integer(k0, k1[r], c0[r], i, high)


def words(seed, stream, agent=-1, peer=-1, round=0, step=0):
    """(key0, key1, counter0, shape) of broadcast addresses; key1, counter0 flat uint64."""
    agents, peers, rounds, steps = (
        np.asarray(part, dtype=np.int64).view(np.uint64) for part in (agent, peer, round, step)
    )
    shape = np.broadcast(agents, peers, rounds, steps).shape
    k1, c0 = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
    k1[...] = (np.uint64(int(stream)) << _56) | ((agents + _1) << _28) | (peers + _1)
    c0[...] = (rounds << _32) | steps
    return seed_word(seed), k1.ravel(), c0.ravel(), shape


def seed_word(seed):
    """A seed (any Python integer, negative ones too) as key0."""
    return np.uint64(int(seed) & 0xFFFFFFFFFFFFFFFF)


def _floats(kind, size, seed, stream, place):
    k0, k1, c0, shape = words(seed, stream, **place)
    out = np.empty((k1.size, size))
    _fill(kind, k0, k1, c0, out)
    return out.reshape((*shape, size))


def uniforms(seed, stream, *, size=1, **place):
    """Uniform draws in (0, 1), float64 of shape (broadcast of agent, peer, round, step; size)."""
    return _floats(0, size, seed, stream, place)


def normals(seed, stream, *, size=1, **place):
    """Standard normal draws; shape and arguments as `uniforms`."""
    return _floats(1, size, seed, stream, place)


def exponentials(seed, stream, *, size=1, **place):
    """Exponential draws of mean 1; shape and arguments as `uniforms`."""
    return _floats(2, size, seed, stream, place)


def laplaces(seed, stream, *, size=1, **place):
    """Laplace draws of scale 1; shape and arguments as `uniforms`."""
    return _floats(3, size, seed, stream, place)


def integers(seed, stream, high, *, size=1, **place):
    """Uniform int64 draws in 0 .. high - 1; shape and arguments as `uniforms`."""
    k0, k1, c0, shape = words(seed, stream, **place)
    out = np.empty((k1.size, size), np.int64)
    _fill_integers(high, k0, k1, c0, out)
    return out.reshape((*shape, size))


def subset(seed, stream, n, size, **place):
    """Ascending uniform subsets of 0 .. n - 1, as `uniforms`; ValueError if n has not so many."""
    if not 0 <= size <= n:
        raise ValueError(f"subset: found {size} of {n}; allowed: 0 to {n}")
    k0, k1, c0, shape = words(seed, stream, **place)
    out = np.empty((k1.size, size), np.int64)
    subset_into(k0, k1, c0, n, out)
    return out.reshape((*shape, size))


def permutation(seed, stream, n, **place):
    """A uniform order of 0 .. n - 1, int64 of shape (n,)."""
    k0, k1, c0, _ = words(seed, stream, **place)
    out = np.empty(n, np.int64)
    permutation_into(k0, k1[0], c0[0], out)
    return out
