"""FedAvg: local training of the coordinator's model, then the mean of what came back.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, "Communication-efficient learning of deep
networks from decentralized data" (arXiv 1602.05629), Algorithm 1. Messages are the changes y_i - x:
late ones change the present model; a policy may weigh them (see fedbuff).

Agents weigh equally: the objective is the sum of the f_i, so that with one full gradient step a
round is a step of gradient descent on it. The paper's weights m_i / m belong to sum (m_i / m) f_i;
that objective is `average: sum`. With more local steps the limit is near the optimum, not at it.
"""

from typing import Any, ClassVar, NamedTuple

import numpy as np

from desim.method import (
    LOSSY,
    ROUNDED,
    Array,
    Clients,
    Compilable,
    Federated,
    Hub,
    Ingredients,
    Init,
    Local,
    Positive,
    Program,
    Strict,
    column_sums,
    formulas,
)
from desim.methods.shared.federated import Server, means_in_turn
from desim.methods.shared.local_training import unproved


class Parameters(Strict):
    """local: training between messages; global_step, server: the coordinator's; init: x0."""

    local: Local = Local()
    """training between two messages"""
    global_step: Positive = 1.0
    """share of the mean change that the coordinator takes over; 1 makes the mean its model"""
    server: Server = Server.of("none")
    """the coordinator's optimiser: none, {momentum: 0.9}, {adam: ..}, {yogi: ..}, {adagrad: ..}"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean"""


@formulas
class Formulas(NamedTuple):
    """Algorithm 1 without its loops, for arrays or numbers: x of the coordinator, y trained."""

    global_step: float

    def begin(self, x: Any, _: Any) -> Any:
        """From where an agent trains that was sent x, and the centre of its proximal term."""
        return x, x

    def finish(self, x: Any, y: Any, _: Any) -> Any:
        """Its model, the latest that it was sent, and its reply, what training changed."""
        return (x,), y - x

    def aggregate(self, x: Any, total: Any, replies: float) -> Any:
        """The new x: the mean of the y_i where the global step is 1 and no reply is late."""
        return x + self.global_step * (total / max(replies, 1))

    def model(self, x: Any) -> Any:
        """What it sends and shows."""
        return x


class FedAvg(Federated):
    """An agent's model x is the latest that it was sent; what it trains it sends and forgets."""

    name = "fedavg"
    summary = "federated averaging of locally trained models, all agents weighing the same"
    paper = "McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017"
    Parameters: ClassVar[type[Strict]] = Parameters
    cures: ClassVar[tuple[str, ...]] = ("algorithm.local.step", "algorithm.global_step")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    restarts = policies
    sent_model = forgetful = summed = True
    unweighable, turns = "", staticmethod(means_in_turn)
    proved_late: ClassVar[bool] = False  # with replies to older models
    no_exact = "the minimiser of f_i does not depend on the model that an agent receives"
    messages = "changes"
    codecs = (*ROUNDED, *LOSSY)

    def __init__(self, ingredients: Ingredients, q: float = 0.0) -> None:
        super().__init__(ingredients, q)
        step = self.parameters.global_step
        self.formulas = Formulas(step)
        late = self.settings.policy.late == "carry" and not self.proved_late
        self.warnings += unproved(self.name, self.local.gamma, step, late)

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1, server side."""
        x0 = column_sums(self.x0) / hub.agents
        state = hub.memory(x=x0, **self.server.memory())  # what it keeps from round to round
        hub.start(x=self.x0)  # the agents' models
        hub.publish(state.x)  # round 0
        while hub.open:
            who, work, charge = hub.invite(), self.local.work, self.planned(hub.round)
            hub.call(who, self.train, state.x, work=work, charge=charge)  # down, compute, up
            replies = yield hub.collect()  # all of them, a deadline, a quorum, each: the policy
            total, n = hub.total(replies)  # what training changed
            total, n = self.server.along(state, total, n)  # or its optimiser's step
            state.x = self.formulas.aggregate(state.x, total, n)  # x <- x + eta total / n
            hub.publish(state.x)  # the round ends

    def train(self, us: Clients, x: Array) -> Array:
        """ClientUpdate of agents `us` from x (n, dim): what training changed, (n, dim)."""
        us.x = x
        y = self.local.train(us, *self.formulas.begin(x, x))  # y = y - gamma grad f_i(y; B)
        _, change = self.formulas.finish(x, y, x)
        return np.asarray(change)

    def compiled(self) -> Compilable | None:
        """The same for the compiled engine."""
        x0 = column_sums(self.x0) / len(self.x0)
        return self.local.compiled(*self.server.compiled(self.formulas, x0), x=self.x0)
