"""Q-DPSGD-1: decentralised SGD with deadlines, quantised messages and noise on the gradients.

Ding 2021, dissertation, Algorithm 4 and eqs. (26), (27). The quantiser has the 2^s levels
-2^(s-1) .. 2^(s-1) - 1 (the printed range has 1.5 * 2^s); |S| is V T_d rounded down; a batch is a
fresh uniform subset, not the first rows. T_c s/16 is what the network takes for s bits a number.
"""

from typing import ClassVar

import numpy as np

from desim.method import (
    Gaussian,
    Inputs,
    Int,
    Program,
    Terms,
    Us,
    View,
    fitting,
    overheads_of,
    plain,
    quantize,
    speeds_of,
)
from desim.methods.quantised_sgd import QuantisedSGD
from desim.privacy.papers.q_dpsgd import clipped_inputs


class QDPSGD1(QuantisedSGD):
    """Noise enters the state, so what is sent is post-processing of noisy gradients."""

    name = "q-dpsgd-1"
    summary = (
        "decentralised SGD: as many samples as fit a deadline, noisy gradients, s-bit messages"
    )
    paper = "Ding 2021, Algorithm 4"
    restarts: ClassVar[tuple[str, ...]] = ("all", "deadline")

    def agents(self, us: Us) -> Program:
        """Algorithm 4 for agents `us`.

        The next message tells of a gradient: the last one is in models that are sent to nobody, and
        is not charged. Whoever publishes these models makes one release more.
        """
        p, eps, T_d = self.parameters, self.parameters.mixing, self.parameters.deadline
        weights = self.averages.of(us)
        us.x = self.x0[us.who]
        us.known(self.x0)
        for k in us.rounds():
            z = quantize(self.settings.seed, us.who, us.round, us.x, p.resolution, p.bits)  # (26)
            us.send(z, bits=p.bits * self.problem.dim)  # line 4
            heard = yield us.gather()  # line 5
            samples = self.samples(us.capacity(p.deadline), us.who)  # lines 6-7
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples, seconds=T_d)
            has_batch = us.public(samples > 0)
            g = us.release(g, self.terms(us.who, k, samples), where=has_batch, kept=True)
            w_own, w_link = weights(k)
            mixed = (1.0 - eps + eps * w_own) * us.x + eps * us.sum(heard, w_link)
            us.x = mixed - self.alpha.at(k) * eps * g  # (27)
            us.report(us.x)

    def samples(self, capacity: Int, who: Int) -> Int:
        """Rows (n,) that agents who (n,) have seen who could see `capacity` (n,) in time."""
        fit = np.minimum(capacity, self.problem.rows[who])
        return np.where(fit >= self.parameters.least, fit, 0)

    def planned_samples(self, k: int) -> Int:
        """Rows (agents,) of everybody's batch in round k: speeds do not depend on the run."""
        who = np.arange(self.problem.agents)
        speeds, deadline = self.settings.speeds, self.parameters.deadline
        left = deadline - overheads_of(speeds, who, k)
        return self.samples(fitting(speeds_of(speeds, who, k), left), who)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k; what the last one makes is sent to nobody."""
        if k == self.settings.rounds:
            return plain(self.problem.agents, View.NEIGHBOURS, 0.0)
        return self.terms(np.arange(self.problem.agents), k, self.planned_samples(k))

    def claim_inputs(self) -> Inputs | None:
        """Theorem 11 for the rounds in which an agent had a sample at its deadline."""
        gaussian = isinstance(self.noise, Gaussian)
        return clipped_inputs(self.problem, "q-dpsgd-1/theorem-11") if gaussian else None
