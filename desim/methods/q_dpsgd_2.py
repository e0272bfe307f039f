"""Q-DPSGD-2: decentralised SGD with deadlines that quantises models, then adds discrete noise.

Ding 2021, dissertation, Algorithm 5 and eq. (28). As printed the noise enters messages alone: an
agent goes on with its own exact model, so that a record once used moves all later messages, and
Lemma 19 bounds only the last step of that (epsilon infinite). `fixed: true` goes on with what was
sent: then one step and the quantiser are all that a record moves. Noisy messages are cut to s bits.
"""

from typing import Any

import numpy as np

from desim.method import (
    DiscreteGaussian,
    Flag,
    Ingredients,
    Inputs,
    Int,
    Noise,
    Problem,
    Program,
    Terms,
    Us,
    View,
    clamp,
    quantize,
    terms,
)
from desim.methods.q_dpsgd_1 import QDPSGD1
from desim.methods.quantised_sgd import Quantised
from desim.privacy.papers.q_dpsgd import clipped_inputs

LEAK = (
    "algorithm.fixed: false: agents go on with their own models, which have no noise: epsilon is "
    "infinite; allowed without this warning: fixed: true"
)


class Feedback(Quantised):
    """fixed: whether agents go on with the noisy model that they have sent."""

    fixed: Flag = False
    """go on with one's own released model; as printed: with the exact one, without a guarantee"""


class QDPSGD2(QDPSGD1):
    """A message is a model, quantised first and noised on the same levels."""

    name = "q-dpsgd-2"
    restarts = ()
    summary = "decentralised SGD: as many samples as fit a deadline, noise on quantised messages"
    paper = "Ding 2021, Algorithm 5"
    Parameters = Feedback
    noises = ("discrete-gaussian",)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        if not self.parameters.fixed:
            self.warnings.append(LEAK)
        if isinstance(self.noise, DiscreteGaussian) and self.noise.sigma > -self.ends[0]:
            text = f"less than noise of sigma {self.noise.sigma:.3g}: it is mostly cut"
            self.warnings.append(f"algorithm.bits: {self.range}, {text}")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found, eta = super().problems(parameters, problem, noise), parameters.resolution
        if isinstance(noise, DiscreteGaussian) and noise.resolution != eta:
            text = f"found {noise.resolution:g}; allowed: {eta:g}, which is algorithm.resolution"
            found.append(f"privacy.noise.resolution: {text}")
        return found

    def agents(self, us: Us) -> Program:
        """Algorithm 5 for agents `us`.

        They go on with `own`: as printed their exact model, if `fixed` what they have sent.
        """
        p, eps, T_d = self.parameters, self.parameters.mixing, self.parameters.deadline
        weights = self.averages.of(us)
        us.x, samples = self.x0[us.who], np.zeros(len(us.who), np.int64)
        us.known(self.x0)
        for k in us.rounds():
            z = quantize(self.settings.seed, us.who, us.round, us.x, p.resolution, p.bits)  # (26)
            noisy = us.release(z, self.terms(us.who, k, samples), us.public(self.moved(samples)))
            z = clamp(noisy, p.resolution, p.bits)
            us.send(z, bits=p.bits * self.problem.dim)  # line 4
            heard = yield us.gather()  # line 5
            own, samples = (
                z if p.fixed else us.x,
                self.samples(us.capacity(p.deadline), us.who),
            )  # 6-7
            g = yield us.compute(self.batch_gradient, own, samples, work=samples, seconds=T_d)
            w_own, w_link = weights(k)
            mixed = (1.0 - eps + eps * w_own) * own + eps * us.sum(heard, w_link)
            us.x = mixed - self.alpha.at(k) * eps * g  # (28)
            us.report(us.x)

    def moved(self, samples: Int) -> Any:
        """Whether records have a part in what is sent (n,) after a step of samples (n,) rows."""
        return samples > 0 if self.parameters.fixed else np.ones(len(samples), bool)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k, whose message tells of the step of round k - 1."""
        who = np.arange(self.problem.agents)
        return self.terms(who, k, self.planned_samples(k - 1) if k > 1 else np.zeros_like(who))

    def terms(self, who: Int, k: int, samples: Int) -> Terms:
        """Sensitivity of quantised models after a step of samples (n,) rows; the start is public.

        2 K alpha eps / |S| where the models before were released; without a bound as printed. The
        ledger's `terms` adds eta sqrt(dim) for rounding with one dither (Lemma 19 has it twice).
        """
        p, share = self.parameters, samples / self.problem.rows[who]
        step = self.sensitivity(who, samples) * p.mixing * (self.alpha.at(k - 1) if k > 1 else 0.0)
        if not p.fixed:
            step = np.full(len(share), np.inf if k > 1 else 0.0)
        return terms(self.noise, View.NEIGHBOURS, k, step, self.problem.dim, share)

    def claim_inputs(self) -> Inputs | None:
        """Theorem 15 for the messages after a step that had samples."""
        p = self.parameters
        if not isinstance(self.noise, DiscreteGaussian):
            return None
        return clipped_inputs(
            self.problem, "q-dpsgd-2/theorem-15", dim=self.problem.dim, mixing=p.mixing,
            resolution=p.resolution, alpha=p.alpha.initial, power=p.alpha.decay.exponent,
        )  # fmt: skip
