"""Loss distributions: what dominates does, and costs what dp-accounting says."""

import numpy as np
import pairs
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from dp_accounting import rdp as library
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as loss
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as some
from mutant import mutant
from scipy.integrate import quad
from scipy.stats import norm

from desim.privacy.accounting import gaussian, loss_distribution, prices
from desim.privacy.accounting.gaussian import Kind, epsilon_of
from desim.privacy.accounting.prices import Tally

BATCHES = {  # (rows, batch, sigma, rounds): epsilon of what happens, where gradients are up to .7
    (20, 4, 0.5, 12): 2.929,
    (20, 4, 1.0, 12): 1.074,
    (200, 4, 0.5, 50): 0.498,
    (200, 10, 0.3, 100): 1.000,
    (1000, 10, 0.15, 200): 0.767,
}
SETTINGS = [(1.4 / batch / sigma, batch / rows, n) for rows, batch, sigma, n in BATCHES]


def batches(ratio, share, rounds):
    return Tally(0.0, ((Kind("batch", ratio, share), rounds),))


def check_batches(source):
    """As dear as the library's composition of the dominating pair, and hardly dearer than life."""
    for (ratio, share, rounds), lived in zip(SETTINGS, BATCHES.values(), strict=True):
        ours = source.epsilon_pld(batches(ratio, share, rounds), 1e-5)
        assert ours == pytest.approx(pairs.epsilon(pairs.dominates, ratio, share, rounds), rel=1e-3)
        happens = pairs.epsilon(pairs.happens, ratio, share, rounds)
        assert happens == pytest.approx(lived, abs=6e-4)
        assert happens < ours < 1.13 * happens


def check_library(source):
    """Laplace, pure DP and a Gaussian, alone and together."""
    lap = loss.from_laplace_mechanism(5.0, value_discretization_interval=1e-4).self_compose(20)
    answer = common.DifferentialPrivacyParameters(0.1, 0.0)
    pure = loss.from_privacy_parameters(answer, value_discretization_interval=1e-4)
    pure = pure.self_compose(30)
    normal = loss.from_gaussian_mechanism(1.25)
    counted = (Kind("laplace", 0.2), 20), (Kind("pure", 0.1), 30)
    for mu2, part, expected in (
        (0.0, counted[:1], lap),
        (0.0, counted[1:], pure),
        (0.64, counted, lap.compose(pure).compose(normal)),
    ):
        ours = source.epsilon_pld(Tally(mu2, part), 1e-5)
        assert ours == pytest.approx(expected.get_epsilon_for_delta(1e-5), rel=2e-4)


def check_gaussian(source):
    """What is nearly a Gaussian alone costs what it does exactly, and not less."""
    for mu in (0.01, 0.3, 2.0):
        speck = ((Kind("pure", 1e-9), 1),)
        ours = source.epsilon_pld(Tally(mu * mu, speck), 1e-5)
        exact = float(epsilon_of(mu, 1e-5))
        assert exact < ours < exact * (1.0 + 1e-4)


def test_batches_cost_what_their_dominating_pair_does():
    check_batches(loss_distribution)


def test_other_noise_costs_what_the_library_says():
    check_library(loss_distribution)
    check_gaussian(loss_distribution)


def neighbours(draw, ratio, share):
    """Densities on a grid of one release on two data sets that differ in a record, and its cell.

    The batch without the record is at y, with it at x or x': all in a disc of diameter `ratio`.
    """
    radius, angle = 0.5 * ratio * np.sqrt(draw.random(3)), 2.0 * np.pi * draw.random(3)
    centres = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    if draw.random() < 0.5:
        centres = 0.5 * ratio * np.array([[1.0, 0.0], [-1.0, 0.0], [draw.choice([-1.0, 1.0]), 0.0]])
    axis = np.linspace(-0.5 * ratio - 6.0, 0.5 * ratio + 6.0, 221)
    y, one, other = (
        np.outer(norm.pdf(axis - a), norm.pdf(axis - b)) * (axis[1] - axis[0]) ** 2
        for a, b in centres[[2, 0, 1]]
    )
    return (1.0 - share) * y + share * one, (1.0 - share) * y + share * other


def check_profiles(source):
    """No two neighbours are further apart than the profile says, either way round."""
    draw = np.random.default_rng(3)
    losses, largest = np.array([0.0, 0.02, 0.1, 0.3, 0.8, 1.5]), np.zeros(6)
    for _ in range(60):
        ratio, share = draw.choice([0.5, 1.5, 3.0]), draw.choice([0.05, 0.3, 0.9])
        bound = source.profile(Kind("batch", ratio, share), losses)
        p, q = neighbours(draw, ratio, share)
        found = [np.maximum(p - np.exp(e) * q, 0.0).sum() for e in losses]
        assert (found <= bound * (1.0 + 1e-3)).all()  # as far as the grid tells
        largest = np.maximum(largest, found / bound)
    assert (largest > 0.99).all()


def check_loud(source):
    """Next to no noise: hardly less than the divergence of a known batch."""
    for ratio, share in ((40.0, 0.3), (80.0, 0.1)):
        loud = source.sampled_gaussian(ratio, share)[0]  # order 1.1
        attained = 0.5 * 1.1 * ratio**2 + 11.0 * np.log(share)
        assert attained - 1e-6 < loud <= 0.5 * 1.1 * ratio**2


def check_divergences(source):
    """Those of the dominating pair by quadrature, below the library's bound for any mechanism."""
    for ratio, share in ((0.7, 0.2), (0.1, 0.01), (1.5, 0.4)):
        ours = source.sampled_gaussian(ratio, share)

        def density(z, order, ratio=ratio, share=share):
            r = np.log1p(share * np.expm1(ratio * z - 0.5 * ratio**2))
            powers = np.exp(np.outer([order, 1.0 - order, 1.0, 0.0], r) + norm.logpdf(z))
            return float(np.array([1.0, 1.0, -1.0, -1.0]) @ powers[:, 0])

        for order in (1.5, 2.0, 3.3, 16.0):
            excess = quad(
                density, 0.5 * ratio, 60.0, (order,), epsrel=1e-11, points=[ratio * order]
            )
            place = int(np.searchsorted(prices.ORDERS, order - 1e-9))
            exact = np.log1p(excess[0]) / (order - 1.0)
            assert ours[place] == pytest.approx(min(exact, 0.5 * order * ratio**2), rel=1e-8)
        check_loud(source)
        orders = [2, 3, 4, 8, 16, 32]
        known = library.RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
        event = GaussianDpEvent(1.0 / ratio)
        known.compose(SampledWithoutReplacementDpEvent(10_000, round(10_000 * share), event))
        places = np.searchsorted(prices.ORDERS, np.array(orders) - 1e-9)
        assert (ours[places] <= known.rdp * (1.0 + 1e-9)).all()
        assert (ours <= 0.5 * prices.ORDERS * ratio**2).all()


def test_no_neighbours_are_further_apart_than_a_profile_says():
    check_profiles(gaussian)


def test_divergences_of_batches_are_those_of_their_pair():
    check_divergences(prices)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("check", "module", "right", "wrong"),
    [
        (check_batches, loss_distribution, "exponent += count *", "exponent += (count - 1) *"),
        (check_batches, loss_distribution, "below = back *", "below = 0.0 * back *"),
        (check_library, loss_distribution, "+ float(whole[first]) - d", "+ float(whole[0]) - d"),
        (check_gaussian, loss_distribution, "POINTS_TO = 14, 19", "POINTS_TO = 4, 4"),
        (check_profiles, gaussian, "np.expm1(loss) / kind.share", "np.expm1(loss)"),
        (check_profiles, gaussian, "kind.share * delta_of", "kind.share**2 * delta_of"),
        (check_divergences, prices, "np.log(-np.expm1(loss - steep))", "0.0"),
        (check_divergences, prices, "_nodes(0.5 * ratio, most", "_nodes(1.0 * ratio, most"),
    ],
)
def test_a_wrong_law_is_noticed(check, module, right, wrong):
    with pytest.raises(AssertionError):
        check(mutant(module, right, wrong))


@settings(max_examples=examples(25), deadline=None)
@given(some.lists(some.floats(0.01, 0.02), min_size=65, max_size=130))
def test_many_different_kinds_are_rounded_up_and_not_by_much(sizes):
    """More than 64 sizes become 64 that are larger, at most by 5 %, mostly by 1."""
    counted = tuple((Kind("laplace", size), 1) for size in sizes)
    parts = Tally(0.0, counted).parts()
    assert len(parts) <= prices.KIND_LIMIT
    assert sum(number for _, number in parts) == len(sizes)
    rounded = sum(kind.size * number for kind, number in parts)
    assert sum(sizes) <= rounded * (1.0 + 1e-12)
    assert rounded <= 1.02 * sum(sizes)


@pytest.mark.slow
def test_what_is_not_known_has_no_distribution():
    far = tuple((Kind("batch", 0.1 * i, 1.0 / i), 1) for i in range(2, 90))
    assert np.isnan(loss_distribution.epsilon_pld(Tally(0.0, far), 1e-5))
    assert np.isnan(loss_distribution.epsilon_pld(batches(1.0, 0.5, 3), 1e-12))
    assert np.isnan(loss_distribution.epsilon_pld(batches(50.0, 0.9, 10_000), 1e-5))
    assert np.isnan(loss_distribution.epsilon_pld(None, 1e-5))
