"""Kernels as plain Python: the bits of compiled ones, and only as long as that is sooner done."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import effort
import numpy as np
import pytest
from bits import bits_of
from cases import CASES, merged, one_each, star
from mutant import mutant
from numba import typeof
from numba.core.compiler_lock import global_compiler_lock as compiler_lock
from study_scenes import STUDY

import desim
from desim.engine.play import _long, _steps
from desim.errors import InputError
from desim.experiments import contract
from desim.network.timeline import messages
from desim.numerics import background, distributions, jit, keys, plain
from desim.numerics.cache import cache_home
from desim.numerics.jit import kernel, product_kernel
from desim.numerics.lanes import in_lanes
from desim.problem.kernels import layered
from desim.runs.warmup import warm_up
from desim.scenario.build import build
from desim.scenario.load import loaded as load

TESTS = Path(__file__).resolve().parent
EACH = [one.values[0] for one in one_each(CASES) if not one.marks]  # of every method
QUICK = ["plt-noisy", "plt-all", "fedavg-each", "nfl-late-budget", "fedavg:agents", "nfl:agents"]


def played(*names, when="never", home=None):
    """What `tests/bits.py` prints in a fresh process."""
    place = {} if home is None else {"DESIM_CACHE_DIR": str(home)}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "bits.py", *names], cwd=TESTS,
        env={**os.environ, **place, "DESIM_COMPILE": when},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def all_played():
    """What one process has played as plain Python; what it played wrongly is under `wrong`."""
    names = QUICK if effort.quick else dict.fromkeys([*EACH, *QUICK])
    return played(*names, "--wrong", QUICK[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_plain_python_has_the_bits_of_compiled_code(name, all_played):
    assert all_played[name] == bits_of(name)


def test_some_runs_have_the_bits_of_compiled_code(all_played):
    compiled = {name: bits_of(name) for name in QUICK}
    assert {name: all_played[name] for name in QUICK} == compiled
    assert all_played["wrong"][QUICK[0]] != compiled[QUICK[0]]


@pytest.mark.slow
def test_a_first_run_compiles_nothing_and_what_is_compiled_is_used(tmp_path):
    code = "import desim\nfrom desim.numerics import plain\nfrom cases import CASES\n"
    code += "run = desim.run(CASES['gd-plain'])\n"
    code += "print(run.manifest['compile_seconds'], plain.seconds > 0.0)"

    def told(when):
        env = {**os.environ, "DESIM_CACHE_DIR": str(tmp_path), "DESIM_COMPILE": when}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=TESTS, env=env,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    assert told("later") == ["0.0", "True"]
    spent = float(next(tmp_path.rglob("plain-seconds-*")).read_text())
    assert 0.0 < spent < plain.PATIENCE
    bits_of("gd-plain")  # which leaves its code for all
    shutil.copytree(
        cache_home() / "compiled", tmp_path / "compiled", dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("plain-seconds-*", "*.lock"), copy_function=os.symlink,
    )  # fmt: skip
    assert told("later")[1] == "False"
    assert float(next(tmp_path.rglob("plain-seconds-*")).read_text()) == spent


@pytest.fixture
def later(monkeypatch, tmp_path):
    """Nothing is compiled yet, and nobody has waited."""
    monkeypatch.setenv("DESIM_COMPILE", "later")
    monkeypatch.setenv("DESIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plain, "seconds", 0.0)
    monkeypatch.setattr(plain, "_earlier", None)
    monkeypatch.setattr(plain, "_missing", {})
    monkeypatch.setattr(plain, "_paid", 0.0)
    monkeypatch.setattr(plain, "_awaited", False)
    return tmp_path


def test_plain_python_is_over_once_it_has_cost_what_compiling_does(later, monkeypatch):
    monkeypatch.setenv("DESIM_COMPILE", "here")
    assert plain.rented()
    with plain.at_once():
        assert not plain.rented()
    monkeypatch.setattr(plain, "seconds", plain.PATIENCE)
    assert not plain.rented()
    monkeypatch.setattr(plain, "seconds", 1.0)
    assert plain.rented()
    with monkeypatch.context() as patch:
        patch.setenv("DESIM_COMPILE", "never")
        plain._remember()
    assert not plain._account().exists()
    plain._remember()
    assert float(plain._account().read_text()) == 1.0
    plain._account().write_text(f"{plain.PRICE - 0.5}\n")
    monkeypatch.setattr(plain, "_earlier", None)
    assert not plain.rented()
    for nonsense in ("nonsense", "nan", "inf", "-1e9"):
        plain._account().write_text(nonsense)
        monkeypatch.setattr(plain, "_earlier", None)
        assert plain._before() == 0.0
        assert plain.rented()


def test_of_two_processes_that_end_at_once_none_loses_seconds(later, monkeypatch):
    right = 'with _account().open("a") as file:'
    for module in (plain, mutant(plain, right, right.replace('"a"', '"w"'))):
        monkeypatch.setattr(module, "seconds", 1.5)
        plain._account().unlink(missing_ok=True)
        for _ in range(2):  # both know what was before either
            module._remember()
        monkeypatch.setattr(plain, "_earlier", None)
        assert plain._before() == (3.0 if module is plain else 1.5)


@pytest.mark.parametrize("possible", [True, False])
def test_no_run_waits_for_the_compiler_where_another_process_can_compile(
    possible, later, monkeypatch
):
    monkeypatch.setattr(background, "possible", lambda: possible)
    monkeypatch.setattr(plain, "cores", lambda: 2)
    monkeypatch.setattr(plain, "seconds", 1e9)
    assert plain.rented() == possible
    with plain.soon():
        assert plain.rented() == possible
    monkeypatch.setattr(plain, "seconds", 0.0)
    with plain.soon():
        assert plain.rented() == possible
    monkeypatch.setattr(plain, "cores", lambda: 1)
    with plain.soon():  # nobody else has a core for it
        assert not plain.rented()


def test_it_is_said_when_to_compile(later, monkeypatch):
    for text, expected in (("", True), ("at-once", False), ("here", True), ("never", True)):
        monkeypatch.setenv("DESIM_COMPILE", text)
        assert plain.rented() == expected
        with plain.at_once():
            assert plain.rented() == (text == "never")
    monkeypatch.setattr(plain, "seconds", 1e9)
    assert plain.rented()  # never
    monkeypatch.setenv("DESIM_COMPILE", "tomorrow")
    with pytest.raises(InputError, match="DESIM_COMPILE: found 'tomorrow'; allowed: later"):
        plain.rented()


def test_numbers_come_back_as_compiled_code_returns_them():
    class Pair(NamedTuple):
        a: float
        b: np.ndarray

    array = np.ones(2)
    found = plain.native((np.float64(1.5), np.uint64(3), np.bool_(True), Pair(np.int64(2), array)))
    assert [type(one) for one in found] == [float, int, bool, Pair]
    assert found == (1.5, 3, True, found[3])
    assert (type(found[3].a), found[3].b is array) == (int, True)


def test_division_by_zero_is_that_of_compiled_code(later):
    divided = kernel(lambda x, y: x / y)
    with np.errstate(all="ignore"):
        assert plain.numbers(1.0) / plain.numbers(0.0) == np.inf
        assert plain.numbers((1.0, 2))[0] / 0.0 == np.inf
    assert divided(1.0, 0.0) == np.inf


def test_lanes_are_all_of_them_at_once_and_large_calls_are_compiled():
    def twice(lanes, h, parts):
        seen.append((lanes.size, h))

    seen = []
    in_lanes(11, twice, ())
    assert seen == [(11, 0)]
    few, many = (np.ones(3), (np.ones(2), 1.0)), (np.broadcast_to(1.0, (plain.LARGEST,)), few_one)
    assert plain._numbers(few) == 5 <= plain.LARGEST < plain._numbers(many)


few_one = np.ones(1)


@pytest.mark.parametrize("forgetful", [False, True])
def test_types_are_named_once_for_all_calls_alike(forgetful, later, monkeypatch):
    named, typed = [], keys._fill.typeof_pyval
    monkeypatch.setattr(keys._fill, "_cache", SimpleNamespace(holds=lambda *_: False))
    monkeypatch.setattr(keys._fill, "typeof_pyval", lambda one: named.append(one) or typed(one))
    for change in (1, 2, 3.0):
        if forgetful:
            plain._missing.clear()
        assert not plain._found(keys._fill, (change,))
    assert (len(named) == 2) != forgetful


ALIKE = [
    (1, 2), (1.0, 2.5), ((1, 2.0), (3, 4.0)), (np.zeros(3), np.ones(5)), (True, False),
    (np.zeros((2, 3))[:, 0], np.zeros((5, 7))[:, 1]), (np.int64(1), np.int64(2)),
]  # fmt: skip
UNLIKE = [
    (1, 1.0), (1, 1 << 63), (1, True), (1, np.int32(1)), (np.zeros(3), np.zeros((3, 1))),
    (np.zeros(3), np.zeros(3, np.float32)), (np.zeros(6), np.zeros(6)[::2]), ((1,), (1, 1)),
    (np.zeros((2, 3)), np.zeros((3, 2)).T), (np.zeros(3), np.broadcast_to(0.0, 3)),
    (np.sin, np.cos),
]  # fmt: skip


@pytest.mark.parametrize("alike", [True, False])
def test_what_is_of_one_kind_has_the_same_types(alike):
    for one, other in ALIKE if alike else UNLIKE:
        assert (plain._kinds((one,)) == plain._kinds((other,))) == alike
        if alike or not callable(one):
            with suppress(ValueError):  # what numba knows no type of
                assert (typeof(one) == typeof(other)) == alike


def test_kernels_that_call_one_which_is_imported_late_are_pickled():
    assert pickle.loads(pickle.dumps(messages.transmit)) is messages.transmit
    late = pickle.loads(pickle.dumps(messages.carried))
    assert (type(late).__name__, callable(late.plainly)) == ("Late", True)


def test_one_thread_at_a_time_looks_for_compiled_code(monkeypatch):
    """Numba's registries, which that reads on, are those of the thread that compiles."""
    alone = []
    found = SimpleNamespace(holds=lambda *_: alone.append(compiler_lock.is_locked()))
    monkeypatch.setattr(plain, "_missing", {})
    monkeypatch.setattr(keys._fill, "_cache", found)
    assert not plain._found(keys._fill, (1,))
    monkeypatch.setattr(plain, "_missing", {})
    monkeypatch.setattr(plain, "global_compiler_lock", nullcontext())
    assert not plain._found(keys._fill, (1,))
    assert alone == [True, False]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 3 * 12 * 6),
        ({"algorithm": {"local": {"epochs": 70}}}, 70 * 12 * 6),
        ({"policy": "each"}, 3 * 12),
        ({"stop": {"time": "1 s"}}, 3 * 6),
    ],
)
def test_steps_tell_what_is_long(changes, expected):
    base = star(algorithm={"name": "fedavg", "local": {"epochs": 3}})
    made = build(load(merged(base, changes)))
    assert _steps(made.settings, made.method) == expected


def test_few_steps_on_many_rows_are_long_too():
    local = {"name": "fed-plt", "rho": 0.5, "local": {"epochs": 400}}
    base = star(algorithm=local, stop={"rounds": 15})  # 36,000 steps of 80 multiply-adds
    few, many = (build(load(merged(base, {"problem": {"data": {**base["problem"]["data"],
                 "rows": rows}}}))) for rows in (8, 300))  # fmt: skip
    assert not _long(few.settings, few.method)
    assert _long(many.settings, many.method)


@pytest.mark.parametrize("name", ["DESIM_COMPILE", "DESIM_THREADS"])
def test_an_environment_of_nonsense_is_refused_before_anything_begins(name, monkeypatch, tmp_path):
    monkeypatch.setenv(name, "nonsense")
    monkeypatch.setattr(jit, "_threads", None)
    for begin in (
        lambda: desim.run(star(), tmp_path / "run"),
        lambda: desim.study(STUDY, tmp_path / "study"),
        lambda: list(contract.algorithm("fed-plt", overrides={"algorithm.rho": 0.5})),
        lambda: warm_up(["quickstart"]),
    ):
        with pytest.raises(InputError, match=f"{name}: found 'nonsense'; allowed"):
            begin()
    assert not list(tmp_path.iterdir())


def test_nothing_is_compiled_beforehand_where_nothing_is_ever_to_be(monkeypatch):
    monkeypatch.setenv("DESIM_COMPILE", "never")
    with pytest.raises(InputError, match="DESIM_COMPILE: found 'never'; allowed: later or at-once"):
        warm_up([])


def test_few_calls_load_nothing_where_compiling_is_paid_for(later, monkeypatch):
    monkeypatch.setenv("DESIM_COMPILE", "here")
    monkeypatch.setattr(plain, "_earlier", plain.PRICE)
    assert not plain.rented()
    with plain.few_calls():
        assert plain.rented()
        with plain.at_once():
            assert not plain.rented()
        monkeypatch.setattr(plain, "seconds", plain.LOADING)
        assert not plain.rented()
    assert not plain.rented()


def test_products_of_matrices_are_never_plain_python():
    assert plain.twin(layered._gradients) is layered._gradients
    assert plain.twin(keys._fill) is not keys._fill
    assert plain.twin(keys._fill).__globals__["normals_into"] is plain.twin(keys.normals_into)
    assert plain.twin(distributions.sample)  # which calls those of another file
    assert plain.twin(product_kernel(lambda x: x)).__class__.__name__ == "CPUDispatcher"
    assert plain.twin(3) == 3


def test_few_calls_load_nothing_until_they_add_up(monkeypatch):
    asked = []
    monkeypatch.setattr(plain, "_found", lambda *_: asked.append(1) or True)
    monkeypatch.setattr(plain, "seconds", 0.0)
    with plain.few_calls():
        assert plain._small(None, (np.zeros(10),))
        assert not asked
        assert not plain._small(None, (np.zeros(plain.FEW + 1),))
        monkeypatch.setattr(plain, "seconds", plain.LOADING)
        assert not plain._small(None, (np.zeros(10),))
    monkeypatch.setattr(plain, "seconds", 0.0)
    assert not plain._small(None, (np.zeros(10),))
    assert len(asked) == 3
