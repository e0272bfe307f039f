"""The regulariser's prox against a search, and the algebra of sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutant import mutant

from desim.problem.losses import regularizers
from desim.problem.losses.regularizers import Regularizer

CASES = [
    {},
    {"l2": 0.7},
    {"l1": 0.4},
    {"l1": 0.4, "l2": 0.7},
    {"lower": -0.1, "upper": 0.05},
    {"l1": 0.4, "lower": 0.2},
    {"l1": 0.4, "l2": 2.0, "lower": -0.3, "upper": 0.1},
]
POINTS = np.array([-3.0, -0.41, -0.05, 0.0, 0.02, 0.39, 1.7])


def check_prox(module, case, t):
    """No point of a fine grid, whole or around the answer, is better than the prox."""
    h = module.Regularizer(**case)
    for v in POINTS:
        found = float(h.prox(np.array([v]), t)[0])

        def cost(x, v=v):
            return h.value(np.array([x])) + (x - v) ** 2 / (2 * t)

        near = found + np.array([-1e-3, -1e-5, 1e-5, 1e-3])
        assert min(cost(x) for x in [*np.linspace(-4, 4, 801), *near]) >= cost(found) - 1e-15


@pytest.mark.thin(3)
@pytest.mark.parametrize("t", [0.05, 1.0, 6.0])
@pytest.mark.parametrize("case", CASES)
def test_prox_is_the_minimiser(case, t):
    check_prox(regularizers, case, t)


@pytest.mark.parametrize(
    ("right", "wrong", "t"),
    [
        ("- t * l1", "- l1", 6.0),
        ("/ (1.0 + t * l2)\n", "/ (1.0 + l2)\n", 6.0),
        ("np.clip(free, lower, upper)", "free", 0.05),
        ("0.5 * self.l2", "self.l2", 6.0),
    ],
)
def test_a_wrong_prox_is_noticed(right, wrong, t):
    with pytest.raises(AssertionError):
        check_prox(mutant(regularizers, right, wrong), CASES[-1], t)


def test_prox_composite_is_not_clip_first():
    h, v = Regularizer(l1=1.0, lower=-0.5, upper=0.5), np.array([1.2])
    first = Regularizer(l1=1.0).prox(np.clip(v, -0.5, 0.5), 1.0)
    assert h.prox(v, 1.0)[0] == pytest.approx(0.2, abs=1e-15)
    assert first[0] == 0.0


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0, 3), st.floats(0, 3))
def test_subgradient_inequality(x, y, l1, l2):
    h, x, y = Regularizer(l1=l1, l2=l2), np.array([x]), np.array([y])
    assert h.value(y) >= h.value(x) + float(h.subgradient(x) @ (y - x)) - 1e-12


def test_values():
    h = Regularizer(l1=2.0, l2=3.0, lower=-1.0)
    assert h.value(np.array([1.0, -0.5])) == pytest.approx(2 * 1.5 + 1.5 * 1.25)
    assert h.value(np.array([1.0, -1.5])) == np.inf
    assert Regularizer().subgradient(np.zeros(2)).tolist() == [0.0, 0.0]


def test_sum():
    both = Regularizer(l1=1.0, lower=-1.0) + Regularizer(l1=0.5, l2=2.0, lower=-2.0, upper=3.0)
    assert both == Regularizer(1.5, 2.0, -1.0, 3.0)
    assert (Regularizer(l2=1.0).smooth, both.smooth) == (True, False)
    assert Regularizer(upper=1.0).boxed


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"l1": -1.0}, "regularizer.l1: -1.0"),
        ({"l2": np.nan}, "regularizer.l2: nan"),
        ({"lower": 2.0, "upper": 1.0}, "no inside"),
        ({"lower": np.nan}, "no inside"),
    ],
)
def test_refused(case, message):
    with pytest.raises(ValueError, match=message):
        Regularizer(**case)
