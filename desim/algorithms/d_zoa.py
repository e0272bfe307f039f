"""D-ZOA: consensus ADMM whose primal step descends along two-point estimates of the gradient.

Gratton, Venkategowda, Arablouei, Werner 2021, "Privacy-preserved distributed learning with
zeroth-order optimization" (Algorithm 1; eqs. 4-9). The dual is taken from models that exist: line 3
uses beta^(m-1), where (5) is printed with beta^(m). The paper's epsilon comes from the randomness
of the directions alone, which proves nothing; with privacy.noise each difference gets noise.
"""

from typing import Any

import numpy as np

from desim.algorithms.edge_duals import EdgeDuals
from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.algorithms.zeroth_order import NOISES, Estimates
from desim.fields import Count, Counts, Init, Positive, Strict
from desim.kernels.zeroth import descend
from desim.privacy.bounds.claims import UNCLIPPED, Inputs, inputs
from desim.privacy.ledger import Terms, View
from desim.privacy.mechanisms import Noise
from desim.problem import Problem

INEXACT = "minimisers are not exact, and estimates are not independent over steps"


class Parameters(Strict):
    """The paper's rho, T, J and u_1; step is its alpha_0 R / L."""

    rho: Positive
    """penalty of the ADMM"""
    inner: Count = 100
    """T: steps of the inner loop"""
    samples: Counts = 20
    """J: differences that one estimate is the mean of; a list gives every agent its own"""
    u1: Positive = 1.0
    """width of the smoothing in the first step; step t has u1/t, and u1/(P t)^2 for differences"""
    step: Positive = 0.27
    """alpha_0 R / L: step t is this over sqrt(t P ln 2P)"""
    radius: Positive | None = None
    """R, which only the paper's epsilon depends on, and says more than the data allow to say"""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start; inner loops start at zero"""


class DZOA(Method):
    """The agents' models are the ends of their inner loops, which they send as they are."""

    name = "d-zoa"
    kind = "graph"
    summary = "consensus ADMM from values alone: an inner loop along two-point estimates"
    paper = "Gratton, Venkategowda, Arablouei, Werner 2021"
    wants = ("values of the loss only",)
    Parameters = Parameters
    smooth_only = False
    policies = ("all", "deadline", "each")
    noises = NOISES
    cures = ("algorithm.step", "algorithm.samples", "algorithm.rho")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        p = self.parameters
        self.rho, self.x0 = p.rho, ingredients.settings.initial("x0")
        self.samples = np.broadcast_to(p.samples, self.problem.agents)
        seen = View.NEIGHBOURS
        self.estimates = Estimates(self.problem, self.noise, self.samples, p.inner, seen)
        self.warnings += self.estimates.warnings

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = Estimates.problems(problem, noise)
        if np.size(parameters.samples) not in (1, problem.agents):
            allowed = f"one number, or one for each of the {problem.agents} agents"
            text = f"found {np.size(parameters.samples)} numbers; allowed: {allowed}"
            found.append(f"algorithm.samples: {text}")
        return found

    def agents(self, us: Any) -> Program:
        """Algorithm 1 for agents `us`."""
        rho, degree = self.rho, us.degree[:, None]
        us.x = self.x0[us.who]
        edges = EdgeDuals(us, self.x0, rho, self.settings)
        for k in us.rounds():
            c = us.dual - rho * (degree * us.x + edges.neighbours())
            us.x = yield from self.estimates.of(us, k, self.minimise, c)  # (4)
            us.report(us.x)
            us.dual = yield from edges.exchange(us.x)  # (5)

    def minimise(self, us: Any, c: Array, key: Any, deviation: Array) -> Array:
        """The inner loop (n, dim) from zero on f_i + <c, x> + rho d_i ||x||^2: (7), (8) and (9)."""
        graph, p = self.settings.graph, self.parameters
        assert graph is not None
        seed = self.estimates.directions(us, self.settings.seed)
        return np.asarray(
            descend(
                us.who, np.zeros_like(c), us.round, seed, self.problem.data,
                inner=p.inner, samples=self.samples[us.who], u1=p.u1, step=p.step, c=c,
                q=2.0 * self.rho * graph.degree[us.who], deviation=deviation, noise=key,
            )
        )  # fmt: skip

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        return self.estimates.planned(k)

    def claim_inputs(self) -> Inputs | None:
        """Theorem 2 of the algorithm as printed, where `radius` says its R."""
        p, graph, problem = self.parameters, self.settings.graph, self.problem
        if self.noise is not None or p.radius is None or graph is None:
            return None
        unmet = [INEXACT] if problem.clipped else [UNCLIPPED, INEXACT]
        c1 = problem.clip * problem.scale
        return inputs(
            "d-zoa/theorem-2", problem.agents, unmet, samples=self.samples, c1=c1,
            degree=graph.degree, radius=p.radius, dim=problem.dim, inner=p.inner, rho=p.rho,
        )  # fmt: skip
