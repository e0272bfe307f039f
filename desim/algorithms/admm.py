"""ADMM: consensus on a graph by exact local minimisation, without noise.

Shi, Ling, Yuan, Wu, Yin 2014 (doi 10.1109/TSP.2014.2304432), in the form of Ding 2021,
dissertation, eqs. (3), (4): x_i = argmin f_i(x) + 2 lambda_i.x + eta sum_j ||x - (x_i + x_j)/2||^2,
lambda_i += (eta/2) sum_j (x_i - x_j). State `dual` is 2 lambda. It is P-ADMM without noise.
"""

from typing import ClassVar

from desim.algorithms.p_admm import PADMM
from desim.fields import Count, Init, Positive, Strict


class Parameters(Strict):
    """eta: penalty of the ADMM; tolerance, passes: of a minimisation; init: x0."""

    eta: Positive
    """penalty of the ADMM"""
    tolerance: Positive = 1e-10
    """largest gradient norm that a minimisation leaves"""
    passes: Count = 1
    """passes over its rows that a minimisation takes of an agent's time"""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class ADMM(PADMM):
    """The agents send their minimisers as they are."""

    name = "admm"
    summary = "ADMM on a graph without noise: every agent minimises exactly"
    paper = "Shi, Ling, Yuan, Wu, Yin 2014"
    Parameters: ClassVar[type[Strict]] = Parameters
    noises: ClassVar[tuple[str, ...]] = ()
    cures: ClassVar[tuple[str, ...]] = ("algorithm.eta",)

    @property
    def penalty(self) -> float:
        """What the differences of two models weigh."""
        return float(self.parameters.eta)
