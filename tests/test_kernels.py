"""Kernels against plain NumPy loops; the same bits whatever the batch, the order, the threads."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from desim.errors import InputError
from desim.numerics import jit, keys
from desim.numerics.code_cache import folder_of
from desim.numerics.elementary import exp_, log_, sincos_turn
from desim.numerics.jit import kernel
from desim.numerics.keys import Stream
from desim.problem.kernels import gradients, local
from desim.problem.kernels import plan as plans
from desim.problem.kernels.gradients import Data, batch_gradient, gradient, transpose
from desim.problem.kernels.plan import plan_for
from desim.problem.losses import scalar as losses

SEED = 5
ROWS = (3, 8, 21, 1, 12)  # whole blocks of four and remainders
AGENTS = len(ROWS)
KNEE = 0.7


@kernel
def elementwise(x, y, z):
    for i in range(x.size):
        y[i] = exp_(x[i])
        z[i] = log_(abs(x[i]))


@kernel
def turns(u, y, z):
    for i in range(u.size):
        y[i], z[i] = sincos_turn(u[i])


def units(found, wanted):
    return np.max(np.abs(found - wanted) / np.spacing(np.abs(wanted)))


def test_exponential_and_logarithm():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-700, 700, 50_000), rng.uniform(-2, 2, 50_000), [1.0, -1.0]])
    y, z = np.empty_like(x), np.empty_like(x)
    elementwise(x, y, z)
    assert units(y, np.exp(x)) <= 2  # one unit each for desim and the C library
    assert units(z, np.log(np.abs(x))) <= 2
    assert units(np.exp(x * (1 + 4e-16)), np.exp(x)) > 2
    edge = np.array([-np.inf, -800.0, 0.0, 800.0, np.inf, np.nan])
    y, z = np.empty_like(edge), np.empty_like(edge)
    elementwise(edge, y, z)
    assert y[2] == 1.0
    assert np.isnan(y[5])
    assert 0 < y[0] == y[1] < 1e-300
    assert 1e300 < y[3] == y[4] < np.inf


def test_sine_and_cosine_of_turns():
    u = np.random.default_rng(0).uniform(0, 1, 50_000)
    y, z = np.empty_like(u), np.empty_like(u)
    turns(u, y, z)
    np.testing.assert_allclose(y, np.sin(2 * np.pi * u), atol=1e-15)
    np.testing.assert_allclose(z, np.cos(2 * np.pi * u), atol=1e-15)
    quarters = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    y, z = np.empty(5), np.empty(5)
    turns(quarters, y, z)
    assert (y == [0, 1, 0, -1, 0]).all()
    assert (z == [1, 0, -1, 0, 1]).all()


def problem(loss="logistic", dim=6, clip=np.inf, ridge=0.3, lasso=0.0):
    rng = np.random.default_rng(1)
    start = np.concatenate([[0], np.cumsum(ROWS)])
    A = rng.normal(size=(start[-1], dim))
    b = rng.choice([-1.0, 1.0], start[-1])
    if loss in ("squared", "absolute", "huber"):
        b = rng.normal(size=start[-1])
    limit = clip / np.linalg.norm(A, axis=1)
    scale = 1 / np.array(ROWS)
    fill = np.full(AGENTS, 1.0)
    code = losses.CODES[loss]
    every = (A, transpose(A, start), b, start, limit, scale, ridge * fill, lasso * fill)
    return Data(*every, code, KNEE, bool(np.isfinite(clip)))


SLOPES = {
    "squared": lambda u, b: 2 * (u - b),
    "absolute": lambda u, b: np.sign(u - b),
    "huber": lambda u, b: 2 * np.clip(u - b, -KNEE, KNEE),
    "hinge": lambda u, b: np.where(b * u < 1, -b, 0.0),
    "logistic": lambda u, b: -b / (1 + np.exp(b * u)),
}


def naive_gradient(i, x, data, rows=None, weight=1.0):
    """Row by row; `rows` a batch of agent i's rows, counted `weight` times each."""
    loss = {code: name for name, code in losses.CODES.items()}[data.code]
    rows = range(ROWS[i]) if rows is None else rows
    g = data.ridge[i] * x + data.lasso[i] * np.sign(x)
    for h in rows:
        row = data.start[i] + h
        a = data.A[row]
        slope = float(SLOPES[loss](a @ x, data.b[row]))
        slope = np.clip(slope, -data.limit[row], data.limit[row])
        g = g + weight * data.scale[i] * slope * a
    return g


@pytest.mark.parametrize("loss", SLOPES)
@pytest.mark.parametrize("clip", [np.inf, 0.5])
@pytest.mark.parametrize("dim", [1, 4, 7])
def test_gradient_equals_the_naive_loop(loss, clip, dim):
    data = problem(loss, dim, clip, lasso=0.2)
    who = np.array([4, 0, 2, 2, 1, 3])
    x = np.random.default_rng(2).normal(size=(6, dim))
    x[1, 0] = 0.0
    found = gradient(who, x, data)
    wanted = [naive_gradient(i, x[r], data) for r, i in enumerate(who)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
    wrong = [
        naive_gradient(i, x[r], data._replace(lasso=0 * data.lasso)) for r, i in enumerate(who)
    ]
    assert np.abs(found - wrong).max() > 0.1


@pytest.mark.parametrize("loss", SLOPES)
def test_vectorised_slopes_have_the_scalar_bits(loss):
    u = np.random.default_rng(3).normal(size=21) * 5
    b = np.where(u > 1, -1.0, 1.0)
    code = losses.CODES[loss]
    data = Data(
        A=u[:, None].copy(), transposed=u.copy(), b=b, start=np.array([0, 21]), limit=b,
        scale=np.ones(1), ridge=np.zeros(1), lasso=np.zeros(1), code=code, knee=KNEE, clipped=False,
    )  # fmt: skip
    total = 0.0  # in the kernel's order: fours, then the rest
    terms = [u[h] * losses.slope(code, u[h], b[h], KNEE) for h in range(21)]
    for h in range(0, 20, 4):
        total += (terms[h] + terms[h + 1]) + (terms[h + 2] + terms[h + 3])
    total += terms[20]
    assert gradient(np.array([0]), np.ones((1, 1)), data)[0, 0] == total


@pytest.mark.parametrize("step", [0, 3])
def test_batch_gradient_takes_the_addressed_rows(step):
    data = problem()
    who, count, round = np.array([2, 1, 4, 0]), np.array([5, 3, 12, 0]), np.array([7, 8, 9, 9])
    x = np.random.default_rng(2).normal(size=(4, 6))
    found = batch_gradient(who, x, count, round, SEED, data, step=step)
    for r in range(3):
        i, place = who[r], {"round": round[r], "step": step}
        rows = keys.subset(SEED, Stream.BATCH, ROWS[i], count[r], agent=i, **place)
        wanted = naive_gradient(i, x[r], data, rows, ROWS[i] / count[r])
        np.testing.assert_allclose(found[r], wanted, rtol=1e-12)
        if count[r] < ROWS[i]:
            assert np.abs(found[r] - naive_gradient(i, x[r], data, rows)).max() > 0.01
    assert (found[3] == 0).all()
    assert np.array_equal(found[2], gradient(who[2:3], x[2:3], data)[0])


def naive_train(i, x, v, round, epochs, plan, data, shift, mistake=""):
    """Fed-PLT's local training, the solvers' lines as printed (corrected) in the paper."""
    solver, (gamma, beta, q, _) = plan.codes[0, i], plan.rates[:, i]
    w = x.copy()
    u = x.copy()
    dim = len(x)
    for step in range(epochs):
        place = {"agent": i, "round": round, "step": step}
        rows, weight = None, 1.0
        if solver == plans.SGD:
            rows = keys.subset(SEED, Stream.BATCH, ROWS[i], plan.codes[1, i], **place)
            weight = 1.0 if plan.printed != (mistake == "scaling") else ROWS[i] / plan.codes[1, i]
        g = naive_gradient(i, w, data, rows, weight) + q * (w - v) + shift
        after = w - gamma * g
        w = after
        if solver == plans.ACCELERATED:
            w = after + beta * (after - u)
            u = after
        if solver == plans.NOISY:
            deviation = np.sqrt((1 if mistake == "noise" else 2) * gamma) * plan.rates[3, i]
            w = w + deviation * keys.normals(SEED, Stream.NOISE, size=dim, **place)
    return u if mistake == "output" and solver == plans.ACCELERATED else w


def training(solver="gradient", **changes):
    gamma, beta = np.linspace(0.05, 0.15, AGENTS), np.linspace(0.2, 0.5, AGENTS)
    settings = {"beta": beta, "q": 2.0, "tau": 0.3, "batch": 2} | changes
    plan = plan_for(AGENTS, solver, gamma, **settings)
    rng = np.random.default_rng(4)
    who, round, epochs = np.array([2, 0, 1, 4, 2]), np.arange(5) + 3, np.array([1, 4, 6, 3, 7])
    x, v, shift = rng.normal(size=(3, 5, 6))
    return plan, who, x, v, round, epochs, shift


@pytest.mark.parametrize(
    ("solver", "mistake"),
    [
        ("gradient", "shift"),
        ("accelerated", "output"),
        ("sgd", "scaling"),
        ("noisy", "noise"),
        (["gradient", "accelerated", "sgd", "noisy", "sgd"], "shift"),
    ],
)
@pytest.mark.parametrize("printed", [False, True])
def test_train_equals_the_naive_loop(solver, mistake, printed):
    data = problem(clip=0.8, lasso=0.01)
    plan, who, x, v, round, epochs, shift = training(solver, printed=printed)
    found = local.train(who, x, v, round, epochs, SEED, plan, data, shift)
    given = (x.copy(), v.copy(), shift.copy())

    def twin(mistake):
        s = 0 * shift if mistake == "shift" else shift
        rows = zip(who, x, v, round, epochs, s, strict=True)
        return [naive_train(i, *row, plan, data, t, mistake) for i, *row, t in rows]

    np.testing.assert_allclose(found, twin(""), rtol=1e-11, atol=1e-12)
    assert np.abs(found - twin(mistake)).max() > 1e-3
    assert all(np.array_equal(*pair) for pair in zip(given, (x, v, shift), strict=True))


@pytest.mark.slow
def test_training_solves_the_proximal_problem():
    data = problem()
    plan, who, x, v, round, _, shift = training()
    w = local.train(who, x, v, round, 2000, SEED, plan, data, shift)
    residual = gradient(who, w, data) + 2.0 * (w - v) + shift
    assert np.abs(residual).max() < 1e-13
    assert np.abs(residual - shift).max() > 0.1


def test_silent_noise_and_whole_batches_change_no_bit():
    data = problem()
    plan, *job = training("gradient")
    who, x, v, round, epochs, shift = job
    plain = local.train(who, x, v, round, epochs, SEED, plan, data)
    assert np.array_equal(plain, local.train(who, x, v, round, epochs, SEED, plan, data, 0 * shift))
    for other in (training("noisy", tau=0.0), training("sgd", batch=21)):
        assert np.array_equal(plain, local.train(who, x, v, round, epochs, SEED, other[0], data))
    loud = local.train(who, x, v, round, epochs, SEED, training("noisy")[0], data)
    assert not np.array_equal(plain, loud)


def calls(data):
    """Every entry point as a function of the rows r of one job."""
    plan, who, x, v, round, epochs, shift = training(
        ["noisy", "sgd", "accelerated", "sgd", "noisy"]
    )
    count = np.array([4, 2, 0, 7, 30])
    return (
        lambda r: gradient(who[r], x[r], data),
        lambda r: batch_gradient(who[r], x[r], count[r], round[r], SEED, data),
        lambda r: local.train(who[r], x[r], v[r], round[r], epochs[r], SEED, plan, data, shift[r]),
    )


def test_rows_do_not_depend_on_their_company():
    everyone, order = np.arange(5), np.array([3, 0, 4, 2, 1])
    for call in calls(problem(dim=6, clip=0.9)):
        together = call(everyone)
        assert np.array_equal(together[order], call(order))
        assert np.array_equal(together, np.concatenate([call([r]) for r in everyone]))
        assert call(np.arange(0)).shape == (0, 6)


def test_threads_change_no_bit(monkeypatch):
    everyone = np.arange(5)
    serial = [call(everyone) for call in calls(problem())]
    monkeypatch.setattr(jit, "PARALLEL_WORK", 0)
    monkeypatch.setattr(gradients, "threads", lambda: 3)
    monkeypatch.setattr(local, "threads", lambda: 3)
    try:
        for number in (1, 2):
            jit.set_threads(number)
            assert jit.use_parallel(1) == (number <= jit.threads() and jit.threads() > 1)
            for call, wanted in zip(calls(problem()), serial, strict=True):
                assert np.array_equal(call(everyone), wanted)
    finally:
        jit.set_threads(None)


def test_results_go_where_asked_and_read_only_input_is_accepted():
    data = problem()
    plan, who, x, v, round, epochs, _ = training()
    wanted = local.train(who, x, v, round, epochs, SEED, plan, data)
    frozen = x.copy()
    frozen.flags.writeable = False
    out = np.empty_like(x)
    assert np.array_equal(local.train(who, frozen, v, round, epochs, SEED, plan, data), wanted)
    strided = np.repeat(v, 2, axis=1)[:, ::2]
    assert np.array_equal(local.train(who, x, strided, round, epochs, SEED, plan, data), wanted)
    assert gradient(who, frozen, data, out) is out


def test_divergence_is_visible():
    x = np.full((1, 6), np.nan)
    for loss in ("logistic", "squared"):
        assert np.isnan(gradient(np.array([0]), x, problem(loss, clip=0.5))).all()


def test_flags_live_in_one_place():
    assert "fastmath" not in inspect.getsource(jit).replace("no fastmath", "")
    for function in (local.train_rows, gradients.gradients_into, keys.threefry):
        assert function.targetoptions["error_model"] == "numpy"
        assert not function.targetoptions.get("fastmath", False)
        assert folder_of(Path(inspect.getfile(function.py_func))) == Path(function.stats.cache_path)
    assert not elementwise.stats.cache_path  # not desim's own source: never read from the disk


def test_threads_setting(monkeypatch):
    try:
        monkeypatch.setenv("DESIM_THREADS", "1")
        jit.set_threads(None)
        assert jit.threads() == 1
        assert not jit.use_parallel(1e12)
        monkeypatch.setenv("DESIM_THREADS", "two")
        jit.set_threads(None)
        with pytest.raises(InputError, match="DESIM_THREADS: found 'two'; allowed"):
            jit.threads()
        with pytest.raises(InputError, match="threads: found 0"):
            jit.set_threads(0)
    finally:
        monkeypatch.delenv("DESIM_THREADS")
        jit.set_threads(None)
