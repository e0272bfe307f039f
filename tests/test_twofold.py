"""Minimisers of long rows: gradients with twice the digits, and norms up to which none fails."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant

import desim
from desim.errors import InputError, RunError
from desim.methods.shared import checked_kernels, minimisation
from desim.problem.kernels import argmin, twofold
from desim.problem.kernels.gradients import whole_block
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import Loss
from desim.problem.problem import Problem

LOSSES = {
    "squared": Loss("squared"),
    "huber": Loss("huber", 0.5),
    "narrow": Loss("huber", 1e-3),
    "logistic": Loss("logistic"),
}
DIMS = (1, 2, 3, 7, 24, 25, 30, 77, 200)
WAYS = ("random", "same", "opposite", "near", "axis", "ones", "falling", "mixed")
LABELS = ("through", "kink", "inside", "zero", "huge", "random")


def rows_of(way, rng, rows, dim, norm):
    """Rows (rows, dim) of norms up to `norm`, in directions that are hard to tell apart."""
    A = rng.normal(size=(rows, dim))
    if way in ("same", "opposite"):
        A[:] = A[0]
    if way == "opposite":
        A[1::2] *= -1.0
    if way == "near":
        A = A[0] + 1e-8 * A
    if way == "axis":
        A[:, 1:] = 0.0
    if way == "ones":
        A[:] = 1.0
    if way == "falling":
        A *= np.logspace(0, -20, dim)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    return A * norm * (10.0 ** -rng.uniform(0, 8, (rows, 1)) if way == "mixed" else 1.0)


def labels_of(kind, rng, A, target, clip):
    """Labels (rows,) with which the minimiser may be where slopes begin to be clipped."""
    u, norms = A @ target, np.linalg.norm(A, axis=1)
    return {
        "through": u,
        "kink": u + 0.5 * clip / norms,
        "inside": u + 0.3 * clip / norms * rng.normal(size=len(u)),
        "zero": np.zeros(len(u)),
        "huge": rng.choice([-1e300, 1e30, 1e300], len(u)),
        "random": norms * rng.normal(size=len(u)),
    }[kind]


@st.composite
def hostile(draw, dims=DIMS, losses=tuple(LOSSES)):
    """One agent's problem with rows as long as `longest_rows` admits, and what is asked of it."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    dim, rows = draw(st.sampled_from(dims)), draw(st.sampled_from([1, 2, 3, 6, 20]))
    loss, average = LOSSES[draw(st.sampled_from(losses))], draw(st.sampled_from(["mean", "sum"]))
    clip, weight = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-3, 2)
    total = np.array([1.0 if average == "mean" else rows])
    least = twofold.least_tolerance(clip, total)
    tolerance = max(draw(st.sampled_from([1e-10, 1e-8, 1e-4])), least)
    numbers = np.array([weight]), loss.curvature, total, np.array([rows]), dim
    norm = twofold.longest_rows(tolerance, *numbers)[0] * draw(st.sampled_from([1.0, 1.0, 1e-3]))
    A = rows_of(draw(st.sampled_from(WAYS)), rng, rows, dim, norm)
    way = rng.normal(size=dim)
    target = 10.0 ** rng.uniform(-3, 5) * way / np.linalg.norm(way)
    b = labels_of(draw(st.sampled_from(LABELS)), rng, A, target, clip)
    if loss.name == "logistic":
        b = np.where(rng.random(rows) < 0.5, -1.0, 1.0)
    ridge = Regularizer(l2=0.5 * weight)
    problem = Problem(
        A, b, np.array([0, rows]), loss, average=average, clip=clip, agent_regularizer=ridge
    )
    start = target * (1.0 + 1e-3 * rng.normal(size=dim)) * draw(st.sampled_from([0.0, 1.0]))
    return problem, start, 0.5 * weight, weight * target, tolerance


def asked(module, case, *demanded):
    problem, start, weight, v, tolerance = case
    place = np.zeros(1, int), start[None], weight, v[None], 0.01 * tolerance, problem.data
    return module.minimise(*place, *([tolerance] if demanded else []))


@settings(derandomize=True, database=None, deadline=None, max_examples=examples(200))
@given(hostile())
def test_no_rows_that_are_admitted_keep_a_minimiser_from_its_tolerance(case):
    _, left = asked(argmin, case, True)
    assert left[0, 0] <= case[-1]


def test_without_more_digits_long_rows_fail():
    """The twin: its bound on rows, a tenth of the last digit of a number, knew no features."""
    rng, failed = np.random.default_rng(1), 0
    old = np.sqrt(1e-10 / (0.1 * 2.0**-52 * 2.0 / 6))
    for _ in range(20):
        A, target = rng.normal(size=(6, 100)), rng.normal(size=100)
        A *= old / np.linalg.norm(A, axis=1, keepdims=True)
        problem = Problem(A, A @ target, np.array([0, 6]), Loss("squared"), clip=1.0)
        case = problem, np.zeros(100), 1.6, 1.6 * target, 1e-10
        failed += asked(argmin, case)[1][0, 0] > 1e-10
        assert asked(argmin, case, True)[1][0, 0] <= 1e-10
    assert failed > 10


def exact_gradient(w, low, problem, weight, v):
    """The gradient of a clipped squared or Huber loss at w + low, in rational numbers."""
    knee = Fraction(problem.loss.knee) if problem.loss.name == "huber" else None
    model = [Fraction(a) + Fraction(b) for a, b in zip(w, low, strict=True)]
    g = [Fraction(weight) * m - Fraction(z) for m, z in zip(model, v, strict=True)]
    for a, b, limit in zip(problem.A, problem.b, problem.limit, strict=True):
        a = [Fraction(one) for one in a]
        r = sum(x * y for x, y in zip(a, model, strict=True)) - Fraction(b)
        c = Fraction(limit) if knee is None else min(Fraction(limit), 2 * knee)
        s = Fraction(problem.scale[0]) * max(-c, min(c, 2 * r))
        g = [x + s * y for x, y in zip(g, a, strict=True)]
    return np.array([float(x) for x in g])


def apart_from_exact(module, case):
    """How far the gradient with twice the digits is from the exact one, in shares of tolerance."""
    problem, start, weight, v, tolerance = case
    rows, dim = problem.A.shape
    memory, data = argmin._memory(rows, dim), problem.data
    memory.pace[:] = 1.0
    rng = np.random.default_rng(0)
    low = start * rng.uniform(-1.0, 1.0, dim) * 2.0**-53
    block, scale = whole_block(0, data), problem.scale[0]
    module.gradient(start, low, block, scale, weight, v, data, memory)
    exact = exact_gradient(start, low, problem, weight, v)
    return np.linalg.norm(memory.g - exact) / tolerance


@settings(derandomize=True, database=None, deadline=None, max_examples=examples(60))
@given(hostile(dims=(1, 3, 7, 30), losses=("squared", "huber", "narrow")))
@pytest.mark.slow
def test_gradients_with_twice_the_digits_are_exact_to_half_the_tolerance(case):
    assert apart_from_exact(twofold, case) <= 0.5


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("rest += (e + f) + a[j] * low[j]", "rest += a[j] * low[j]"),
        ("rest += (e + f) + a[j] * low[j]", "rest += e + f"),
        ("pace * (r + (e + low))", "pace * r"),
    ],
)
def test_a_gradient_that_forgets_digits_is_not(right, wrong):
    twin = mutant(twofold, right, wrong)
    rng = np.random.default_rng(2)
    A = 1571.0 * rng.normal(size=(6, 30)) / np.sqrt(30)
    start = rng.normal(size=30)
    problem = Problem(A, A @ start, np.array([0, 6]), Loss("squared"), clip=1.0)
    case = problem, start, 1.6, 1.6 * start, 1e-10
    assert apart_from_exact(twofold, case) <= 0.5
    assert apart_from_exact(twin, case) > 1.0


def played(tmp_path, name, norm, dim, seed, loss="squared", **algorithm):
    """A private run of agents whose rows all have that norm."""
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(4, 6, dim)), rng.normal(size=(4, 6))
    A *= norm / np.linalg.norm(A, axis=2, keepdims=True)
    np.savez(tmp_path / "rows.npz", A=A, b=np.sign(b) if loss == "logistic" else b)
    kind = "l2-laplace" if name in ("dvp", "r-admm", "m-admm") else "gaussian"
    return desim.run(
        {
            "seed": seed,
            "plugins": [str(Path(__file__).parent / "plugins" / "losses.py")],
            "problem": {
                "data": {"source": "npz", "file": str(tmp_path / "rows.npz")}, "clip": 1.0,
                "loss": loss, "regularizer": {"l2": 1.0},
            },
            "algorithm": {"name": name, **algorithm},
            "network": {"topology": "ring"}, "observe": {"metrics": []}, "stop": {"rounds": 6},
            "privacy": {"noise": {"kind": kind, "sigma": 1.0}},
        }
    )  # fmt: skip


PENALTIES = {
    "p-admm": {"rho": 0.4}, "pvp": {"rho": 0.4}, "pr-admm": {"eta": 0.4},
    "pp-admm": {"eta": 0.4, "beta": 1e-9, "splits": 0.2},
    "ipp-admm": {"eta": 0.4, "beta": 1e-9, "splits": 0.2, "c": 3},
    "dvp": {"rho": 0.4}, "m-admm": {"eta": 0.4}, "r-admm": {"eta": 0.4, "gamma": 1.0},
}  # fmt: skip


@pytest.mark.thin(4)
@pytest.mark.parametrize("loss", ["squared", "logistic", {"huber": 0.3}, "twin"])
@pytest.mark.parametrize("name", PENALTIES)
def test_every_admitted_norm_is_minimised(name, loss, tmp_path):
    for norm, dim in ((1571.0, 30), (4e4, 3), (2e4, 120)):
        play = tmp_path, name, norm, dim, 1, loss
        assert played(*play, **PENALTIES[name]).status == "done"


def test_longer_rows_are_refused_before_they_can_fail(tmp_path, monkeypatch):
    """As they would where nobody refuses them, and shorter ones do without more digits."""
    with pytest.raises(InputError, match=r"row 0 of agent 0 has norm 1e\+07; allowed: rows up to"):
        played(tmp_path, "p-admm", 1e7, 30, 1, rho=0.4)
    monkeypatch.setattr(minimisation, "_unresolved", lambda *of: [])
    whole = checked_kernels.minimise
    for norm, dim, seed, short in ((1e10, 30, 1, 0), (1571.0, 100, 0, 1), (1571.0, 100, 4, 1)):
        with monkeypatch.context() as patch:
            if short:
                patch.setattr(minimisation, "minimise", lambda *of: whole(*of[:6]))
            with pytest.raises(RunError):
                played(tmp_path, "p-admm", norm, dim, seed, rho=0.4)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(rows + 3.0 + dim * (3.0 * dim + 1.0))", "0.001"),
        ("np.minimum(solved, resolved)", "solved"),
    ],
)
def test_a_bound_without_features_or_digits_admits_what_fails(right, wrong):
    """Such rows make the factor of a Hessian fail, or gradients that nothing resolves."""
    twin = mutant(twofold, right, wrong)
    weight, tolerance = (1.0, 1e-4) if "rows" in right else (1e9, 1e-15)

    def failures(module):
        numbers = np.array([weight]), 2.0, np.ones(1), np.array([6]), 100
        norm = module.longest_rows(tolerance, *numbers)[0]
        for seed in range(9):
            rng = np.random.default_rng(seed)
            A, target = rows_of("near", rng, 6, 100, norm), rng.normal(size=100)
            problem = Problem(A, A @ target, np.array([0, 6]), Loss("squared"), clip=1.0)
            case = problem, np.zeros(100), weight, weight * target, tolerance
            yield not asked(argmin, case, True)[1][0, 0] <= tolerance

    assert not any(failures(twofold))
    assert any(failures(twin))
