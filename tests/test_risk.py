"""What an epsilon means to people: against closed forms, attacks on densities, and riskcal."""

from functools import cache

import numpy as np
import pairs
import pytest
from cases import graph, merged
from dp_accounting.pld import privacy_loss_distribution as loss
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as drawn
from mutant import mutant
from releases import ROWS, joined, table
from scipy import integrate, stats

import desim
from desim.errors import InputError
from desim.privacy.accounting import prices, risk
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.gaussian import Kind, profile
from desim.privacy.accounting.loss_distribution import spent
from desim.privacy.accounting.prices import NOTHING, ORDERS, Tally, dearest, laplace


def attack(p, q, low, high, n=400_001):
    """Advantage and TPRs of the likelihood-ratio test between two densities, on a fine grid."""
    x = np.linspace(low, high, n)
    of_p, of_q = p(x), q(x)
    order = np.argsort(-of_p / of_q)
    tpr, fpr = (np.cumsum(one[order]) / one.sum() for one in (of_p, of_q))
    return (tpr - fpr).max(), np.interp(risk.RATES, fpr, tpr)


@pytest.mark.parametrize("mu", [0.05, 0.7, 2.0, 4.0])
def test_gaussian_risk_is_the_likelihood_ratio_attack(mu):
    def check(module):
        found = module.gaussian(mu)
        advantage, tpr = attack(stats.norm(mu).pdf, stats.norm().pdf, -12.0, 12.0 + mu)
        assert found.advantage == pytest.approx(advantage, abs=1e-5)
        assert found.tpr == pytest.approx(tpr, rel=2e-3)
        assert found.exact

    check(risk)
    for right, wrong in (
        ("np.sqrt(8.0)", "np.sqrt(2.0)"),
        ("special.ndtri(np.array(RATES)) + mu", "special.ndtri(np.array(RATES)) + mu / 2"),
    ):
        with pytest.raises(AssertionError):
            check(mutant(risk, right, wrong))


def of_prices(priced, module=prices):
    """The tally of one agent's releases."""
    return module.tallies(priced, np.zeros(len(priced.mu2), np.int64))[0]


@cache
def laplace_attack(ratio, times):
    """The best attack on so many Laplace releases, from the distribution of the privacy loss."""
    pair = loss.from_laplace_mechanism(1.0 / ratio, value_discretization_interval=1e-3)
    whole = pair.self_compose(times)
    epsilon = np.linspace(-ratio * times, ratio * times, 401)
    delta = np.array(whole.get_delta_for_epsilon(epsilon))
    tpr = [np.min(delta + np.exp(epsilon) * rate) for rate in risk.RATES]
    return whole.get_delta_for_epsilon(0.0), tpr


@pytest.mark.parametrize(("ratio", "times"), [(0.5, 10), (1.0, 1), (0.1, 50)])
def test_a_bound_by_renyi_divergences_is_above_the_best_attack_and_near_it(ratio, times):
    def check(module):
        found = module.renyi(times * laplace(np.array([ratio]))[0])
        advantage, tpr = laplace_attack(ratio, times)
        assert advantage - 1e-4 <= found.advantage <= 1.6 * advantage
        assert np.all(np.array(tpr) - 1e-5 <= found.tpr)
        assert np.all(found.tpr <= 1.7 * np.array(tpr))
        assert not found.exact

    check(risk)
    twin = mutant(risk, "(ORDERS - 1.0) * divergence", "(ORDERS - 1.0) * divergence / 3.0")
    with pytest.raises(AssertionError):
        check(twin)


def test_a_curve_of_epsilon_and_delta_bounds_the_gaussian_it_came_from():
    def check(module):
        exact = module.gaussian(1.3)
        epsilon = np.linspace(0.0, 8.0, 400)
        normal = stats.norm.cdf
        delta = normal(0.65 - epsilon / 1.3) - np.exp(epsilon) * normal(-0.65 - epsilon / 1.3)
        found = module.curve(epsilon, delta)
        assert found.advantage == pytest.approx(exact.advantage, rel=1e-6)
        assert found.tpr == pytest.approx(exact.tpr, rel=1e-3)
        assert np.all(np.array(found.tpr) >= np.array(exact.tpr) - 1e-12)

    check(risk)
    with pytest.raises(AssertionError):
        check(mutant(risk, "np.tanh(0.5 * e)", "np.tanh(0.25 * e)"))
    with pytest.raises(AssertionError):
        check(mutant(risk, "d + np.exp(e) * rate", "d + e * rate"))


def test_randomised_response_attains_what_pure_privacy_allows():
    epsilon = 1.2
    keep = np.exp(epsilon) / (1.0 + np.exp(epsilon))
    found = risk.curve([epsilon], [0.0])
    assert found.advantage == pytest.approx(2.0 * keep - 1.0, rel=1e-12)
    assert found.tpr == pytest.approx([rate * np.exp(epsilon) for rate in risk.RATES], rel=1e-12)


def test_the_risk_of_an_account_is_of_the_agent_that_spends_most():
    log = table(20, agents=2, scale=np.tile([20.0, 5.0], 20))
    told = account(log, rows=ROWS)
    assert risk.risk(told) == risk.risk(told, 1)
    assert risk.risk(told).advantage == pytest.approx(risk.gaussian(np.sqrt(20.0) / 5.0).advantage)
    assert risk.risk(told, 0).advantage == pytest.approx(risk.gaussian(np.sqrt(20.0) / 20.0)[0])
    assert risk.risk(told, 3) == risk.gaussian(0.0)


def test_a_figure_of_epsilon_says_what_it_means(tmp_path):
    rest = {"stop": {"rounds": 2}, "observe": {"metrics": []}, "engine": "cohort"}
    run = desim.run(merged(graph(), rest))
    found = run.epsilon().attrs["risk"]
    assert found == risk.risk(run.account())
    label = run.plot.epsilon(tmp_path / "figure.svg").get_xlabel()
    assert label.endswith(f"\nattacker's advantage at the end: {found.advantage:.3g}")


def test_no_privacy_is_no_privacy():
    told = account(joined(table(3), table(1, mechanism="none", release=9)), rows=ROWS)
    assert risk.risk(told) == risk.NO_PRIVACY
    assert "100 % at 0.1 %" in risk.NO_PRIVACY.words


def test_secret_batches_are_worth_something_and_known_ones_bound_them():
    log = table(12, sampling=0.1, scale=1.0)
    secret = risk.risk(account(log, rows=ROWS))
    known = risk.risk(account(log, rows=ROWS, amplification=False))
    assert secret.advantage < 0.8 * known.advantage
    assert known.exact
    assert not secret.exact
    little = table(3, sampling=0.9, scale=30.0)
    most = risk.risk(account(little, rows=ROWS, amplification=False))
    assert risk.risk(account(little, rows=ROWS)).advantage <= most.advantage


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "sparse-vector", "discrete-gaussian"])
def test_sums_of_one_account_are_its_epsilon(mechanism):
    log = joined(table(6), table(4, mechanism=mechanism, release=np.arange(20, 24)))
    told = account(log, rows=ROWS)

    def check(module):
        halves = [of_prices(told.prices(0).take(slice(*at)), module) for at in ((0, 7), (7, 10))]
        final, method = spent([halves[0].plus(halves[1])], 1e-5)
        assert final == pytest.approx(told.worst, rel=1e-12)
        assert method == told.method

    check(prices)
    name = {"gaussian": "mu2", "discrete-gaussian": "divergence"}.get(mechanism)
    right = f"{name} + other.{name}" if name else "*self.counted, *other.counted"
    with pytest.raises(AssertionError):
        check(mutant(prices, right, name or "*self.counted,"))


def test_the_dearest_costs_no_less_than_any():
    logs = [table(3), table(2, mechanism="laplace", scale=4.0), table(1, mechanism="none")]
    sums = [of_prices(account(log, rows=ROWS).prices(0)) for log in logs]
    for some in (sums[:2], sums):
        assert (spent([dearest(some)], 1e-5)[0] >= spent(some, 1e-5)[0]).all()
    assert dearest([]).bound(1e-5)[0] == NOTHING.bound(1e-5)[0] == 0.0


def in_order(counted, law):
    """Releases of a law, the largest first."""
    return sorted((kind for kind, n in counted for _ in range(n) if kind.law == law), reverse=True)


SHARED = drawn.builds(Kind, drawn.just("batch"), drawn.floats(0.1, 3.0), drawn.floats(0.01, 0.9))
PLAIN = drawn.builds(Kind, drawn.sampled_from(["laplace", "pure"]), drawn.floats(0.01, 2.0))
COUNTS = drawn.dictionaries(SHARED | PLAIN, drawn.integers(1, 4), max_size=4)
LOSSES = np.linspace(0.0, 6.0, 31)


@pytest.mark.slow
def test_the_dearest_kinds_dominate_those_of_any():
    """Releases of a law matched by size: each profile is below that of its match."""

    @settings(max_examples=examples(60), deadline=None)
    @given(drawn.lists(COUNTS, min_size=1, max_size=4))
    def check(module, each):
        sums = [Tally(0.0, tuple(one.items())) for one in each]
        whole = module.dearest(sums).counted
        for one in sums:
            for law in ("laplace", "pure", "batch"):
                matched = zip(in_order(one.counted, law), in_order(whole, law), strict=False)
                assert len(in_order(one.counted, law)) <= len(in_order(whole, law))
                for mine, its in matched:
                    most = profile(its, LOSSES) * (1.0 + 1e-9) + 1e-15
                    assert np.all(profile(mine, LOSSES) <= most)

    check(prices)
    for right, wrong in (
        ("np.maximum(most[: len(sizes)], np.sort(sizes)[::-1])", "np.sort(sizes)[::-1]"),
        ("share = max(", "share = min("),
    ):
        with pytest.raises(AssertionError):
            check(mutant(prices, right, wrong))


def answers(size, times):
    """Advantage and TPRs of the best attack on so many randomised responses: binomial laws."""
    keep = np.exp(size) / (1.0 + np.exp(size))
    tpr, fpr = (stats.binom.cdf(np.arange(-1, times + 1), times, 1.0 - p) for p in (keep, 1 - keep))
    return (tpr - fpr).max(), np.interp(risk.RATES, fpr, tpr)


def test_a_bound_by_loss_distributions_is_what_riskcal_and_binomial_laws_say():
    analysis = pytest.importorskip("riskcal.analysis")
    pair = pairs.distribution(pairs.dominates, 0.7, 0.2)
    noise = loss.from_laplace_mechanism(5.0, value_discretization_interval=2e-4)
    expected = {(Kind("pure", 0.3), 10): answers(0.3, 10)}
    for kind, times, one in (
        (Kind("laplace", 0.2), 20, noise),
        (Kind("batch", 0.7, 0.2), 12, loss.PrivacyLossDistribution(pair)),
    ):
        whole = one.self_compose(times)
        beta = analysis.get_beta_from_pld(whole, alpha=np.array(risk.RATES))
        expected[kind, times] = analysis.get_advantage_from_pld(whole), 1.0 - beta

    def check(module):
        for one, (advantage, tpr) in expected.items():
            found = module.of_tally(Tally(0.0, (one,)))
            assert found.advantage == pytest.approx(advantage, rel=1e-3)
            assert found.tpr == pytest.approx(tpr, rel=1e-3)
            assert np.all(np.array(found.tpr) >= tpr * (1.0 - 1e-5))
            assert not found.exact

    check(risk)
    for wrong in ("found", "found.least(curve(points[0], 0.99 * points[1]))"):
        with pytest.raises(AssertionError):
            check(mutant(risk, "found.least(curve(*points))", wrong))


def test_bad_mu_is_refused():
    for mu in (-1.0, np.nan):
        with pytest.raises(InputError, match="allowed: mu >= 0"):
            risk.gaussian(mu)


def test_riskcal_says_the_same():
    analysis = pytest.importorskip("riskcal.analysis")
    rates = np.array(risk.RATES)

    def check(module):
        for mu in (0.3, 1.0, 2.5):
            found = module.gaussian(mu)
            assert found.advantage == pytest.approx(analysis.get_advantage_from_gdp(mu), rel=1e-12)
            beta = analysis.get_beta_from_gdp(mu, rates)
            assert found.tpr == pytest.approx(1.0 - beta, rel=1e-10)
            beta = analysis.get_beta_from_zcdp(0.5 * mu * mu, rates)
            bound = module.renyi(0.5 * mu * mu * ORDERS)
            assert np.all(1.0 - beta <= np.array(bound.tpr) * (1.0 + 1e-3))
            assert bound.tpr == pytest.approx(1.0 - beta, rel=0.02)
        beta = analysis.get_beta_from_adp(1.0, 1e-3, rates)
        assert module.curve([1.0], [1e-3]).tpr == pytest.approx(1.0 - beta, rel=1e-12)

    check(risk)
    with pytest.raises(AssertionError):
        check(mutant(risk, "special.ndtri(np.array(RATES)) + mu", "special.ndtri(np.array(RATES))"))


def test_the_closed_form_is_an_integral():
    """2 Phi(mu/2) - 1 is the total variation, by quadrature."""
    mu = 1.7
    half = (
        0.5
        * integrate.quad(
            lambda x: abs(stats.norm.pdf(x) - stats.norm.pdf(x - mu)), -12.0, 14.0, limit=200
        )[0]
    )
    assert risk.gaussian(mu).advantage == pytest.approx(half, rel=1e-7)
