"""Noisy gradient descent on a graph one of whose public numbers is taken from the agents' rows."""

from typing import Any, Literal

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    Init,
    Method,
    Positive,
    Program,
    Strict,
    Terms,
    Us,
    View,
    gradient,
    terms,
)


class Parameters(Strict):
    """peek: the number that an agent's longest row decides; step: of the gradient."""

    peek: Literal["nothing", "sensitivity", "scale", "plan", "bits", "work", "silence"] = "nothing"
    """plan: the sensitivity that a target or a budget is told, and not that of the ledger"""
    step: Positive = 0.1
    """gradient step"""
    init: Init = Init.of("zeros")
    """start"""


class Peeking(Method):
    """x_i <- mean of what is heard and of x_i, minus a noisy gradient step."""

    name = "peeking"
    kind = "graph"
    summary = "noisy gradient descent that looks at its rows"
    paper = "none"
    Parameters = Parameters

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")
        norms = np.linalg.norm(self.problem.A, axis=1)
        self.longest = np.maximum.reduceat(norms, self.problem.start[:-1])

    def by(self, what: str, who: Any) -> Any:
        """The longest row (n,) of agents who (n,) where that is what is looked at, else 1."""
        return self.longest[who] if self.parameters.peek == what else np.ones(len(who))

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        degree, who = us.degree[:, None], us.who
        us.x = self.x0[who]
        us.known(self.x0)
        for k in us.rounds():
            work = self.problem.rows[who] * self.by("work", who)
            g = yield us.compute(self.gradient, us.x, work=work)
            where = self.by("silence", who) < 5.0
            g = us.release(g, self.terms(who, k, self.by("sensitivity", who)), where=where)
            us.x = us.x - self.parameters.step * g
            us.report(us.x)
            bits = np.ceil(64.0 * self.by("bits", who)).astype(np.int64)
            us.send(us.x, bits=bits, where=where)
            heard = yield us.gather()
            us.x = (us.x + us.sum(heard)) / (1.0 + degree)

    def gradient(self, us: Us, x: Array) -> Array:
        """Gradients (n, dim)."""
        return np.asarray(gradient(us.who, x, self.problem.data))

    def terms(self, who: Any, k: int, reach: Any) -> Terms:
        """Terms (n,) of a gradient whose sensitivity is multiplied by reach (n,)."""
        delta = 2.0 * self.problem.clip * self.problem.scale[who] * reach
        due = terms(self.noise, View.NEIGHBOURS, k, delta, self.problem.dim)
        due.scale[:] *= self.by("scale", who)
        return due

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        who = np.arange(self.problem.agents)
        return self.terms(who, k, self.by("sensitivity", who) * self.by("plan", who))
