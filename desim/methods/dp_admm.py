"""DP-ADMM: consensus ADMM around a coordinator, linearised, with noise on every local model.

Huang, Hu, Guo, Chan-Tin, Gong 2019, "DP-ADMM: ADMM-based distributed learning with differential
privacy" (arXiv 1808.10101); numbers of the equations are this page's. An agent minimises a
linearised augmented Lagrangian (1) and adds noise (2); the coordinator takes the mean of w~_i -
gamma_i/rho (3); the agents correct their duals gamma_i (4), whose sum is zero. Noise is drawn
afresh in every round; public code draws the same one again and again.
"""

import numpy as np

from desim.method import (
    KEEPS,
    ROUNDED,
    Array,
    Clients,
    Hub,
    Ingredients,
    Init,
    Method,
    Positive,
    Program,
    Step,
    Strict,
    Terms,
    View,
    beyond,
    gradient,
    terms,
)


class Parameters(Strict):
    """rho: penalty of the ADMM; eta: step of the linearisation; init: x0."""

    rho: Positive
    """penalty of the ADMM"""
    eta: Step
    """step of the linearisation in round k = 1, 2, ..."""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; the duals start at zero"""


class DPADMM(Method):
    """The agents' models us.x are w_i, us.w is w~_i; with the dual it gives what they send."""

    name = "dp-admm"
    kind = "coordinator"
    summary = "linearised consensus ADMM with noise on every local model, smooth and nonsmooth"
    paper = "Huang, Hu, Guo, Chan-Tin, Gong 2019"
    codecs = ROUNDED
    uncoded = KEEPS
    Parameters = Parameters
    models = "any"
    smooth_only = False
    partial = False
    noises = ("gaussian", "laplace", "discrete-gaussian", "schedule")
    needs_clip = True
    cures = ("algorithm.eta", "algorithm.rho")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.rho, self.eta = self.parameters.rho, self.parameters.eta
        self.x0 = ingredients.settings.initial("x0")
        self.work = self.problem.rows.astype(float)
        hi = self.problem.moduli[1]
        if np.isfinite(hi).all():
            self.warnings += beyond("algorithm.eta", self.eta.initial, 2.0 / hi, "2/smoothness")

    def coordinator(self, hub: Hub) -> Program:
        """(3); the agents know the new w, and with it their duals, from the next call."""
        state = hub.memory(w=np.add.reduce(self.x0) / hub.agents)
        hub.start(x=self.x0, w=self.x0, dual=np.zeros_like(self.x0))
        hub.publish(state.w)
        while hub.open:
            charge = self.planned(hub.round)
            hub.call(hub.invite(), self.train, state.w, work=self.work, charge=charge)
            replies = yield hub.collect()
            state.w = np.add.reduce(replies.payload) / len(replies.who)  # (3)
            hub.tell(replies.who, self.ascend, state.w)
            hub.publish(state.w)

    def train(self, us: Clients, w: Array) -> Array:
        """(1) and (2) for agents `us`, which hear w (n, dim); what (3) is the mean of."""
        rho, eta = self.rho, self.eta.at(us.round)[:, None]
        g = gradient(us.who, us.w, self.problem.data, round=us.round, seed=self.settings.seed)
        us.x = (us.w / eta + rho * w + us.dual - g) / (rho + 1.0 / eta)  # (1)
        us.w = us.noised(us.x)  # (2)
        return np.asarray(us.w - us.dual / rho)

    def ascend(self, us: Clients, w: Array) -> Array:
        """(4) for agents `us`, which hear the new w (n, dim)."""
        us.dual = us.dual - self.rho * (us.w - w)  # (4)
        return w

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: sensitivity 2 c1 / (m_i (rho + 1/eta_k)) of us.x."""
        slope = 2.0 * self.problem.clip * self.problem.scale
        delta = slope / (self.rho + 1.0 / self.eta.at(k))
        return terms(self.noise, View.COORDINATOR, k, delta, self.problem.dim)
