"""What codecs make of messages: quantisers with addressed dither, and shares of coordinates."""

import numpy as np

from desim.numerics.jit import kernel
from desim.numerics.keys import (
    Stream,
    address,
    counter,
    permutation,
    seed_word,
    subset_with,
    uniform,
    words,
)
from desim.unplayed import of_unplayed

CODEC = int(Stream.CODEC)


@kernel
def _quantize(seed, k1, c0, x, resolution, low, high, out):
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            level = np.floor(x[r, j] / resolution[r] + uniform(seed, k1[r], c0[r], j))
            out[r, j] = resolution[r] * min(max(level, low), high)


def quantize(seed, who, round_, x, resolution, bits):
    """Stochastic rounding of x (n, dim) to multiples of `resolution` with 2^bits levels.

    Q(x) = resolution floor(x / resolution + U), clamped to -2^(bits-1) .. 2^(bits-1) - 1: unbiased
    inside the range (Ding 2021, eq. 26). U has the address (seed, CODEC, agent who[r], round_[r]).
    """
    out, half = np.empty_like(x), float(1 << (bits - 1))
    step = np.full(len(x), float(resolution))
    key, k1, c0, _ = words(seed, Stream.CODEC, agent=who, round=round_)
    _quantize(key, k1, c0, x, step, -half, half - 1.0, out)
    return out


def levels(seed, x, most, **place):
    """QSGD: x (n, dim) rounded to multiples of the norm of its row over `most`.

    Q(x)_j = (|x| / s) floor(s x_j / |x| + U), one of 2 s + 1 levels and unbiased: the law of
    Alistarh, Grubic, Li, Tomioka, Vojnovic 2017 (arXiv 1610.02132), Section 3.1; s is `most`. The
    norm is a float32, rounded upwards. U has the address (seed, CODEC, *place (n,)).
    """
    norm = np.sqrt(np.add.reduce(x * x, axis=1))
    with np.errstate(over="ignore"):
        short = norm.astype(np.float32)
        short = np.where(short < norm, np.nextafter(short, np.float32(np.inf)), short)
    step, out = short.astype(float) / most, np.empty_like(x)
    key, k1, c0, _ = words(seed, Stream.CODEC, **place)
    _quantize(key, k1, c0, x, np.where(step == 0.0, 1.0, step), -float(most), float(most), out)
    return out


@of_unplayed(0, gives=lambda columns: columns)
def clamp(x, resolution, bits):
    """Cut x (n, dim), multiples of `resolution`, to the 2^bits levels that `quantize` has."""
    return np.clip(x, -(1 << bits - 1) * resolution, ((1 << bits - 1) - 1) * resolution)


@kernel
def _sparsify(seed, who, round_, x, share, out, counts):
    for r in range(x.shape[0]):
        k1 = address(CODEC, who[r], -1)
        c0 = counter(round_[r], 0)
        counts[r] = 0
        for j in range(x.shape[1]):
            keep = uniform(seed, k1, c0, j) < share
            out[r, j] = x[r, j] / share if keep else 0.0
            counts[r] += keep


def sparsify(seed, who, round_, x, share):
    """Coordinates of x (n, dim) over `share`, each kept with this probability, and counts (n,).

    Unbiased. Whether j is kept has the address (seed, CODEC, agent who[r], round_[r]; j).
    """
    out, counts = np.empty_like(x), np.empty(len(x), np.int64)
    _sparsify(seed_word(seed), who, round_, x, share, out, counts)
    return out, counts


def top_k(x, k):
    """The k largest of each row of x (n, dim) in size, the first of equal ones; else 0."""
    if k >= x.shape[1]:
        return x.copy()
    size = np.where(np.isnan(x), np.inf, np.abs(x))
    least = np.partition(size, x.shape[1] - k, axis=1)[:, -k, None]
    taken = size >= least
    if np.count_nonzero(taken) > k * len(x):
        equal, larger = size == least, np.count_nonzero(size > least, axis=1)[:, None]
        taken ^= equal & (np.cumsum(equal, axis=1) > k - larger)
    return np.where(taken, x, 0.0)


@kernel
def _random_k(seed, k1, c0, x, pool, chosen, out):
    for r in range(x.shape[0]):
        subset_with(seed, k1[r], c0[r], pool, chosen)
        for i in range(chosen.size):
            out[r, chosen[i]] = x[r, chosen[i]]


def random_k(seed, x, k, **place):
    """A uniform subset of k coordinates of each row of x (n, dim), as they are; else 0.

    It has the address (seed, CODEC, *place (n,)).
    """
    out, dim = np.zeros_like(x), x.shape[1]
    key, k1, c0, _ = words(seed, Stream.CODEC, **place)
    pool, chosen = np.empty(dim, np.int64), np.empty(min(k, dim), np.int64)
    _random_k(key, k1, c0, x, pool, chosen, out)
    return out


def shares(seed, round_, agents, dim, senders):
    """Which agents send which coordinates: (agents, dim) of 0 and 1, `senders` ones in a column.

    Row j of the template has ones in columns s j .. s j + s - 1 modulo the agents, which get its
    columns in a random order (Condat, Agarsky, Malinovsky, Richtarik 2023): nobody sends more than
    ceil(senders dim / agents) coordinates. The address is (seed, CODEC, round_).
    """
    template = np.zeros((agents, dim))
    rows = np.arange(dim)[:, None]
    template[(senders * rows + np.arange(senders)) % agents, rows] = 1.0
    return template[permutation(seed, Stream.CODEC, agents, round=round_)]
