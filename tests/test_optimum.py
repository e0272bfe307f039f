"""The centralised optimum: reference values, other solvers, and what a minimiser must satisfy."""

import numpy as np
import pytest
from mutant import mutant
from scipy import optimize

from desim.errors import InputError
from desim.problem import optimum as module
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import Loss
from desim.problem.optimum import centralised_optimum, proximal_newton
from desim.problem.problem import Problem

COMPOSITE = {
    "composite_opt_l1_w0.5": Regularizer(l1=0.5),
    "composite_opt_l2sq_w2": Regularizer(l2=2.0),
    "composite_opt_box_-0.1_0.05": Regularizer(lower=-0.1, upper=0.05),
}


def blocks(A, b, loss, average="mean", **rest):
    A, b = np.array(A), np.array(b)
    start = np.arange(len(A) + 1) * A.shape[1]
    return Problem(A.reshape(-1, A.shape[2]), b.ravel(), start, Loss(loss), average, **rest)


def fed_plt(golden, average, **rest):
    found = golden("fed-plt")
    l2 = found["variants"][average]["const"]["reg"] * len(found["A"])
    ridge = Regularizer(l2=l2)
    return blocks(found["A"], found["b"], "logistic", average, agent_regularizer=ridge, **rest)


def check_fed_plt(golden, average, solve=centralised_optimum):
    """xstar to the last digits; the composite ones are limits of 1e-15 (fedplt_limit_gap)."""
    variant = golden("fed-plt")["variants"][average]
    problem = fed_plt(golden, average)
    found = solve(problem)
    assert np.abs(found.x - variant["const"]["xstar"]).max() < 1e-15
    assert found.certificate < 1e-14
    assert np.linalg.norm(problem.total_gradient(found.x)) < 1e-14
    for key, h in COMPOSITE.items():
        found = solve(fed_plt(golden, average, coordinator_regularizer=h))
        assert np.abs(found.x - variant[key]["x"]).max() < 5e-15
        assert found.unique


@pytest.mark.parametrize("average", ["mean", "sum"])
def test_reference_logistic(golden, average):
    check_fed_plt(golden, average)


def graph_case(golden, name):
    found = golden("zcdp-nfl-and-d-zoa")
    kw, data = found[name]["kw"], found["small"]
    h = Regularizer(l1=kw["lam"] * kw.get("l1", 0.0), l2=2 * kw["lam"] * kw.get("l2", 0.0))
    loss = {"sq": "squared", "abs": "absolute"}[kw["loss"]]
    rest = {"agent_regularizer": h, "clip": kw.get("clip", np.inf)}
    return blocks(data["X"], data["y"], loss, **rest), np.array(found[name]["central"])


@pytest.mark.parametrize("name", ["ridge", "enet", "lad", "enet_clip2"])
def test_reference_squared_and_absolute(golden, name):
    problem, expected = graph_case(golden, name)
    found = centralised_optimum(problem)
    assert np.abs(found.x - expected).max() < 5e-15
    assert found.unique
    assert found.certificate < 1e-14


def test_clipping_moves_the_optimum(golden):
    clipped, expected = graph_case(golden, "enet_clip2")
    plain, _ = graph_case(golden, "enet")
    assert np.abs(centralised_optimum(plain).x - expected).max() > 0.05
    assert clipped.clip == 2.0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("problem.regularizer.l2", "problem.agent_regularizer.l2"),
        ("slopes[0.0] = (-regularizer.l1, regularizer.l1)", "slopes[0.0] = (-0.1, 0.1)"),
        ("np.repeat(problem.scale, problem.rows)", "np.ones(len(problem.b))"),
    ],
)
def test_a_wrong_objective_is_noticed(golden, right, wrong):
    twin = mutant(proximal_newton, right, wrong)

    def solve(problem):
        return proximal_newton.minimise(*twin.taken_apart(problem))

    with pytest.raises(AssertionError):
        check_fed_plt(golden, "mean", solve)


def random_problem(seed):
    """Any loss, regulariser and clip; features of sizes 0.1 to 10, sometimes with equal rows."""
    random = np.random.default_rng(seed)
    rows = random.integers(1, 12, random.integers(1, 5))
    total, dim = rows.sum(), random.integers(1, 8)
    A = random.normal(size=(total, dim)) * 10.0 ** random.uniform(-1, 1, dim)
    A = A[random.integers(0, total, total)] if seed % 4 == 0 else A
    loss = ["squared", "absolute", "huber", "hinge", "logistic"][seed % 5]
    b = A @ random.normal(size=dim) + random.normal(size=total)
    b = np.where(b > 0.3, 1.0, -1.0) if Loss(loss).classification else b
    h = Regularizer(
        l1=random.choice([0.0, 0.0, 0.1, 1.0]),
        l2=random.choice([0.05, 1.0]),
        lower=random.choice([-np.inf, -np.inf, -0.5, 0.0]),
        upper=random.choice([np.inf, np.inf, 0.5]),
    )
    clip = random.choice([np.inf, np.inf, 0.5, 5.0])
    start, average = np.cumsum([0, *rows]), ("mean", "sum")[seed % 2]
    return Problem(A, b, start, Loss(loss), average, coordinator_regularizer=h, clip=clip)


def check_minimal(problem, x, seed):
    """objective(y) >= objective(x) + l2/2 ||y - x||^2 at many y, near and far."""
    random, h = np.random.default_rng(seed), problem.regularizer
    value = problem.objective(x)
    for size in 10.0 ** random.uniform(-6, 0.5, 60):
        step = size * random.normal(size=problem.dim) * random.integers(0, 2, problem.dim)
        y = np.clip(x + step, h.lower, h.upper)
        least = value + 0.5 * h.l2 * np.sum((y - x) ** 2)
        assert problem.objective(y) >= least - 1e-12 * max(1.0, abs(value))


@pytest.mark.thin(3)
@pytest.mark.parametrize("seed", range(80))
def test_nothing_is_lower_anywhere(seed):
    problem = random_problem(seed)
    found = centralised_optimum(problem)
    check_minimal(problem, found.x, seed)
    assert found.unique


@pytest.mark.parametrize("seed", range(0, 80, 9))
def test_a_point_beside_the_optimum_is_noticed(seed):
    problem = random_problem(seed)
    inside = np.where(centralised_optimum(problem).x > 0.2, -0.01, 0.01)
    with pytest.raises(AssertionError):
        check_minimal(problem, centralised_optimum(problem).x + inside, seed)


def test_least_absolute_deviations_is_the_linear_programme():
    random = np.random.default_rng(11)
    A, b = random.normal(size=(30, 4)), random.normal(size=30)
    found = centralised_optimum(Problem(A, b, [0, 30], Loss("absolute"), "sum"))
    cost = np.concatenate([np.zeros(4), np.ones(30)])
    sides = np.block([[A, -np.eye(30)], [-A, -np.eye(30)]])
    bounds = [(None, None)] * 4 + [(0, None)] * 30
    other = optimize.linprog(cost, sides, np.concatenate([b, -b]), bounds=bounds)
    assert np.abs(found.x - other.x[:4]).max() < 1e-12
    assert np.abs(A @ found.x - b).round(14).tolist().count(0.0) == 4


def test_hinge_is_the_dual_quadratic_programme():
    """min sum hinge + |x|^2/2 = max sum a - |sum a b x|^2/2 over 0 <= a <= 1: no gap."""
    random = np.random.default_rng(12)
    A = random.normal(size=(25, 3))
    b = np.where(A[:, 0] + random.normal(size=25) > 0, 1.0, -1.0)
    l2 = Regularizer(l2=1.0)
    problem = Problem(A, b, [0, 25], Loss("hinge"), "sum", agent_regularizer=l2)
    found, signed = centralised_optimum(problem), A * b[:, None]

    def dual(a):
        return 0.5 * np.sum((signed.T @ a) ** 2) - a.sum(), signed @ (signed.T @ a) - 1.0

    best = optimize.minimize(
        dual, np.full(25, 0.5), jac=True, bounds=[(0, 1)] * 25, method="L-BFGS-B",
        options={"ftol": 0.0, "gtol": 1e-10, "maxiter": 20000, "maxfun": 100000},
    )  # fmt: skip
    assert problem.objective(found.x) == pytest.approx(-best.fun, rel=1e-9)
    assert problem.objective(found.x + 1e-3) > -best.fun + 1e-7


def test_not_the_only_minimiser_is_said():
    A = np.array([[1.0, 1.0], [2.0, 2.0]])
    found = centralised_optimum(Problem(A, [1.0, 2.5], [0, 2], Loss("squared")))
    assert not found.unique
    assert found.x[0] == pytest.approx(found.x[1], rel=1e-12)  # the one of least norm
    even = centralised_optimum(Problem(np.ones((2, 1)), [0.0, 1.0], [0, 2], Loss("absolute")))
    assert not even.unique


def test_separable_classes_have_no_optimum():
    A, b = np.array([[1.0], [-2.0]]), [1.0, -1.0]
    with pytest.raises(InputError, match=r"can be separated.*\{l2: \.\.\.\}"):
        centralised_optimum(Problem(A, b, [0, 2], Loss("logistic")))
    boxed = Regularizer(lower=-3.0, upper=3.0)
    found = centralised_optimum(
        Problem(A, b, [0, 2], Loss("logistic"), coordinator_regularizer=boxed)
    )
    assert found.x.tolist() == [3.0]


def adult(shared):
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(shared / "data" / "adult.csv.gz", nrows=6000)
    A = table.select_dtypes("number").to_numpy(float)
    A = np.column_stack([np.ones(len(A)), (A - A.mean(axis=0)) / A.std(axis=0)])
    return A, np.where(table["income"] == ">50K", 1.0, -1.0)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("loss", "clip", "l1"),
    [
        ("logistic", np.inf, 0.0),
        ("logistic", 0.5, 0.0),
        ("logistic", np.inf, 0.5),
        ("squared", 0.5, 0.0),
        ("hinge", np.inf, 0.0),
        ("absolute", np.inf, 0.1),
    ],
)
def test_census_rows(shared, loss, clip, l1):
    A, b = adult(shared)
    rest = {"agent_regularizer": Regularizer(l2=0.1), "clip": clip}
    start = [0, 500, 1500, 3000, 6000]
    h = Regularizer(l1=l1)
    problem = Problem(A, b, start, Loss(loss), coordinator_regularizer=h, **rest)
    found = centralised_optimum(problem)
    assert found.certificate < 1e-9
    check_minimal(problem, found.x, 0)
    if loss == "logistic" and l1 == 0.0:
        assert np.linalg.norm(problem.total_gradient(found.x)) < 1e-12


def test_kept_answers_are_used(tmp_path, golden, monkeypatch):
    problem = fed_plt(golden, "mean")
    first = centralised_optimum(problem, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(module, "_solve", lambda problem: pytest.fail("solved again"))
    again = centralised_optimum(problem, tmp_path)
    assert np.array_equal(first.x, again.x)
    assert (first.certificate, first.method, first.unique) == (
        again.certificate,
        again.method,
        again.unique,
    )
    with pytest.raises(pytest.fail.Exception):
        centralised_optimum(fed_plt(golden, "sum"), tmp_path)


@pytest.mark.parametrize("damage", [b"", b"no archive", None])
def test_damaged_answers_are_replaced(tmp_path, golden, damage):
    problem = fed_plt(golden, "mean")
    x = centralised_optimum(problem, tmp_path).x
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-40] if damage is None else damage)
    assert np.array_equal(centralised_optimum(problem, tmp_path).x, x)
    assert np.array_equal(np.load(path, allow_pickle=False)["x"], x)


def test_a_folder_that_cannot_be_used_is_no_error(tmp_path, golden):
    (tmp_path / "file").write_text("")
    problem = fed_plt(golden, "mean")
    assert np.isfinite(centralised_optimum(problem, tmp_path / "file").x).all()


@pytest.mark.parametrize(("knee", "seed"), [(0.7, 0), (0.7, 2), (0.7, 30), (0.7, 1)])
def test_where_as_many_rows_as_features_fit_the_optimum_is_found(knee, seed):
    rng, none = np.random.default_rng(seed), Regularizer()
    A, b = rng.normal(size=(4, 4)), rng.normal(size=4) * 2.0
    start = np.array([0, 2, 4])
    problem = Problem(A, b, start, Loss("huber", knee), "mean", none, none, np.inf)
    found = centralised_optimum(problem)
    np.testing.assert_allclose(found.x, np.linalg.solve(A, b), rtol=1e-9)
