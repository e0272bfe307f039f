"""Q-DPSGD-1: decentralised SGD with deadlines, quantised messages and noise on the gradients.

Ding 2021, dissertation, Algorithm 4 and eqs. (26), (27). The quantiser has the 2^s levels
-2^(s-1) .. 2^(s-1) - 1 (the printed range has 1.5 * 2^s).
"""

from typing import Any

import numpy as np
import pandas as pd

from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.fields import Count, Init, Positive, Seconds, Share, Step, Strict
from desim.kernels.codecs import quantize
from desim.kernels.gradients import batch_gradient
from desim.kernels.speed import fitting, speeds_into
from desim.privacy.bounds.claims import Claim, once, summed
from desim.privacy.bounds.conversions import own_order
from desim.privacy.bounds.theorems import BY_NAME
from desim.privacy.ledger import Terms, View
from desim.privacy.mechanisms import DynamicZcdp, Gaussian, Noise, terms
from desim.problem import Problem


class Parameters(Strict):
    """alpha: gradient step; mixing: the paper's epsilon; bits, resolution: quantiser's s, eta."""

    alpha: Step
    """gradient step in iteration k = 1, 2, ..."""
    mixing: Share
    """weight of the averaging step (the paper's epsilon)"""
    bits: Count
    """s: bits for one number"""
    resolution: Positive
    """eta: distance between two levels"""
    deadline: Seconds
    """T_d: time for gradients in each iteration"""
    kappa: Positive | None = None
    """W = I - L / kappa; default: the largest eigenvalue of the Laplacian L"""
    init: Init = Init.of("zeros")
    """x0, a public start"""


class QDPSGD1(Method):
    """Noise enters the state, so what is sent is post-processing of noisy gradients."""

    name = "q-dpsgd-1"
    kind = "graph"
    summary = (
        "decentralised SGD: as many samples as fit a deadline, noisy gradients, s-bit messages"
    )
    paper = "Ding 2021, Algorithm 4"
    Parameters = Parameters
    smooth_only = True
    noises = ("gaussian", "laplace", "discrete-gaussian")
    cures = ("algorithm.alpha", "algorithm.mixing")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        graph = ingredients.settings.graph
        assert graph is not None
        laplacian = graph.laplacian()
        kappa = self.parameters.kappa or float(np.linalg.eigvalsh(laplacian)[-1])
        self.W = np.eye(graph.agents) - laplacian / kappa
        if self.W.diagonal().min() < 0.0:
            self.warnings.append(
                f"algorithm.kappa: {kappa:g} gives an agent a negative weight for itself; allowed "
                f"without this warning: at least the largest degree, {graph.degree.max()}"
            )
        self.x0 = ingredients.settings.initial("x0")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = []
        if not 2 <= parameters.bits <= 52:
            found.append(f"algorithm.bits: found {parameters.bits}; allowed: 2 to 52")
        if not parameters.deadline > 0.0:
            found.append("algorithm.deadline: found 0; allowed: a duration > 0")
        if isinstance(noise, DynamicZcdp):
            found.append("privacy.noise: {phi, growth} belongs to zcdp-nfl; give kind and sigma")
        return found

    def agents(self, us: Any) -> Program:
        """Algorithm 4 for agents `us`."""
        p, eps, T_d = self.parameters, self.parameters.mixing, self.parameters.deadline
        w_own, w_link = self.W.diagonal()[us.who][:, None], us.link_weights(self.W)
        us.x = self.x0[us.who]
        for k in us.rounds():
            z = quantize(self.settings.seed, us.who, us.round, us.x, p.resolution, p.bits)
            us.send(z, bits=p.bits * self.problem.dim)  # line 4
            heard = yield us.gather()  # line 5
            samples = np.minimum(us.capacity(T_d), self.problem.rows[us.who])
            some = samples > 0
            g = yield us.compute(
                self.batch_gradient, us.x, samples, work=samples, seconds=T_d
            )  # lines 6-7
            g = us.release(g, self.terms(us.who, k, samples), where=some)
            mixed = (1.0 - eps + eps * w_own) * us.x + eps * us.sum(heard, w_link)
            us.x = mixed - self.parameters.alpha.at(k) * eps * g  # (27)
            us.report(us.x)

    def batch_gradient(self, us: Any, x: Array, samples: Any) -> Array:
        """Mean clipped gradients (n, dim) over fresh uniform batches of samples (n,) rows, or 0."""
        return np.asarray(
            batch_gradient(us.who, x, samples, us.round, self.settings.seed, self.problem.data)
        )

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: speeds, and with them samples, are known before the run."""
        who = np.arange(self.problem.agents)
        speed = np.empty(len(who))
        speeds_into(self.settings.speeds, who, np.full_like(who, k), speed)
        return self.terms(
            who, k, np.minimum(fitting(speed, self.parameters.deadline), self.problem.rows)
        )

    def terms(self, who: Any, k: int, samples: Any) -> Terms:
        """Sensitivity 2 K / |S| of the mean over |S| of m sampled rows (2 K m / |S| of a sum)."""
        rows = self.problem.rows[who]
        reach = 2.0 * self.problem.clip * self.problem.scale[who] * rows
        with np.errstate(divide="ignore", invalid="ignore"):
            delta = np.where(samples > 0, reach / samples, 0.0)
        return terms(self.noise, View.NEIGHBOURS, k, delta, self.problem.dim, samples / rows)

    def claim(self, releases: pd.DataFrame, delta: float) -> Claim | None:
        """Theorem 11 for the rounds in which an agent had a sample at its deadline."""
        if not isinstance(self.noise, Gaussian):
            return None
        rows, problem = once(releases), self.problem
        m, agent = problem.rows, rows["agent"].to_numpy()
        sigma = rows["scale"].to_numpy() / (problem.clip * problem.scale * m)[agent]
        with np.errstate(divide="ignore"):
            curve = summed(agent, 8.0 / (m[agent] * sigma) ** 2, problem.agents)
        unmet = () if problem.clipped else ("gradients are not clipped, so K is infinite",)
        bound = BY_NAME["q-dpsgd-1/theorem-11"]
        return Claim(bound, own_order(curve, delta), delta, "RDP at the paper's order", unmet)
