"""PDFC: purely private and fair classification, Laplace noise that one attribute has more of.

Ding, Zhang, Li, Wang, Yu, Pan 2020 (arXiv 2001.04958); Ding 2021, dissertation, Algorithm 6 with
(101) and (102). Coefficients with the special attribute x_s get noise for epsilon_s, all others for
epsilon_n. Theorem 18 gives the first 1/d of the sensitivity, which a record that has only x_s
disproves as a rule; what is charged is the largest loss of any pair of records.
"""

from typing import ClassVar

from desim.algorithms.fair import Fair, GroupedParameters
from desim.algorithms.functional_claim import allotted
from desim.fields import Strict
from desim.privacy.bounds.claims import Inputs


class PDFC(Fair):
    """The coordinator's model is the minimiser; the agents hear of it at the end."""

    name = "pdfc"
    summary = "one round: noisy coefficients of the fair logistic loss, Laplace by attribute"
    paper = "Ding, Zhang, Li, Wang, Yu, Pan 2020"
    Parameters: ClassVar[type[Strict]] = GroupedParameters
    noises = ("laplace", "allotted")
    theorem: ClassVar[str] = "pdfc/theorem-18"
    grouped = True

    def claim_inputs(self) -> Inputs | None:
        """Theorem 18: epsilon_s / d + (d - 1) / d epsilon_n (line 25)."""
        return allotted(self, (self.theorem, self.theorem))
