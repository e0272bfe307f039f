"""What two samples of scores say about a claim: `refuted`, or `not refuted`, and nothing else.

A claim is tested as it is stated: (epsilon, delta) by events and, where the score is the exact
likelihood ratio, by the hockey-stick divergence; mu-GDP and rho-zCDP by an event of their own,
which takes far fewer runs, and, where the ratio is exact, by its mean, which takes fewer still and
needs no share of the runs to choose an event. Where ratios are infinite, by how often they are. The
tests of a claim share its level: the mean has half of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from desim.arrays import Array
from desim.experiments.audit.evidence import (
    Certified,
    Event,
    best_event,
    certain,
    certify,
    hockey_stick,
    rho_low,
)

SELECTION = 0.3  # share of the runs that chooses the event
GRID = 60


@dataclass(frozen=True)
class Claim:
    """A privacy claim for one agent, and where it comes from.

    mu, rho: the claim also says mu-GDP, rho-zCDP; None where it says (epsilon, delta)-DP only.
    """

    name: str
    epsilon: float
    delta: float
    mu: float | None = None
    rho: float | None = None
    about: str = ""


@dataclass(frozen=True)
class Comparison:
    """One parameter of a claim against its lower bound; the event that gave it, if one did."""

    parameter: str
    method: str
    claimed: float
    low: float
    event: Event | None = None
    certified: Certified | None = None

    @property
    def refutes(self) -> bool:
        """Whether the mechanism exceeds what is claimed."""
        return self.low > self.claimed


@dataclass(frozen=True)
class Finding:
    """What the runs say about one claim; false alarms have probability `level` at most."""

    claim: Claim
    level: float
    tests: tuple[Comparison, ...]

    @property
    def verdict(self) -> Literal["refuted", "not refuted"]:
        """`refuted` if any test contradicts the claim; an audit cannot verify."""
        return "refuted" if any(test.refutes for test in self.tests) else "not refuted"

    @property
    def epsilon_low(self) -> float:
        """The largest lower bound of epsilon at the claim's delta."""
        return max(test.low for test in self.tests if test.parameter == "epsilon")


def judge(
    claim: Claim, old: Array, new: Array, *, exact: bool, level: float = 0.01, ratio: bool = False
) -> Finding:
    """Test `claim` on scores of runs on D (`old`) and on D' (`new`), rounded already.

    exact: the scores are log-likelihood ratios of all that the view shows; ratio: those that are
    infinite are, whether the others are exact or not.
    """
    strengths: dict[str, tuple[float, Callable[[Certified], Array]]] = {
        "epsilon": (claim.epsilon, lambda shown: shown.epsilon(claim.delta))
    }
    if claim.mu is not None:
        strengths["mu"] = claim.mu, lambda shown: shown.mu
    if claim.rho is not None:
        strengths["rho"] = claim.rho, lambda shown: shown.rho
    rest = level / 2 if exact and len(strengths) > 1 else level
    certainly = exact or ratio
    share = rest / (len(strengths) + exact + certainly)
    tests = _events(strengths, _known(old), _known(new), share)
    if exact:
        tests += _means(claim, old, new, level / 2)
        top = 2.0 * claim.epsilon if 0.5 < claim.epsilon < np.inf else 30.0
        grid = np.linspace(0.0, top, GRID)
        low, _ = hockey_stick(_known(old), _known(new), claim.delta, share, grid)
        tests.append(Comparison("epsilon", "hockey-stick", claim.epsilon, low))
    if certainly and certain(old, new, share) > claim.delta:
        tests.append(Comparison("epsilon", "infinite ratio", claim.epsilon, np.inf))
    return Finding(claim, level, tuple(tests))


def _events(strengths: Any, old: Array, new: Array, level: float) -> list[Comparison]:
    """The test of each parameter by an event, at `level` each."""
    first, second, tests = _shares(old), _shares(new), []
    for parameter, (claimed, strength) in strengths.items():
        event = best_event(first[0], second[0], strength, level / 2)
        shown = certify(event, first[1], second[1], level)
        low = float(strength(shown))
        tests.append(Comparison(parameter, "event", claimed, low, event, shown))
    return tests


def _means(claim: Claim, old: Array, new: Array, level: float) -> list[Comparison]:
    """The test of mu or rho by the mean ratio; mu-GDP is mu^2/2-zCDP. One bound serves both."""
    low = rho_low(old, new, level)
    known = (("mu", claim.mu, float(np.sqrt(2.0 * low))), ("rho", claim.rho, low))
    return [
        Comparison(name, "mean ratio", claimed, found)
        for name, claimed, found in known
        if claimed is not None
    ]


def _known(scores: Array) -> Array:
    """The scores, 0 in place of what is no number: a score like any other."""
    return np.where(np.isnan(scores), 0.0, scores)


def _shares(scores: Array) -> tuple[Array, Array]:
    """The runs that choose the event, and those that certify it."""
    cut = int(np.ceil(SELECTION * len(scores)))
    return scores[:cut], scores[cut:]
