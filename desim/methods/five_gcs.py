"""5GCS: communication-efficient local training with sampled clients, a primal-dual method.

Grudzien, Malinovsky, Richtarik 2022, "Can 5th generation local training methods support client
sampling? Yes!" (arXiv 2212.14370), Algorithm 1. With mu the least strong convexity of the f_i, 1/N
of the objective is written sum_i F_i + (mu/2) ||.||^2 for F_i = (f_i - (mu/2) ||.||^2) / N.
"""

import math
from dataclasses import replace
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
    Positive,
    Program,
    Strict,
    Terms,
    formulas,
    gradient,
)
from desim.problem.kernels.formulas import message


class Parameters(Strict):
    """tau, gamma: dual and primal step; local: training between messages; init: x0, u0 = 0."""

    tau: Positive
    """dual step: weight of the proximal term of psi_i"""
    gamma: Positive | None = None
    """primal step; default: 1 / (tau agents), with a guarantee only where the solver is exact"""
    local: Local = Local()
    """training between two messages, on psi_i"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; u0 is zero"""


@formulas
class Formulas(NamedTuple):
    """Algorithm 1 without its loops, for arrays or numbers; slope: of f_i at y.

    N psi_i(y) = f_i(y) + (N tau - mu)/2 ||y - x_hat||^2 - <mu x_hat + N u_i, y> + constant.
    """

    agents: int
    gamma: float
    mu: float

    def begin(self, x_hat: Any, _: Any, u: Any, slope: Any) -> Any:
        """From where an agent trains on N psi_i, and its terms."""
        return x_hat, x_hat, -(self.mu * x_hat + self.agents * u)  # lines 6-8

    def finish(self, x_hat: Any, y: Any, _: Any, u: Any, slope: Any) -> Any:
        """Its y_i and u_i, and its reply."""
        ahead = (slope - self.mu * y) / self.agents  # line 9
        return (y, ahead), ahead - u

    def aggregate(self, memory: Any, step: Any, c: int) -> Any:
        """The new x and v."""
        x_hat, (_, v) = message(self, memory), memory
        x = x_hat - self.gamma * self.agents / max(c, 1) * step  # line 13
        return x, v + step  # line 12

    def model(self, memory: Any) -> Any:
        """What it shows: x."""
        return memory[0]

    def message(self, memory: Any) -> Any:
        """What it sends: x_hat."""
        x, v = memory
        return (x - self.gamma * v) / (1.0 + self.gamma * self.mu)  # line 4


class FiveGCS(Federated):
    """The agents keep u_i, the coordinator x and the sum v of all u_i."""

    name = "5gcs"
    summary = "primal-dual local training with client sampling"
    paper = "Grudzien, Malinovsky, Richtarik 2022"
    wants = ("strong convexity for the proof",)
    Parameters = Parameters
    models = "convex"
    cures = ("algorithm.local.step", "algorithm.tau", "algorithm.gamma")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    unweighable = "v is the sum of all u_i only where their changes weigh alike"
    cohorts = "uniform"
    exposed = "whose messages are exact gradients at the noisy point, of infinite sensitivity"

    def __init__(self, ingredients: Ingredients) -> None:
        problem, tau = ingredients.settings.problem, ingredients.parameters.tau
        N, self.mu = problem.agents, float(problem.moduli[0].min())
        super().__init__(ingredients, q=N * tau - self.mu, unit=1.0 / N)
        self.gamma = self.parameters.gamma or 1.0 / (tau * N)
        if self.gamma * tau * N > 1.0 + 1e-12:
            text = f"{self.gamma:g} is above 1/(tau agents) = {1.0 / (tau * N):g}"
            self.warnings.append(f"algorithm.gamma: {text}; 5gcs may diverge")
        self.formulas = Formulas(N, self.gamma, self.mu)
        self.steps_and_rows = self.local.work + self.problem.rows
        if self.mu == 0.0:
            text = "5gcs is proved for strongly convex losses only"
            self.warnings.append(f"problem.regularizer: {text}")
        elif self.local.local.solvers == ("gradient",) and (few := self.enough()) > self.epochs:
            text = f"{self.epochs} are fewer than the {few} local steps that its theorem asks for"
            self.warnings.append(f"algorithm.local.epochs: {text}; 5gcs may diverge")

    @property
    def epochs(self) -> int:
        """Local steps between two messages."""
        return int(self.parameters.local.epochs)

    def enough(self) -> int:
        """Gradient steps that the theorem asks for: 2 kappa log(4 L / mu).

        kappa is the condition number of psi_i; at the paper's tau that is (3/4 sqrt(c L / (N mu)) +
        2) log(4 L / mu). A step below 1/smoothness is that of a function of as much more of it.
        """
        lo, hi, L = self.local.lo, self.local.hi, float(self.problem.moduli[1].max())
        kappa = np.max(np.maximum(hi, 1.0 / self.local.gamma) / lo)
        return math.ceil(2.0 * kappa * math.log(4.0 * L / self.mu)) if np.isfinite(kappa) else 0

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1; c is the number of replies."""
        work, terms = self.steps_and_rows, self.planned(1)
        x0 = np.add.reduce(self.x0) / hub.agents
        state = hub.memory(x=x0, v=np.zeros_like(x0))
        hub.start(x=self.x0, u=np.zeros_like(self.x0))
        hub.publish(state.x)
        while hub.open:
            memory = state.x, state.v
            x_hat = self.formulas.message(memory)  # line 4
            hub.call(hub.invite(), self.train, x_hat, work=work, charge=terms)  # line 5
            replies = yield hub.collect()
            step, c = np.add.reduce(replies.payload), len(replies.who)
            state.x, state.v = self.formulas.aggregate(memory, step, c)  # lines 12, 13
            hub.publish(state.x)

    def train(self, us: Clients, x_hat: Array) -> Array:
        """Lines 6 to 9 for agents `us`, N psi_i in place of psi_i: u+ - u (n, dim)."""
        own = us.x, us.u
        y = self.local.train(us, *self.formulas.begin(x_hat, *own, None))  # lines 6-8
        slope = gradient(us.who, y, self.problem.data)
        (us.x, us.u), reply = self.formulas.finish(x_hat, y, *own, slope)  # line 9
        return np.asarray(reply)

    def compiled(self) -> Compilable | None:
        """The same for the compiled engine, but for sums of a single column, which NumPy halves."""
        x0, u = np.add.reduce(self.x0) / len(self.x0), np.zeros_like(self.x0)
        rounds = self.local.compiled(self.formulas, (x0, u[0]), x=self.x0, u=u)
        if rounds is None or len(x0) == 1:
            return None
        return replace(rounds, sloped=True, terms=self.planned(1), work=self.steps_and_rows)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: a gradient is computed after the last noise was added."""
        t = self.local.terms
        return replace(t, sensitivity=np.full_like(t.sensitivity, np.inf), coupled=None)
