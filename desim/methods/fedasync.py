"""FedAsync: the coordinator mixes every model that comes in into its own, the less the older it is.

Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization" (arXiv 1903.03934), Algorithm 1. The
paper's s is `policy.staleness`; its t - tau is 1 of a reply to the latest model, whose staleness is
0 here: with the printed count no reply would weigh 1. Where a policy collects several replies at
once, x becomes the mean of what each alone would make of it, so that no order of agents matters.
"""

from typing import Any, NamedTuple

import numpy as np

from desim.method import (
    Array,
    Clients,
    Compilable,
    Federated,
    Hub,
    Ingredients,
    Init,
    Local,
    NonNegative,
    Positive,
    Program,
    Strict,
    column_sums,
    formulas,
)


class Parameters(Strict):
    """alpha: the mixing weight; rho, local: training between messages; init: x0."""

    alpha: Positive = 0.6
    """share of a model without staleness that the coordinator takes over, the paper's alpha"""
    rho: NonNegative = 0.005
    """weight of the pull to the model that an agent was sent"""
    local: Local = Local()
    """training between two messages, on f_i(y) + rho/2 ||y - x||^2"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean"""


@formulas
class Formulas(NamedTuple):
    """Algorithm 1 without its loops, for arrays or numbers."""

    alpha: float

    def begin(self, x: Any, _: Any) -> Any:
        """From where an agent trains that was sent x, and the centre of its proximal term."""
        return x, x

    def finish(self, _: Any, y: Any, __: Any) -> Any:
        """Its model and its reply, what it trained."""
        return (y,), y

    def aggregate(self, x: Any, total: Any, replies: int, weights: float) -> Any:
        """The mean of (1 - a_t) x + a_t x_new over the replies, a_t being alpha s(t - tau)."""
        return x + self.alpha * (total - weights * x) / max(replies, 1)

    def model(self, x: Any) -> Any:
        """What it sends and shows."""
        return x


class FedAsync(Federated):
    """An agent's model x is what it trained last, which it sends."""

    name = "fedasync"
    summary = "asynchronous mixing of local models, the less the staler they are"
    paper = "Xie, Koyejo, Gupta 2019"
    Parameters = Parameters
    waiting = "each"
    cures = ("algorithm.local.step", "algorithm.alpha")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    restarts = policies
    unweighable = ""

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients, q=ingredients.parameters.rho)
        if (alpha := self.parameters.alpha) >= 1.0:
            text = f"algorithm.alpha: {alpha:g} is not below 1, up to which x is a mean of models"
            self.warnings.append(f"{text}; fedasync may diverge")
        self.formulas = Formulas(alpha)

    def coordinator(self, hub: Hub) -> Program:
        """Server, both threads: whoever has replied is called again with the new model."""
        state = hub.memory(x=column_sums(self.x0) / hub.agents)
        hub.start(x=self.x0)
        hub.publish(state.x)
        while hub.open:
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, state.x, work=work, charge=charge)
            replies = yield hub.collect()
            n, total = len(replies.who), column_sums(replies.weighed)
            s = float(np.add.reduce(replies.weight))  # of one reply s(t - tau)
            state.x = self.formulas.aggregate(state.x, total, n, s)
            hub.publish(state.x)

    def train(self, us: Clients, x: Array) -> Array:
        """Worker: steps of agents `us` on f_i(y) + (rho/2) ||y - x||^2 from x (n, dim); y."""
        y = self.local.train(us, *self.formulas.begin(x, x))  # x_h = x_h-1 - gamma grad g(x_h-1)
        (us.x,), reply = self.formulas.finish(x, y, x)
        return np.asarray(reply)

    def compiled(self) -> Compilable | None:
        """The same for the compiled engine."""
        return self.local.compiled(self.formulas, column_sums(self.x0) / len(self.x0), x=self.x0)
