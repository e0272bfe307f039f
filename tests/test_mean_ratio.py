"""The mean likelihood ratio as a test of mu-GDP and rho-zCDP: its level, its power, its limits."""

import numpy as np
import pytest
from mutant import mutant
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from desim.experiments.audit import verdict
from desim.experiments.audit.verdict import Claim, certain, judge, rho_low
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import epsilon_of


def gaussians(mu, n, audits=1, seed=0):
    """Log-likelihood ratios (audits, n) of a mu-Gaussian mechanism in runs on D and on D'."""
    draws = keys.normals(seed, Stream.USER, agent=[0, 1], size=audits * n) * mu
    old, new = draws.reshape(2, audits, n)
    return old - mu * mu / 2, new + mu * mu / 2


def mu_low(module, pairs, level):
    return np.array([np.sqrt(2 * module.rho_low(old, new, level)) for old, new in pairs])


def check_inverse(module):
    """The bound is where the mean touches rho + sqrt(4 rho ln(1/level) / n), by a root search."""
    old, new = gaussians(1.0, 300)
    mean, n, level = np.mean([new, -old]), 600, 0.02

    def excess(rho):
        return mean - rho - np.sqrt(4 * rho * np.log(1 / level) / n)

    assert module.rho_low(old[0], new[0], level) == pytest.approx(brentq(excess, 0, 2), rel=1e-9)


def check_level(module):
    """False alarms of 20000 audits at level 5 %: Chernoff's bound is below that by its slack.

    The mean of N(rho, 2 rho / n) exceeds the bound with probability Phi(-sqrt(2 ln 20)) = 0.72 %,
    as exactly as it can be told: 20000 of them are 143, give or take 12.
    """
    false = (mu_low(module, zip(*gaussians(1.0, 50, 20_000), strict=True), 0.05) > 1.0).sum()
    exact = 20_000 * norm.sf(np.sqrt(2 * np.log(20)))
    assert abs(false - exact) < 5 * np.sqrt(exact)
    assert exact < 0.05 * 20_000


def test_the_bound_is_the_smallest_rho_that_is_not_rejected():
    check_inverse(verdict)


def test_false_alarms_are_within_the_level():
    check_level(verdict)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.log(1.0 / level) / len(ratios)", "np.log(1.0 / level) / len(ratios) ** 2"),
        ("np.sqrt(4.0 * np.log", "np.sqrt(1.0 * np.log"),
        ("np.concatenate([new, -old])", "np.concatenate([new, old])"),
        ("(2.0 * mean / (width", "(2.5 * mean / (width"),
    ],
)
def test_wrong_means_are_noticed(right, wrong):
    twin = mutant(verdict, right, wrong)
    with pytest.raises(AssertionError):
        check_inverse(twin)
    with pytest.raises(AssertionError):
        check_level(twin)


def test_a_laplace_mechanism_of_its_least_rho_is_never_above_its_level():
    """No Gaussian: its rho is the largest Renyi divergence by order, by quadrature."""

    def order(a):
        density = lambda x: np.exp(-a * abs(x) - (1 - a) * abs(x - 1.0)) / 2  # noqa: E731
        return np.log(quad(density, -30, 30, points=(0, 1), limit=200)[0]) / (a - 1) / a

    rho = max(order(a) for a in 1 + np.geomspace(1e-3, 10, 60))
    noise = keys.laplaces(4, Stream.USER, agent=[0, 1], size=4000 * 40).reshape(2, 4000, 40)
    ratio = lambda o: np.abs(o) - np.abs(o - 1.0)  # noqa: E731
    false = sum(
        rho_low(old, new, 0.05) > rho
        for old, new in zip(ratio(noise[0]), ratio(noise[1] + 1.0), strict=True)
    )
    assert 0.3 < rho < 0.5
    assert false <= 0.05 * 4000


def test_power_at_mu_1():
    """1000 runs a side leave 93 % of mu at 1 %, more than events do; 100 catch half of it."""
    lows = mu_low(verdict, zip(*gaussians(1.0, 1000, 201), strict=True), 0.01)
    assert 0.92 < np.median(lows) < 0.95
    claim = Claim("half", float(epsilon_of(0.5, 1e-5)), 1e-5, mu=0.5)
    caught = 0
    for old, new in zip(*gaussians(1.0, 100, 100), strict=True):
        finding = judge(claim, old, new, exact=True)
        caught += any(test.refutes for test in finding.tests if test.method == "mean ratio")
    assert caught >= 99


def test_the_mean_ratio_is_among_the_tests_of_exact_scores_alone():
    old, new = (one[0] for one in gaussians(1.0, 400))
    epsilon = float(epsilon_of(1.0, 1e-5))
    methods = {}
    for exact in (True, False):
        for mu, rho in ((1.0, None), (None, 0.5), (None, None)):
            tests = judge(Claim("one", epsilon, 1e-5, mu, rho), old, new, exact=exact).tests
            methods[exact, mu, rho] = [t.parameter for t in tests if t.method == "mean ratio"]
    assert methods[True, 1.0, None] == ["mu"]
    assert methods[True, None, 0.5] == ["rho"]
    assert not any(methods[False, mu, rho] for mu, rho in ((1.0, None), (None, 0.5)))
    assert not methods[True, None, None]


def test_infinite_ratios_refute_and_what_is_no_number_does_not():
    old, new = (one[0].copy() for one in gaussians(0.1, 200))
    claim = Claim("one", 2.114, 1e-5, mu=1.0)
    assert judge(claim, old, new, exact=True, ratio=True).verdict == "not refuted"
    new[3] = np.inf
    assert rho_low(old, new, 0.01) == np.inf
    assert judge(claim, old, new, exact=True, ratio=True).verdict == "refuted"
    new[3] = np.nan
    assert rho_low(old, new, 0.01) == 0.0
    assert judge(claim, old, new, exact=True, ratio=True).verdict == "not refuted"
    new[3] = -np.inf
    assert rho_low(old, new, 0.01) == 0.0
    loose = Claim("given", 30.0, 1e-5)
    inexact = judge(loose, old, np.full(200, np.inf), exact=False, ratio=True)
    assert inexact.verdict == "refuted"
    assert judge(loose, old, np.full(200, np.inf), exact=False).verdict == "not refuted"


def test_how_often_a_ratio_is_infinite_is_certified():
    """A mechanism that tells all with probability delta keeps a claim of that delta."""
    delta, wrong = 0.1, 0
    for seed in range(400):
        told = keys.uniforms(seed, Stream.USER, size=200).ravel() < delta
        wrong += certain(np.zeros(200), np.where(told, np.inf, 0.0), 0.05) > delta
    assert wrong <= 42  # 5 % of 400, and 5 sigma
    assert certain(np.zeros(200), np.zeros(200), 0.05) == 0.0
    assert certain(np.full(200, -np.inf), np.zeros(200), 0.05) > 0.9
