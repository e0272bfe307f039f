"""M-ADMM: ADMM on a graph with a growing penalty, each round's minimisers pulled to noisy places.

Zhang, Khalili, Liu 2018, "Improving the privacy and accuracy of ADMM-based distributed algorithms"
(ICML), as Ding 2021, dissertation, compares with it: x_i = argmin f_i(x) + 2 lambda_i.x + eta_k
sum_j ||x + e - (x_i + x_j)/2||^2 with eta_k = eta growth^(k-1), and lambda_i += (theta/2) sum_j
(x_i - x_j). Noise e, of density exp(-||e|| / s), moves the objective's slope by 2 eta_k |V_i| e.
"""

from typing import Any, ClassVar

from desim.algorithms.dvp import DVP, Perturbation
from desim.algorithms.edge_duals import EdgeDuals
from desim.fields import Positive, Strict
from desim.privacy.mechanisms import Noise
from desim.problem import Problem


class Parameters(Perturbation):
    """eta, growth: penalty; theta: step of the duals; norm: of rows; and how it is minimised."""

    eta: Positive
    """penalty of the first round"""
    growth: Positive = 1.0
    """factor on the penalty each round, at least 1"""
    theta: Positive | None = None
    """what differences weigh in the duals, at most eta; default: eta"""


class MADMM(DVP):
    """The agents send the minimisers of perturbed objectives as they are."""

    name = "m-admm"
    summary = "ADMM on a graph: growing penalty, noise on what it pulls to"
    paper = "Zhang, Khalili, Liu 2018 (ICML)"
    Parameters: ClassVar[type[Strict]] = Parameters
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline")
    letter: ClassVar[str] = "eta"
    cures: ClassVar[tuple[str, ...]] = ("algorithm.eta",)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        if parameters.growth < 1.0:
            found.append(f"algorithm.growth: found {parameters.growth:g}; allowed: at least 1")
        if parameters.theta is not None and parameters.theta > parameters.eta:
            text = f"algorithm.theta: found {parameters.theta:g}; allowed: at most algorithm.eta"
            found.append(f"{text} = {parameters.eta:g}, beyond which it may diverge")
        return found

    def edges(self, us: Any) -> EdgeDuals:
        """What agents `us` know of their neighbours, and their duals with step theta."""
        return EdgeDuals(us, self.x0, self.parameters.theta or self.rho, self.settings)

    def weight(self, k: int) -> float:
        """Penalty eta_k of the differences of two models in round k."""
        return float(self.rho * self.parameters.growth ** (k - 1))

    def gain(self, degree: Any, k: int) -> Any:
        """2 eta_k |V_i|, by which e enters the slope."""
        return 2.0 * self.weight(k) * degree
