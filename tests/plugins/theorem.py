"""A method that brings a theorem of its own: what its releases cost by zCDP, with a factor."""

import numpy as np

from desim.method import (
    ALL,
    Bound,
    Method,
    Strict,
    Us,
    View,
    gradient,
    inputs,
    once,
    ratios,
    simple,
    summed,
    terms,
)


def summed_up(given, releases, delta):
    """Epsilon of `times` the sum of (sensitivity / deviation)^2 / 2, and a condition."""
    rows = once(releases)
    rho = summed(rows["agent"], 0.5 * ratios(rows) ** 2, given["agents"])
    return simple(given["times"] * rho, delta), ["the moon is full"]


class Proved(Method):
    """Gradient steps that neighbours hear of and do not heed."""

    name = "proved"
    kind = "graph"
    summary = "gradient steps with a theorem"
    paper = "Nobody 2026"
    Parameters = Strict
    bounds = (
        Bound(
            "proved/theorem-1", "Nobody 2026", "Theorem 1", ("proved",), ALL, "loose",
            "the conversion of zCDP is loose", "exact Gaussian DP", summed_up, "zCDP",
        ),
    )  # fmt: skip

    def claim_inputs(self):
        """Theorem 1, twice as large as it has to be."""
        return inputs("proved/theorem-1", self.problem.agents, times=np.float64(2.0))

    def agents(self, us: Us):
        """Noisy gradients, sent."""
        us.x = self.settings.initial("x0")[us.who]
        for k in us.rounds():
            g = yield us.compute(self.gradient, us.x, work=self.problem.rows[us.who])
            delta = 2.0 * self.problem.clip * self.problem.scale[us.who]
            us.x -= 0.1 * us.release(g, terms(self.noise, View.NEIGHBOURS, k, delta, g.shape[1]))
            us.report(us.x)
            us.send(us.x)
            yield us.gather()

    def gradient(self, us: Us, x):
        """Gradients (n, dim) at x."""
        return np.asarray(gradient(us.who, x, self.problem.data))
