"""Columns of a table as the bytes of a Parquet page: differences, repeats, or codes of few values.

Each kernel takes a whole column (n,) and a buffer `out` of bytes with room for 9 n + 100, and
returns how many bytes it wrote. The formats are Parquet's DELTA_BINARY_PACKED, LZ4's block and
Parquet's bit-packed codes; libraries that read them are the tests' judges.
"""

import numpy as np

from desim.jit import lean_inline, lean_kernel

BLOCK, MINI, MINIS = 128, 32, 4  # differences of a block, of one width, and widths of a block
SLOTS = 8192  # of the table that finds codes; twice MOST
MOST = 4096  # codes of one column
PLACES = 4096  # of the table that finds repeats
WINDOW = 8191  # words that a repeat may lie back: LZ4's 64 KiB
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_7, _8, _52, _51 = np.uint64(7), np.uint64(8), np.uint64(52), np.uint64(51)
_0, _127, _128 = np.uint64(0), np.uint64(127), np.uint64(128)


@lean_inline
def _put_number(number, out, at):
    """Write a number of variable length, 7 bits a byte."""
    rest = np.uint64(number)
    while rest >= _128:
        out[at] = np.uint8(rest & _127 | _128)
        rest >>= _7
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@lean_inline
def _folded(number):
    """A number with its sign in the lowest bit."""
    return np.uint64((number << 1) ^ (number >> 63))


@lean_inline
def _put_word(word, out, at):
    """Write the 8 bytes of a word, the lowest first."""
    for byte in range(8):
        out[at + byte] = np.uint8(word >> np.uint64(8 * byte))
    return at + 8


@lean_inline
def _step(values, k):
    return np.int64(values[k]) - np.int64(values[k - 1])


@lean_inline
def _put_packed(values, begin, end, least, width, out, at):
    """Write the steps begin .. end - 1, less the least, with `width` bits each, and pad them."""
    stop = at + MINI // 8 * width
    word, used = _0, 0
    for k in range(begin, end):
        rest = np.uint64(_step(values, k) - least)
        word |= rest << np.uint64(used)
        used += width
        if used >= 64:
            at = _put_word(word, out, at)
            used -= 64
            word = rest >> np.uint64(width - used) if used else _0
    while at < stop:
        out[at] = np.uint8(word)
        word >>= _8
        at += 1
    return at


@lean_kernel
def differences(values, out):
    """Write integers as steps from one to the next, in as many bits as each 32 of them need."""
    n = values.shape[0]
    at = _put_number(BLOCK, out, 0)
    at = _put_number(MINIS, out, at)
    at = _put_number(n, out, at)
    at = _put_number(_folded(np.int64(values[0])), out, at)
    for first in range(1, n, BLOCK):
        last = min(first + BLOCK, n)
        least = _step(values, first)
        for k in range(first + 1, last):
            least = min(least, _step(values, k))
        at = _put_number(_folded(least), out, at)
        widths, at = at, at + MINIS
        for mini in range(MINIS):
            begin = first + MINI * mini
            end = min(begin + MINI, last)
            union, width = _0, 0
            for k in range(begin, end):
                union |= np.uint64(_step(values, k) - least)
            while width < 64 and union >> np.uint64(width):
                width += 1
            out[widths + mini] = width
            if width:
                at = _put_packed(values, begin, end, least, width, out, at)
    return at


@lean_inline
def _put_rest(length, out, at):
    """Write what a length of 15 or more leaves."""
    length -= 15
    while length >= 255:
        out[at] = 255
        length -= 255
        at += 1
    out[at] = length
    return at + 1


@lean_inline
def _put_literals(words, first, last, low, token, out, at):
    """Write a token, words first .. last - 1 and the `low` lowest bytes of word `last`."""
    plain = 8 * (last - first) + low
    out[at] = np.uint8(min(plain, 15) << 4 | token)
    at += 1
    if plain >= 15:
        at = _put_rest(plain, out, at)
    for k in range(first, last):
        at = _put_word(words[k], out, at)
    if low:
        _put_word(words[last], out, at)
    return at + low


@lean_inline
def _shared(word, other):
    """How many of the highest bytes two different words share."""
    differ, shared = word ^ other, 7
    while differ >> _8:
        differ >>= _8
        shared -= 1
    return shared


@lean_kernel
def repeats(words, places, out):
    """Write words of 64 bits as an LZ4 block: a word that was there before is referred to.

    places (PLACES,) int32: where a word was seen last.
    """
    n = words.shape[0]
    for k in range(places.shape[0]):
        places[k] = -1
    at, done, i, end = 0, 0, 0, n - 2  # the last bytes of a block are always plain
    while i < end:
        word = words[i]
        place = np.int64((word * GOLDEN) >> _52)
        before = places[place]
        places[place] = i
        shared = 8
        if before < 0 or i - before > WINDOW or words[before] != word:
            before = i - 1
            shared = 0 if i == 0 else _shared(word, words[before])
        stop = i + 1
        if shared == 8:
            while stop < end and words[stop] == words[before + stop - i]:
                stop += 1
        elif shared:
            while stop < end and words[stop] == word:
                stop += 1
        length = shared + 8 * (stop - i - 1)
        if shared == 0 or length < 4:
            i += 1
            continue
        last, low = i, 8 - shared
        if shared == 8 and i > done and before > 0 and words[i - 1] != words[before - 1]:
            low = _shared(words[i - 1], words[before - 1])
            last, low, length = i - 1, 8 - low, length + low
        at = _put_literals(words, done, last, low, min(length - 4, 15), out, at)
        back = 8 * (i - before)
        out[at], out[at + 1] = np.uint8(back & 255), np.uint8(back >> 8)
        at += 2
        if length - 4 >= 15:
            at = _put_rest(length - 4, out, at)
        i = done = stop
    return _put_literals(words, done, n, 0, 0, out, at)


@lean_kernel
def coded(words, slots, known, count, out):
    """Write a code for each word of 64 bits; return how many words are known now, -1: too many.

    known (MOST,): the words of the codes, of which there were `count`; slots (SLOTS,) int16 finds
    them, -1 where there is none.
    """
    last, code = words[0], -1
    for i in range(words.shape[0]):
        word = words[i]
        if code < 0 or word != last:
            slot = np.int64((word * GOLDEN) >> _51)
            while slots[slot] >= 0 and known[slots[slot]] != word:
                slot = (slot + 1) & (SLOTS - 1)
            if slots[slot] < 0:
                if count == known.shape[0]:
                    return -1
                slots[slot], known[count] = count, word
                count += 1
            last, code = word, np.int64(slots[slot])
        out[i] = code
    return count


@lean_kernel
def packed(codes, width, out):
    """Write codes with `width` bits each, 16 at most, and zeros up to a multiple of 8 codes."""
    at, used, word = 0, 0, 0
    for k in range(codes.shape[0]):
        word |= np.int64(codes[k]) << used
        used += width
        if used >= 32:
            for byte in range(4):
                out[at + byte] = np.uint8(word >> 8 * byte)
            at, used, word = at + 4, used - 32, word >> 32
    while at < (codes.shape[0] + 7) // 8 * width:
        out[at] = np.uint8(word & 255)
        at, word = at + 1, word >> 8
    return at
