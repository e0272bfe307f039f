"""PVP: ADMM on a graph with primal variable perturbation, each round epsilon-DP on its own.

Zhang, Zhu 2017, "Dynamic differential privacy for ADMM-based distributed classification learning"
(IEEE Trans. Inf. Forens. Security 12(1)), as Gratton, Venkategowda, Arablouei, Werner 2021
compare with it: the recursion of P-ADMM with the paper's noise, density exp(-||e|| / s), which is
D / s in pure DP; in their (epsilon, delta) form it is Gaussian. The paper composes no rounds.
"""

from typing import ClassVar

from desim.algorithms.p_admm import PADMM
from desim.privacy.bounds.claims import Inputs


class PVP(PADMM):
    """The agents' models are w before noise; their neighbours see w plus noise."""

    name = "pvp"
    restarts = ()
    forgetting = ""
    summary = "ADMM on a graph: every agent minimises exactly and perturbs its model"
    paper = "Zhang, Zhu 2017"
    noises: ClassVar[tuple[str, ...]] = ("l2-laplace", "gaussian", "schedule", "classical")

    def claim_inputs(self) -> Inputs | None:
        """Nothing: the paper's epsilon is of one round."""
        return None
