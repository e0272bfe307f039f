"""Consensus updates in one pass are NumPy's formulas, to the last bit."""

import numpy as np
import pytest

from desim.kernels.consensus import ascend, linearised
from desim.privacy.mechanisms import DynamicZcdp, Gaussian, constant

N, DIM, RHO, ETA = 7, 5, 0.3, 0.1


def drawn():
    draws = np.random.default_rng(3).normal(size=(4, N, DIM))
    return (*draws, np.arange(N, dtype=float))


def numpys(w, total, dual, g, degree, rho=RHO):
    d = degree[:, None]
    pull = rho * (d * w + total)
    return (w / ETA + pull - dual - g) / (2.0 * rho * d + 1.0 / ETA)


def test_a_linearised_step_is_the_formula():
    w, total, dual, g, degree = drawn()
    found = linearised(w, total, dual, g, RHO, degree, ETA)
    assert found.tobytes() == numpys(w, total, dual, g, degree).tobytes()
    assert found.tobytes() != numpys(w, total, g, dual, degree).tobytes()
    part = np.hstack([total, total])[:, :DIM]  # as a sum comes that carries more than models
    assert linearised(w, part, dual, g, RHO, degree, ETA).tobytes() == found.tobytes()


def test_duals_rise_by_the_differences():
    w, total, dual, _, degree = drawn()
    found = ascend(dual, RHO, degree, w, total)
    assert found.tobytes() == (dual + RHO * (degree[:, None] * w - total)).tobytes()
    assert found.tobytes() != (dual - RHO * (degree[:, None] * w - total)).tobytes()


@pytest.mark.parametrize(
    ("noise", "same"),
    [
        (None, True),
        (Gaussian(0.1), True),
        (Gaussian(0.1, 0.98), False),
        (Gaussian(0.1, iteration=2.0), False),
        (DynamicZcdp(1e-3), False),
    ],
)
def test_noise_that_is_the_same_in_all_rounds_says_so(noise, same):
    assert constant(noise) is same
