"""Federated methods: a coordinator, and agents that train locally between two messages."""

from typing import Any, ClassVar, Literal

from desim.errors import InputError
from desim.methods.shared.declarations import Ingredients, Method
from desim.methods.shared.local_training import LocalTraining, misfits
from desim.methods.shared.server_steps import Server, ServerSteps, two_steps
from desim.network.conditions.codec import KEEPS, ROUNDED
from desim.privacy.ledger.ledger import Terms
from desim.privacy.ledger.mechanisms import Gaussian, Noise
from desim.problem.problem import Problem

NO_SERVER = Server.of("none")
COHORTS = {"uniform": "for uniform cohorts that reply", "all": "with all agents in every round"}


class Federated(Method):
    """A method with parameters `init` and `local`: x0 (agents, dim) is its start.

    Where it has a parameter `server`, a global_step, too, `server` has the coordinator's steps.
    """

    kind = "coordinator"
    models: ClassVar[Literal["linear", "convex", "any"]] = "any"
    noises: ClassVar[tuple[str, ...]] = ("gaussian",)
    codecs: ClassVar[tuple[str, ...]] = ROUNDED
    uncoded: ClassVar[str] = KEEPS
    #: why local training has to be made of steps, where it has
    no_exact: str = ""
    #: why a reply that is late is of no use, where it is of none
    no_carry: str = ""
    #: what shows an agent's data whatever the noise of its local steps, if anything does
    exposed: str = ""
    #: local solvers with which its convergence is not proved
    unproved: ClassVar[tuple[str, ...]] = ("accelerated",)
    #: who has to take part in a round for what is proved
    cohorts: Literal["any", "uniform", "all"] = "any"

    def __init__(self, ingredients: Ingredients, q: float = 0.0, unit: float = 1.0) -> None:
        super().__init__(ingredients)
        local, settings = self.parameters.local, self.settings
        sigma = self.noise.sigma if isinstance(self.noise, Gaussian) else None
        self.x0 = settings.initial("x0")
        self.local = LocalTraining(local, settings, q, sigma, unit)
        self.server = ServerSteps(getattr(self.parameters, "server", NO_SERVER), self.problem.dim)
        self.warnings += self.local.warnings
        self.warnings += [
            f"algorithm.local.solver: convergence is not proved with {solver} local steps"
            for solver in self.unproved
            if solver in local.solvers
        ]
        if self.exposed and self.local.noisy:
            text = f"noisy protects nothing in {self.name}, {self.exposed}"
            self.warnings.append(f"algorithm.local.solver: {text}")
        if self.no_carry and settings.policy.late == "carry":
            text = f"policy.late: found carry, but {self.no_carry}"
            raise InputError(f"{text}; allowed: discard")
        who = settings.participation
        whole = who.uniform if self.cohorts == "uniform" else who.least >= self.problem.agents
        if self.cohorts != "any" and not (settings.policy.kind == "all" and whole):
            proved = f"{self.name} is proved {COHORTS[self.cohorts]}"
            self.warnings.append(f"participation: {proved}")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = [*misfits(parameters.local, problem, noise)]
        if hasattr(parameters, "server"):
            found += two_steps(parameters.server, parameters.global_step)
        if cls.no_exact and "exact" in parameters.local.solvers:
            text = f"algorithm.local.solver: found exact, but {cls.no_exact}"
            found.append(f"{text}; allowed: gradient, accelerated, sgd, noisy")
        return found

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: states follow from what was sent and heard before."""
        return self.local.terms
