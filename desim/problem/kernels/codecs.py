"""What codecs make of messages: quantisers with addressed dither, and shares of coordinates."""

import math

import numpy as np
from numba import types
from numba.extending import overload

from desim.numerics.jit import LEAN, kernel, lean_inline, lean_kernel
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
from desim.problem.kernels.plan import perturb
from desim.problem.kernels.sums import clip_row
from desim.unplayed import of_unplayed

CODEC = int(Stream.CODEC)


@lean_inline
def _rounded(seed, k1, c0, resolution, low, high, row):
    """Round a row (dim,) to multiples of `resolution`, low .. high, at random; in place."""
    for j in range(row.shape[0]):
        level = np.floor(row[j] / resolution + uniform(seed, k1, c0, j))
        row[j] = resolution * min(max(level, low), high)


@kernel
def _quantize(seed, k1, c0, resolution, low, high, out):
    for r in range(out.shape[0]):
        _rounded(seed, k1[r], c0[r], resolution, low, high, out[r])


def quantize(seed, who, round_, x, resolution, bits):
    """Stochastic rounding of x (n, dim) to multiples of `resolution` with 2^bits levels.

    Q(x) = resolution floor(x / resolution + U), clamped to -2^(bits-1) .. 2^(bits-1) - 1: unbiased
    inside the range (Ding 2021, eq. 26). U has the address (seed, CODEC, agent who[r], round_[r]).
    """
    out, half = x.copy(), float(1 << (bits - 1))
    key, k1, c0, _ = words(seed, Stream.CODEC, agent=who, round=round_)
    _quantize(key, k1, c0, float(resolution), -half, half - 1.0, out)
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


# Codecs of a scenario, in place on one row, in memory of `scratch_for`.

PLAIN, TOP, RANDOM, LEVELS = range(4)  # kinds


@lean_inline
def _at(place, x):
    """The number at a place of x (n,) in ascending order; reorders x (Hoare 1961, FIND)."""
    low, high = 0, x.shape[0] - 1
    while low < high:
        bar, i, j = x[(low + high) // 2], low, high
        while i <= j:
            while x[i] < bar:
                i += 1
            while x[j] > bar:
                j -= 1
            if i <= j:
                x[i], x[j], i, j = x[j], x[i], i + 1, j - 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return x[place]


@lean_inline
def _size(number):
    return np.inf if np.isnan(number) else abs(number)


@lean_inline
def _top(k, row, sizes):
    """Keep the k largest of a row (dim,) in size, the first of equal ones; the others become 0."""
    for j in range(row.shape[0]):
        sizes[j] = _size(row[j])
    least, room = _at(row.shape[0] - k, sizes), k
    for j in range(row.shape[0]):
        room -= _size(row[j]) > least
    for j in range(row.shape[0]):
        equal = _size(row[j]) == least
        if _size(row[j]) < least or (equal and room <= 0):
            row[j] = 0.0
        room -= equal


@lean_inline
def _levels(seed, k1, c0, most, row, squares, room):
    """QSGD: a row (dim,) rounded to multiples of its norm over `most`.

    Q(x)_j = (|x| / s) floor(s x_j / |x| + U), one of 2 s + 1 levels and unbiased: the law of
    Alistarh, Grubic, Li, Tomioka, Vojnovic 2017 (arXiv 1610.02132), Section 3.1; s is `most`. The
    norm is a float32, rounded upwards.
    """
    for j in range(row.shape[0]):
        squares[j] = row[j] * row[j]
    norm = np.sqrt(pairwise(squares, room))
    short = np.float32(norm)
    if np.float64(short) < norm:
        short = np.nextafter(short, np.float32(np.inf))
    step = np.float64(short) / most
    _rounded(seed, k1, c0, step if step != 0.0 else 1.0, -float(most), float(most), row)


@lean_kernel
def encode(coder, seed, k1, c0, row, scratch):
    """Make of a row (dim,) what a receiver reads of it: see `coder_of`.

    Dithers have the address (seed, k1, c0), as has the subset of k coordinates of random-k.
    """
    kind, amount, bits, times, over = coder
    sizes, pool, kept, room = scratch
    if kind == TOP:
        _top(amount, row, sizes)
    elif kind == RANDOM:
        subset_with(seed, k1, c0, pool, kept[:amount])
        for j in range(row.shape[0]):
            row[j] = row[j] if pool[j] else 0.0
    elif kind == LEVELS:
        _levels(seed, k1, c0, amount, row, sizes, room)
    if bits < 64:
        narrowed(bits, row)
    if times != 1.0 or over != 1.0:
        for j in range(row.shape[0]):
            row[j] = row[j] * times / over


def scratch_for(dim):
    """Memory of `encode` for rows (dim,)."""
    whole = np.empty(dim, np.int64)
    return np.empty(dim), whole, whole.copy(), np.empty((64, 2))


@kernel
def _encode(coder, seed, k1, c0, out, scratch):
    for r in range(out.shape[0]):
        encode(coder, seed, k1[r], c0[r], out[r], scratch)


def coder_of(codec, dim, unbiased):
    """What `encode` takes: kind, its number, bits of values, a factor and a divisor.

    See `Codec.coded` in desim.network.conditions.codec, of which codec is.
    """
    kind = {"top-k": TOP, "random-k": RANDOM, "quantise": LEVELS}.get(codec.kind, PLAIN)
    if kind == LEVELS:
        return kind, codec.most, 64, 1.0, 1.0 if unbiased else codec.tau(dim)
    k = codec.coordinates(dim) if kind else 0
    bits = {"float32": 32, "float16": 16}.get(codec.numbers if kind else codec.kind, 64)
    return kind, k, bits, dim / k if unbiased and kind == RANDOM else 1.0, 1.0


def encoded(codec, seed, x, unbiased, **place):
    """What is read of rows x (n, dim) at addresses (seed, CODEC, *place (n,))."""
    out, (n, dim) = x.copy(), x.shape
    key, k1, c0, _ = words(seed, Stream.CODEC, **place)
    addresses = (np.resize(one, n) for one in (k1, c0))
    _encode(coder_of(codec, dim, unbiased), key, *addresses, out, scratch_for(dim))
    return out


# Numbers that are sent in fewer bits, and sums as NumPy has them.


@lean_inline
def _half(x):
    """A number in the format float16: the nearest one, of two the even."""
    if not abs(x) < 65520.0:
        return x * np.inf
    _, exponent = math.frexp(x)
    large = math.ldexp(1.5, max(exponent, -13) + 41)  # whose last place is worth that of the half
    return math.copysign((x + large) - large, x)


@lean_kernel
def narrowed(bits, row):
    """Round the numbers of row (width,) to 32 or 16 bits, in place, as `codec.rounded` does."""
    for j in range(row.shape[0]):
        row[j] = np.float64(np.float32(row[j])) if bits == 32 else _half(row[j])


@lean_kernel
def pairwise(values, room):
    """Sum of values (n,), in the order of np.add.reduce; room (64, 2) is scratch.

    Halves of up to 128 values (Higham 1993), each in eight sums that go side by side.
    """
    n, place, left = values.shape[0], 0, 0
    while True:
        while n > 128:  # its first half is next; room[left] keeps how many are in the other
            half = n // 2 - n // 2 % 8
            room[left, 0], n = n - half, half
            left += 1
        total = _side_by_side(values[place : place + n])
        place += n
        while left > 0 and room[left - 1, 0] == 0.0:  # the sum of a half whose other this is
            left -= 1
            total = room[left, 1] + total
        if left == 0:
            return total
        n, room[left - 1, 0], room[left - 1, 1] = int(room[left - 1, 0]), 0.0, total


@lean_inline
def _side_by_side(x):
    n, total = x.shape[0], 0.0
    whole = n - n % 8 if n >= 8 else 0
    if whole:
        a, b, c, d, e, f, g, h = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
        for r in range(8, whole, 8):
            a, b, c, d = a + x[r], b + x[r + 1], c + x[r + 2], d + x[r + 3]
            e, f, g, h = e + x[r + 4], f + x[r + 5], g + x[r + 6], h + x[r + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for r in range(whole, n):
        total += x[r]
    return total


# What is done to messages on their way, in place. A way is the bits of a number, where nothing but
# digits is lost; or of replies (largest norm, seed and scale (agents or 0,) of noise, seed, coder,
# whether both ends have the memory (agents or 0, dim)); or of what agents are sent (seed, coder,
# what they have (agents, dim)). desim.engine.coding has the same for arrays.

OWN = 1  # step of the draws' addresses; methods with a codec of their own have 0
CALL = 3  # parts of the way of a call


@lean_inline
def _narrow(bits, i, round_, row, scratch):
    if bits < 64:
        narrowed(bits, row)


@lean_kernel
def _reply(way, i, round_, row, scratch):
    clip, noise_seed, scale, seed, coder, known, memory = way
    if clip < np.inf:
        clip_row(row, clip)
    if scale.shape[0]:
        perturb(i, noise_seed, counter(round_, 0), scale[i], row, scratch[0])
    for j in range(memory.shape[1]):
        if known:
            row[j] -= memory[i, j]
        else:
            row[j] += memory[i, j]
            memory[i, j] = row[j]
    encode(coder, seed, address(CODEC, i, -1), counter(round_, OWN), row, scratch)
    for j in range(memory.shape[1]):
        if known:
            memory[i, j] += row[j]
            row[j] = memory[i, j]
        else:
            memory[i, j] -= row[j]


@lean_kernel
def _call(way, i, round_, row, scratch):
    seed, coder, reference = way
    for j in range(row.shape[0]):
        row[j] -= reference[i, j]
    encode(coder, seed, address(CODEC, -1, i), counter(round_, OWN), row, scratch)
    for j in range(row.shape[0]):
        reference[i, j] += row[j]
        row[j] = reference[i, j]


def alike(way):
    """Whether all agents hear the same of a message."""
    return not isinstance(way, tuple)


@overload(alike, jit_options=LEAN, strict=False)
def _alike(way):
    same = not isinstance(way, types.BaseTuple)
    return lambda way: same


def passed(way, i, round_, row, scratch):
    """What is heard of a row (width,), to or from agent i, of a call of this round, in place.

    scratch: of `scratch_for`.
    """
    if alike(way):
        _narrow(way, i, round_, row, scratch)
    else:
        (_call if len(way) == CALL else _reply)(way, i, round_, row, scratch)


@overload(passed, jit_options=LEAN, strict=False)
def _passed(way, i, round_, row, scratch):
    if not isinstance(way, types.BaseTuple):
        return lambda way, i, round_, row, scratch: _narrow(way, i, round_, row, scratch)
    if len(way) == CALL:
        return lambda way, i, round_, row, scratch: _call(way, i, round_, row, scratch)
    return lambda way, i, round_, row, scratch: _reply(way, i, round_, row, scratch)
