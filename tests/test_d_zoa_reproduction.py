"""The reproduction of D-ZOA: its J and noise, the pair of its attack, and small versions run."""

import numpy as np
import pytest
from mutant import mutant
from scipy.special import ndtr

from analysis.reproductions import (
    d_zoa_attack,
    d_zoa_fig1,
    d_zoa_fig2_3,
    d_zoa_panels,
    d_zoa_setting,
    d_zoa_study,
)
from analysis.reproductions.d_zoa_setting import PLAYERS, Level
from analysis.reproductions.monte_carlo import Case, MonteCarlo, simulations
from analysis.reproductions.zcdp_nfl_errors import minimiser
from desim.interface.plots import save
from desim.numerics.jit import set_threads
from desim.privacy.papers import d_zoa as printed


@pytest.fixture
def alone():
    set_threads(1)
    with MonteCarlo(processes=1) as here:
        yield here
    set_threads(None)


def made_of(regularizer, **changes):
    section = {"problem.regularizer": d_zoa_setting.REGULARIZERS[regularizer]}
    return next(simulations(Case("d-zoa", {**section, **changes}), [1]))


def check_samples(module):
    """With J of (22) and Lemma 2's variance, Corollary 1 gives back epsilon."""
    level, radius = module.Level(0.3, 1e-5), 2.5
    for degree in (1, 3):
        J = level.samples(radius, degree)
        sigma = np.sqrt(printed.lemma_2(0.54, radius, J, 10, 100, optimum_norm=radius))
        epsilon = printed.corollary_1(printed.lemma_3(1.0, 4.0, degree, 20), sigma, level.delta)
        assert epsilon == pytest.approx(level.epsilon, rel=1e-12)


def test_the_papers_number_of_samples():
    check_samples(d_zoa_setting)
    assert Level(0.15).samples(2.6, 2) == pytest.approx(12, abs=0.5)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("(self.epsilon / reach) ** 2", "self.epsilon / reach"), ("2.1 * np.log", "2.0 * np.log")],
)
def test_another_number_of_samples_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_samples(mutant(d_zoa_setting, right, wrong))


@pytest.mark.parametrize("name", ["DPSG", "DP-ADMM", "PVP"])
def test_noise_is_that_of_the_papers_bound_though_nothing_is_clipped(name):
    player = next(one for one in PLAYERS if one.name == name)
    point = {"DPSG": {"step.initial": 0.3, "step.decay.power": 0.5}, "PVP": {"rho": 2.0},
             "DP-ADMM": {"rho": 2.0, "eta.initial": 0.3, "eta.decay.power": 0.5}}[name]  # fmt: skip
    made = next(simulations(player.case("ridge", point, Level(0.15)), [1]))
    terms = made.method.planned(3)
    reach = terms.sensitivity / d_zoa_setting.NEVER
    sigma = reach * np.sqrt(2.0 * np.log(1.25e6)) / 0.15
    np.testing.assert_allclose(terms.scale, sigma, rtol=1e-9)
    assert d_zoa_setting.largest_gradient(made) < 1e-3 * d_zoa_setting.NEVER


@pytest.mark.parametrize("regularizer", ["ridge", "lasso"])
def test_central_methods_have_the_data_and_the_optimum_of_the_agents(regularizer):
    apart = made_of(regularizer)
    point = {"step": 0.1}
    made = next(simulations(d_zoa_fig1.case("OR-ZO", regularizer, point), [1]))
    together = d_zoa_fig1.gathered(made)
    assert np.array_equal(together.problem.A, apart.problem.A)
    np.testing.assert_allclose(minimiser(together.problem), minimiser(apart.problem), atol=1e-8)


def check_anderson(module):
    z = np.random.default_rng(0).standard_t(3, 50)
    F, n = np.sort(ndtr(z)), 50
    total = sum((2 * i + 1) * (np.log(F[i]) + np.log(1 - F[n - 1 - i])) for i in range(n))
    assert module.anderson(z) == pytest.approx(-n - total / n)


def test_the_statistic_of_normality():
    check_anderson(d_zoa_fig2_3)
    with pytest.raises(AssertionError):
        check_anderson(mutant(d_zoa_fig2_3, "log_ndtr(-z[::-1])", "log_ndtr(-z)"))


@pytest.mark.parametrize("regularizer", ["ridge", "lasso"])
def test_the_attack_respects_the_bound_that_the_paper_supposes(regularizer):
    """At the optimum the agent's minimiser is w*; both records have gradients of norm .9 there."""
    made = made_of(regularizer)
    c, q = d_zoa_attack.shifts(made, "at the optimum")
    best = minimiser(made.problem)
    np.testing.assert_allclose(d_zoa_attack.argmin(made.problem, c, q), best, atol=1e-7)
    for one in d_zoa_attack.neighbours(made.problem, c, q):
        x = d_zoa_attack.argmin(one, c, q)
        steep = 2.0 * abs(one.A[0] @ x - one.b[0]) * np.linalg.norm(one.A[0])
        assert 0.85 < steep < 0.95
        assert (one.A[1:] == made.problem.A[1:]).all()


@pytest.mark.slow
def test_the_attack_refutes_d_zoa_and_not_the_control():
    case = "ridge", "at the optimum", Level(0.15), 400
    row, control = (d_zoa_attack.attacked(*case, control=one)[0] for one in (False, True))
    assert row["verdict"] == "refuted"
    assert row["low"] > 1.0
    assert row["sd"] < 0.05 * row["claimed_sd"]
    assert control["verdict"] == "not refuted"


@pytest.mark.slow
def test_figure_1(alone, monkeypatch, tmp_path):
    monkeypatch.setattr(d_zoa_fig1, "SIZE", 1)
    monkeypatch.setattr(d_zoa_fig1, "SEEDS", [1001])
    monkeypatch.setattr(d_zoa_fig1, "SAMPLES", 3)
    rows = d_zoa_fig1.study(alone, 1)
    ends = [row["error"] for row in rows if row["round"] == 200]
    assert ends[0] < 1e-3
    assert max(ends[0], ends[1], ends[3], ends[4]) < 1.0
    assert d_zoa_fig1.markdown(rows).count("OR-ZO") == 2
    save(d_zoa_fig1.draw(rows), tmp_path / "a.svg")


@pytest.mark.slow
def test_figures_2_and_3(alone, monkeypatch, tmp_path):
    monkeypatch.setattr(d_zoa_fig2_3, "PLACES", ((2, 3), (3, 2)))
    monkeypatch.setattr(d_zoa_fig2_3, "DRAWS", 500)
    rows = d_zoa_fig2_3.study(alone, 1)
    assert d_zoa_fig2_3.markdown(rows).count("\n| ") == 5
    save(d_zoa_fig2_3.draw(rows), tmp_path / "a.svg")


@pytest.mark.slow
def test_figures_4_and_5(alone, monkeypatch, tmp_path):
    few = {"LEVELS": d_zoa_study.SHOWN, "ANCHORS": d_zoa_study.SHOWN[:1], "HONEST": (10.0,)}
    small = {"SIZE": 1, "HONEST_SIZE": 1, "SEEDS": [1001], "WORK": 1, "FEWEST": 2}
    for name, value in {**few, **small}.items():
        monkeypatch.setattr(d_zoa_study, name, value)
    monkeypatch.setattr(d_zoa_setting, "CAP", 2)
    monkeypatch.setattr(d_zoa_panels, "HONEST", (10.0,))
    rows = d_zoa_study.study(alone, 2, "lasso")
    assert set(d_zoa_study.names(rows, "trade-off")) == {"DPSG", "DP-ADMM", "D-ZOA"}
    text = d_zoa_panels.markdown(rows)
    assert "An ε that holds" in text
    save(d_zoa_panels.draw(rows), tmp_path / "a.svg")
