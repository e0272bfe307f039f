"""Ends of bands of every kind, and what an axis leaves out of how curves begin."""

import numpy as np
import pytest
from mutant import mutant

from desim.errors import InputError
from desim.interface.plots import curves, drawable


def check_kinds(module):
    """Ends of bands of eleven seeds 0 .. 10; the interval by the binomial's own probabilities."""
    courses = [(np.array([0.0]), np.array([float(n)])) for n in range(11)]
    ends = {kind: module.band(courses, True, kind) for kind in ("range", "quartiles", "interval")}
    found = {kind: (one[1][0], one[2][0], one[3][0]) for kind, one in ends.items()}
    assert found == {"range": (0, 5, 10), "quartiles": (2.5, 5, 7.5), "interval": (1, 5, 9)}
    inside = sum(binomial(11, k) for k in range(2, 10)) / 2**11  # seeds below the median
    assert inside >= 0.95 > sum(binomial(11, k) for k in range(3, 9)) / 2**11
    assert np.isnan(module.band(courses, True, "none")[1]).all()


def binomial(n, k):
    return int(np.prod(range(n - k + 1, n + 1)) // np.prod(range(1, k + 1)))


def test_bands_of_every_kind():
    check_kinds(drawable)
    courses = [(np.array([0.0]), np.array([float(n)])) for n in range(5)]
    with pytest.raises(InputError, match="interval of 5 seeds; allowed: of at least 6"):
        drawable.check_band("interval", 5)
    assert drawable.band(courses, True, "quartiles")[3].tolist() == [3.0]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("float(place(n, LEVEL))", "0.0"), ("0.25 * (n - 1)", "0.0")],
)
def test_wrong_bands_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_kinds(mutant(drawable, right, wrong))


def check_cut(module):
    x = np.arange(21.0)
    quick, slow = np.array([0.2, *[0.9, 0.91] * 10]), np.array([0.2, *[0.93, 0.94] * 10])
    edge, firsts = module.beginning([(x, quick), (x, slow)], True)
    assert edge == pytest.approx(0.9 - 0.06 * 0.04)
    assert firsts == [0.2, 0.2]
    assert module.beginning([(x, -quick), (x, -slow)], False)[0] == pytest.approx(-edge)
    assert module.beginning([(x, quick)], True) is None
    assert module.beginning([(x, np.linspace(0.1, 0.9, 21))] * 2, True) is None  # nothing gained
    assert module.beginning([(x, quick), (x, quick[::-1])], True) is None  # one gets worse
    assert module.beginning([(x, quick), (x, np.full(21, 0.2))], True) is None  # one stays
    high = np.maximum(slow, 0.92)
    assert module.beginning([(x, quick), (x, high)], True) is None  # one begins high


def test_limits_hold_what_curves_come_to():
    check_cut(curves)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("not all(outside)", "not any(outside)"), ("START * (x[-1]", "0.0 * (x[-1]"),
     ("low - MARGIN", "low + MARGIN"), ("len(lines) < 2", "len(lines) < 1"),
     ("GAIN * (every", "9.0 * (every")],
)  # fmt: skip
def test_wrong_limits_are_noticed(right, wrong):
    with pytest.raises((AssertionError, TypeError)):
        check_cut(mutant(curves, right, wrong))
