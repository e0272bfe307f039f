"""Fed-PLT: federated learning by Peaceman-Rachford splitting with private local training.

Bastianello, Liu, Johansson 2024, "Enhancing privacy in federated learning through local training"
(arXiv 2403.17572), Algorithm 1. Problem: min sum_i f_i(x) + h(x).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

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
    InputError,
    Inputs,
    Latest,
    Local,
    Noise,
    Positive,
    Problem,
    Program,
    Strict,
    column_sums,
    formulas,
    prox,
)
from desim.methods.shared.federated import sums_in_turn
from desim.privacy.papers.fed_plt import last_model_inputs, start_problems, supposed_start


class Start(Init):
    """Where the iterates start."""

    words = ("zeros", "model", "langevin")


class Parameters(Strict):
    """rho: penalty of the splitting; local: training between messages; init: x0, and z0 = x0."""

    rho: Positive
    """penalty of the splitting"""
    local: Local = Local()
    """training between two messages"""
    send: Literal["z", "increments"] = "z"
    """z_i, which the coordinator keeps for every agent, or 2 (x_i - y): it keeps their mean only"""
    init: Start = Start.of("zeros")
    """x0 and z0; z0 is x0 unless a file has it; langevin: the paper's N(0, 2 tau^2/lambda_i I) with
    lambda_i the agent's ridge"""


@formulas
class Formulas(NamedTuple):
    """Algorithm 1 without its loops, for arrays or numbers."""

    agents: int
    weight: float  # rho / N
    h: tuple[float, float, float, float, bool]  # of the coordinator's regulariser
    increments: bool

    def begin(self, y: Any, x: Any, z: Any) -> Any:
        """From where an agent trains that was sent y, and v."""
        return x, 2.0 * y - z  # line 5

    def finish(self, y: Any, w: Any, x: Any, z: Any) -> Any:
        """Its x and z, and its reply, after training to w."""
        step = 2.0 * (w - y)
        z = z + step  # line 10
        return (w, z), step if self.increments else z  # line 9

    def aggregate(self, mean: Any, total: Any, replies: int) -> Any:
        """The mean of all z; total: of all z, or of what they changed by."""
        return mean + total / self.agents if self.increments else total / self.agents

    def model(self, mean: Any) -> Any:
        """The model y that the coordinator sends."""
        return prox(mean, self.weight, self.h)  # line 2


class FedPLT(Federated):
    """The coordinator keeps z, the last auxiliary variable of each agent."""

    name = "fed-plt"
    summary = "Peaceman-Rachford splitting with local training, composite h, private local steps"
    paper = "Bastianello, Liu, Johansson 2024"
    wants = ("strong convexity for the proof",)
    Parameters = Parameters
    has_prox = True
    summed: ClassVar[bool | Mapping[str, Any]] = {"send": "increments"}
    cures = ("algorithm.local.step", "algorithm.rho")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    unweighable = "every agent's latest z_i counts alike in the splitting"
    restarts = policies
    unproved = ()
    messages = "models"
    turns = staticmethod(sums_in_turn)  # of increments
    codecs = (*ROUNDED, *LOSSY)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients, q=1.0 / ingredients.parameters.rho)
        settings, rho, agents = self.settings, self.parameters.rho, self.problem.agents
        h, self.increments = self.problem.coordinator_regularizer, self.parameters.send != "z"
        self.formulas = Formulas(agents, rho / agents, h.numbers, self.increments)
        self.z0 = settings.initial("z0")
        if self.parameters.init.kind == "langevin":
            self.x0 = self.z0 = supposed_start(self.local)[:, None] * self.x0
        if (churn := settings.churn) is not None and churn.forgets and self.increments:
            reason = "with send: increments the coordinator keeps the sum of what agents forget"
            raise InputError(f"churn.memory: found lost; {reason}; allowed: kept, or send: z")
        if settings.codecs.up.lossy and self.increments:
            raise InputError("algorithm.send: found increments with a lossy codec; allowed: z")
        if settings.policy.late == "carry" and settings.policy.kind != "all":
            self.warnings.append("policy: fed-plt is proved for replies to the present y, not late")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        return found + start_problems(parameters.init, parameters.local, problem)

    def coordinator(self, hub: Hub) -> Program:
        """Lines 2 and 12 of Algorithm 1; the two ways to send differ by rounding only."""
        z, mean = Latest(self.z0), column_sums(self.z0) / hub.agents
        state = hub.memory(mean=mean) if self.increments else hub.memory(z=z, mean=mean)
        hub.start(x=self.x0, z=self.z0)
        hub.publish(y := self.formulas.model(state.mean))
        while hub.open:
            hub.call(hub.invite(), self.train, y, work=self.local.work, charge=self.local.terms)
            replies = yield hub.collect()
            if self.increments:
                total, _ = hub.total(replies)
            else:
                total = z.replace(replies.who, replies.payload)
            state.mean = self.formulas.aggregate(state.mean, total, len(replies.who))
            hub.publish(y := self.formulas.model(state.mean))

    def train(self, us: Clients, y: Array) -> Array:
        """Lines 5 to 10 of Algorithm 1 for agents `us`; y (n, dim) as they received it."""
        x, z = us.x, us.z
        w = self.local.train(us, *self.formulas.begin(y, x, z))  # lines 5-8
        (us.x, us.z), reply = self.formulas.finish(y, w, x, z)  # lines 9, 10
        return np.asarray(reply)

    def compiled(self) -> Compilable | None:
        """The same for the compiled engine."""
        mean, latest = column_sums(self.z0) / len(self.z0), None if self.increments else self.z0
        return self.local.compiled(self.formulas, mean, latest, x=self.x0, z=self.z0)

    def claim_inputs(self) -> Inputs | None:
        """Proposition 4, with K the rounds in which an agent released."""
        return last_model_inputs(self.local, self.parameters.init)
