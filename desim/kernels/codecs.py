"""What messages become on the wire: quantisers with addressed dither, shares of coordinates."""

import numpy as np

from desim.compiling.jit import kernel
from desim.draws.keys import Stream, address, counter, permutation, seed_word, uniform

CODEC = int(Stream.CODEC)


@kernel
def _quantize(seed, who, round_, x, resolution, low, high, out):
    for r in range(x.shape[0]):
        k1 = address(CODEC, who[r], -1)
        c0 = counter(round_[r], 0)
        for j in range(x.shape[1]):
            level = np.floor(x[r, j] / resolution + uniform(seed, k1, c0, j))
            out[r, j] = resolution * min(max(level, low), high)


def quantize(seed, who, round_, x, resolution, bits):
    """Stochastic rounding of x (n, dim) to multiples of `resolution` with 2^bits levels.

    Q(x) = resolution floor(x / resolution + U), clamped to -2^(bits-1) .. 2^(bits-1) - 1: unbiased
    inside the range (Ding 2021, eq. 26). U has the address (seed, CODEC, agent who[r], round_[r]).
    """
    out = np.empty_like(x)
    half = float(1 << (bits - 1))
    _quantize(seed_word(seed), who, round_, x, resolution, -half, half - 1.0, out)
    return out


def clamp(x, resolution, bits):
    """Cut x (n, dim), multiples of `resolution`, to the 2^bits levels that `quantize` has."""
    half = float(1 << (bits - 1))
    return np.clip(x, -half * resolution, (half - 1.0) * resolution)


@kernel
def _sparsify(seed, who, round_, x, share, out, kept):
    for r in range(x.shape[0]):
        k1 = address(CODEC, who[r], -1)
        c0 = counter(round_[r], 0)
        kept[r] = 0
        for j in range(x.shape[1]):
            keep = uniform(seed, k1, c0, j) < share
            out[r, j] = x[r, j] / share if keep else 0.0
            kept[r] += keep


def sparsify(seed, who, round_, x, share):
    """Coordinates of x (n, dim) over `share`, each kept with this probability, and counts (n,).

    Unbiased. Whether j is kept has the address (seed, CODEC, agent who[r], round_[r]; j).
    """
    out, kept = np.empty_like(x), np.empty(len(x), np.int64)
    _sparsify(seed_word(seed), who, round_, x, share, out, kept)
    return out, kept


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
