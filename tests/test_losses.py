"""Losses against plain NumPy, and clipping against what it means: an infimal convolution."""

import numpy as np
import pytest
from mutant import mutant

from desim.problem.losses import scalar as losses
from desim.problem.losses.scalar import CODES, Loss

NAIVE = {
    "squared": lambda u, b, knee: (u - b) ** 2,
    "absolute": lambda u, b, knee: np.abs(u - b),
    "huber": lambda u, b, knee: np.where(
        np.abs(u - b) <= knee, (u - b) ** 2, 2 * knee * np.abs(u - b) - knee**2
    ),
    "hinge": lambda u, b, knee: np.maximum(0.0, 1.0 - b * u),
    "logistic": lambda u, b, knee: np.logaddexp(0.0, -b * u),
}
CUTS = [0.03, 0.3, 0.8, 1.0, 2.5, np.inf]
KNEE = 0.7


def labels(name):
    return (-1.0, 1.0) if Loss(name).classification else (-0.4, 0.0, 1.3)


def each(module, kernel, name, u, b, c=np.inf):
    out = np.empty(len(u))
    many = np.full(len(u), b), KNEE, np.full(len(u), c)
    getattr(module, kernel)(CODES[name], u, *many, out)
    return out


def check_values(module, name):
    u = np.linspace(-9.0, 9.0, 1801)
    for b in labels(name):
        found = each(module, "values_into", name, u, b)
        np.testing.assert_allclose(found, NAIVE[name](u, b, KNEE), rtol=1e-14, atol=1e-15)


def check_slopes(module, name):
    """Central differences, away from kinks: error h^2/6 |f'''| + eps |f| / h, below 2e-9."""
    u = np.linspace(-9.0, 9.0, 1800) + 1e-3 * np.pi
    h = 1e-5
    for b in labels(name):
        middle = (NAIVE[name](u + h, b, KNEE) - NAIVE[name](u - h, b, KNEE)) / (2 * h)
        np.testing.assert_allclose(each(module, "slopes_into", name, u, b), middle, atol=4e-9)


def check_clipping(module, name, cut):
    """clipped(u) = min over v of loss(v) + cut |u - v|, on a grid that holds the minimiser's v."""
    grid = np.linspace(-12.0, 12.0, 4801)
    u = grid[1200:3601:40]
    for b in labels(name):
        away = np.abs(u[:, None] - grid) * (cut if cut < np.inf else 1e9)
        convolved = np.min(NAIVE[name](grid, b, KNEE) + away, axis=1)
        found = each(module, "values_into", name, u, b, cut)
        # the grid's minimum is too high by at most step^2 times the curvature (2) over 8
        assert np.all(found <= convolved + 1e-12)
        np.testing.assert_allclose(found, convolved, atol=0.005**2 * 2 / 8 + 1e-12)


@pytest.mark.parametrize("name", CODES)
def test_values(name):
    check_values(losses, name)


@pytest.mark.parametrize("name", CODES)
def test_slopes(name):
    check_slopes(losses, name)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", CODES)
def test_clipping_is_an_infimal_convolution(name, cut):
    check_clipping(losses, name, cut)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", CODES)
def test_clipped_slope_and_bend_are_derivatives(name, cut):
    u = np.linspace(-9.0, 9.0, 1800) + 1e-3 * np.pi
    h = 1e-5
    for b in labels(name):
        slope = each(losses, "slopes_into", name, u, b, cut)
        assert np.abs(slope).max() <= cut
        assert np.all(np.diff(slope) >= 0.0)
        values = [each(losses, "values_into", name, u + s, b, cut) for s in (h, -h)]
        np.testing.assert_allclose(slope, (values[0] - values[1]) / (2 * h), atol=4e-9)
        slopes = [each(losses, "slopes_into", name, u + s, b, cut) for s in (h, -h)]
        bend = each(losses, "bends_into", name, u, b, cut)
        np.testing.assert_allclose(bend, (slopes[0] - slopes[1]) / (2 * h), atol=1e-9)


WRONG = [
    (check_values, "logistic", "max(0.0, -z)\n", "max(0.0, z)\n"),
    (check_values, "huber", "knee * (2.0 * r - knee)", "knee * (r - knee)"),
    (check_values, "hinge", "max(0.0, 1.0 - z)", "max(0.0, -z)"),
    (check_slopes, "squared", "return 2.0 * (u - b)\n", "return u - b\n"),
    (check_slopes, "absolute", "pick(u > b, 1.0, 0.0)", "pick(u > 0.0, 1.0, 0.0)"),
    (check_slopes, "logistic", "-b / (1.0 + exp_(b * u))", "-b / (1.0 + exp_(-b * u))"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "name", "right", "wrong"), WRONG)
def test_a_wrong_loss_is_noticed(check, name, right, wrong):
    with pytest.raises(AssertionError):
        check(mutant(losses, right, wrong), name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cut", "right", "wrong"),
    [
        ("logistic", 0.3, "math.log1p(-c) - math.log(c)", "math.log(c) - math.log1p(-c)"),
        ("hinge", 2.5, "return min(1.0, c) * value", "return c * value"),
    ],
)
def test_wrong_clipping_is_noticed(name, cut, right, wrong):
    with pytest.raises(AssertionError):
        check_clipping(mutant(losses, right, wrong), name, cut)


def test_clipped_squared_is_huber_with_half_the_knee():
    u = np.linspace(-5.0, 5.0, 101)
    found = each(losses, "values_into", "squared", u, 0.25, 1.5)
    np.testing.assert_allclose(found, NAIVE["huber"](u, 0.25, 0.75), rtol=1e-14)
    assert np.abs(found - NAIVE["huber"](u, 0.25, 1.5)).max() > 1.0


def test_subgradients_at_kinks():
    for name in ("squared", "absolute", "huber"):
        assert each(losses, "slopes_into", name, np.array([1.3]), 1.3)[0] == 0.0
    assert each(losses, "slopes_into", "hinge", np.array([1.0]), 1.0)[0] == 0.0


def test_logistic_far_out():
    u = np.array([-1e300, -1e4, -40.0, 40.0, 1e4, 1e300])
    value, slope = (each(losses, f"{k}s_into", "logistic", u, 1.0) for k in ("value", "slope"))
    np.testing.assert_allclose(value[:3], -u[:3], rtol=1e-15)
    assert value[3] == pytest.approx(np.exp(-40.0), rel=1e-15)
    np.testing.assert_allclose(slope, [-1, -1, -1, -np.exp(-40.0), 0, 0], rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("name", CODES)
def test_properties(name):
    loss = Loss(name, KNEE)
    u = np.linspace(-3.0, 3.0, 60001)
    steepest = max(
        np.max(np.diff(each(losses, "slopes_into", name, u, b)) / np.diff(u)) for b in labels(name)
    )
    if loss.smooth:
        assert steepest == pytest.approx(loss.curvature, rel=1e-6)
    else:
        assert loss.curvature == np.inf
        assert steepest > 1e3
    assert loss.quadratic == (name == "squared")
    assert loss.dimension(7) == 7


def test_refused():
    with pytest.raises(ValueError, match=r"'softmax' is unknown; allowed: squared, absolute"):
        Loss("softmax")
    with pytest.raises(ValueError, match=r"knee: 0\.0 is not a positive number"):
        Loss("huber", 0.0)
