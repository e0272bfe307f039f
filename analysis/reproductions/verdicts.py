"""Verdicts on numbers that have errors: none reads better than the difference and its error allow.

A difference is one where it is larger than Student's quantile of its standard errors, 95 % on two
sides: 1.98 errors for a hundred data sets, 2.8 for five, 4.3 for three. What is not larger is not
told apart, which is less than to agree: for that the whole interval lies inside a band.
"""

import numpy as np
from scipy.stats import t as student

LEVEL = 0.975


def sure(sets: float, among: int = 1) -> float:
    """Standard errors beyond which a mean over `sets` data sets is not what it is held against.

    among: from how many differences this one was picked (Bonferroni).
    """
    share = 1.0 - (1.0 - LEVEL) / among
    return float(student.ppf(share, sets - 1)) if sets > 1 else float("nan")


def three_digits(value: float) -> str:
    """A difference with three decimals, or where that is nothing with two digits."""
    return f"{value:.3f}" if value >= 5e-4 else f"{value:.2g}"


def errors(gap: float, error: float) -> str:
    """How many standard errors a difference has, in words."""
    if not error > 0.0:
        return "no standard error"
    many = abs(gap) / error
    if many >= 100.0:
        return "over 100 standard errors"
    number = f"{many:.1f}" if many < 10.0 else f"{many:.0f}"
    return f"{number} standard error{'' if number == '1.0' else 's'}"


def beside(
    ours: float, error: float, paper: float, band: float, sets: float, percent: bool = False
) -> str:
    """Whether `ours` with its standard error is the paper's number; band: where it is close enough.

    "agrees" says that the interval of the difference is inside the band; "differs" that 0 is
    outside the interval; "not told apart" neither. band inf: there is none. percent: numbers are
    shares.
    """
    gap, limit = ours - paper, sure(sets) * error
    off, edge = three_digits(abs(gap)), f"{band:g}"
    if percent:
        off, edge = f"{100.0 * abs(gap):.0f} %", f"{100.0 * band:g} %"
    off = f"{off} {'above' if gap > 0.0 else 'below'}"
    if not np.isfinite(limit):
        return f"not judged: {off}, {errors(gap, error)}"
    told = f"{off} ({errors(gap, error)})"
    told += "" if np.isinf(band) else f", {side(abs(gap), band)} the band of {edge}"
    if abs(gap) > limit:
        return f"differs: {told}"
    return f"{'agrees' if abs(gap) + limit <= band < np.inf else 'not told apart'}: {told}"


def rate(ours: float, error: float, paper: float, band: float, sets: float) -> str:
    """`beside` for rates of convergence, of which 1 and more is none."""
    if not ours < 1.0:
        return "differs: it diverges"
    return beside(ours, error, paper, band, sets)


def side(gap: float, band: float) -> str:
    """Where a difference lies: a float's last digits do not put it over the edge."""
    if np.isclose(gap, band, rtol=1e-9, atol=0.0):
        return "at the edge of"
    return "inside" if gap < band else "outside"


def below(gap: float, error: float, sets: float, least: float = 0.0, among: int = 1) -> str:
    """Whether a number is below another by more than `least`, as the paper says.

    gap: of the one from the other, negative where the paper is right; error: of this difference,
    picked from so many.
    """
    over = gap + least
    told, limit = errors(over, error), sure(sets, among) * error
    if not np.isfinite(limit):
        return f"not judged: {'below' if over < 0.0 else 'above'}, {told}"
    if abs(over) <= limit:
        return f"not told apart ({told})"
    return f"agrees ({told})" if over < 0.0 else f"differs: the reverse ({told})"
