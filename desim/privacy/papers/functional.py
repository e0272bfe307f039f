"""PDFC and ADFC (Ding 2021, dissertation, chapter 5): noise on the coefficients of the objective.

Sampled once; the model is post-processing, so every view costs the same. Two groups of
coefficients, with and without the special weight w_s, get noise for eps_s and eps_n; the covariance
c with the protected attribute has noise of its own. A release is measured in units of the noise of
the group without w_s: it has one scale, and one exact sensitivity, where every group has a weight.

A record x with label y in {0, 1} gives u_j = r x_j, |r| <= reach, to the linear coefficients and
x_j x_l / 8 to the quadratic ones, of which each unordered pair is one. Any two records differ by at
most twice what one has: 2 sup ||(u, x x'/8)|| over the ball ||x||_2 <= 1 or the box |x_j| <= 1, of
any sign. k of the d features are special; their coefficients weigh s, all others n. Lemmas 21 to 24
have the box with ordered pairs and k = 0.
"""

from dataclasses import dataclass
from math import hypot, log, pi, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.accounting.gaussian import mu_of
from desim.privacy.ledger.mechanisms import Allotted, Mechanism, Noise
from desim.privacy.papers.claims import Inputs, inputs


def shared_out(epsilon_s: float, epsilon_n: float, d: float) -> float:
    """Epsilon eps_s / d + (d - 1)/d eps_n (Theorems 18 and 20).

    Their proofs give the special group 1/d of the sensitivity; a record x = e_s puts it all there.
    """
    return epsilon_s / d + (d - 1.0) / d * epsilon_n


def theorem_19(epsilon: float, delta: float, delta2: float) -> float:
    """Deviation delta2 / (sqrt(2) eps) (sqrt(s) + sqrt(s + eps)), s = ln(sqrt(2/pi)/delta): loose.

    The exact one is delta2 / mu_of(epsilon, delta).
    """
    s = log(sqrt(2.0 / pi) / delta)
    return delta2 / (sqrt(2.0) * epsilon) * (sqrt(s) + sqrt(s + epsilon))


def theorem_20_delta(delta_s: float, delta_n: float) -> float:
    """Delta 1 - (1 - delta_s)(1 - delta_n) of Theorem 20, whose epsilon is `shared_out`."""
    return delta_s + delta_n - delta_s * delta_n


def allotted(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """The epsilon that the noise was allotted, of each agent that has sent its coefficients."""
    epsilon = np.zeros(inputs["agents"])
    epsilon[np.unique(releases["agent"])] = inputs["epsilon"]
    return epsilon, []


def allotted_inputs(method: Any, names: tuple[str, str]) -> Inputs | None:
    """Inputs of the theorem names[0], or names[1] for Gaussian noise; None without epsilons.

    method: has noise, problem, layout and parameters. With two groups epsilon is their mean by
    shares of features, which is what Theorem 18 says with one special feature.
    """
    noise, layout = method.noise, method.layout
    if not isinstance(noise, Allotted):
        return None
    d, k = layout.d, int(layout.special.sum())
    (epsilon_s, delta_s), (epsilon_n, delta_n) = noise.groups(k / d)
    both = noise.epsilon_s is not None
    epsilon = shared_out(epsilon_s, epsilon_n, d / k) if both else epsilon_n
    delta = theorem_20_delta(delta_s, delta_n) if both else delta_n
    unmet = []
    if both and k != 1:
        unmet.append(f"one special feature: here {k} features are special")
    if method.penalty == "exact":
        unmet.append("the printed objective: here c is sent with noise of its own")
    if method.penalty != "none" and method.zbar is None:
        unmet.append("a public zbar: here it is the mean of the data")
    name = names[noise.mechanism is Mechanism.GAUSSIAN]
    return inputs(name, method.problem.agents, unmet, epsilon=epsilon, delta=delta)


# Sensitivities: how far one record moves the coefficients of a logistic objective.

Domain = Literal["ball", "box"]


def l1(
    domain: Domain, d: int, reach: float, k: int = 0, weights: tuple[float, float] = (1.0, 1.0)
) -> float:
    """L1 sensitivity; in the ball 2 reach sqrt(d) + d/4, in the box 2 reach d + d^2/4."""
    s, n, rest = *weights, d - k
    if domain == "box":
        quadratic = (s * (d * d - rest * rest) + n * rest * rest) / 4.0
        return l1_linear(domain, d, reach, k, weights) + quadratic
    # ||x_S||_1 <= sqrt(k) p and ||x_N||_1 <= sqrt(d - k) q with p^2 + q^2 = 1
    cross = s * sqrt(k * rest)
    largest = np.linalg.eigvalsh(np.array([[s * k, cross], [cross, n * rest]]))[-1]
    return l1_linear(domain, d, reach, k, weights) + float(largest) / 4.0


def l1_linear(
    domain: Domain, d: int, reach: float, k: int = 0, weights: tuple[float, float] = (1.0, 1.0)
) -> float:
    """L1 sensitivity of the linear coefficients, or of a vector sum_h r_h x_h, alone."""
    s, n = weights
    if domain == "box":
        return 2.0 * reach * (k * s + (d - k) * n)
    return 2.0 * reach * sqrt(k * s * s + (d - k) * n * n)


def l2(
    domain: Domain, d: int, reach: float, k: int = 0, weights: tuple[float, float] = (1.0, 1.0)
) -> float:
    """L2 sensitivity; in the ball 2 sqrt(reach^2 + 1/32).

    The quadratic ones have squares x_j^4 and, of a pair, 4 x_j^2 x_l^2, by 1/64.
    """
    s, n, rest = weights[0] ** 2, weights[1] ** 2, d - k
    if domain == "ball":
        most = max(s if k else 0.0, n if rest else 0.0)
        return 2.0 * sqrt(most * (reach * reach + 2.0 / 64.0))
    pairs, within = 2 * d * d - d, 2 * rest * rest - rest
    quadratic = (s * (pairs - within) + n * within) / 64.0
    return sqrt(l2_linear(domain, d, reach, k, weights) ** 2 + 4.0 * quadratic)


def l2_linear(
    domain: Domain, d: int, reach: float, k: int = 0, weights: tuple[float, float] = (1.0, 1.0)
) -> float:
    """L2 sensitivity of the linear coefficients, or of a vector sum_h r_h x_h, alone."""
    s, n = weights
    if domain == "box":
        return 2.0 * reach * sqrt(k * s * s + (d - k) * n * n)
    return 2.0 * reach * max(s if k else 0.0, n if d > k else 0.0)


def printed_l1(d: int, reach: float) -> float:
    """d^2/4 + 2 reach d: Lemma 21 with reach 1/2, Lemma 22 with 3/2."""
    return d * d / 4.0 + 2.0 * reach * d


def printed_l2(d: int, reach: float) -> float:
    """sqrt(d^2/16 + 4 reach^2 d): Lemma 23 with reach 1/2, Lemma 24 with 3/2; of ordered pairs."""
    return sqrt(d * d / 16.0 + 4.0 * reach * reach * d)


# Noise: how large it is for which group, and what it costs in one unit.

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

    domain: Domain
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
        whole, linear = (l1, l1_linear) if laplace else (l2, l2_linear)
        if self.printed:
            paper = printed_l1 if laplace else printed_l2
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
            first = l1(*place, self.reach.true, self.k, objective)
            last = l1_linear(*place, self.reach.covariance, self.k, covariance)
            return first + last * (self.share > 0.0)
        first = l2(*place, self.reach.true, self.k, objective)
        last = l2_linear(*place, self.reach.covariance, self.k, covariance)
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
