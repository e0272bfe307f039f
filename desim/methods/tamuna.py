"""TAMUNA: local training with random lengths, partial participation and compression.

Condat, Agarsky, Malinovsky, Richtarik 2023, "TAMUNA: doubly accelerated distributed optimization
with local training, compression, and partial participation" (arXiv 2302.09832), Algorithm 1, with
eta = p chi. Where replies are missing, a coordinate is the mean of those that came, so that the h_i
always sum to zero; the paper has a cohort that replies as a whole.
"""

from functools import partial
from typing import Any

import numpy as np

from desim.method import (
    Array,
    Clients,
    Count,
    Federated,
    Hub,
    Ingredients,
    Init,
    InputError,
    Int,
    Local,
    Noise,
    Positive,
    Problem,
    Program,
    Settings,
    Share,
    Strict,
    Terms,
    common_length,
    shares,
)

# The largest chi with a guarantee, for a cohort and a number of senders.


def largest_chi(settings: Settings, s: int | None) -> float:
    """Return N (s - 1) / (s (N - 1)), s by default the cohort c, below which chi has a guarantee.

    InputError for cohorts, numbers s of senders and links that make no sense.
    """
    who, n = settings.participation, settings.problem.agents
    c = max(int(who.least), 2)
    if n == 1:
        return 1.0
    if who.uniform and who.least < 2:
        raise InputError(f"participation: found cohorts of 1 agent; allowed: 2 to {n}")
    if s is not None and not 2 <= s <= c:
        raise InputError(f"algorithm.s: found {s}; allowed with cohorts of {c}: 2 to {c}")
    downlinks = settings.downlinks
    if downlinks is not None and downlinks.lossy and downlinks.limit == 0:
        reason = "h_i of an agent that misses a model no longer fits the others'"
        raise InputError(f"network.link.on_loss: found drop, but {reason}; allowed: resend")
    s = s or c
    return n * (s - 1.0) / (s * (n - 1.0))


# The method.


class Parameters(Strict):
    """p: 1 / mean number of local steps; chi: weight of h; s: compression; local: one step."""

    examples = {"p": 0.2, "chi": 0.9, "s": 2}

    p: Share | None = None
    """local steps of a round ~ Geom(p), the same for all; default: 1 / local.epochs"""
    chi: Positive | None = None
    """default: the largest with a guarantee, N (s - 1) / (s (N - 1))"""
    s: Count | None = None
    """agents that send each coordinate, at least 2; default: the whole cohort, no compression"""
    local: Local = Local()
    """training between two messages; its step is the paper's gamma"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; h0 is zero"""


class Tamuna(Federated):
    """The cohort is whom `participation` invites; the agents keep h_i, whose sum is zero."""

    name = "tamuna"
    summary = "random numbers of local steps, cohorts, compressed replies"
    paper = "Condat, Agarsky, Malinovsky, Richtarik 2023"
    wants = ("strong convexity for the proof",)
    Parameters = Parameters
    cures = ("algorithm.local.step", "algorithm.chi")
    policies = ("all", "deadline", "quorum")
    codecs = ()
    uncoded = "it has a codec of its own, algorithm.s"
    no_exact = "local steps are counted"
    no_carry = "another round has another number of local steps"
    cohorts = "uniform"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        settings, parameters = self.settings, self.parameters
        self.gamma = self.local.common_step
        self.p = parameters.p or 1.0 / parameters.local.epochs
        bound = largest_chi(settings, parameters.s)
        self.chi = parameters.chi or bound
        if self.chi > bound * (1.0 + 1e-12):
            text = f"algorithm.chi: {self.chi:g} is above N (s - 1) / (s (N - 1)) = {bound:g}"
            self.warnings.append(f"{text}; tamuna may diverge")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        if parameters.p is not None and parameters.local.epochs > 1:
            text = f"algorithm.local.epochs: found {parameters.local.epochs} with p"
            found.append(f"{text}, which draws the number of local steps; allowed: one of them")
        return found

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1; a model reaches the cohorts before and after it, once an agent in both."""
        state = hub.memory(x=np.add.reduce(self.x0) / hub.agents)
        hub.start(x=self.x0, h=np.zeros_like(self.x0))
        hub.publish(state.x)
        while hub.open:
            cohort, L = hub.invite(), self.steps(hub.round)  # lines 3, 4
            q, bits = self.masks(hub.round, cohort)  # line 5
            job, terms = partial(self.train, q=q), self.planned(hub.round)
            work = self.local.work_of(L)
            hub.call(cohort, job, state.x, work=work, charge=terms, reply_bits=bits)
            replies = yield hub.collect()
            senders = np.add.reduce(q[replies.who])
            mean = np.add.reduce(replies.payload) / np.maximum(senders, 1.0)
            state.x = np.where(senders > 0.0, mean, state.x)  # line 12
            hub.tell(replies.who, partial(self.correct, q=q), state.x)
            hub.publish(state.x)

    def train(self, us: Clients, x: Array, q: Array) -> Array:
        """Lines 7 to 11 for agents `us`: L steps from x; what q (agents, dim) leaves (n, dim)."""
        rounds, which = np.unique(us.round, return_inverse=True)
        L = np.array([self.steps(k) for k in rounds.tolist()])[which]  # line 4
        us.x = x = self.local.train(us, x, x, -us.h, L)  # line 9
        return np.asarray(q[us.who] * x)  # line 11

    def correct(self, us: Clients, x: Array, q: Array) -> Array:
        """Line 14 for agents `us`, which hear the new x (n, dim)."""
        us.h = us.h + self.p * self.chi / self.gamma * q[us.who] * (x - us.x)  # line 14
        return x

    def masks(self, k: int, cohort: Int) -> tuple[Array, int]:
        """What each agent sends in round k, q (agents, dim) of 0 and 1, and bits of a reply.

        All replies have room for the longest; positions follow from the seed and need no bits.
        """
        (N, dim), c = self.x0.shape, len(cohort)
        q, s = np.ones((N, dim)), min(self.parameters.s or c, c)
        if s == c:
            return q, 64 * dim
        q[cohort] = shares(self.settings.seed, k, c, dim, s)
        return q, 64 * -(-s * dim // c)

    def steps(self, k: int) -> int:
        """Number of local steps in round k: L ~ Geom(p)."""
        return common_length(self.settings.seed, k, self.p)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: h_i follows from what was sent and heard before."""
        return self.local.terms_of(self.steps(k))
