"""What an epsilon means to people: how well the best attacker tells two neighbouring data sets.

An attack says "it was D'" with a true positive rate (TPR) where it was and a false positive rate
(FPR) where it was not. A mu-GDP mechanism lets no attack do better than TPR = Phi(Phi^-1(FPR) + mu)
(Dong, Roth and Su 2022, eq. 6), so that the largest advantage, TPR - FPR, is 2 Phi(mu/2) - 1; both
are attained. Elsewhere they are upper bounds: no attack is beyond what (epsilon, delta)-DP allows
at any point of a privacy profile, nor beyond binary Renyi divergences, as dividing outputs into two
sets never raises a divergence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.errors import InputError
from desim.numerics.later import special
from desim.privacy.accounting.accountants import UNBOUNDED, Account
from desim.privacy.accounting.loss_distribution import curve_pld
from desim.privacy.accounting.prices import NOTHING, ORDERS, Tally, tallies

RATES = (0.001, 0.01)  # false positive rates at which a true positive rate is told
HALVINGS = 60
SLACK = 1e-9  # of (order - 1) divergence: more than its two sides can be rounded


class Risk(NamedTuple):
    """The best attack on one record: advantage, and tpr at the false positive rates RATES.

    exact: whether an attack attains them; else they are upper bounds.
    """

    advantage: float
    tpr: tuple[float, ...]
    exact: bool

    def least(self, other: "Risk") -> "Risk":
        """What two bounds on the same attacks allow together."""
        tpr = tuple(min(pair) for pair in zip(self.tpr, other.tpr, strict=True))
        return Risk(min(self.advantage, other.advantage), tpr, self.exact or other.exact)

    @property
    def words(self) -> str:
        """What it finds at which false positive rates, readable."""
        bound = "" if self.exact else "at most "
        first, *rest = zip(map(_percent, self.tpr), RATES, strict=True)
        power = f"{first[0]} at {100.0 * first[1]:g} % false positives"
        more = "".join(f", {found} at {100.0 * rate:g} %" for found, rate in rest)
        return f"the best attack finds {bound}{power}{more}"

    @property
    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        rates = {f"{rate:g}": found for rate, found in zip(RATES, self.tpr, strict=True)}
        bound = "attained" if self.exact else "upper bound"
        return {"advantage": self.advantage, "true positives at": rates, "risk is": bound}


NO_PRIVACY = Risk(1.0, (1.0,) * len(RATES), True)


def risk(account: Account, agent: int | None = None) -> Risk:
    """The best attack on a record of an agent by all that the account's view has seen.

    agent: default, the one whose epsilon is the largest.
    """
    if account.void:
        return NO_PRIVACY
    if not account.agents:
        return gaussian(0.0)
    if account.method == UNBOUNDED:
        return NO_PRIVACY._replace(exact=False)
    chosen = int(np.argmax(account.final)) if agent is None else agent
    priced = account.prices(chosen)
    found = tallies(priced, np.zeros(len(priced.mu2), np.int64))
    return of_tally(found.get(0, NOTHING))


def of_tally(sums: Tally) -> Risk:
    """The best attack on a record of an agent whose releases come to these sums."""
    if sums.lost:
        return NO_PRIVACY
    if sums.exact:
        return gaussian(float(np.sqrt(sums.mu2)))
    found = gaussian(float(np.sqrt(sums.known)))._replace(exact=False)
    found = found.least(renyi(sums.divergence))
    if np.isfinite(sums.pure):
        found = found.least(curve([sums.pure], [0.0]))
    points = curve_pld(sums)
    return found if points is None else found.least(curve(*points))


def gaussian(mu: float) -> Risk:
    """The best attack on a mu-GDP mechanism; InputError unless mu >= 0."""
    if not mu >= 0.0:
        raise InputError("mu: found a negative value or nan; allowed: mu >= 0")
    tpr = special.ndtr(special.ndtri(np.array(RATES)) + mu)
    return Risk(float(special.erf(mu / np.sqrt(8.0))), tuple(map(float, tpr)), True)


def curve(epsilon: ArrayLike, delta: ArrayLike) -> Risk:
    """What points (n,) of (epsilon, delta)-DP, which all hold, leave to an attack.

    TPR <= delta + e^epsilon FPR, and the same of the complements (Wasserman and Zhou 2010).
    """
    e, d = np.asarray(epsilon, float), np.asarray(delta, float)
    with np.errstate(over="ignore"):
        advantage = np.tanh(0.5 * e) + 2.0 * d / (1.0 + np.exp(e))
        up = [np.min(np.minimum(d + np.exp(e) * rate, 1.0)) for rate in RATES]
    down = [np.min(1.0 - np.exp(-e) * (1.0 - d - rate)) for rate in RATES]
    tpr = tuple(float(min(pair)) for pair in zip(up, down, strict=True))
    return Risk(min(float(np.min(advantage)), 1.0), tpr, False)


def renyi(divergence: Array) -> Risk:
    """What Renyi divergences (orders,) of both directions at most leave to an attack.

    The pairs (FPR, TPR) that they allow are a convex set that swapping errors maps onto itself, so
    that its largest advantage is where both errors are the same.
    """
    advantage = _largest(lambda v: _allowed(0.5 * (1.0 + v), 0.5 * (1.0 - v), divergence), 0.0)
    tpr = tuple(_largest(lambda p, q=q: _allowed(p, q, divergence), q) for q in RATES)  # type: ignore[misc]
    return Risk(advantage, tpr, False)


def _largest(allowed: Callable[[float], bool], low: float) -> float:
    """The end of the interval from `low` on that is allowed, from above."""
    high = 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if allowed(middle):
            low = middle
        else:
            high = middle
    return high


def _allowed(p: float, q: float, divergence: Array) -> bool:
    """Whether coins of p and q, both inside (0, 1), are as near as the divergences say."""
    if not 0.0 < q <= p < 1.0:
        return p <= q
    both = [(np.log(p), np.log(q)), (np.log1p(-p), np.log1p(-q))]
    most = (ORDERS - 1.0) * divergence + SLACK
    there = np.logaddexp(*(ORDERS * a + (1.0 - ORDERS) * b for a, b in both))
    back = np.logaddexp(*(ORDERS * b + (1.0 - ORDERS) * a for a, b in both))
    return bool(np.all(there <= most) and np.all(back <= most))


def _percent(share: float) -> str:
    """A share as a percentage that is never rounded to none or all."""
    return f"{100.0 * share:.3g} %" if share < 0.9995 or share == 1.0 else "over 99.95 %"
