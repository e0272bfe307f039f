"""Q-DPSGD-1: decentralised SGD with deadlines, quantised messages and noise on the gradients.

Ding 2021, dissertation, Algorithm 4 and eqs. (26), (27). The quantiser has the 2^s levels
-2^(s-1) .. 2^(s-1) - 1 (the printed range has 1.5 * 2^s); |S| is V T_d rounded down; a batch is a
fresh uniform subset, not the first rows. T_c s/16 is what the network takes for s bits a number.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.decentralised_sgd import Averaging, DecentralisedSGD
from desim.algorithms.method import Ingredients, Program
from desim.algorithms.q_dpsgd_claim import claimed
from desim.fields import Count, Positive, Seconds, Share, Strict
from desim.kernels.codecs import quantize
from desim.kernels.speed import fitting, speeds_into
from desim.privacy.bounds.claims import Inputs
from desim.privacy.ledger import Terms, View, plain
from desim.privacy.mechanisms import Gaussian, Noise
from desim.problem import Problem


class Parameters(Averaging):
    """mixing: the paper's epsilon; bits, resolution: the quantiser's s and eta; deadline: T_d."""

    mixing: Share
    """weight of the averaging step (the paper's epsilon)"""
    bits: Count
    """s: bits for one number"""
    resolution: Positive
    """eta: distance between two levels"""
    deadline: Seconds
    """T_d: time for gradients in each iteration"""
    least: Count = 1
    """with fewer samples at the deadline there is no gradient, no noise and no cost"""


class QDPSGD1(DecentralisedSGD):
    """Noise enters the state, so what is sent is post-processing of noisy gradients.

    A gradient is told of by the message of the next iteration: the last one is in models that are
    sent to nobody, and is not charged. Whoever publishes these models makes one release more.
    """

    name = "q-dpsgd-1"
    summary = (
        "decentralised SGD: as many samples as fit a deadline, noisy gradients, s-bit messages"
    )
    paper = "Ding 2021, Algorithm 4"
    Parameters: ClassVar[type[Strict]] = Parameters
    restarts: ClassVar[tuple[str, ...]] = ("all", "deadline")
    timed = True
    cures = ("algorithm.alpha", "algorithm.mixing")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        half, eta = 2.0 ** (self.parameters.bits - 1), self.parameters.resolution
        self.ends = -half * eta, (half - 1.0) * eta
        if self.x0.min() < self.ends[0] or self.x0.max() > self.ends[1]:
            self.warnings.append(
                f"algorithm.resolution: {self.held}, the start {self.x0.min():.3g} to "
                f"{self.x0.max():.3g}: messages are cut and biased"
            )

    @property
    def held(self) -> str:
        """Which numbers a message can hold, in words."""
        return f"{self.parameters.bits} bits hold {self.ends[0]:.3g} to {self.ends[1]:.3g}"

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = []
        if not 2 <= parameters.bits <= 52:
            found.append(f"algorithm.bits: found {parameters.bits}; allowed: 2 to 52")
        if not parameters.deadline > 0.0:
            found.append("algorithm.deadline: found 0; allowed: a duration > 0")
        return found

    def agents(self, us: Any) -> Program:
        """Algorithm 4 for agents `us`."""
        p, eps, T_d = self.parameters, self.parameters.mixing, self.parameters.deadline
        weights = self.averages.of(us)
        us.x = self.x0[us.who]
        us.known(self.x0)
        for k in us.rounds():
            z = quantize(self.settings.seed, us.who, us.round, us.x, p.resolution, p.bits)  # (26)
            us.send(z, bits=p.bits * self.problem.dim)  # line 4
            heard = yield us.gather(self.within)  # line 5
            samples = self.samples(us.speed(), us.who)
            g = yield us.compute(
                self.batch_gradient, us.x, samples, work=samples, seconds=T_d
            )  # lines 6-7
            spoken = us.public(samples > 0)
            g = us.release(g, self.terms(us.who, k, samples), where=spoken, kept=True)
            w_own, w_link = weights(k)
            mixed = (1.0 - eps + eps * w_own) * us.x + eps * us.sum(heard, w_link)
            us.x = mixed - self.alpha.at(k) * eps * g  # (27)
            us.report(us.x)

    def samples(self, speed: Any, who: Any) -> Any:
        """Rows (n,) that agents who (n,) of these speeds (n,) 1/s have seen at the deadline."""
        fit = np.minimum(fitting(speed, self.parameters.deadline), self.problem.rows[who])
        return np.where(fit >= self.parameters.least, fit, 0)

    def foreseen(self, k: int) -> Any:
        """Rows (agents,) of everybody's batch in round k: speeds do not depend on the run."""
        who = np.arange(self.problem.agents)
        speed = np.empty(len(who))
        speeds_into(self.settings.speeds, who, np.full_like(who, k), speed)
        return self.samples(speed, who)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k; what the last one makes is sent to nobody."""
        if k == self.settings.rounds:
            return plain(self.problem.agents, View.NEIGHBOURS, 0.0)
        return self.terms(np.arange(self.problem.agents), k, self.foreseen(k))

    def claim_inputs(self) -> Inputs | None:
        """Theorem 11 for the rounds in which an agent had a sample at its deadline."""
        gaussian = isinstance(self.noise, Gaussian)
        return claimed(self.problem, "q-dpsgd-1/theorem-11") if gaussian else None
