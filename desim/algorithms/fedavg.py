"""FedAvg: local training of the coordinator's model, then the mean of what came back.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, "Communication-efficient learning of deep
networks from decentralized data" (arXiv 1602.05629), Algorithm 1; with replies to older models it
is FedBuff (Nguyen et al. 2022, arXiv 2106.06639), whose messages y_i - x are sent here always.

Agents weigh equally: the objective is the sum of the f_i, so that with one full gradient step a
round is a step of gradient descent on it. The paper's weights m_i / m belong to sum (m_i / m) f_i;
that objective is `average: sum`. With more local steps the limit is near the optimum, not at it.
"""

from typing import Any

import numpy as np

from desim.algorithms.compiled.fedavg import Rule
from desim.algorithms.federated import Federated
from desim.algorithms.method import Array, Ingredients, Program
from desim.engine.star_compiled import Compiled
from desim.fields import Init, Local, Positive, Strict
from desim.kernels.sums import column_sums


class Parameters(Strict):
    """local: training between messages; global_step: the coordinator's; init: x0."""

    local: Local = Local()
    """training between two messages"""
    global_step: Positive = 1.0
    """share of the mean change that the coordinator takes over; 1 makes the mean its model"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean"""


class FedAvg(Federated):
    """An agent's model x is the latest that it was sent; what it trains it sends and forgets."""

    name = "fedavg"
    summary = "federated averaging of locally trained models, all agents weighing the same"
    paper = "McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017"
    Parameters = Parameters
    cures = ("algorithm.local.step", "algorithm.global_step")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    restarts = policies
    no_exact = "the minimiser of f_i does not depend on the model that an agent receives"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.global_step = self.parameters.global_step
        if np.ptp(self.local.gamma) > 0.0:
            self.warnings.append(
                "algorithm.local.step: agents with larger steps weigh more in fedavg, whose limit "
                "is then not the optimum of the sum even with one local step"
            )
        if self.global_step > 1.0:
            self.warnings.append(
                f"algorithm.global_step: {self.global_step:g} is above 1, up to which every local "
                "step below 2/smoothness is stable; fedavg may diverge"
            )
        if self.settings.policy.late == "carry":
            self.warnings.append("policy: fedavg is not proved with replies to older models")

    def coordinator(self, hub: Any) -> Program:
        """Algorithm 1, server side."""
        own = hub.memory(x=column_sums(self.x0) / hub.agents)
        hub.start(x=self.x0)
        hub.publish(own.x)
        while hub.open:
            hub.call(hub.invite(), self.train, own.x, work=self.local.work, charge=self.local.terms)
            replies = yield hub.collect()
            change = column_sums(replies.payload) / max(len(replies.who), 1)
            own.x = own.x + self.global_step * change  # w_{t+1} = mean of the w^k
            hub.publish(own.x)

    def train(self, us: Any, x: Array) -> Array:
        """ClientUpdate of agents `us` from x (n, dim): what training changed, (n, dim)."""
        us.x = x.copy()
        y: Array = self.local.train(us, x, x)  # w = w - eta grad f_i(w; B)
        return y - x

    def compiled(self) -> Compiled | None:
        """The same for the compiled engine."""
        x = column_sums(self.x0) / self.problem.agents
        change = np.zeros((1, len(x)))
        rule = Rule(self.global_step)
        return self.local.compiled(rule, state={"x": self.x0}, centre=(change,), model=x)
