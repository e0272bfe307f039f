"""Statistics of the audit: intervals against scipy, bounds against known mechanisms, verdicts."""

import numpy as np
import pytest
from mutant import mutant
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, norm

from desim.experiments.audit import verdict
from desim.experiments.audit.verdict import (
    Certified,
    Claim,
    Event,
    best_event,
    certify,
    judge,
    mean_low,
    rounded,
    share_high,
    share_low,
)
from desim.interface.plots.trade_off import plot_audit
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import delta_of, epsilon_of


def gaussians(mu, n, seed=0):
    """Log-likelihood ratios (n,) of a mu-Gaussian mechanism in runs on D and on D'."""
    old, new = keys.normals(seed, Stream.USER, agent=[0, 1], size=n) * mu
    return old - mu * mu / 2, new + mu * mu / 2


def gaussian_claim(mu, delta=1e-5):
    return Claim("claim", float(epsilon_of(mu, delta)), delta, mu=mu)


def check_shares(module):
    """Exact intervals are those of scipy, at the ends too."""
    for count, n, level in [(0, 10, 0.01), (3, 10, 0.05), (10, 10, 0.01), (417, 1000, 0.001)]:
        exact = binomtest(count, n).proportion_ci(1 - 2 * level, "exact")
        assert module.share_low(count, n, level) == pytest.approx(exact.low, abs=1e-12)
        assert module.share_high(count, n, level) == pytest.approx(exact.high, abs=1e-12)


def test_shares_are_clopper_pearson():
    check_shares(verdict)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("n - count + 1.0, level", "n - count, level"), ("1.0 - share_low", "share_low")],
)
def test_wrong_shares_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_shares(mutant(verdict, right, wrong))


def test_shares_cover():
    n, level = 40, 0.05
    for p in (0.01, 0.3, 0.5, 0.97):
        counts = np.arange(n + 1)
        chance = binom.pmf(counts, n, p)
        assert chance[share_low(counts, n, level) > p].sum() <= level
        assert chance[share_high(counts, n, level) < p].sum() <= level


def check_parameters(module):
    """An event leaves exactly the parameters of a mechanism that attains it."""
    attained = module.Certified(0.73, 0.73 / np.exp(1.2) - 1e-3 / np.exp(1.2))
    assert attained.epsilon(1e-3) == pytest.approx(1.2)
    mirrored = module.Certified(1.0 - attained.old, 1.0 - attained.new)
    assert mirrored.epsilon(1e-3) == pytest.approx(1.2)
    assert module.Certified(norm.cdf(0.4), norm.cdf(-1.1)).mu == pytest.approx(1.5)
    p, q = 0.8, 0.3
    order = np.linspace(1.0001, 60.0, 20001)
    best = 0.0
    for a, b in ((p, q), (q, p)):
        renyi = np.log(a**order * b ** (1 - order) + (1 - a) ** order * (1 - b) ** (1 - order))
        best = max(best, float(np.max(renyi / (order - 1) / order)))
    assert module.Certified(p, q).rho == pytest.approx(best, rel=2e-3)


def test_bounds_are_what_an_event_leaves():
    check_parameters(verdict)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.maximum(1.0 - self.old - delta, 0.0)", "np.maximum(1.0 - self.old, 0.0)"),
        ("ndtri(self.new) - ndtri(self.old)", "ndtri(self.new)"),
        ("_renyi(old, new)) / ORDERS", "_renyi(old, new))"),
    ],
)
def test_wrong_bounds_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_parameters(mutant(verdict, right, wrong))


def test_an_event_that_says_nothing_bounds_nothing():
    for new, old in [(0.3, 0.3), (0.2, 0.6), (0.0, 1.0), (0.0, 0.0)]:
        shown = Certified(np.float64(new), np.float64(old))
        assert (shown.epsilon(1e-5), shown.mu, shown.rho) == (0.0, 0.0, 0.0)


def test_the_event_is_the_best_one_and_may_lie_below_its_threshold():
    old, new = gaussians(2.0, 4000)
    up = best_event(old, new, lambda shown: shown.mu, 0.01)
    down = best_event(-old, -new, lambda shown: shown.mu, 0.01)
    assert (up.above, down.above) == (True, False)
    assert up.share(new) == pytest.approx(down.share(-new), abs=0.02)
    assert Event(1.0).share(np.array([0.0, 1.0, 2.0, 3.0])) == 0.5


def test_certified_shares_cover_in_many_audits():
    """Both limits are right at once; a level of 5 % in 400 audits: 20 misses, 5 sigma are 22."""
    mu, threshold, wrong = 1.0, 0.3, 0
    truth = norm.sf(threshold, mu**2 / 2, mu), norm.sf(threshold, -(mu**2) / 2, mu)
    for seed in range(400):
        old, new = gaussians(mu, 200, seed)
        shown = certify(Event(threshold), old, new, 0.05)
        wrong += bool(shown.new > truth[0] or shown.old < truth[1])
    assert wrong <= 42


def test_mean_low_is_below_the_mean_and_close():
    values = keys.uniforms(1, Stream.USER, size=20000).ravel() ** 2
    low = mean_low(values, 0.01)
    # 3.3 standard errors (0.298 / sqrt(20000)) for the spread, and 7 ln(200) / (3 * 19999)
    assert values.mean() - 0.0075 < low < values.mean() - 0.0065
    assert mean_low(np.zeros(100), 0.01) == 0.0
    assert mean_low(np.ones(1), 0.01) == 0.0


def check_hockey_stick(module):
    """Known mechanisms: bounds below the exact delta, near it where it is large."""
    mu, grid = 1.0, np.linspace(0.0, 8.0, 60)
    old, new = gaussians(mu, 200_000)
    epsilon, low = module.hockey_stick(old, new, 1e-5, 0.01, grid)
    exact = delta_of(grid, mu)
    assert (low <= exact).all()
    assert low[0] == pytest.approx(exact[0], abs=0.01)
    assert 3.0 < epsilon < float(epsilon_of(mu, 1e-5))


def test_the_hockey_stick_bound_is_near_and_below():
    check_hockey_stick(verdict)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("(new, -old)", "(-new, old)"), ("epsilon - ratio, 0.0", "-ratio, 0.0")],
)
def test_wrong_hockey_sticks_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_hockey_stick(mutant(verdict, right, wrong))


def test_scores_are_rounded_because_doubles_leak():
    """Laplace noise of loss 0.6: the last bits of the score tell the data (Mironov 2012).

    Right of both centres the likelihood ratio is constant in real numbers, not in doubles.
    """
    scale, n = 2.5, 20_000
    noise = keys.laplaces(3, Stream.USER, agent=[0, 1], size=n) * scale
    outputs = noise + np.array([[0.1], [1.6]])
    scores = (np.abs(outputs - 0.1) - np.abs(outputs - 1.6)) / scale
    claim = Claim("laplace", 0.6, 0.0)
    leaking = judge(claim, *scores, exact=False)
    assert leaking.verdict == "refuted"
    assert leaking.epsilon_low > 3.0
    clean = judge(claim, *rounded(scores), exact=True)
    assert clean.verdict == "not refuted"
    assert clean.epsilon_low > 0.4


def flagged(module, mu, claimed):
    """How many of 50 audits of a mu-GDP mechanism, 1000 runs each, refute `claimed` at 1e-3."""
    claim = gaussian_claim(claimed)
    samples = [gaussians(mu, 1000, seed) for seed in range(50)]
    verdicts = [module.judge(claim, *pair, exact=True, level=1e-3).verdict for pair in samples]
    return verdicts.count("refuted")


def test_a_correct_gaussian_is_never_flagged():
    assert flagged(verdict, 1.0, 1.0) == 0


def test_half_the_noise_is_always_caught_with_1000_runs():
    assert flagged(verdict, 2.0, 1.0) == 50


@pytest.mark.slow
def test_an_audit_that_certifies_nothing_flags_a_correct_gaussian():
    naive = mutant(
        verdict,
        "shown = certify(event, first[1], second[1], level)",
        "shown = Certified(event.share(second[0]), event.share(first[0]))",
    )
    assert flagged(naive, 1.0, 1.0) > 10


def test_a_zcdp_claim_is_tested_as_such():
    """A mechanism of rho = 2 (mu = 2) claims rho = 0.5 and the epsilon that follows from it."""
    rho, delta = 0.5, 1e-5
    epsilon = rho + 2 * np.sqrt(rho * np.log(1 / delta))
    scores = gaussians(2.0, 1000)
    alone = judge(Claim("weak", epsilon, delta), *scores, exact=False)
    assert alone.verdict == "not refuted"
    both = judge(Claim("paper", epsilon, delta, rho=rho), *scores, exact=False)
    assert both.verdict == "refuted"
    assert [test.parameter for test in both.tests if test.refutes] == ["rho"]
    right = judge(Claim("right", 12.0, delta, rho=2.0), *scores, exact=True)
    assert right.verdict == "not refuted"


def test_an_infinite_claim_cannot_be_refuted():
    endless = np.full(500, np.inf)
    finding = judge(Claim("none", np.inf, 1e-5, mu=np.inf), -endless, endless, exact=True)
    assert finding.verdict == "not refuted"
    assert judge(gaussian_claim(3.0), -endless, endless, exact=True).verdict == "refuted"


def test_trade_offs_are_what_claims_leave():
    alarms = np.array([1e-3, 0.05, 0.3, 0.8])
    pure = Claim("pure", 1.0, 0.0).misses(alarms)
    expected = np.maximum(1 - np.e * alarms, (1 - alarms) / np.e)
    np.testing.assert_allclose(pure, expected)
    np.testing.assert_allclose(
        Claim("gdp", np.inf, 1e-5, mu=1.0).misses(alarms), norm.cdf(norm.isf(alarms) - 1.0)
    )
    zcdp = Claim("zcdp", np.inf, 1e-5, rho=0.5).misses(alarms)
    assert (zcdp < norm.cdf(norm.isf(alarms) - 1.0)).all()
    for a, miss in zip(alarms, zcdp, strict=True):
        edge = brentq(lambda p, a=a: float(Certified(p, a).rho) - 0.5, a + 1e-9, 1 - 1e-12)
        assert 1.0 - miss == pytest.approx(edge, rel=1e-6)


def test_the_figure_holds_the_runs_the_claims_and_the_certified_event(tmp_path):
    old, new = gaussians(1.5, 500)
    claims = [gaussian_claim(0.5), gaussian_claim(1.6), Claim("unclipped", np.inf, 1e-5)]
    findings = [judge(claim, old, new, exact=True) for claim in claims]
    axes = plot_audit(findings, old, new, out=tmp_path / "a.png")
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts[0] == "the adversary, 500 + 500 runs"
    assert [text.split(": ")[1] for text in texts[1:4]] == ["refuted", "not refuted", "not refuted"]
    assert "ε infinite" in texts[3]
    event = axes.lines[-1].get_xydata()[0]
    shown = findings[0].tests[1].certified
    np.testing.assert_allclose(norm.cdf(event), [shown.old, 1.0 - shown.new])
    straight = axes.lines[1].get_xydata()
    middle = np.abs(straight[:, 0]) < 0.5
    np.testing.assert_allclose(straight[middle].sum(axis=1), -0.5, atol=1e-9)
    assert (tmp_path / "a.png").stat().st_size > 10_000
