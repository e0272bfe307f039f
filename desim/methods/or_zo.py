"""OR-ZO: descent along two-point estimates where all data are in one place, from values alone.

Duchi, Jordan, Wainwright, Wibisono 2015, "Optimal rates for zero-order convex optimization: the
power of two function evaluations" (IEEE Trans. Inf. Theory 61(5)), with the widths and steps that
Gratton, Venkategowda, Arablouei, Werner 2021 (eqs. 7-9, Algorithm 1) take from its Theorem 2. What
it guarantees is about the mean of the iterates, here x0 among them and the last one not.
"""

from math import log, sqrt
from typing import Literal

import numpy as np

from desim.method import Array, Count, Init, Positive, Program, Strict, Us, estimates
from desim.methods.shared.zeroth_order import ZerothOrder


class Parameters(Strict):
    """step: alpha R / G; samples: m; u1: width of the smoothing; model: what is published."""

    samples: Count = 20
    """m: differences that one estimate is the mean of"""
    u1: Positive = 1.0
    """width of the smoothing in iteration 1; k has u1/k, and u1/(P k)^2 for differences"""
    step: Positive = 0.27
    """alpha R / G: step k is this over sqrt(k P ln 2P)"""
    model: Literal["last", "mean"] = "last"
    """the last iterate, or the mean of those that were stepped from, as the theorem has it"""
    init: Init = Init.of("zeros")
    """x0"""


class ORZO(ZerothOrder):
    """The one agent's model is x, which it publishes; w is where it goes on."""

    name = "or-zo"
    kind = "central"
    summary = "all data at one agent: descent along two-point estimates of the gradient"
    paper = "Duchi, Jordan, Wainwright, Wibisono 2015"
    Parameters = Parameters
    cures = ("algorithm.step", "algorithm.samples")

    def agents(self, us: Us) -> Program:
        """Iterations of the one agent."""
        averaged = self.parameters.model == "mean"
        us.x = us.w = self.x0[us.who]
        for k in us.rounds():
            before = us.w
            us.w = yield from self.estimated(us, k, self.step, before)
            us.x = us.x + (before - us.x) / k if averaged else us.w
            us.report(us.x)
            us.send(us.x)

    def step(self, us: Us, w: Array, key: Array, deviation: Array) -> Array:
        """One step (n, dim) from w (n, dim), with the equations of Gratton et al."""
        p, P, k = self.parameters, self.problem.dim, us.round
        u1, u2 = p.u1 / k, p.u1 / (P * k) ** 2  # Algorithm 1: Set u
        g = estimates(
            us.who, w, k, self.seed(us), self.problem.data, samples=p.samples, u1=u1, u2=u2,
            step=k, deviation=deviation, noise=key,
        )  # (7), (8)  # fmt: skip
        alpha = p.step / sqrt(P * log(2.0 * P)) / np.sqrt(k)  # below (9)
        return np.asarray(w - alpha[:, None] * g)  # (9)
