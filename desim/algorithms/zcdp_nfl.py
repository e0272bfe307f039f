"""zCDP-NFL: networked federated learning by linearised ADMM with decaying Gaussian noise.

Gauthier, Gratton, Venkategowda, Werner 2023, "Privacy-preserving distributed learning with
nonsmooth objective functions" (Algorithm 1; eqs. 7-9 and 12). Eq. (7) is used in its closed form;
the printed (A.1) does not solve it.
"""

from typing import Any

import numpy as np

from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.fields import Init, Positive, Step, Strict
from desim.kernels.gradients import gradient
from desim.privacy.ledger import Mechanism, Terms, View
from desim.privacy.mechanisms import DynamicZcdp, Noise
from desim.problem import Problem


class Parameters(Strict):
    """rho: penalty of the ADMM; eta: step of the linearisation; init: public start."""

    rho: Positive
    """penalty of the ADMM"""
    eta: Step
    """step of the linearisation in iteration k = 1, 2, ..."""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class ZcdpNfl(Method):
    """The agents' models are w before noise; their neighbours see w plus noise."""

    name = "zcdp-nfl"
    kind = "graph"
    summary = "linearised ADMM on a graph with dynamic zCDP noise, smooth and nonsmooth losses"
    paper = "Gauthier, Gratton, Venkategowda, Werner 2023"
    Parameters = Parameters
    smooth_only = False
    cures = ("algorithm.eta", "algorithm.rho")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.rho, self.eta = self.parameters.rho, self.parameters.eta
        self.x0 = ingredients.settings.initial("x0")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        if isinstance(noise, DynamicZcdp) and not problem.clipped:
            return [
                "privacy.noise: {phi, growth} needs a bounded gradient; set problem.clip "
                "(the largest gradient norm of one example)"
            ]
        return []

    def agents(self, us: Any) -> Program:
        """Algorithm 1 for agents `us`."""
        rho, degree = self.rho, us.degree[:, None]
        us.x = us.w = self.x0[us.who]
        us.dual = np.zeros_like(us.w)
        heard = us.known(self.x0)
        work = self.problem.rows[us.who]
        for k in us.rounds():
            eta = self.eta.at(k)
            g = yield us.compute(self.subgradient, us.w, work=work)
            pull = rho * (degree * us.w + us.sum(heard))
            w = (us.w / eta + pull - us.dual - g) / (2.0 * rho * degree + 1.0 / eta)  # (7)
            us.x = w
            us.report(w)
            us.w = us.release(w, self.terms(us, k))  # (8)
            us.send(us.w)
            heard = yield us.gather()
            us.dual += rho * (degree * us.w - us.sum(heard))  # (9)

    def subgradient(self, us: Any, w: Array) -> Array:
        """Subgradients (n, dim) of f_i at w (n, dim)."""
        return np.asarray(gradient(us.who, w, self.problem.data))

    def terms(self, us: Any, k: int) -> Terms:
        """Sensitivity Delta_k = 2 c1 / (M_k (2 rho d_k + 1/eta_k)) of w, and the noise (12)."""
        reach = 2.0 * self.problem.clip * self.problem.scale[us.who]
        delta = reach / (2.0 * self.rho * us.degree + 1.0 / self.eta.at(k))  # Lemma I
        nothing = np.full(len(us.who), np.nan)
        if self.noise is None:
            return Terms(Mechanism.NONE, View.NEIGHBOURS, delta, np.zeros_like(delta), nothing)
        scale = self.noise.scale(k, delta)
        return Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, delta, scale, nothing)
