"""ADFC: approximately private and fair classification, Gaussian noise by attribute.

Ding, Zhang, Li, Wang, Yu, Pan 2020 (arXiv 2001.04958); Ding 2021, dissertation, Algorithm 8. As
PDFC, with the Extended Gaussian deviation (Theorem 19), or the exact one for `sensitivity: own`.
Theorem 20 shares epsilon out as Theorem 18 does; what is charged is one Gaussian release in units
of each group's noise.
"""

from desim.algorithms.pdfc import PDFC


class ADFC(PDFC):
    """The coordinator's model is the minimiser; the agents hear of it at the end."""

    name = "adfc"
    summary = "one round: noisy coefficients of the fair logistic loss, Gaussian by attribute"
    noises = ("gaussian", "allotted")
    theorem = "adfc/theorem-20"
