"""What the dissertation's ADMM methods cost: terms, claims, the sparse vector, bad input."""

from dataclasses import replace

import numpy as np
import pytest
from cases import CASES, graph, merged
from mutant import mutant
from naive.bounds import one_answer
from releases import claimed
from scipy import special

import desim
from desim.errors import InputError
from desim.experiments.audit.transcript_check import transcript_check
from desim.methods.ipp_admm import SparseVector
from desim.methods.p_admm import PADMM
from desim.methods.pp_admm import PerturbedObjective
from desim.privacy.ledger.mechanisms import Gaussian
from desim.privacy.papers import pp_admm, pr_admm
from desim.problem.kernels import argmin
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import Loss
from desim.problem.problem import Problem
from desim.scenario.build import build
from desim.scenario.load import load

# Minimisation ----------------------------------------------------------------------------------


def problem(m, dim, size, loss, clip, seed=0):
    rng = np.random.default_rng(seed)
    A = size * rng.normal(size=(3 * m, dim))
    b = A @ rng.normal(size=dim) + size * rng.normal(size=3 * m)
    b = np.where(b < 0, -1.0, 1.0) if loss == "logistic" else b
    start = np.arange(0, 3 * m + 1, m)
    return Problem(A, b, start, Loss(loss), "mean", Regularizer(l2=1.0), Regularizer(), clip)


@pytest.mark.parametrize("shape", [(6, 4), (100, 40)])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic"])
@pytest.mark.parametrize("size", [1.0, 100.0, 1000.0])
def test_newton_does_not_stall_on_clipped_losses(shape, loss, size):
    rng = np.random.default_rng(1)
    for clip in (0.1, 1.0, 10.0):
        v, start = rng.normal(size=(2, 3, shape[1]))
        data = problem(*shape, size, loss, clip).data
        _, left = argmin.minimise(np.arange(3), start, 0.5, v, 1e-10, data)
        assert (left[:, 0] <= np.maximum(1e-10, left[:, 1])).all()
        assert (left[:, 1] < 1e-6).all()


def test_conjugate_gradients_find_what_a_factor_finds():
    made, v = problem(100, 40, 1.0, "logistic", np.inf), np.ones((3, 40))
    found, left = argmin.minimise(np.arange(3), 0 * v, 0.5, v, 1e-12, made.data)
    assert (left[:, 0] <= 1e-12).all()
    for i in range(3):
        A, b, w = made.A[100 * i :][:100], made.b[100 * i :][:100], np.zeros(40)
        for _ in range(30):
            p = 1 / (1 + np.exp(b * (A @ w)))
            H = (A.T * (p * (1 - p))) @ A / 100 + (0.5 + 1 / 3) * np.eye(40)
            w = w - np.linalg.solve(H, (0.5 + 1 / 3) * w - v[0] - A.T @ (b * p) / 100)
        assert np.abs(found[i] - w).max() < 1e-11


def test_rows_without_a_goal_are_not_read():
    made = problem(6, 4, 1.0, "squared", np.inf)
    made.data.transposed[:] = np.nan
    start = np.ones((3, 4))
    found, left = argmin.minimise(np.arange(3), start, 0.5, start, np.inf, made.data)
    assert np.array_equal(found, start)
    assert not left.any()
    goals = np.array([np.inf, 1e-9, np.inf])
    assert np.isnan(argmin.minimise(np.arange(3), start, 0.5, start, goals, made.data)[0][1]).all()


def test_unscaled_data_need_no_tolerance_where_no_epsilon_is_at_stake(tmp_path):
    rng = np.random.default_rng(2)
    A = 1e5 * rng.normal(size=(4, 9, 3))
    np.savez(tmp_path / "data.npz", A=A, b=A @ np.ones(3))
    scenario = graph(
        algorithm={"name": "admm", "eta": 0.4}, network={"topology": "ring"}, stop={"rounds": 5}
    )
    data = {"source": "npz", "file": str(tmp_path / "data.npz")}
    scenario["problem"] = {"data": data, "loss": "squared"}
    scenario["privacy"] = {}
    assert desim.run(scenario).status == "done"
    scenario["problem"] |= {"clip": 1e9}
    scenario |= {"algorithm": {"name": "p-admm", "rho": 0.4}, "privacy": {"noise": {"sigma": 1.0}}}
    assert build(load(scenario)).method.tolerance == pytest.approx(1.776e-6, rel=1e-3)  # default
    assert desim.run(scenario).status == "done"
    scenario["algorithm"]["tolerance"] = 1e-9
    with pytest.raises(InputError, match=r"noise and clip 1e\+09; allowed: at least 1\.776e-06"):
        desim.run(scenario)
    scenario["algorithm"]["tolerance"] = 1e-5
    np.savez(tmp_path / "data.npz", A=100.0 * A, b=A @ np.ones(3))
    with pytest.raises(InputError, match=r"row 0 of agent 0 has norm .* scale the features"):
        desim.run(scenario)


# Noise and its cost ----------------------------------------------------------------------------


def test_the_schedules_add_up_as_the_theorems_say(golden):
    told, k = golden("dissertation")["accounting"], np.arange(1, 51)
    for (T, period, R), total in {
        (50, 1, 0.925): told["pr_factor_per"]["T50_Tp1_R0.925"],
        (50, 10, 0.925): told["pr_factor_per"]["T50_Tp10_R0.925"],
        (30, 5, 0.5): told["pr_factor_per"]["T30_Tp5_R0.5"],
    }.items():
        sigma = Gaussian(2.0, R, period=period).deviation(k[:T], np.ones(T))
        assert (4.0 / sigma**2).sum() == pytest.approx(total, rel=1e-12)
    sigma = Gaussian(2.0, iteration=0.015).deviation(k, np.ones(50))
    assert (4.0 / sigma**2).sum() == pytest.approx(told["pr_factor_iter"]["T50_R0.015"], rel=1e-12)
    assert sigma[1] / sigma[0] == pytest.approx(np.sqrt(1 / 0.03))
    assert not Gaussian(1.0, iteration=0.1).constant
    assert not Gaussian(1.0, 0.9).constant


def plane(alpha, k, r):
    """One bound: ln of det's ratio and of E exp((alpha - 1) r R), R Rayleigh."""
    t = np.asarray((alpha - 1.0) * r)
    with np.errstate(over="ignore"):
        whole = np.log1p(t * np.sqrt(np.pi / 2) * np.exp(t * t / 2) * (1 + special.erf(t / 2**0.5)))
    log = np.where(t < 30.0, whole, t * t / 2 + np.log(t * np.sqrt(2 * np.pi)))
    return np.log1p(k) + r * r / 2 + log / (alpha - 1.0)


def volume(alpha, k, r):
    """The other: the largest product of det_2's of one eigenvalue up to k, one down to -k/(1+k)."""
    t, inner = alpha - 1.0, k / (1.0 + k)
    loss = np.log1p(k) - inner + k - np.log1p(k)
    with np.errstate(invalid="ignore", divide="ignore"):
        moment = -np.log1p(-t * k) - t * k - np.log1p(t * inner) + t * inner
    return np.where(t * k < 1.0, alpha * r * r / 2 + loss + moment / t, np.inf)


def slack(module):
    """Least and largest, over k and r, of the least over orders of one rho / the better bound."""
    found = []
    for k in 10.0 ** np.linspace(-7, 1, 25):
        for r in 10.0 ** np.linspace(-4, 0.5, 15):
            rho = float(module.at_every_order(r, k))
            orders = 1 + 10.0 ** np.linspace(-4, 5, 1500)
            found.append(
                (orders * rho / np.minimum(volume(orders, k, r), plane(orders, k, r))).min()
            )
    return min(found), max(found)


def test_one_rho_bounds_objective_perturbation_at_every_order(golden):
    told = golden("dissertation")["accounting"]["objpert_rdp"]
    for name, value in told.items():
        alpha, r = (float(part[1:]) for part in name.split("|")[:2])
        assert plane(alpha, 0.0, r) == pytest.approx(value, rel=1e-10)
    least, largest = slack(pp_admm)
    assert 1.0 <= least + 1e-9
    assert largest < 1.06
    assert slack(mutant(pp_admm, "k * k / (1.0 + k) + inner", "inner"))[0] < 1.0
    assert slack(mutant(pp_admm, "log1p(k) + length", "length"))[0] < 1.0
    assert pp_admm.at_every_order(0.04, 1.8e-5) == pytest.approx(0.0008, rel=1e-4)
    assert pp_admm.at_every_order(0.04, np.inf) == np.inf


def spread(k, r, alpha, slope):
    """D_alpha of b -> argmin of f(w) + w^2/2 + b w, b ~ N(0, 1), by quadrature in one dimension.

    One record's slope is r/2 clipped, of curvature up to k, or the opposite: the argmin w tells
    b = -w - f'(w), of density phi(b) |db/dw|.
    """
    w = np.linspace(-12.0 - r, 12.0 + r, 60_001)
    logs = []
    for sign in (1.0, -1.0):
        pull = 0.5 * r * np.tanh(2.0 * k / r * (w + sign * slope))
        bend = k * (1.0 - np.tanh(2.0 * k / r * (w + sign * slope)) ** 2)
        logs.append(-0.5 * (w + pull) ** 2 + np.log1p(bend) - 0.5 * np.log(2.0 * np.pi))
    inner = np.exp(alpha * logs[0] + (1.0 - alpha) * logs[1]).sum() * (w[1] - w[0])
    return np.log(inner) / (alpha - 1.0)


@pytest.mark.parametrize("k", [0.05, 0.5, 2.0])
def test_no_objective_in_one_dimension_costs_more_than_its_rho(k):
    """Any k is allowed: what is released is exact, and its divergence is a quadrature."""
    largest = 0.0
    for r in (0.1, 0.5, 1.0):
        rho = float(pp_admm.at_every_order(r, k))
        for alpha in (1.2, 2.0, 5.0, 20.0):
            for slope in (0.05, 0.3, 1.0, 5.0):
                found = spread(k, r, alpha, slope)
                assert found <= alpha * rho
                largest = max(largest, found / (alpha * rho))
    assert largest > 0.1


def method_and_run(name, **changes):
    scenario = merged(CASES[name], changes)
    return build(load(scenario)).method, desim.run(scenario)


def test_pr_admm_claims_what_is_printed():
    method, run = method_and_run("pr-admm")
    rho_1 = pr_admm.theorem_1(1.0, 0.4, 3, 0.01)
    claim = claimed(method, run.releases, 1e-4)
    assert claim.epsilon == pytest.approx(pr_admm.theorem_2(rho_1, 0.8, 3, 12, 1e-4))
    assert claim.unmet == ()
    assert (run.account().final < claim.epsilon).all()
    method, run = method_and_run("pr-admm", stop={"rounds": 10})
    assert "no multiple" in claimed(method, run.releases, 1e-4).unmet[0]
    method, run = method_and_run("pr-admm-late")
    claim = claimed(method, run.releases, 1e-4)
    assert claim.epsilon == pytest.approx(pr_admm.theorem_3(rho_1, 0.2, 12, 1e-4))


@pytest.mark.parametrize("name", ["pr-admm", "pr-admm-late", "pp-admm", "ipp-admm"])
def test_who_has_released_nothing_is_said_to_have_spent_nothing(name):
    method, run = method_and_run(name, privacy={"noise": {"sigma": 0.1}})
    claim = claimed(method, run.releases[run.releases.agent != 2], 1e-4)
    assert claim.epsilon[2] == 0.0
    assert (np.delete(claim.epsilon, 2) > 0.0).all()


def test_pp_admm_claims_what_is_printed():
    method, run = method_and_run("pp-admm", privacy={"noise": {"sigma": 0.1}})
    rows = run.releases[run.releases.agent == 2]
    assert set(rows.mechanism) == {"objective-perturbation", "gaussian"}
    first, second = (rows[rows.mechanism == name] for name in rows.mechanism.unique()[:2])
    epsilon_1 = pp_admm.deviation(6, 1.0, 1e-4) / 0.1 / 0.99
    modulus = 2 * 0.4 * 3 + 1.0 / 8
    rho_2 = 0.5 * (0.01 / modulus / second.scale.iloc[0]) ** 2
    rho = pp_admm.theorem_6(12, epsilon_1, 1e-4, rho_2)
    assert claimed(method, run.releases, 1e-4).epsilon[2] == pytest.approx(float(rho) + 2 * np.sqrt(
        rho * np.log(1e4)
    ))  # fmt: skip
    spent = [0.5 * (one.sensitivity / one.scale).iloc[0] ** 2 for one in (first, second)]
    bare = 0.5 * (2 / 6 / 0.1) ** 2
    assert spent[0] == pytest.approx(
        float(pp_admm.at_every_order(2 / 6 / 0.1, 0.25 * 2 / 6 / modulus))
    )
    assert spent[1] == pytest.approx(0.2 / 0.8 * bare)
    assert spent[1] == pytest.approx(4 * rho_2)


def halved(monkeypatch, name):
    """Make a method count with half of what it knows, of loss ranges with a hundredth."""
    if name == "pr-admm":
        whole = PADMM.terms

        def terms(self, who, k):
            due = whole(self, who, k)
            return replace(due, sensitivity=0.5 * due.sensitivity)

        monkeypatch.setattr(PADMM, "terms", terms)
        return
    kind = PerturbedObjective if name == "pp-admm" else SparseVector
    made = kind.__init__

    def make(self, *args):
        made(self, *args)
        if kind is PerturbedObjective:
            self.sensitivity, self.beta = 0.5 * self.sensitivity, 0.5 * self.beta
        else:
            self.inside, self.sensitivity = 0.01 * self.inside, 0.01 * self.sensitivity

    monkeypatch.setattr(kind, "__init__", make)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["pr-admm", "pp-admm", "ipp-admm", "ipp-admm-all"])
def test_half_of_a_sensitivity_is_found(name, monkeypatch):
    halved(monkeypatch, name)
    short = {"problem": {"clip": 0.4}} if name == "pp-admm" else {}  # slopes of unit rows reach it
    checked = transcript_check(build(load(merged(CASES[name], short))), rounds=12)
    assert checked.largest > 1.3
    assert set(checked.violations.what) == {"release"}


# The sparse vector -----------------------------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", ["ipp-admm", "ipp-admm-all", "ipp-admm-printed"])
def test_agents_speak_c_times_and_read_no_data_afterwards(name, engine):
    changes = {"stop": {"rounds": 40}, "engine": engine}
    method, run = method_and_run(name, **changes)
    c = method.parameters.c
    assert (run.state["count"] == c).all()
    sends = run.events[(run.events.kind == "send") & (run.events.agent == 3)]
    spoken = sends[sends.bytes > 1]
    assert spoken["round"].nunique() == c
    last = spoken["round"].max()
    assert sends["round"].max() == 40
    later = run.events[(run.events.agent == 3) & (run.events["round"] > last)]
    assert not later[later.kind == "compute"].value.any()
    rows = run.releases[run.releases.agent == 3]
    assert rows["round"].max() == last
    assert (rows.delivered > 0).all()
    answers = rows[rows.mechanism == "sparse-vector"]
    assert len(answers) == last
    paid = rows[(rows.mechanism == "objective-perturbation") & (rows.sensitivity > 0)]
    assert len(paid) == (c if name == "ipp-admm" else last)
    each = one_answer(c, *method.svt.epsilons)
    if name != "ipp-admm-printed":
        assert (answers.sensitivity / answers.scale).to_numpy() == pytest.approx(each)
    else:
        assert (answers.sensitivity / answers.scale).max() < each


def test_without_noise_even_silence_tells():
    run = desim.run(merged(CASES["ipp-admm-plain"], {"algorithm": {"alpha": 1e6}}))
    assert not run.state["count"].any()
    assert np.isinf(run.account().final).all()


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("pp-admm", {"algorithm": {"splits": 1.0}}, r"leaves nothing for the objective; allowed"),
        ("pp-admm", {"algorithm": {"norm": 0.5}}, r"algorithm\.norm: found 0.5, but a row"),
        ("pp-admm", {"privacy": {"noise": {"kind": "laplace"}}}, r"allowed with pp-admm: \{kind"),
        ("ipp-admm", {"algorithm": {"c": 0}}, r"algorithm\.c: found 0"),
        ("ipp-admm", {"problem": {"clip": None}}, r"what one row moves it by; set problem\.clip"),
        ("ipp-admm", {"policy": {"deadline": "1 s"}}, r"policy.*ipp-admm"),
        ("m-admm", {"algorithm": {"growth": 0.9}}, r"algorithm\.growth: found 0.9; allowed"),
        ("m-admm", {"algorithm": {"theta": 3.0}}, r"algorithm\.theta: found 3; allowed: at most"),
        ("pr-admm", {"privacy": {"noise": {"iteration": 0.1}}}, r"iteration and decay; allowed"),
        ("pr-admm", {"algorithm": {"U": -1}}, r"algorithm\.U: found -1"),
    ],
)  # fmt: skip
def test_what_is_refused(name, changes, message):
    scenario = merged(CASES[name], {k: v for k, v in changes.items() if k != "privacy"})
    if "privacy" in changes:
        noise = {**scenario["privacy"]["noise"], **changes["privacy"]["noise"]}
        scenario["privacy"] = {"noise": noise}
    if scenario["problem"].get("clip", 1) is None:
        del scenario["problem"]["clip"]
    with pytest.raises(InputError, match=message):
        build(load(scenario))
