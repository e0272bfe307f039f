"""The papers' theorems: their numbers, what holds instead, and the counterexamples."""

import numpy as np
import pytest
from mutant import mutant
from naive import bounds
from naive.bounds import exact, improved
from scipy.optimize import brentq

from analysis.reproductions import printed
from desim.privacy.accounting.gaussian import epsilon_of, mu_of
from desim.privacy.papers import conversions, d_zoa, fed_plt, functional, pp_admm, pr_admm, theorems
from desim.privacy.papers.conversions import simple


def test_a_gaussian_at_half_has_the_epsilon_of_opendp():
    assert improved(0.5, 1e-5) == pytest.approx(4.728386985, abs=1e-8)
    assert simple(0.5, 1e-5) == pytest.approx(5.298526, abs=1e-6)
    assert exact(0.5, 1e-5) == pytest.approx(4.377178095681, abs=1e-9)


def test_nothing_costs_nothing_and_everything_everything():
    for convert in (simple, improved, exact, conversions.own_order):
        assert convert(0.0, 1e-5) == 0.0
        assert convert(np.inf, 1e-5) == np.inf


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_conversions_are_ordered(rho, delta):
    assert exact(rho, delta) <= improved(rho, delta) <= simple(rho, delta)


ZCDP = [  # phi, tau, rho, paper, Canonne-Kamath-Steinke, exact; T = 200, delta = 1e-5
    (1e-3, 0.99, 0.639918049, 6.068483, 5.451648, 5.052409756),
    (1e-3, 0.98, 2.736998906, 13.963907, 13.009457, 12.149082),
    (0.01, 0.995, 3.432966570, 16.006508, 14.989428, 14.017677),
]


@pytest.mark.parametrize(("phi", "tau", "rho", "paper", "better", "best"), ZCDP)
def test_zcdp_nfl_over_200_rounds(phi, tau, rho, paper, better, best):
    found = printed.total(phi, tau, 200)
    assert found == pytest.approx(rho, abs=1e-9)
    assert found == pytest.approx(np.sum(phi / tau ** np.arange(200)), rel=1e-10)
    assert bounds.corollary(phi, tau, 200, 1e-5) == pytest.approx(paper, abs=1e-6)
    assert improved(float(found), 1e-5) == pytest.approx(better, abs=1e-6)
    assert exact(found, 1e-5) == pytest.approx(best, abs=1e-6)


def test_zcdp_nfl_noise_of_the_first_and_the_last_round():
    delta2 = bounds.zcdp_sensitivity(c1=1.0, m=50, rho=1.0, degree=3, eta=0.5)
    assert delta2 == pytest.approx(0.005, rel=1e-12)
    found = bounds.zcdp_deviation(delta2, [1e-3, 1e-3 / 0.99**199])
    np.testing.assert_allclose(found, [0.111803, 0.041130], atol=1e-6)
    assert printed.total(1e-3, 1.0, 200) == pytest.approx(0.2)
    wrong = mutant(printed, "tau ** (T - 1.0) - tau**T", "tau ** (T - 2.0) - tau ** (T - 1.0)")
    assert wrong.total(1e-3, 0.99, 200) != pytest.approx(0.639918049, abs=1e-4)


def test_pr_admm_noise_is_too_large_by_the_number_of_rows():
    right = bounds.argmin_sensitivity(V=1.0, m=8000, eta=0.5, degree=2)
    assert pr_admm.lemma_10(1.0, 0.5, 2) == pytest.approx(8000 * right, rel=1e-12)
    variance = 0.3
    charged = pr_admm.theorem_1(1.0, 0.5, 2, variance)
    assert charged / (right**2 / (2 * variance)) == pytest.approx(6.4e7)
    regularised = bounds.argmin_sensitivity(1.0, 8000, 0.5, 2, ridge=0.1, beta=1e-3)
    assert regularised == pytest.approx((2.0 / 8000 + 2e-3) / 2.1)


def test_pr_admm_theorem_2_makes_one_release_free():
    assert pr_admm.theorem_2(1.0, R=0.925, period=1, rounds=1, delta=1e-4) == 0.0
    assert bounds.periodic(1.0, R=0.925, period=1, rounds=1) == pytest.approx(1.0)
    assert pr_admm.periodic_sum(0.925, 1, 50) == pytest.approx(595.793, abs=1e-3)
    assert pr_admm.periodic_sum(0.925, 1, 50) == pytest.approx(np.sum(0.925 ** -np.arange(50.0)))
    assert pr_admm.periodic_sum(0.925, 10, 50) == pytest.approx(
        10 * np.sum(0.925 ** -np.arange(5.0))
    )


@pytest.mark.parametrize(
    ("claimed", "period", "really"), [(1, 1, 1.000862), (1, 50, 1.010417), (10, 50, 10.120163)]
)
def test_pr_admm_theorem_2_as_it_should_read(claimed, period, really):
    rho_1 = brentq(lambda r: pr_admm.theorem_2(r, 0.925, period, 50, 1e-4) - claimed, 0.0, 100.0)
    total = bounds.periodic(rho_1, 0.925, period, 50)
    assert simple(total, 1e-4) == pytest.approx(really, abs=1e-6)
    if (claimed, period) == (1, 1):
        assert exact(total, 1e-4) == pytest.approx(0.694338, abs=1e-6)


def test_pr_admm_theorem_3():
    assert pr_admm.iteration_sum(0.015, 50) == pytest.approx(625.75)
    t = np.arange(1.0, 50.0)
    assert pr_admm.iteration_sum(0.015, 50) == pytest.approx(1.0 + np.sum(0.015 * t * (t + 1)))
    assert 1.0 / (0.015 * 2) == pytest.approx(33.3, abs=0.1)  # the variance jumps up after t = 0
    rho_1 = brentq(lambda r: pr_admm.theorem_3(r, 0.015, 50, 1e-4) - 10.0, 0.0, 100.0)
    assert exact(rho_1 * 625.75, 1e-4) == pytest.approx(8.356862, abs=1e-6)


PP = [  # target, Theorem 7, rigorous rho, paper's rho, simple, exact; T = 30, n = 7000, 1e-4
    (0.5, 0.506786, 0.0065463, 0.0067859, 0.497642, 0.321095),
    (1.0, 1.027143, 0.0263143, 0.0271434, 1.010922, 0.702002),
    (2.0, 2.108574, 0.1062929, 0.1085736, 2.085175, 1.547733),
    (10.0, 12.714341, 2.8690744, 2.7143405, 13.150154, 11.178044),
]


@pytest.mark.parametrize(("target", "seven", "rho", "paper", "loose", "best"), PP)
def test_pp_admm(target, seven, rho, paper, loose, best):
    budget = pp_admm.budget(target, 1e-4)
    assert budget == pytest.approx(paper, abs=1e-7)
    assert float(simple(budget, 1e-4)) == pytest.approx(seven, abs=1e-6)
    parts = printed.split(budget, 30, 1e-4)
    assert 30 * (parts.rho_1 + parts.rho_2) == pytest.approx(budget)
    sigma = pp_admm.deviation(7000, parts.epsilon_3, parts.delta_1)
    found = bounds.perturbed(30, 7000, sigma, parts.rho_2)
    bare = found - 30 * bounds.XI  # the notes leave the correction out
    assert bare == pytest.approx(rho, abs=1e-7)
    assert simple(bare, 1e-4) == pytest.approx(loose, abs=2e-6)
    assert exact(bare, 1e-4) == pytest.approx(best, abs=2e-6)
    assert (found > budget) == (target == 10.0)


def test_pp_admm_needs_epsilon_3_below_1():
    """At eps = 10 the classical Gaussian noise is used at epsilon 1.9."""
    parts = printed.split(pp_admm.budget(10.0, 1e-4), 30, 1e-4)
    assert parts.epsilon_1 == pytest.approx(1.915, abs=1e-3)
    as_printed = pp_admm.theorem_6(30, parts.epsilon_1, parts.delta_1, parts.rho_2)
    assert as_printed != pytest.approx(2.7143405, rel=0.05)  # Theorem 6 is not the split's inverse


def test_objective_perturbation_stretches_by_less_than_xi():
    modulus = 0.25 / (7000 * 1.8e-5)
    assert 0.0 < bounds.stretch(0.25, 7000, modulus, 2.0) < 6.4e-9
    assert bounds.stretch(0.25, 7000, modulus, 1e5) == np.inf
    grid = np.linspace(1.1, 20.0, 50)
    spent = [bounds.stretch(0.25, 7000, modulus, alpha) / bounds.XI for alpha in grid]
    assert max(spent) < 1.0
    assert (np.diff(spent) > 0).all()


def ipp(target):
    """Budgets of IPP-ADMM: half of rho for the sparse vector, half for c = 15 releases."""
    rho = pp_admm.budget(target, 1e-4)
    return rho, printed.thresholds(rho / 2, 15), printed.split(rho / 2, 15, 1e-4)


@pytest.mark.parametrize(
    ("target", "paper", "published", "best"),
    [(1.0, 0.0271434, 0.0268623, 0.710197), (10.0, 2.71434, 2.92870, 11.3276)],
)
def test_ipp_admm_as_published(target, paper, published, best):
    rho, (first, second), parts = ipp(target)
    assert second / first == pytest.approx(9.655, abs=1e-3)
    assert bounds.theorem_10(first, second, 15, parts.rho_1, parts.rho_2) == pytest.approx(rho)
    assert rho == pytest.approx(paper, abs=1e-5)
    found = bounds.as_published(30, 15, first, second, parts, 7000) - 30 * bounds.XI
    assert found == pytest.approx(published, rel=3e-6)
    assert exact(found, 1e-4) == pytest.approx(best, rel=4e-6)
    careless = mutant(bounds, "perturbed(rounds,", "perturbed(c,")
    assert careless.as_published(30, 15, first, second, parts, 7000) < 0.6 * published


def test_ipp_admm_with_fresh_noise():
    _, (first, second), parts = ipp(1.0)
    given = (30, 15, first, second, parts, 7000)
    fixed = bounds.with_fresh_noise(*given) - 15 * bounds.XI
    assert fixed == pytest.approx(0.0269949, abs=1e-7)
    redrawn = bounds.with_fresh_noise(*given, redrawn=True) - 15 * bounds.XI
    assert redrawn == pytest.approx(0.0134391, abs=1e-7)


def test_ipp_admm_answers_below_the_threshold_are_not_free():
    first, second = 0.1, 0.9655
    for rounds, epsilon in [(30, 0.2), (160, 1.0667), (1000, 6.667)]:
        found, rho = bounds.answers(rounds, 15, first, second)
        assert found == pytest.approx(epsilon, rel=1e-4)
        assert (found > first + second) == (rounds >= 160)
        assert rho <= pp_admm.lemma_13(first, second)
    assert bounds.answers(25_500, 15, first, second)[1] <= pp_admm.lemma_13(first, second)
    assert bounds.answers(25_600, 15, first, second)[1] > pp_admm.lemma_13(first, second)
    assert bounds.lemma_12(2.0) == 4.0


SIGMA = {200: 0.277277, 1000: 0.620011}


@pytest.mark.parametrize("rounds", [200, 1000])
def test_q_dpsgd_1_noise_for_the_papers_epsilon_1(rounds):
    c = printed.of_own_order(1.0, 1e-5)
    assert np.sqrt(8 * rounds / 1000**2 / c) == pytest.approx(SIGMA[rounds], abs=1e-6)
    claimed = bounds.theorem_11([20] * rounds, 1000, SIGMA[rounds], 1e-5)
    assert claimed == pytest.approx(1.0, abs=1e-5)
    alpha = 2 * np.log(1e5) / claimed + 1
    curve = 8 * rounds / (1000 * SIGMA[rounds]) ** 2
    assert claimed == pytest.approx(curve * alpha + np.log(1e5) / (alpha - 1), rel=1e-12)
    assert bounds.theorem_11([20, 0] * rounds, 1000, SIGMA[rounds], 1e-5) == claimed


@pytest.mark.parametrize(("size", "epsilon"), [(20, 34.03), (4, 433), (36, 15.5)])
def test_q_dpsgd_1_with_batches_that_are_known(size, epsilon):
    mu = bounds.unamplified([size] * 200, SIGMA[200])
    assert epsilon_of(mu, 1e-5) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("rounds", "size", "upper", "attained"),
    [(200, 4, 5.269, 3.4105), (200, 20, 0.8799, 0.3791), (1000, 4, 1.0283, 0.4540),
     (1000, 20, 0.8325, 0.3567)],
)  # fmt: skip
@pytest.mark.slow
def test_q_dpsgd_1_theorem_11_is_between_nothing(rounds, size, upper, attained):
    """Losses are rounded down by at most 1e-4 in each round; the notes' figures are not."""
    sigma = SIGMA[rounds]
    assert bounds.sampled({size: rounds}, 1000, sigma, 1e-5) == pytest.approx(upper, abs=5e-4)
    found = bounds.realisable({size: rounds}, 1000, sigma, 1e-5)
    assert attained - rounds * 1e-4 <= found <= attained
    if (rounds, size) == (200, 4):
        assert found > 1.01 * bounds.theorem_11([size] * rounds, 1000, sigma, 1e-5)


@pytest.mark.slow
def test_q_dpsgd_1_theorem_11_is_refuted_at_the_papers_own_batches():
    sizes = np.random.default_rng(1).integers(4, 37, 200)
    counts = dict(zip(*(a.tolist() for a in np.unique(sizes, return_counts=True)), strict=True))
    assert bounds.theorem_11(sizes, 1000, SIGMA[200], 1e-5) == pytest.approx(1.0, abs=1e-5)
    assert bounds.realisable(counts, 1000, SIGMA[200], 1e-5, step=4e-4) > 1.5


def test_q_dpsgd_2_accumulates():
    mixing, step = 11 / 1000**0.5, 0.3 / 1000 ** (1 / 6) * 11 / 1000**0.5
    declared = bounds.lemma_19(0.5, step, 20, 0.0, 1)
    assert declared == pytest.approx(0.00165, abs=1e-6)
    state = bounds.accumulated([20] * 1000, 0.5, step, mixing, own_weight=0.3)
    assert state[0] == pytest.approx(declared)
    assert state[-1] == pytest.approx(0.0067763, abs=1e-7)
    assert state[-1] / declared == pytest.approx(4.107, abs=1e-3)
    assert (state[-1] / declared) ** 2 == pytest.approx(16.9, abs=0.05)
    assert state[-1] == pytest.approx(declared / (mixing * 0.7), rel=1e-9)
    rough = bounds.accumulated([20] * 1000, 0.5, step, mixing, 0.3, smoothness=None)
    assert rough[-1] > 2 * state[-1]
    assert bounds.accumulated([20, 0], 0.5, step, mixing, 0.3)[1] < state[0]
    wrong = mutant(bounds, "distance = a * distance + widened", "distance = widened")
    assert wrong.accumulated([20] * 9, 0.5, step, mixing, 0.3)[-1] == pytest.approx(declared)


def test_q_dpsgd_2_in_the_papers_setting_is_infeasible():
    mixing, step, p = 11 / 1000**0.5, 0.3 / 1000 ** (1 / 6) * 11 / 1000**0.5, 39_760
    assert 784 * 50 + 50 + 500 + 10 == p
    assert bounds.lemma_19(0.5, step, 20, 0.01, p) - 2 * 0.5 * step / 20 == pytest.approx(
        3.99, abs=0.005
    )

    def excess(sigma):
        return printed.theorem_15([20] * 1000, 1000, sigma, 0.5, step, 0.01, p, 1e-5) - 1.0

    assert 0.5 * brentq(excess, 1e-3, 1e4) == pytest.approx(24.7, abs=0.05)
    assert mixing < 1.0


def test_rounded_gaussian_noise_costs_what_gaussian_noise_costs():
    assert bounds.rounded_gaussian(2.0, 4.0) == 0.125


def test_pdfc_shares_epsilon_out_wrongly():
    tight = bounds.public_mean_sensitivity
    assert bounds.lemma_22(13) == 81.25
    for group, pair in [("n", (0.1, 1.0)), ("s", (1.0, 0.1))]:
        moved = {"moved_s": 2.0 * (group == "s"), "moved_n": 2.0 * (group == "n")}
        loss = bounds.pair_loss(*pair, **moved, delta1=tight(2))
        assert loss == pytest.approx(0.6009, abs=5e-5)
        assert functional.shared_out(*pair, 2) == pytest.approx(0.55)
    loss = bounds.pair_loss(10.0, 1.0, 2.0, 0.0, tight(13))
    assert loss == pytest.approx(1.9118, abs=5e-5)
    assert functional.shared_out(10.0, 1.0, 13) == pytest.approx(1.6923, abs=5e-5)
    assert loss <= bounds.laplace(10.0, 1.0, tight(13))


def test_pdfc_in_the_ball():
    assert functional.shared_out(0.1, 1.0, 13) == pytest.approx(0.9308, abs=5e-5)
    true = bounds.ball_sensitivity(13)
    found = bounds.laplace(0.1, 1.0, bounds.lemma_22(13), true)
    assert found == pytest.approx(0.1731, abs=5e-5)
    assert bounds.laplace(0.1, 1.0, bounds.lemma_22(13)) == 1.0


def moved(x, y):
    """L1 change of the coefficients from record x to y, rows (signed coefficient, features)."""
    (a, u), (b, v) = x, y
    return np.abs(a * u - b * v).sum() + np.abs(np.outer(u, u) - np.outer(v, v)).sum() / 8


@pytest.mark.thin(3)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 13])
def test_pdfc_sensitivities_are_valid(d):
    """Corners of the coefficient, and features that are random, sparse, or on disjoint supports."""
    rng, limit = np.random.default_rng(d), bounds.public_mean_sensitivity(d)
    largest = 0.0
    for _ in range(2000):
        u, v = np.abs(rng.standard_normal((2, d))) * (rng.random((2, d)) < rng.random())
        if rng.random() < 0.3:
            v = v * (u == 0)
        u, v = (one / max(np.linalg.norm(one), 1e-300) for one in (u, v))
        for a, b in [(1.5, -0.5), (1.5, 1.5), (-0.5, -0.5)]:
            largest = max(largest, moved((a, u), (b, v)))
    assert largest <= limit < bounds.ball_sensitivity(d)
    assert largest <= bounds.lemma_22(d)


def test_two_records_on_different_axes_move_most_in_the_plane():
    found = moved((1.5, np.array([1.0, 0.0])), (1.5, np.array([0.0, 1.0])))
    assert found == pytest.approx(3.25)
    assert 2.916 < found <= bounds.public_mean_sensitivity(2)


def test_adfc():
    assert functional.theorem_19(1.0, 1e-3, 1.0) == pytest.approx(3.787678, abs=1e-6)
    assert 1.0 / mu_of(1.0, 1e-3) == pytest.approx(2.574657, abs=1e-6)
    delta, delta2 = functional.theorem_20_delta(1e-3, 1e-3), bounds.lemma_24(13)
    assert delta == pytest.approx(0.001999, abs=1e-12)
    assert delta2 == pytest.approx(11.294, abs=1e-3)
    sigma_s, sigma_n = (functional.theorem_19(e, 1e-3, delta2) for e in (0.1, 1.0))
    assert functional.shared_out(0.1, 1.0, 13) == pytest.approx(0.930769, abs=1e-6)
    assert delta2 / min(sigma_s, sigma_n) == pytest.approx(0.264014, abs=1e-6)
    assert bounds.gaussian(sigma_s, sigma_n, delta2, delta) == pytest.approx(0.565673, abs=1e-6)
    ball = bounds.ball_sensitivity_2()
    assert ball == pytest.approx(4.0078, abs=1e-4)
    assert ball / sigma_n == pytest.approx(0.093685, abs=1e-6)
    assert bounds.gaussian(sigma_s, sigma_n, ball, delta) == pytest.approx(0.156294, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0])
@pytest.mark.parametrize("delta", [1e-1, 1e-2, 1e-3, 1e-5, 1e-7])
def test_adfc_theorem_19_is_valid(epsilon, delta):
    sigma = functional.theorem_19(epsilon, delta, 1.0)
    assert epsilon_of(1.0 / sigma, delta) <= epsilon


REACH = 2.0 / 20.0
PLT = [  # rho, gamma, tau, K, paper, rigorous
    (1.0, 0.1, 0.3, 10, 3.269, 2.807),
    (1.0, 0.1, 0.3, 50, 3.421, 7.143),
    (1.0, 0.1, 0.3, 200, 3.421, 16.909),
    (0.1, 0.05, 0.3, 50, 3.418, 2.557),
    (1.0, 2.0 / 7.0, 0.1, 100, 11.597, 55.966),
    (1.0, 2.0 / 7.0, 1.0, 100, 0.980, 3.009),
    (1.0, 2.0 / 7.0, 10.0, 100, 0.096, 0.239),
    (1.0, 2.0 / 7.0, 0.01, 100, 296, 2906),
    (1.0, 0.1, 0.3, 14, 3.366, 3.398),
]


def plt(rho, gamma, tau, rounds, bounds=bounds):
    """Epsilon of Proposition 4 and the rigorous one; lambda .5 to 4.5, ten steps, delta 1e-5."""
    chi = bounds.contraction(gamma, 0.5 + 1 / rho, 4.5 + 1 / rho)
    c = fed_plt.proposition_4(REACH, tau, 0.5, gamma, rounds * 10)
    mu = bounds.one_round(REACH, tau, gamma, chi, 10)
    return float(simple(c, 1e-5)), float(bounds.every_round(mu, rounds, 1e-5))


@pytest.mark.parametrize(("rho", "gamma", "tau", "rounds", "paper", "rigorous"), PLT)
def test_fed_plt(rho, gamma, tau, rounds, paper, rigorous):
    found = plt(rho, gamma, tau, rounds)
    np.testing.assert_allclose(found, [paper, rigorous], atol=5e-4, rtol=2e-4)
    wrong = mutant(bounds, "(1.0 - chi) * (1.0 + power)", "(1.0 - chi) * (2.0 + power)")
    assert plt(rho, gamma, tau, rounds, wrong)[1] < 0.9 * rigorous


def test_fed_plt_is_unsafe_for_who_sees_z_from_round_14_on():
    unsafe = [rounds for rounds in range(1, 40) if np.diff(plt(1.0, 0.1, 0.3, rounds)) > 0]
    assert unsafe == list(range(14, 40))


def test_fed_plt_best_order():
    c = fed_plt.proposition_4(REACH, 0.3, 0.5, 0.1, 500)
    orders = np.linspace(1.5, 60.0, 20_000)
    at = c * orders + np.log(1e5) / (orders - 1.0)
    assert simple(c, 1e-5) == pytest.approx(at.min(), rel=1e-6)
    assert np.sqrt(2 * c) == pytest.approx(0.667, abs=5e-4)


def test_fed_plt_without_strong_convexity_or_contraction():
    small = fed_plt.proposition_4(REACH, 0.3, 1e-12, 0.1, 100)
    assert fed_plt.proposition_4(REACH, 0.3, 0.0, 0.1, 100) == pytest.approx(small, rel=1e-6)
    one = bounds.one_round(REACH, 0.3, 0.1, 0.85, 1)
    assert one == pytest.approx(0.1 * REACH / (np.sqrt(0.2) * 0.3), rel=1e-12)
    flat = bounds.one_round(REACH, 0.3, 0.1, 1.0, 7)
    assert flat == pytest.approx(np.sqrt(7) * one, rel=1e-12)


def test_d_zoa_gives_less_epsilon_for_a_larger_public_scale():
    sensitivity = d_zoa.lemma_3(c1=1.0, rho=4.0, degree=2, m=20)
    for R, epsilon in [(1, 0.334), (10, 0.0334), (100, 0.00334)]:
        sigma = np.sqrt(d_zoa.lemma_2(0.54, R, J=4, P=10, T=1))
        assert d_zoa.corollary_1(sensitivity, sigma, 1e-3) == pytest.approx(epsilon, rel=2e-3)
    less = d_zoa.lemma_2(0.54, 1.0, J=4, P=10, T=1, optimum_norm=0.1)
    assert less == pytest.approx(d_zoa.lemma_2(0.54, 1.0, 4, 10, 1) - 4 * 0.01 / 40)


@pytest.mark.parametrize(
    ("epsilon", "delta", "paper", "loose", "best"),
    [(0.95, 1e-6, 13.0066, 16.0679, 14.2675), (0.95, 1e-3, 12.9045, None, 16.0448),
     (0.15, 1e-6, 2.0537, None, 1.7209)],
)  # fmt: skip
def test_d_zoa_theorem_2_is_wrong_under_its_own_model(epsilon, delta, paper, loose, best):
    rho = bounds.model(epsilon, 200, delta)
    assert d_zoa.theorem_2(epsilon, 200, delta) == pytest.approx(paper, abs=5e-5)
    assert exact(rho, delta) == pytest.approx(best, abs=5e-5)
    assert loose is None or simple(rho, delta) == pytest.approx(loose, abs=5e-5)
    assert d_zoa.theorem_2(epsilon, 200, delta) == pytest.approx(simple(rho, delta) - rho)


NAMES = [  # the table of the notes
    "zcdp-nfl/lemma-I", "zcdp-nfl/theorem-I", "zcdp-nfl/corollary", "dp-nfl/basic",
    "dp-nfl/advanced", "pr-admm/lemma-10",
    "pr-admm/theorem-1", "pr-admm/theorem-2", "pr-admm/theorem-3", "pp-admm/theorem-6",
    "pp-admm/theorem-7", "ipp-admm/lemma-12", "ipp-admm/lemma-13", "ipp-admm/theorem-10",
    "q-dpsgd-1/theorem-11", "q-dpsgd-2/theorem-14", "q-dpsgd-2/corollary-1", "q-dpsgd-2/lemma-19",
    "q-dpsgd-2/theorem-15", "functional-mechanism/theorem-1", "pflr/pflr", "pflr/pflr-star",
    "pdfc/theorem-18", "adfc/theorem-19", "adfc/theorem-20",
    "fed-plt/proposition-4", "fed-plt/adp", "d-zoa/lemma-2", "d-zoa/lemma-3", "d-zoa/theorem-1",
    "d-zoa/theorem-2", "muffliato/pairwise", "decor/accountant",
]  # fmt: skip
WRONG = {
    "pr-admm/theorem-2", "pp-admm/theorem-6", "q-dpsgd-1/theorem-11", "d-zoa/theorem-2",
    "muffliato/pairwise",
}  # fmt: skip


def test_every_theorem_has_a_view_a_verdict_and_a_reason():
    assert [bound.name for bound in theorems.BOUNDS] == NAMES
    for bound in theorems.BOUNDS:
        assert bound.view
        assert bound.wrong
        assert bound.rigorous
        assert bound.verdict in ("holds", "loose", "unproved", "wrong")
        assert bound.name.split("/")[0] in bound.algorithms
    assert {name for name in WRONG if theorems.BY_NAME[name].verdict == "wrong"} == WRONG
    assert [bound.theorem for bound in theorems.theorems("fed-plt")] == [
        "Proposition 4", "Proposition 4 with Lemma 5",
    ]  # fmt: skip
    assert theorems.theorems("fedavg") == ()
