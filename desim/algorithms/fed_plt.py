"""Fed-PLT: federated learning by Peaceman-Rachford splitting with private local training.

Bastianello, Liu, Johansson 2024, "Enhancing privacy in federated learning through local training"
(arXiv 2403.17572), Algorithm 1. Problem: min sum_i f_i(x) + h(x).
"""

from typing import Any, Literal

import numpy as np

from desim.algorithms.compiled.fed_plt import Rule
from desim.algorithms.fed_plt_claim import claimed, supposed_start
from desim.algorithms.latest import Latest
from desim.algorithms.local_training import LocalTraining
from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.engine.star_compiled import Compiled
from desim.errors import InputError
from desim.fields import Init, Local, Positive, Strict
from desim.kernels.sums import column_sums
from desim.privacy.bounds.claims import Inputs
from desim.privacy.ledger import Terms
from desim.privacy.mechanisms import Gaussian, Noise
from desim.problem import Problem


class Start(Init):
    """Where the iterates start."""

    words = ("zeros", "langevin")


class Parameters(Strict):
    """rho: penalty of the splitting; local: training between messages; init: x0, and z0 = x0."""

    rho: Positive
    """penalty of the splitting"""
    local: Local = Local()
    """training between two messages"""
    send: Literal["z", "increments"] = "z"
    """z_i, which the coordinator keeps for every agent, or 2 (x_i - y): it keeps their mean only"""
    init: Start = Start.of("zeros")
    """x0 and z0; z0 is x0 unless a file has it; langevin: the paper's N(0, 2 tau^2/lambda_i I)"""


class FedPLT(Method):
    """The coordinator keeps z, the last auxiliary variable of each agent."""

    name = "fed-plt"
    kind = "coordinator"
    summary = "Peaceman-Rachford splitting with local training, composite h, private local steps"
    paper = "Bastianello, Liu, Johansson 2024"
    wants = ("strong convexity for the proof",)
    Parameters = Parameters
    models = "any"
    has_prox = True
    noises = ("gaussian",)
    cures = ("algorithm.local.step", "algorithm.rho")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    restarts = policies

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        settings, self.rho = ingredients.settings, self.parameters.rho
        self.x0, self.z0 = settings.initial("x0"), settings.initial("z0")
        sigma = self.noise.sigma if isinstance(self.noise, Gaussian) else None
        self.local = LocalTraining(self.parameters.local, settings, 1.0 / self.rho, sigma)
        self.warnings += self.local.warnings
        if self.parameters.init.kind == "langevin":
            self.x0 = self.z0 = supposed_start(self.local)[:, None] * self.x0
        churn = settings.churn
        if churn is not None and churn.forgets and self.parameters.send == "increments":
            reason = "with send: increments the coordinator keeps the sum of what agents forget"
            raise InputError(f"churn.memory: found lost; {reason}; allowed: kept, or send: z")
        if settings.policy.late == "carry" and settings.policy.kind != "all":
            self.warnings.append("policy: fed-plt is proved for replies to the present y, not late")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found, local = LocalTraining.problems(parameters.local, problem, noise), parameters.local
        if parameters.init.kind == "langevin" and local.solvers != ("noisy",):
            text = f"found langevin with solver {local.solver}, but tau is the noise of local steps"
            found.append(f"algorithm.init: {text}; allowed: langevin with solver noisy")
        if parameters.init.kind == "langevin" and not (problem.public_moduli[0] > 0.0).all():
            text = "found langevin, but no strong convexity holds for every data set"
            found.append(f"algorithm.init: {text}; allowed: langevin with an l2 at the agents")
        return found

    def coordinator(self, hub: Any) -> Program:
        """Lines 2 and 11 of Algorithm 1; the two ways to send differ by rounding only."""
        z, increments = Latest(self.z0), self.parameters.send == "increments"
        own = hub.memory(mean=z.mean) if increments else hub.memory(z=z, mean=z.mean)
        hub.start(x=self.x0, z=self.z0)
        hub.publish(y := self.consensus(own.mean))
        while hub.open:
            hub.call(hub.invite(), self.train, y, work=self.local.work, charge=self.local.terms)
            replies = yield hub.collect()
            if increments:
                own.mean = own.mean + column_sums(replies.payload) / hub.agents
            else:
                own.mean = z.replace(replies.who, replies.payload)
            hub.publish(y := self.consensus(own.mean))

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: those of all rounds."""
        return self.local.terms

    def consensus(self, mean: Array) -> Array:
        """Y = prox_{rho h / N}(mean of z), mean (dim,)."""
        h, agents = self.problem.coordinator_regularizer, self.problem.agents
        return h.prox(mean, self.rho / agents)  # line 2

    def train(self, us: Any, y: Array) -> Array:
        """Lines 5 to 10 of Algorithm 1 for agents `us`; y (n, dim) as they received it."""
        z: Array = us.z
        us.x = x = self.local.train(us, us.x, 2.0 * y - z)  # lines 5-9, v = 2 y - z
        us.z = z = z + 2.0 * (x - y)  # line 10
        return z if self.parameters.send == "z" else 2.0 * (x - y)

    def compiled(self) -> Compiled | None:
        """The same for the compiled engine."""
        h, z = self.problem.coordinator_regularizer, Latest(self.z0)
        increments, weight = self.parameters.send == "increments", self.rho / self.problem.agents
        return self.local.compiled(
            Rule(self.problem.agents, weight, h.l1, h.l2, h.lower, h.upper, h.vanishes, increments),
            state={"x": self.x0, "z": self.z0},
            centre=(np.zeros((1, len(z.mean))), z.mean[None], z.since[None])
            if increments
            else z.arrays,
            model=self.consensus(z.mean),
        )

    def claim_inputs(self) -> Inputs | None:
        """Proposition 4, with K the rounds in which an agent released."""
        return claimed(self.local, self.parameters.init)
