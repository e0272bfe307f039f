"""A method that releases two values in every round."""

import numpy as np

from desim.method import Ingredients, Init, Mechanism, Method, Program, Strict, Terms, Us, View


class Parameters(Strict):
    """init: start."""

    init: Init = Init.of("zeros")
    """start"""


class Twice(Method):
    """Sends x plus noise twice."""

    name = "twice"
    kind = "graph"
    summary = "two releases in a round"
    paper = "none"
    Parameters = Parameters
    smooth_only = False

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        n = len(us.who)
        ones, nothing = np.ones(n), np.full(n, np.nan)
        terms = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, ones, ones, nothing)
        us.x = self.x0[us.who]
        us.known(self.x0)
        for _ in us.rounds():
            us.first = us.release(us.x, terms)
            us.send(us.first)
            yield us.gather()
            us.second = us.release(us.x, terms)
            us.send(us.second)
            yield us.gather()
            us.report(us.x)
