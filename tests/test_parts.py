"""What compiled functions take in of each other: without machine code, and the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from desim.numerics import parts
from desim.numerics.lanes import in_lanes, load, store

FLAGS = {"error_model": "numpy", "nogil": True, "_nrt": False}
DRAW = """
import sys
if "own" in sys.argv:
    from numba.core import codegen
    del codegen.JITCodeLibrary
from desim.numerics import parts
from desim.numerics import distributions, keys
law = distributions.Distribution(distributions.GAMMA, 2.0, 0.7)
print(distributions.draw(law, 5, 3, agent=range(4)).tobytes().hex())
print(bool(parts.ENTRANCE), len(keys.threefry.overloads), hasattr(keys.threefry, "part"))
"""


def of(vanishes):
    """Decorate a function with no place on disk."""
    flags = FLAGS | {"forceinline": vanishes}

    def decorate(function):
        entrance = numba.njit(**flags | parts.ENTRANCE)(function)
        return parts.leads_to(entrance, lambda: numba.njit(**flags | parts.PART)(function))

    return decorate


def chain():
    """A function that calls one that vanishes, with one that stays in it, with two in that."""

    @of(vanishes=True)
    def least(x):
        if x < 0.0:
            raise ValueError("below 0")
        return np.sqrt(x)

    @of(vanishes=False)
    def deep(x):
        return x + 1.0 if x > 0.0 else 1.0

    @of(vanishes=False)
    def middle(x):
        return deep(least(x))

    @of(vanishes=True)
    def upper(x, array):
        array[0] += middle(x)
        return middle(2.0 * x) + least(x)

    @of(vanishes=False)
    def whole(x, array):
        return upper(x, array) * middle(3.0 * x)

    return least, deep, middle, upper, whole


def defined(module):
    """Names of functions that a module has code of."""
    return [one.name for one in module.functions if not one.is_declaration]


def expected(x):
    """What `whole` returns."""
    return (np.sqrt(2.0 * x) + 1.0 + np.sqrt(x)) * (np.sqrt(3.0 * x) + 1.0)


def test_only_what_python_calls_has_machine_code():
    assert parts.possible()
    *inner, whole = chain()
    array = np.zeros(1)
    assert whole(0.3, array) == expected(0.3)
    assert array[0] == np.sqrt(0.3) + 1.0
    for one in inner:
        assert not one.overloads
        (form,) = one.part().overloads.values()
        assert not defined(form.library._final_module)
        assert any(one.__name__ in name for name in defined(form.library.code))
    (form,) = whole.overloads.values()
    compiled = defined(form.library._final_module)
    stay = [
        one.__name__ for one in (*inner, whole) if any(f"{one.__name__}B" in n for n in compiled)
    ]
    assert stay == ["deep", "middle", "whole"]


@pytest.mark.parametrize("small", [0, parts.SMALL])
def test_a_large_part_that_vanishes_is_optimised_where_it_vanishes(small, monkeypatch):
    monkeypatch.setattr(parts, "SMALL", small)
    _, _, middle, upper, whole = chain()
    array = np.zeros(1)
    assert whole(0.3, array) == expected(0.3)
    assert array[0] == np.sqrt(0.3) + 1.0
    forms = {one: next(iter(one.part().overloads.values())) for one in (middle, upper)}
    names = {one: defined(form.library.code) for one, form in forms.items()}
    apart = [one for one in names if any("leastB" in name for name in names[one])]
    assert apart == ([] if small else [upper])
    (form,) = whole.overloads.values()
    compiled = defined(form.library._final_module)
    assert not any("leastB" in name or "upperB" in name for name in compiled)


def test_a_function_is_called_by_python_and_by_others_in_any_order():
    for python_first in (True, False):
        least, _, middle, _, whole = chain()
        if python_first:
            assert middle(4.0) == 3.0
        assert whole(0.3, np.zeros(1)) == expected(0.3)
        assert (least(4.0), middle(4.0)) == (2.0, 3.0)


def test_what_a_part_raises_arrives():
    for function in chain()[::4]:
        with pytest.raises(ValueError, match="below 0"):
            function(-1.0, *[np.zeros(1)] * (len(function.py_func.__code__.co_varnames) > 1))


def test_functions_of_numba_itself_call_parts():
    """A loss of a plug-in may call what desim compiles, as may the halves of a parallel kernel."""
    *_, upper, whole = chain()

    @numba.njit
    def foreign(x, array):
        return upper(x, array) + whole(x, array)

    @numba.njit(parallel=True)
    def shared(x, out):
        for i in numba.prange(out.shape[0]):
            out[i] = upper(x, out[i : i + 1])

    array, out = np.zeros(1), np.zeros(3)
    own = np.sqrt(0.6) + 1.0 + np.sqrt(0.3)
    assert foreign(0.3, array) == own + expected(0.3)
    shared(0.3, out)
    assert out.tolist() == [own] * 3


def test_lanes_step_through_parts():
    @of(vanishes=True)
    def twice(like, place, array):
        store(array, place, load(like, array, place) + load(like, array, place))

    @of(vanishes=False)
    def all_of_them(array):
        in_lanes(array.shape[0], twice, array)

    array = np.arange(13.0)
    all_of_them(array)
    assert array.tolist() == (2.0 * np.arange(13.0)).tolist()
    assert not twice.overloads


def test_where_numba_lacks_what_is_changed_it_compiles_in_its_own_way(monkeypatch):
    monkeypatch.setitem(parts.CHANGED, Dispatcher, ("get_call_template", "no_such_method"))
    assert not parts.possible()


def drawn(cache, *arguments):
    """What DRAW prints in a process of its own: bits, and how functions were compiled."""
    env = os.environ | {"DESIM_CACHE_DIR": str(cache), "DESIM_COMPILE": "at-once"}
    done = subprocess.run(
        [sys.executable, "-c", DRAW, *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_parts_have_the_bits_of_numbas_own_way_and_are_found_on_disk(tmp_path: Path) -> None:
    """Of a gamma: one kernel, in one that stays, in one that vanishes."""
    bits, kinds = drawn(tmp_path / "one")
    assert kinds == "True 0 True"
    own_bits, kinds = drawn(tmp_path / "other", "own")
    assert own_bits == bits
    assert kinds == "False 1 False"
    entrances = [one for one in (tmp_path / "one").rglob("*.nb?") if "part-" not in one.name]
    assert len(entrances) == 2  # of one kernel: a list of what there is, and its code
    for one in entrances:
        one.unlink()
    before = {one: one.stat().st_mtime_ns for one in (tmp_path / "one").rglob("part-*.nbc")}
    assert drawn(tmp_path / "one") == [bits, "True 0 True"]
    after = {one: one.stat().st_mtime_ns for one in (tmp_path / "one").rglob("part-*.nbc")}
    assert after == before
