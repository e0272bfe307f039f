"""Methods whose charges differ: from round to round, from agent to agent, or by mistake."""

from typing import Literal

import numpy as np

from desim.method import (
    Array,
    Clients,
    Hub,
    Ingredients,
    Mechanism,
    Method,
    Program,
    Strict,
    Terms,
    Us,
    View,
    gradient,
)


class Parameters(Strict):
    """how: which of the ways."""

    how: Literal["plain", "backwards", "busy", "two", "wider"] = "plain"
    """what the coordinator does"""


class Falling(Method):
    """A coordinator whose noise falls from round to round, so that a late reply has more."""

    name = "falling"
    kind = "coordinator"
    summary = "noise that falls"
    paper = "none"
    Parameters = Parameters
    policies = ("all", "deadline", "quorum", "buffer", "each")
    smooth_only = False

    def coordinator(self, hub: Hub) -> Program:
        """The whole coordinator."""
        agents, dim, how = self.problem.agents, self.problem.dim, self.parameters.how
        hub.start(x=np.zeros((agents, dim)))
        hub.publish(np.zeros(dim))
        work = self.problem.rows.astype(float)
        while hub.open:
            who, job = hub.invite(), self.first
            if how == "backwards":
                who = who[::-1]
            if how == "two" and hub.round % 2:
                job = self.second
            if how == "busy" and hub.round > 1:
                who = np.arange(agents)
            width = 2 if how == "wider" and hub.round > 2 else 1
            hub.call(
                who, job, np.repeat(who[:, None] * 1.0, width, axis=1), work=work,
                charge=self.planned(hub.round),
            )  # fmt: skip
            replies = yield hub.collect()
            hub.publish(replies.payload.sum(axis=0))

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        ones = np.ones(self.problem.agents)
        nothing = np.full(len(ones), np.nan)
        return Terms(Mechanism.GAUSSIAN, View.COORDINATOR, ones, ones * 0.5**k, nothing)

    def first(self, us: Clients, numbers: Array) -> Array:
        """The number that came to an agent, for each parameter."""
        us.x = np.repeat(numbers[:, :1], self.problem.dim, axis=1)
        return us.noised(us.x)

    def second(self, us: Clients, numbers: Array) -> Array:
        """A hundred more."""
        us.x = np.repeat(numbers[:, :1], self.problem.dim, axis=1)
        return us.noised(us.x + 100.0)


class Wrongs(Strict):
    """how: which of the mistakes."""

    how: Literal[
        "partial", "twice", "deaf", "again", "raw", "silent", "ahead", "counts", "trained"
    ] = "partial"
    """what the agents do"""


class Wrong(Method):
    """Agents that make a mistake."""

    name = "wrong"
    kind = "graph"
    summary = "mistakes"
    paper = "none"
    Parameters = Wrongs
    policies = ("all", "deadline")
    restarts = ("all",)
    forgetting = "nothing"
    smooth_only = False

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = np.zeros((self.problem.agents, self.problem.dim))

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        how, n = self.parameters.how, len(us.who)
        even = us.public(us.who % 2 == 0)
        nothing = np.full(n, np.nan)
        terms = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, np.ones(n), np.ones(n), nothing)
        us.x = self.x0[us.who]
        if how == "counts":
            try:
                us.begun = us.begun + 1.0
            except AttributeError:
                us.begun = np.ones((n, 1))
        work = self.problem.rows[us.who] * 1.0
        for k in us.rounds():
            if how == "trained" and (us.charged(terms) == us.charged(terms)).any():
                raise ValueError("two trainings have one key")
            noise = us.perturbation(1, terms, where=even)[:, :1] if how == "ahead" else 0.0
            g = yield us.compute(
                self.gradient, us.x + noise, work=np.where(even, work, work * (k % 2))
            )
            if how == "ahead":
                us.send(g)
                heard = yield us.gather()
            g = us.release(g, terms, where=even)
            to = np.where(self.problem.rows > 0, (np.arange(self.problem.agents) + 1) % 6, -1)
            if how == "raw":
                us.send(g, to=to)
            elif how == "silent":
                us.send(g, where=us.public(even if k == 1 else even | True))
            else:
                us.send(g)
            if how in ("twice", "again"):
                if how == "again":
                    yield us.gather()
                us.send(g)
            if how == "deaf":
                yield us.gather()
            heard = yield us.gather()
            us.x = us.x - 0.01 * us.sum(heard)
            us.report(us.x)

    def gradient(self, us: Us, x: Array) -> Array:
        """Gradients (n, dim), of odd agents in odd rounds alone."""
        g = np.asarray(gradient(us.who, x, self.problem.data))
        return np.where(
            ((us.who + us.round) % 2 == 1)[:, None] & (us.who % 2 == 1)[:, None], 0.0, g
        )
