"""ADMM: consensus on a graph by exact local minimisation, without noise.

Shi, Ling, Yuan, Wu, Yin 2014 (doi 10.1109/TSP.2014.2304432), in the form of Ding 2021,
dissertation, eqs. (3), (4): x_i = argmin f_i(x) + 2 lambda_i.x + eta sum_j ||x - (x_i + x_j)/2||^2,
lambda_i += (eta/2) sum_j (x_i - x_j). State `dual` is 2 lambda. It is P-ADMM without noise.
"""

from typing import ClassVar

from desim.algorithms.minimisation import Minimisation
from desim.algorithms.p_admm import PADMM
from desim.fields import Positive, Strict


class Parameters(Minimisation):
    """eta: penalty of the ADMM; and how it is minimised."""

    eta: Positive
    """penalty of the ADMM"""


class ADMM(PADMM):
    """The agents send their minimisers as they are."""

    name = "admm"
    summary = "ADMM on a graph without noise: every agent minimises exactly"
    paper = "Shi, Ling, Yuan, Wu, Yin 2014"
    Parameters: ClassVar[type[Strict]] = Parameters
    noises: ClassVar[tuple[str, ...]] = ()
    cures: ClassVar[tuple[str, ...]] = ("algorithm.eta",)
    letter: ClassVar[str] = "eta"
