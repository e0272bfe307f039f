"""Messages to chosen neighbours as plug-ins may want them: with deadlines, noise, wrong choices."""

from typing import Literal

import numpy as np

from desim.method import Init, Method, NonNegative, Strict, Us, View, gradient, terms
from desim.method import random_matching as matching
from desim.method import random_neighbours as neighbours


class Parameters(Strict):
    """choice: whom to send to; wait: s, 0 for as long as it takes; twice: another send a round."""

    choice: Literal["pairs", "push", "far", "own", "long", "reals"] = "pairs"
    """a matching, a random neighbour each, or a wrong one"""
    wait: NonNegative = 0.0
    """s that a gather lasts at most"""
    twice: bool = False
    """send again what was computed before"""
    careless: bool = False
    """release where nothing is sent"""
    init: Init = Init.of("zeros")
    """start"""


class Addressed(Method):
    """Gradient steps between means with whoever has sent something."""

    name, kind = "addressed", "graph"
    summary, paper = "means with chosen neighbours", "none"
    Parameters, policies = Parameters, ("all", "deadline", "each")

    def to(self, k):
        """Whom all agents (agents,) send to in round k."""
        graph, n = self.settings.graph, self.problem.agents
        wrong = {"far": (np.arange(n) + n // 2) % n, "own": np.arange(n), "long": np.arange(n + 1),
                 "reals": np.zeros(n)}  # fmt: skip
        if self.parameters.choice in wrong:
            return wrong[self.parameters.choice]
        draw = matching if self.parameters.choice == "pairs" else neighbours
        return draw(graph, self.settings.seed, k)

    def agents(self, us: Us):
        """All agents."""
        p, waits = self.parameters, self.settings.policy.kind != "each"
        us.x = self.settings.initial("x0")[us.who]
        for k in us.rounds():
            g = yield us.compute(self.gradient, us.x, work=self.problem.rows[us.who])
            us.x = us.x - 0.1 * g
            for again in range(1 + p.twice):
                to = self.to(2 * k + again)
                sends = us.public((to[us.who] >= 0) | p.careless)
                if self.noise is not None:
                    delta = np.full(len(us.who), self.problem.clip)
                    due = terms(self.noise, View.NEIGHBOURS, k, delta, self.problem.dim)
                    us.z = us.release(us.x, due, where=sends)
                us.send(us.x if self.noise is None else us.z, to=to)
                heard = yield us.gather(p.wait or np.inf) if waits else us.arrived()
                us.x = (us.x + us.sum(heard, heard.fresh)) / (1.0 + heard.count)
            us.report(us.x)

    def gradient(self, us: Us, x):
        """Gradients (n, dim)."""
        return gradient(us.who, x, self.problem.data)
