"""Noise of noisy coefficients: how large for which group, and what it costs in one unit.

Coefficients with a special feature may get other noise than the rest, and the covariance c with
the protected attribute has noise of its own. A release is measured in units of the noise of the
rest, so that it has one scale, and one exact sensitivity in which every group has its weight.
"""

from dataclasses import dataclass
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np

from desim.privacy.accounting.gaussian import mu_of
from desim.privacy.ledger.ledger import Mechanism
from desim.privacy.ledger.mechanisms import Allotted, Noise
from desim.privacy.papers import coefficients as moved
from desim.privacy.papers.functional import theorem_19

Pair = tuple[float, float]  # of the special group and of the rest
EVEN = (1.0, 1.0)


class Reach(NamedTuple):
    """Largest |r_h| of a record in linear coefficients sum_h r_h x_h.

    true: of what is released; noised: of what the noise is scaled to; paper: of what the paper
    scales it to; covariance: in c.
    """

    true: float
    noised: float
    paper: float
    covariance: float


@dataclass(frozen=True)
class Rule:
    """How a method scales noise: d features, k special ones; share of the budget for c, 0: no c.

    printed: with the paper's sensitivity, of the box with ordered pairs, and its deviation.
    """

    domain: moved.Domain
    d: int
    k: int
    reach: Reach
    share: float
    printed: bool

    def scales(self, noise: Noise, laplace: bool) -> tuple[Pair, Pair]:
        """Noise scales of the objective's coefficients and of those of c, special and rest."""
        if not isinstance(noise, Allotted):
            s = float(noise.scale(1, np.ones(1))[0])
            return (s, s), (s, s)
        budgets = noise.groups(self.k / self.d)
        objective, covariance = self.sensitivities(laplace)
        parts = 1.0 - self.share, self.share  # of epsilon, or of mu^2
        first, last = parts if laplace else (sqrt(parts[0]), sqrt(parts[1]))
        s, n = (self._scale(objective, *budget) / first for budget in budgets)
        if self.share == 0.0:
            return (s, n), (s, n)
        c_s, c_n = (self._scale(covariance, *budget) / last for budget in budgets)
        return (s, n), (c_s, c_n)

    def sensitivities(self, laplace: bool) -> Pair:
        """What noise is scaled to: sensitivities of the objective's coefficients and of c."""
        whole, linear = (moved.l1, moved.l1_linear) if laplace else (moved.l2, moved.l2_linear)
        if self.printed:
            paper = moved.printed_l1 if laplace else moved.printed_l2
            return paper(self.d, self.reach.paper), linear("box", self.d, self.reach.covariance)
        return (
            whole(self.domain, self.d, self.reach.noised),
            linear(self.domain, self.d, self.reach.covariance),
        )

    def _scale(self, sensitivity: float, epsilon: float, delta: float) -> float:
        if delta == 0.0:
            return sensitivity / epsilon
        if self.printed:
            return theorem_19(epsilon, delta, sensitivity)
        return sensitivity / mu_of(epsilon, delta)

    def cost(self, laplace: bool, objective: Pair, covariance: Pair) -> float:
        """Sensitivity of coefficients that are multiplied by these weights: L1, or else L2."""
        place = self.domain, self.d
        if laplace:
            first = moved.l1(*place, self.reach.true, self.k, objective)
            last = moved.l1_linear(*place, self.reach.covariance, self.k, covariance)
            return first + last * (self.share > 0.0)
        first = moved.l2(*place, self.reach.true, self.k, objective)
        last = moved.l2_linear(*place, self.reach.covariance, self.k, covariance)
        return hypot(first, last * (self.share > 0.0))


@dataclass(frozen=True)
class Cost:
    """Weights of the four groups, and what the release costs that they are multiplied with.

    sensitivity: in the norm of the mechanism; coupled: in L2; scale: of the noise per coordinate.
    """

    objective: Pair
    covariance: Pair
    mechanism: Mechanism
    sensitivity: float
    coupled: float
    scale: float


def cost_of(noise: Noise | None, rule: Rule) -> Cost:
    """The weights that give all coefficients noise of one scale, and its cost."""
    if noise is None:
        plain = rule.cost(False, EVEN, EVEN)
        return Cost(EVEN, EVEN, Mechanism.NONE, plain, plain, 0.0)
    laplace = noise.mechanism is Mechanism.LAPLACE
    (s, n), (c_s, c_n) = rule.scales(noise, laplace)
    objective, covariance = (n / s, 1.0), (n / c_s, n / c_n)
    sensitivity = rule.cost(laplace, objective, covariance)
    return Cost(
        objective, covariance, noise.mechanism, sensitivity,
        rule.cost(False, objective, covariance), n,
    )  # fmt: skip
