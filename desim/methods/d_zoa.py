"""D-ZOA: consensus ADMM whose primal step descends along two-point estimates of the gradient.

Gratton, Venkategowda, Arablouei, Werner 2021, "Privacy-preserved distributed learning with
zeroth-order optimization" (Algorithm 1; eqs. 4-9). Algorithm 1 takes (5) from beta^(m) before that
exists: here the dual follows the exchange. The paper's epsilon comes from the randomness of the
directions alone, which proves nothing; with privacy.noise each difference quotient gets noise.
"""

from math import log, sqrt
from typing import Any

import numpy as np

from desim.method import (
    DUALS,
    Array,
    Count,
    Counts,
    EdgeDuals,
    Init,
    Inputs,
    Noise,
    Positive,
    Problem,
    Program,
    Strict,
    Us,
    View,
    descend,
    inputs,
)
from desim.methods.shared.zeroth_order import ZerothOrder
from desim.privacy.papers.claims import unclipped

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


class DZOA(ZerothOrder):
    """The agents' models are the ends of their inner loops, which they send as they are."""

    name = "d-zoa"
    kind = "graph"
    summary = "consensus ADMM from values alone: an inner loop along two-point estimates"
    paper = "Gratton, Venkategowda, Arablouei, Werner 2021"
    Parameters = Parameters
    policies = ("all", "deadline", "each")
    uncoded = DUALS
    cures = ("algorithm.step", "algorithm.samples", "algorithm.rho")
    view = View.NEIGHBOURS

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        if np.size(parameters.samples) not in (1, problem.agents):
            allowed = f"one number, or one for each of the {problem.agents} agents"
            text = f"found {np.size(parameters.samples)} numbers; allowed: {allowed}"
            found.append(f"algorithm.samples: {text}")
        return found

    def agents(self, us: Us) -> Program:
        """Algorithm 1 for `us` with d_i neighbours; `edge_duals` has (5) without a barrier."""
        rho, d = self.parameters.rho, us.degree[:, None]
        us.x = self.x0[us.who]
        edges = EdgeDuals(us, self.x0, rho, self.settings)
        for k in us.rounds():
            c = us.dual - rho * (d * us.x + edges.neighbours())
            us.x = yield from self.estimated(us, k, self.minimise, c, 2.0 * rho * d)  # (4)
            us.report(us.x)
            yield from edges.exchange(us.x)
            us.dual = edges.agreed(us.dual + rho * (d * us.x - edges.neighbours()))  # (5)

    def minimise(self, us: Us, c: Array, q: Array, key: Array, deviation: Array) -> Array:
        """Argmin (n, dim) of F_i = f_i + <c, .> + q/2 ||.||^2: T steps (9) from zero along (8).

        (8) is the mean over J of (7), (F_i(b + u1 v1 + u2 v2) - F_i(b + u1 v1)) v2 / u2.
        """
        p, T = self.parameters, self.parameters.inner
        return np.asarray(
            descend(
                us.who, np.zeros_like(c), us.round, self.seed(us), self.problem.data,
                steps=schedule(T, self.problem.dim, p.u1, p.step), samples=self.samples[us.who],
                c=c, q=q[:, 0], deviation=deviation, noise=key,
            )
        )  # fmt: skip

    def claim_inputs(self) -> Inputs | None:
        """Theorem 2 of the algorithm as printed, where `radius` says its R."""
        p, graph, problem = self.parameters, self.settings.graph, self.problem
        if self.noise is not None or p.radius is None or graph is None:
            return None
        unmet = [*unclipped(problem), INEXACT]
        c1 = problem.clip * problem.scale
        return inputs(
            "d-zoa/theorem-2", problem.agents, unmet, samples=self.samples, c1=c1,
            degree=graph.degree, radius=p.radius, dim=problem.dim, inner=p.inner, rho=p.rho,
        )  # fmt: skip


def schedule(T: int, P: int, u1: float, step: float) -> tuple[Array, Array, Array]:
    """Lengths of steps, and widths u_1,t and u_2,t of differences, each (T,), of t = 1, ..., T."""
    t = np.arange(1.0, T + 1.0)
    lengths = step / sqrt(P * log(2.0 * P)) / np.sqrt(t)  # alpha_t, below (9)
    return lengths, u1 / t, u1 / (P * t) ** 2  # Algorithm 1: Set u
