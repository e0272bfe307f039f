"""FedBuff: buffered asynchronous averaging, replies weighed by their staleness.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated learning with buffered
asynchronous aggregation" (arXiv 2106.06639), Algorithms 1 and 2: FedAvg whose coordinator goes on
with every K-th change Delta_i, from whatever model that began, and takes x <- x + eta_g mean of
s(tau_i) Delta_i over these K. K and s are the policy's: {buffer: K, staleness: ..}. Without one it
is the paper's, K = 10 and s(tau) = 1/sqrt(1 + tau); eta_g is `global_step`. An agent that replied
is called again at once, so that the concurrency is the number of agents, or of those invited.

Privacy of whole agents: with `clip` C every Delta_i is shortened to a norm of C, and privacy.noise
is added to it before it leaves its agent. Whatever an agent's rows are, its message moves by 2 C at
most: `clipped-gaussian`, which costs the same for one record and for all of an agent's. The paper
adds noise to the mean at a coordinator that is trusted: `privacy.trust: coordinator`.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from desim.method import (
    Array,
    Clients,
    Compilable,
    Mechanism,
    Noise,
    Positive,
    Problem,
    Terms,
    View,
    terms,
)
from desim.methods import fedavg
from desim.methods.shared.local_training import unfit_for_noise
from desim.problem.kernels.sums import clipped_rows


class Parameters(fedavg.Parameters):
    """FedAvg's, and a bound on what an agent changes."""

    clip: Positive | None = None
    """largest norm of a change that an agent sends; default: none"""


class FedBuff(fedavg.FedAvg):
    """FedAvg's coordinator, and changes that may be clipped and noised."""

    name = "fedbuff"
    summary = "buffered asynchronous averaging, weighed by staleness; private for whole agents"
    paper = "Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022"
    Parameters = Parameters
    waiting: ClassVar[Any] = {"buffer": 10, "staleness": {"polynomial": 0.5}}
    proved_late = sent_model = forgetful = summed = True

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        more = unfit_for_noise(cls.name, parameters.local, noise, parameters.clip)
        return [*super().problems(parameters, problem, None), *more]

    def train(self, us: Clients, x: Array) -> Array:
        """Algorithm 2 for agents `us` from x (n, dim): Delta_i (n, dim), clipped, with noise."""
        change, C = super().train(us, x), self.parameters.clip  # y_i - x
        if C is not None:
            change = clipped_rows(change, C)  # Delta_i min(1, C / ||Delta_i||)
        return us.noised(change)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: a change moves by 2 C at most, whatever the rows are."""
        if self.noise is None:
            return self.local.terms
        reach = np.full(self.problem.agents, 2.0 * self.parameters.clip)
        plain = terms(self.noise, View.COORDINATOR, k, reach, self.problem.dim)
        return replace(plain, mechanism=Mechanism.CLIPPED_GAUSSIAN)

    def compiled(self) -> Compilable | None:
        """FedAvg's rounds, of changes that are clipped and noised alike in all of them."""
        rounds = super().compiled() if self.noise is None or self.noise.constant else None
        return rounds and replace(rounds, clip=self.parameters.clip, terms=self.planned(1))
