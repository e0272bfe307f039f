"""Exact Gaussian differential privacy against numbers known elsewhere, and the laws it obeys."""

import dp_accounting
import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as some
from mutant import mutant
from scipy import optimize, special

from desim.errors import InputError
from desim.privacy.accounting import gaussian
from desim.privacy.accounting.gaussian import delta_of, epsilon_of, mu_of

MUS = some.floats(1e-4, 50.0)
DELTAS = some.floats(1e-12, 0.5)


def naive(mu, delta):
    """The root of Balle and Wang's formula as it is printed, by bisection, for moderate mu."""

    def excess(epsilon):
        below = special.ndtr(mu / 2 - epsilon / mu)
        return below - np.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)) - delta

    return optimize.bisect(excess, 0.0, 1e3, xtol=1e-13) if excess(0.0) > 0 else 0.0


def check_values(module):
    for mu in (5e-4, 0.03, 0.3, 1.0, 3.0, 9.0):
        for delta in (1e-2, 1e-5, 1e-9):
            expected = naive(mu, delta)
            assert float(module.epsilon_of(mu, delta)) == pytest.approx(expected, rel=1e-5)
            if expected > 0.0:
                back = float(module.delta_of(expected, mu))
                assert back == pytest.approx(delta, rel=1e-6)


def test_epsilon_is_the_root_of_balle_and_wang():
    check_values(gaussian)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("mu * (0.5 * mu + t)", "mu * (0.4 * mu + t)"),
        ("middle * value - 1.0", "middle * value - 1.01"),
        ("LOG_ROOT_2PI = 0.5", "LOG_ROOT_2PI = 0.6"),
        ("- 0.5 * m[inside]", "+ 0.5 * m[inside]"),
    ],
)
def test_a_wrong_formula_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_values(mutant(gaussian, right, wrong))


def test_numbers_of_other_libraries():
    assert float(epsilon_of(1.0, 1e-5)) == pytest.approx(4.377178095681, abs=1e-12)
    assert float(epsilon_of(0.5, 1e-5)) == pytest.approx(1.993091, abs=1e-6)
    assert mu_of(3.0, 1e-5) == pytest.approx(0.719117, abs=1e-6)
    sigma = np.sqrt(200.0) / mu_of(1.0, 1e-5)
    assert sigma == pytest.approx(52.759098542, abs=1e-9)
    for sigma, delta in ((0.2, 1e-6), (1.0, 1e-3), (30.0, 1e-5), (500.0, 1e-4)):
        expected = dp_accounting.get_epsilon_gaussian(sigma, delta)
        assert float(epsilon_of(1.0 / sigma, delta)) == pytest.approx(expected, rel=1e-8, abs=1e-10)


def test_a_small_mu_is_as_exact_as_a_large_one():
    """80 digits of mpmath; on both sides of where the series begins."""
    mpmath = pytest.importorskip("mpmath")
    for mu, delta in ((9e-4, 1e-9), (1.1e-3, 1e-9), (1e-6, 1e-9), (1e-6, 1e-7)):
        epsilon = float(epsilon_of(mu, delta))
        with mpmath.workdps(80):
            m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
            exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert float(exact) == pytest.approx(delta, rel=1e-10)


@settings(deadline=None)
@given(MUS, DELTAS)
def test_the_three_functions_invert_each_other(mu, delta):
    epsilon = float(epsilon_of(mu, delta))
    if epsilon > 1e-9:
        assert float(delta_of(epsilon, mu)) == pytest.approx(delta, rel=1e-7)
        assert mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-9)
    else:
        assert float(delta_of(epsilon, mu)) <= delta * (1 + 1e-7)


@settings(deadline=None)
@given(MUS, DELTAS, some.floats(1.001, 5.0))
def test_more_mu_costs_more_and_more_delta_less(mu, delta, factor):
    here = float(epsilon_of(mu, delta))
    assert float(epsilon_of(mu * factor, delta)) >= here
    assert float(epsilon_of(mu, min(delta * factor, 0.9))) <= here


@settings(max_examples=examples(20), deadline=None)
@given(some.integers(0, 2**32 - 1), DELTAS)
def test_many_at_once_are_what_they_are_alone(seed, delta):
    mu = 10.0 ** np.random.default_rng(seed).uniform(-6, 3, 3 * gaussian.BLOCK)
    together = epsilon_of(mu.reshape(3, -1), delta)
    assert together.shape == (3, gaussian.BLOCK)
    for position in (0, gaussian.BLOCK, len(mu) - 1):
        alone = float(epsilon_of(mu[position], delta))
        assert together.ravel()[position] == pytest.approx(alone, rel=1e-9, abs=1e-14)


def test_nothing_costs_nothing_and_everything_is_infinite():
    np.testing.assert_array_equal(
        epsilon_of([0.0, 1e-300, np.inf, 1e200], 1e-5), [0, 0, np.inf, np.inf]
    )
    assert epsilon_of([], 1e-5).shape == (0,)
    assert mu_of(np.inf, 1e-5) == np.inf
    np.testing.assert_array_equal(
        delta_of([0.0, 1.0, np.inf, 1.0], [0.0, 0.0, 1.0, np.inf]), [0, 0, 0, 1]
    )
    free = mu_of(0.0, 1e-2)  # total variation 2 Phi(mu/2) - 1
    assert 2.0 * special.ndtr(free / 2) - 1.0 == pytest.approx(1e-2, rel=1e-12)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, np.nan])
def test_a_delta_that_is_no_probability_is_refused(delta):
    for call in (lambda: epsilon_of(1.0, delta), lambda: mu_of(1.0, delta)):
        with pytest.raises(InputError, match="0 < delta < 1"):
            call()


def test_negative_amounts_are_refused():
    for call in (
        lambda: epsilon_of([1.0, -1.0], 1e-5),
        lambda: epsilon_of(np.nan, 1e-5),
        lambda: mu_of(-1.0, 1e-5),
        lambda: delta_of(-1.0, 1.0),
    ):
        with pytest.raises(InputError, match="allowed"):
            call()
