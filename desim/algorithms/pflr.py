"""PFLR and PFLR*: fair logistic regression with the same Laplace noise on every coefficient.

Xu, Yuan, Wu 2019, "Achieving differential privacy and fairness in logistic regression" (doi
10.1145/3308560.3317584). PFLR adds noise to the coefficients of the fair objective. PFLR* adds
noise to those of the plain one, whose smaller sensitivity it uses, and moves the mean of that noise
to the fairness term. That mean comes from the data: what is sent is the fair objective all the
same, and its sensitivity is what is charged. Two readings of the mean are offered.
"""

from typing import ClassVar, Literal

from desim.algorithms.fair import Fair
from desim.algorithms.fair import Parameters as FairParameters
from desim.algorithms.functional_claim import allotted
from desim.fields import Strict
from desim.privacy.bounds.claims import Inputs


class Parameters(FairParameters):
    """As for the other fair methods, and the penalties of PFLR*."""

    penalty: Literal["exact", "printed", "shifted", "shifted-rows"] = "exact"  # type: ignore[assignment]
    """PFLR: exact alpha |c.w| or printed alpha sum_h |z_h - zbar| x_h.w; PFLR*: noise of mean
    alpha |c_j| (shifted), or of mean alpha sum_h |z_h - zbar| x_hj (shifted-rows)"""


class PFLR(Fair):
    """The coordinator's model is the minimiser; the agents hear of it at the end."""

    name = "pflr"
    summary = "one round: noisy coefficients of the fair logistic loss, one epsilon; PFLR*"
    paper = "Xu, Yuan, Wu 2019"
    Parameters: ClassVar[type[Strict]] = Parameters
    noises = ("laplace", "allotted")

    def claim_inputs(self) -> Inputs | None:
        """The epsilon that was allotted."""
        name = "pflr/pflr-star" if self.shifted else "pflr/pflr"
        return allotted(self, (name, name))
