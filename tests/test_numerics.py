"""Kernels that methods call get a row for each agent; else they say what is wrong."""

from contextlib import nullcontext

import numpy as np
import pytest
from cases import star
from mutant import mutant
from test_kernels import problem

from desim import method
from desim.methods.shared import checked_kernels
from desim.numerics.jit import _blas
from desim.problem.kernels import argmin, codecs, layered, sums, zeroth
from desim.problem.kernels.gradients import gradient
from desim.problem.optimum import centralised_optimum, proximal_newton
from desim.scenario.build import build
from desim.scenario.load import load

WHO, ROUND = np.array([0, 2, 3]), np.array([1, 1, 2])
X, C = np.ones((3, 6)), np.full((3, 6), 0.5)
STEPS = (np.ones(2), np.ones(2), np.ones(2))
DATA = problem()
CALLS = {
    "minimise": (argmin, (WHO, X, 1.0, C, 1e-6, DATA), {}),
    "descend": (
        zeroth, (WHO, X, ROUND, 7, DATA), {"steps": STEPS, "samples": 2, "c": C, "q": np.ones(3)},
    ),
    "estimates": (zeroth, (WHO, X, ROUND, 7, DATA), {"samples": 2, "u2": 0.1}),
    "capped_losses": (sums, (WHO, X, 1.0, np.ones(3, bool), DATA), {}),
    "quantize": (codecs, (7, WHO, ROUND, X, 0.1, 4), {}),
    "sparsify": (codecs, (7, WHO, ROUND, X, 0.5), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_is_right_is_what_the_kernel_gives(name):
    module, args, named = CALLS[name]
    found, wanted = getattr(method, name)(*args, **named), getattr(module, name)(*args, **named)
    assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", ["quantize", "sparsify"])
def test_one_round_is_that_of_all(name):
    seed, who, _, *rest = CALLS[name][1]
    one, all_ = (getattr(method, name)(seed, who, k, *rest) for k in (2, np.full(3, 2)))
    assert all(np.array_equal(*pair) for pair in zip(one, all_, strict=True))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", [X[:0], X[:, 0], np.full((3, 6), "x"), None], ids=str)
def test_rows_that_are_missing_are_told(name, wrong):
    _, args, named = CALLS[name]
    spoiled = [wrong if one is X else one for one in args]
    with pytest.raises(ValueError, match=f"{name}: (x|start): found .*; allowed: numbers of shape"):
        getattr(method, name)(*spoiled, **named)


@pytest.mark.parametrize("name", CALLS)
def test_agents_and_what_each_has_are_told(name):
    _, args, named = CALLS[name]
    for right, wrong in ((WHO, WHO + 99), (ROUND, ROUND[:1]), (C, C[:1])):
        spoiled = [wrong if one is right else one for one in args]
        others = {key: wrong if one is right else one for key, one in named.items()}
        coded = right is WHO and not any(
            one is DATA for one in args
        )  # any number is an agent's there
        if any(one is right for one in (*args, *named.values())) and not coded:
            with pytest.raises(ValueError, match=f"{name}: .*: found .*; allowed: "):
                getattr(method, name)(*spoiled, **others)


@pytest.mark.parametrize("steps", [np.ones((1, 2)), np.ones((2, 2)), np.ones(3), 0.1], ids=str)
def test_steps_without_widths_are_told(steps):
    _, args, named = CALLS["descend"]
    with pytest.raises(ValueError, match=r"descend: steps: found .*; allowed: three rows of num"):
        method.descend(*args, **{**named, "steps": steps})


def stub(who, x, c, q):
    """Nothing."""
    return len(who)


def check(module):
    """Rows and numbers of too few agents are refused."""
    looked_at = module._looked_at(stub, "x", "c", "q")
    assert looked_at(WHO, X, C, 1.0) == looked_at(WHO, X, c=None, q=np.ones(3)) == 3
    for wrong in ((WHO, X[:2], None, 1.0), (WHO, X, C[:2], 1.0), (WHO, X, C, np.ones(2))):
        with pytest.raises(ValueError, match="allowed"):
            looked_at(*wrong)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("values[of], np.size(who))", "values[of], np.shape(values[of])[0])"),
        ("in rows.split()", "in ()"),
        ("in each.split()", "in ()"),
    ],
)
def test_what_is_not_looked_at_would_be_noticed(right, wrong):
    check(checked_kernels)
    with pytest.raises(pytest.fail.Exception):
        check(mutant(checked_kernels, right, wrong))


def slopes_of_a_network():
    """Gradients of two agents with 600 rows each: products that libraries share out."""
    data = {"source": "synthetic", "kind": "classification", "rows": 600, "dim": 100}
    given = {"agents": 2, "data": data, "loss": {"mlp": {"classes": 2, "hidden": 128}}}
    local, metrics = {"epochs": 1, "step": 0.1}, {"metrics": ["loss"]}
    algorithm = {"name": "fed-plt", "rho": 0.5, "local": local}
    made = build(load(star(problem=given, algorithm=algorithm, observe=metrics))).problem
    x = np.random.default_rng(1).normal(size=made.dim)
    return gradient(np.arange(2), np.tile(x, (2, 1)), made.data)


PRODUCTS = {
    "layers": (layered, "_gradients", slopes_of_a_network),
    "optimum": (
        proximal_newton,
        "_search",
        lambda: centralised_optimum(build(load(star())).problem).x,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_matrix_products_whose_bits_count_have_one_thread(name, monkeypatch):
    """However many their libraries have: one here, by tests/conftest.py, else as many as cores."""
    module, inside, found = PRODUCTS[name]
    act, seen, before = getattr(module, inside), set(), [one.num_threads for one in _blas()]

    def noted(*given):
        seen.update(one.num_threads for one in _blas())
        return act(*given)

    def on(number):
        for one in _blas():
            one.set_num_threads(number)
        seen.clear()
        return found()

    monkeypatch.setattr(module, inside, noted)
    try:
        one, two = on(1), on(2)
        assert np.array_equal(one, two)
        assert seen == {1}
        assert {one.num_threads for one in _blas()} == {2}
        monkeypatch.setattr(module, "one_blas_thread", nullcontext)  # the wrong twin
        on(2)
        assert seen == {2}
    finally:
        for one, number in zip(_blas(), before, strict=True):
            one.set_num_threads(number)
