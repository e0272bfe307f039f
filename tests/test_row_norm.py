"""A bound on the norm of rows: who says it, who breaks it, and what is charged because of it."""

import numpy as np
import pytest
from cases import local, merged, star
from mutant import mutant
from scipy.optimize import minimize

import desim
from desim.errors import InputError
from desim.privacy.papers.fed_plt import amplification
from desim.problem.data import table
from desim.problem.kernels.gradients import gradient
from desim.problem.problem import Problem
from desim.runs.premises import tuned
from desim.runs.privacy import statement
from desim.scenario.build import build
from desim.scenario.load import load

SYNTHETIC = {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 4}


def built(**problem):
    data = {**SYNTHETIC, **problem.pop("data", {})}
    return build(load(star(problem={"agents": 2, "data": data, **problem})))


@pytest.mark.thin(3)
@pytest.mark.parametrize("scale", ["none", "standard", "minmax", "max", "unit-ball"])
@pytest.mark.parametrize("normalize", ["none", "l2", "clip"])
@pytest.mark.parametrize("intercept", [False, True])
def test_what_is_guaranteed_holds_and_is_reached(scale, normalize, intercept):
    """Whatever the rows: the longest that preparation makes of wild ones."""
    longest = 0.0
    for seed in range(30):
        section = load(star(problem={"data": {
            **SYNTHETIC, "scale": scale, "normalize": normalize, "intercept": intercept,
        }})).problem.data  # fmt: skip
        rng = np.random.default_rng(seed)
        wild = rng.choice([-1.0, 1.0], size=(4, 3)) * 10.0 ** rng.integers(-2, 3)
        from desim.problem.data.table import prepared

        A = prepared(wild, wild, ("a", "b", "c"), section)[0]
        longest = max(longest, np.linalg.norm(A, axis=1).max())
    bound = table.guaranteed(section, A.shape[1])
    if normalize == "none" and scale in ("none", "standard"):
        assert np.isinf(bound)
    else:
        assert 0.999 * bound <= longest <= bound * (1 + 1e-12)
        twin = mutant(table, "bound**2 + intercept", "bound**2")
        assert (longest > twin.guaranteed(section, A.shape[1]) * (1 + 1e-12)) == intercept


def test_longer_rows_are_refused_with_row_and_agent_or_shortened():
    longest = np.linalg.norm(built().problem.A, axis=1).max()
    with pytest.raises(InputError) as refused:
        built(row_norm=1.5)
    text = str(refused.value)
    for part in (
        "problem.row_norm: found 1.5, but row",
        "of agent",
        f"{longest:.6g}",
        "{clip: 1.5}",
    ):
        assert part in text
    assert built(row_norm=float(longest)).problem.row_norm == longest
    assert built(row_norm={"refuse": 99}).problem.row_norm == 99
    short = built(row_norm={"clip": 1.5}, data={"test": "50 %"}).problem
    for A in (short.A, short.test_A):
        np.testing.assert_array_equal(A[:, 0], 1.0)  # the intercept
        assert np.linalg.norm(A, axis=1).max() == pytest.approx(1.5, rel=1e-12)
    least = built(row_norm=99, data={"normalize": "clip"}).problem
    assert least.row_norm == np.sqrt(2.0)


@pytest.mark.parametrize(
    "bad", ["long", -1, 0, True, [1], {"clip": 1, "refuse": 2}, {}, {"cut": 1}]
)
def test_bounds_that_are_none_are_refused(bad):
    with pytest.raises(InputError, match=r"problem\.row_norm"):
        built(row_norm=bad)


def test_an_intercept_leaves_no_room_below_one():
    with pytest.raises(InputError, match="above 1, the intercept"):
        built(row_norm={"clip": 0.9})
    assert built(row_norm={"clip": 0.9}, data={"intercept": False}).problem.row_norm == 0.9


@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize(
    "loss", ["logistic", "squared", {"huber": 9.0}, {"softmax": {"classes": 2}}]
)
def test_no_rows_within_the_bound_are_more_curved(loss, average):
    """Rows of norm 2 and slopes of all sizes: differences of gradients, at most public times."""
    rng, start = np.random.default_rng(2), np.array([0, 3, 8])
    labels = (0.0, 1.0) if isinstance(loss, dict) and "softmax" in loss else (-1.0, 1.0)
    made = load(star(problem={"data": SYNTHETIC, "loss": loss})).problem.loss.made()
    most = np.zeros(2)
    for _ in range(60):
        A = np.repeat(rng.normal(size=(1, 3)), 8, axis=0)  # equal rows are the worst
        A *= 2.0 / np.linalg.norm(A[0])
        b = np.full(8, labels[rng.integers(2)])
        problem = Problem(A, b, start, made, average, row_norm=2.0)
        x = 1e-3 * rng.normal(size=(2, problem.dim))
        a = A[0] if problem.dim == 3 else np.kron(*((A[0], [1, -1])[:: rng.choice([1, -1])]))
        x[1] += 1e-2 * a
        one, other = (gradient(np.arange(2), np.tile(v, (2, 1)), problem.data) for v in x)
        bend = np.linalg.norm(one - other, axis=1) / np.linalg.norm(x[0] - x[1])
        most = np.maximum(most, bend / problem.public_moduli[1])
    assert (most <= 1 + 1e-9).all()
    assert (most > 0.95).all()
    assert (most * problem.row_norm > 1.5).all()  # with R in place of R^2 it would be broken


@pytest.mark.parametrize(("chi", "n"), [(0.0, 4), (0.3, 3), (0.9, 7), (1.0, 5), (1.4, 4)])
def test_the_end_of_steps_costs_the_cheapest_way_to_shift_them(chi, n):
    """The least sum of squares a_k that bring z_k = chi z_(k-1) + 1 - a_k >= 0 to z_n = 0."""

    def left(a):
        z, path = 0.0, []
        for one in a:
            z = chi * z + 1.0 - one
            path.append(z)
        return np.array(path)

    rules = (
        {"type": "ineq", "fun": lambda a: left(a)[:-1]},
        {"type": "eq", "fun": lambda a: left(a)[-1]},
    )
    found = minimize(lambda a: a @ a, np.ones(n), constraints=rules, tol=1e-12)
    right = amplification(np.array([chi]), n)[0]
    assert found.fun == pytest.approx(right, rel=1e-5)
    if 0.0 < chi < 1.0:
        assert found.fun != pytest.approx(n, rel=1e-2)


def pair(folder, changes):
    """Simulations of the same scenario on D and D', which differ in one row of agent 0."""
    rng = np.random.default_rng(8)
    A, b = rng.normal(size=(2, 20, 3)), np.sign(rng.normal(size=(2, 20)))
    A *= 0.1 / np.linalg.norm(A, axis=2)[:, :, None]
    scenario = star(
        **local(solver="noisy", epochs=50, step=1.5, tau=0.6),
        problem={"agents": 2, "loss": "logistic", "clip": 0.5, "regularizer": {"l2": 0.2}},
        privacy={"relation": "replace-one"},
        stop={"rounds": 10},
    )
    scenario["algorithm"]["rho"] = 2.0
    for name, length in (("D", 0.1), ("E", 10.0)):
        A[0, 0] *= length / np.linalg.norm(A[0, 0])
        np.savez(folder / f"{name}.npz", A=A, b=b)
        scenario["problem"]["data"] = {"source": "npz", "file": str(folder / f"{name}.npz")}
        yield load(merged(scenario, changes))


PAIRS = [(None, 1.5), (10.0, 1.5), (10.0, "auto"), (10.0, "per-agent")]


def training(bound, step):
    keys = {"solver": "noisy", "epochs": 50, "step": step, "tau": 0.6}
    algorithm = {"name": "fed-plt", "rho": 2.0, "local": keys}
    return {"algorithm": algorithm, "problem": {"row_norm": bound} if bound else {}}


@pytest.mark.parametrize(("bound", "step"), PAIRS)
def test_neighbours_pay_the_same(tmp_path, bound, step, monkeypatch):
    def terms():
        return [build(one).method.local.terms for one in pair(tmp_path, training(bound, step))]

    one, other = terms()
    np.testing.assert_array_equal(one.sensitivity, other.sensitivity)
    np.testing.assert_array_equal(one.scale, other.scale)
    monkeypatch.setattr(Problem, "public_moduli", property(lambda self: self.moduli))
    one, other = terms()  # as it would be with moduli of the data
    assert not np.array_equal(one.sensitivity, other.sensitivity)


@pytest.mark.parametrize(("bound", "step"), PAIRS)
def test_a_target_draws_the_same_noise_and_a_budget_stops_at_the_same_time(tmp_path, bound, step):
    """Steps of 1.5 diverge on D', where a budget still may not say so: it counts releases."""
    aim = training(bound, step)
    aim["algorithm"]["local"].pop("tau")
    aim["privacy"] = {"noise": {"kind": "gaussian"}, "target": {"epsilon": 1, "delta": 1e-5}}
    one, other = (build(each).method.local.terms.scale for each in pair(tmp_path, aim))
    np.testing.assert_array_equal(one, other)
    spend = training(bound, step) | {"privacy": {"budget": 4.0}, "stop": {"rounds": 100}}
    made = [desim.run(each).releases for each in pair(tmp_path, spend)]
    assert len(made[0]) == len(made[1]) < 200


def test_steps_of_the_data_are_flagged_and_public_ones_are_not(tmp_path):
    for bound in (None, 10.0):
        run = desim.run(next(pair(tmp_path, training(bound, "auto"))))
        found = statement(run)
        flagged = [text for text in found.tuned if "algorithm.local.step: auto" in text]
        assert len(flagged) == (bound is None)
        assert any(
            "is charged" in text or "contracts" in text for text in found.table.assumptions[0]
        )
    plain = load(star(**local(solver="gradient", step="auto")))
    assert any("algorithm.local.step" in text for text in tuned(plain, public=True))


def test_what_the_epsilon_rests_on_is_said():
    keys = local(solver="noisy", epochs=5, tau=0.5, step=0.1)
    for problem, said in (
        (
            {},
            "nothing bounds the norm of rows (problem.row_norm): each of 5 local steps is charged",
        ),
        (
            {"row_norm": 1e3},
            "a local step need not contract: each of 5 local steps is charged",
        ),
        ({"row_norm": 8}, "rows of norm at most 8: a local step contracts by 0."),
    ):
        run = desim.run(star(**keys, problem={"clip": 1.0, **problem}))
        assert sum(text.startswith(said) for text in statement(run).table.assumptions[0]) == 1
        assert (f"privacy: {said}, as if all had been sent" in run.manifest["warnings"]) == (
            not problem
        )
