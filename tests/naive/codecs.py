"""Codecs as an encoder that really packs bits and a decoder that reads them, one row at a time.

A message is a text of 0 and 1. Sparse ones have values as floats and a list of indices or a bitmap,
whichever is shorter; quantised ones a float32 norm and a level in `bits` bits for each number.
"""

import math
import struct

import numpy as np

FORMATS = {"float64": "<d", "float32": "<f", "float16": "<e"}


def to_bits(number, form):
    """A float as its bits."""
    with np.errstate(over="ignore"):
        number = float(np.asarray(number).astype(form))
    return "".join(f"{byte:08b}" for byte in struct.pack(FORMATS[form], number))


def from_bits(text, form):
    """The float that the bits hold."""
    raw = bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))
    return struct.unpack(FORMATS[form], raw)[0]


def width(form):
    """Bits of one number."""
    return 8 * struct.calcsize(FORMATS[form])


def largest(row, k):
    """Indices of the k largest in size, the first of equal ones, ascending."""
    order = sorted(range(len(row)), key=lambda j: (-abs(row[j]), j))
    return sorted(order[:k])


def sparse(row, kept, form, seeded=False):
    """The message that has coordinates `kept` of the row."""
    n = len(row)
    each = math.ceil(math.log2(n))
    values = "".join(to_bits(row[j], form) for j in kept)
    if seeded:
        return values
    if each * len(kept) <= n:
        return "".join(f"{j:0{each}b}" if each else "" for j in kept) + values
    return "".join("1" if j in kept else "0" for j in range(n)) + values


def read_sparse(text, n, k, form, drawn=None):
    """The row of n numbers that the message has k of; drawn: indices that are not in it."""
    each, size = math.ceil(math.log2(n)), width(form)
    if drawn is not None:
        kept = drawn
    elif each * k <= n:
        kept = [int(text[i * each : (i + 1) * each] or "0", 2) for i in range(k)]
        text = text[k * each :]
    else:
        kept = [j for j in range(n) if text[j] == "1"]
        text = text[n:]
    row = [0.0] * n
    for place, j in enumerate(kept):
        row[j] = from_bits(text[place * size : (place + 1) * size], form)
    assert len(text) == k * size
    return np.array(row)


def up(norm):
    """The next float32 that is not below a number."""
    short = np.float32(norm)
    return float(short if float(short) >= norm else np.nextafter(short, np.float32(np.inf)))


def levels(row, bits, u):
    """QSGD's norm and levels for a dither u (n,)."""
    s = 2 ** (bits - 1) - 1
    norm = up(math.sqrt(sum(x * x for x in row)))
    return norm, [
        math.floor(x / (norm / s) + d) if norm else 0 for x, d in zip(row, u, strict=True)
    ]


def quantised(row, bits, u):
    """The message with a norm and a level for each number, counted from -s."""
    s = 2 ** (bits - 1) - 1
    norm, whole = levels(row, bits, u)
    return to_bits(norm, "float32") + "".join(f"{level + s:0{bits}b}" for level in whole)


def read_quantised(text, n, bits):
    """The row of n numbers that the message holds."""
    s = 2 ** (bits - 1) - 1
    norm, text = from_bits(text[:32], "float32"), text[32:]
    assert len(text) == n * bits
    return np.array([norm / s * (int(text[j * bits : (j + 1) * bits], 2) - s) for j in range(n)])


def tau(n, bits):
    """1 + min(n / s^2, sqrt(n) / s)."""
    s = 2 ** (bits - 1) - 1
    return 1.0 + min(n / s**2, math.sqrt(n) / s)


def through(row, how, *, contract, u=None, kept=None):
    """What a receiver reads of a row, and the bits that it took; how: (kind, amount, form).

    u (n,): dither of quantise; kept: the coordinates that random-k drew.
    """
    kind, amount, form = how
    n = len(row)
    if kind == "quantise":
        text = quantised(row, amount, u)
        read = read_quantised(text, n, amount)
        return (read / tau(n, amount) if contract else read), len(text)
    chosen = largest(row, amount) if kind == "top-k" else sorted(kept)
    text = sparse(row, chosen, form)
    read = read_sparse(text, n, amount, form)
    return (read if contract or kind == "top-k" else read * (n / amount)), len(text)
