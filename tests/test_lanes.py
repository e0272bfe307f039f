"""Lanes: what compiled code does with several numbers at once is what plain Python says."""

import os
import subprocess
import sys
from types import FunctionType

import numpy as np
import pytest
from numba.core.errors import TypingError

from desim.numerics import plain
from desim.numerics.elementary import exp_, log_, sincos_turn
from desim.numerics.jit import kernel
from desim.numerics.keys import Stream, normal, normals, normals_into, words
from desim.numerics.lanes import (
    bits_of,
    float_of,
    in_eights,
    in_lanes,
    load,
    load_one,
    pick,
    places,
    root,
    store,
    store_pairs,
    zeros,
)

SIZES = (1, 3, 4, 5, 7, 8, 12, 13, 21, 32)
ONE, TWELVE = np.uint64(1), np.uint64(12)


def numbers(lanes, h, parts):
    a, b, out = parts
    x, y, z = load(lanes, a, h), load(lanes, b, h), load_one(lanes, b, 0)
    x = pick(x > y, x * y - z, -x / y)
    x = x + pick(y < 1.5, root(y), 0.25)
    x = float_of(bits_of(x) ^ (places(x) & ONE) | ((bits_of(y) << TWELVE) >> TWELVE) >> TWELVE)
    store(out, h, 2.0 - pick((places(x) & ONE) == ONE, x, y))


def functions(lanes, h, parts):
    a, b, out = parts
    x, y = load(lanes, a, h), load(lanes, b, h)
    sine, cosine = sincos_turn(x)
    store(out, h, exp_(x) * log_(y) + sine - cosine)


@kernel
def compiled_numbers(a, b, out):
    in_lanes(a.size, compiled_step, (a, b, out))


@kernel
def compiled_functions(a, b, out):
    in_lanes(a.size, compiled_elementary, (a, b, out))


@kernel
def one_by_one(a, b, out):
    for h in range(a.size):
        sine, cosine = sincos_turn(a[h])
        out[h] = exp_(a[h]) * log_(b[h]) + sine - cosine


@kernel
def compiled_pairs(a, b, place, out):
    store_pairs(out, place, load(zeros(4), a, 0), load(zeros(4), b, 0))


@kernel
def compiled_normals(k0, k1, c0, out):
    normals_into(k0, k1, c0, out)


compiled_step, compiled_elementary = kernel(numbers), kernel(functions)


def arrays(n):
    rng = np.random.default_rng(n)
    return rng.normal(size=n), rng.uniform(1.0, 2.0, n)


@pytest.mark.thin(3)
@pytest.mark.parametrize("n", SIZES)
def test_operators_mean_what_plain_python_says(n):
    a, b = arrays(n)
    said, found = np.empty(n), np.empty(n)
    in_eights(n, numbers, (a, b, said))
    compiled_numbers(a, b, found)
    assert found.tobytes() == said.tobytes()
    in_eights(n, numbers, (a, 1.0 + 1e-15 * b, said))
    assert found.tobytes() != said.tobytes()


@pytest.mark.thin(3)
@pytest.mark.parametrize("n", SIZES)
def test_a_lane_has_the_bits_that_it_has_alone(n):
    a, b = arrays(n)
    alone, found = np.empty(n), np.empty(n)
    one_by_one(a, b, alone)
    compiled_functions(a, b, found)
    assert found.tobytes() == alone.tobytes()
    one_by_one(a + 1e-12, b, alone)
    assert found.tobytes() != alone.tobytes()


@pytest.mark.parametrize("n", SIZES)
def test_plain_python_takes_all_lanes_at_once_to_the_same_bits(n):
    a, b = arrays(n)
    compiled, plainly = np.empty(n), np.empty(n)
    compiled_functions(a, b, compiled)
    step = FunctionType(functions.__code__, plain._namespace(globals()))
    in_lanes(n, step, (a, b, plainly))
    assert plainly.tobytes() == compiled.tobytes()
    in_lanes(n, step, (a + 1e-12, b, plainly))
    assert plainly.tobytes() != compiled.tobytes()


@pytest.mark.parametrize("n", SIZES)
def test_normals_are_the_draws_one_by_one(n):
    drawn = normals(7, Stream.USER, agent=3, round=2, size=n)
    k0, k1, c0, _ = words(7, Stream.USER, agent=3, round=2)
    assert list(drawn) == [normal(k0, k1[0], c0[0], i) for i in range(n)]
    assert drawn[0] != normal(k0, k1[0], c0[0] + ONE, 0)


@pytest.mark.parametrize("place", range(9))
def test_pairs_stop_at_the_end_of_an_array(place):
    a, b = arrays(4)
    wanted = np.full(9, 5.0)
    room = wanted.copy()
    wanted[place:] = np.r_[np.stack([a, b], 1).ravel(), 5.0][: 9 - place]
    said = room.copy()
    store_pairs(said[:8], place, a, b)
    compiled_pairs(a, b, place, room[:8])
    assert room.tobytes() == said.tobytes()
    assert list(room[:8]) == list(wanted[:8])
    assert room[8] == 5.0


@kernel
def compiled_copies(a, out, pairs):
    lanes = load(zeros(8), a, 0)
    store(out, 0, lanes)
    store_pairs(pairs, 1, lanes, lanes)


def test_narrow_arrays_get_rounded_numbers_and_keep_what_is_beside_them():
    a = np.random.default_rng(0).normal(size=8)
    out, pairs = np.full(10, 5.0, np.float32), np.full(20, 5.0, np.float32)
    compiled_copies(a, out[:8], pairs[:13])
    assert out.tolist() == [*a.astype(np.float32).tolist(), 5.0, 5.0]
    wanted = np.repeat(a.astype(np.float32), 2)[:12].tolist()
    assert pairs.tolist() == [5.0, *wanted, *[5.0] * 7]
    with pytest.raises(TypingError):
        compiled_copies(a, np.zeros(8, np.int64), pairs)


@pytest.mark.parametrize("n", SIZES)
def test_narrow_normals_are_the_wide_ones_rounded(n):
    k0, k1, c0, _ = words(7, Stream.USER, agent=3, round=2)
    narrow = np.full(n + 20, 5.0, np.float32)
    compiled_normals(k0, k1[0], c0[0], narrow[:n])
    drawn = normals(7, Stream.USER, agent=3, round=2, size=n).astype(np.float32)
    assert narrow.tolist() == [*drawn.tolist(), *[5.0] * 20]


def test_numbers_that_are_not_side_by_side_are_refused():
    b, a = np.ones(8), np.arange(16.0)
    with pytest.raises(TypingError):
        compiled_functions(a[::2], b, np.empty(8))
    compiled_functions(a[:8], b, np.empty(8))


ARITHMETIC = """
from desim.numerics.keys import normals

print(normals(3, 10, agent=[0, 1], size=13 * 21).tobytes().hex())
"""


@pytest.mark.slow
def test_processors_without_wide_registers_compute_the_same_bits(tmp_path):
    said = set()
    for name in ("", "generic"):
        own = {"NUMBA_CPU_NAME": name, "DESIM_CACHE_DIR": str(tmp_path / name)} if name else {}
        own |= {"NUMBA_CPU_FEATURES": ""} if name else {}
        command = [sys.executable, "-c", ARITHMETIC]
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.add(done.stdout)
    assert len(said) == 1
    assert len(said.pop()) == 2 * 8 * 2 * 13 * 21 + 1
