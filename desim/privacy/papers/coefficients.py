"""How far one record moves the coefficients of a logistic objective of second order.

A record x with label y in {0, 1} gives u_j = r x_j, |r| <= reach, to the linear coefficients and
x_j x_l / 8 to the quadratic ones, of which each unordered pair is one. Any two records differ by at
most twice what one has: 2 sup ||(u, x x'/8)|| over the ball ||x||_2 <= 1 or the box |x_j| <= 1, of
any sign. k of the d features are special; coefficients with one of them weigh s, all others n.
Ding 2021, dissertation, Lemmas 21 to 24, has the box with ordered pairs and k = 0.
"""

from math import sqrt
from typing import Literal

import numpy as np

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
