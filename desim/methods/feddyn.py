"""FedDyn: local objectives whose linear terms follow the agents, so that minima come together.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama 2021, "Federated learning based on dynamic
regularization" (arXiv 2111.04263), Algorithm 1: h is over all m agents, the mean over those that
reply. As printed theta^(t-1) is the present model and theta_k what comes, whatever model a late one
began at (reply: model): then h is not the mean of all g_k, and the limit is not the optimum. A late
change theta_k - theta of the present model leaves h that mean. Taken whole it may diverge (reply:
change), as n replies of m move theta by all of h / alpha; by n / m of it (reply: share, this
file's) as much is moved in m replies as in step, where all three are the same. g_k starts at 0, as
if the gradient at theta_k^0 were. After steps in place of the printed argmin, for which alone there
is a proof, g_k is no gradient at theta_k; where the models rest it is one, and they rest at the
optimum only.
"""

from typing import Any, Literal, NamedTuple

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
    column_sums,
    formulas,
)

LATE = {
    "model": "late models pull towards what is past: the limit is not the optimum",
    "change": "late changes that are taken whole diverge unless alpha is large enough",
}


class Parameters(Strict):
    """alpha: weight of the regulariser; reply: what a late one is; local, init: as elsewhere."""

    alpha: Positive = 0.1
    """weight of the dynamic regulariser"""
    local: Local = Local()
    """training between two messages; exact is the printed argmin"""
    reply: Literal["share", "change", "model"] = "share"
    """where replies may be late: changes, of whose step n replies of m agents take n / m; changes
    taken whole; or models, as printed"""
    init: Init = Init.of("zeros")
    """theta0, of which the coordinator takes the mean; h and all g_k start at zero"""


@formulas
class Formulas(NamedTuple):
    """Algorithm 1 without its loops, for arrays or numbers, of replies theta_k - theta."""

    alpha: float
    agents: int
    shares: bool

    def begin(self, theta: Any, _: Any, g: Any) -> Any:
        """From where an agent trains, the centre of its proximal term, and its linear term."""
        return theta, theta, -g

    def finish(self, theta: Any, theta_k: Any, _: Any, g: Any) -> Any:
        """Its theta_k and grad L_k(theta_k^t), and its reply."""
        change = theta_k - theta
        return (theta_k, g - self.alpha * change), change

    def aggregate(self, memory: Any, change: Any, n: float) -> Any:
        """theta^t and h^t."""
        theta, h = memory
        if n == 0:
            return theta, h
        h = h - self.alpha / self.agents * change
        step = change / n - h / self.alpha
        return theta + (n / self.agents * step if self.shares else step), h

    def model(self, memory: Any) -> Any:
        """What it sends and shows: theta."""
        return memory[0]


class FedDyn(Federated):
    """The agents keep g_k (`slope`), the paper's grad L_k(theta_k); the coordinator theta and h."""

    name = "feddyn"
    summary = "local steps whose linear terms follow each agent, for the exact optimum"
    paper = "Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama 2021"
    Parameters = Parameters
    cures = ("algorithm.local.step", "algorithm.alpha")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    restarts = policies
    forgetting = "h keeps the g_k that an agent which begins anew has lost"
    unweighable = "h is the mean of all g_k only where their changes weigh alike"
    cohorts = "uniform"
    summed = True
    unproved = ("gradient", "accelerated", "sgd", "noisy")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients, q=ingredients.parameters.alpha)
        policy, reply = self.settings.policy, self.parameters.reply
        late = policy.kind != "all" and policy.late == "carry"
        self.printed, self.shares = reply == "model", reply == "share" and late
        self.warnings += [f"algorithm.reply: {LATE[reply]}"] if late and reply in LATE else []
        self.formulas = Formulas(self.parameters.alpha, len(self.x0), self.shares)

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1, server side."""
        theta = column_sums(self.x0) / hub.agents
        state = hub.memory(theta=theta, h=np.zeros_like(theta))
        hub.start(x=self.x0, slope=np.zeros_like(self.x0))
        hub.publish(state.theta)
        while hub.open:
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, state.theta, work=work, charge=charge)
            replies = yield hub.collect()
            if self.printed:
                replies = replies._replace(payload=replies.payload - state.theta)
            change, n = hub.total(replies)
            state.theta, state.h = self.formulas.aggregate((state.theta, state.h), change, n)
            hub.publish(state.theta)

    def train(self, us: Clients, theta: Array) -> Array:
        """Agents `us` from theta (n, dim), as sent: theta_k or theta_k - theta, (n, dim)."""
        own = us.x, us.slope
        theta_k = self.local.train(us, *self.formulas.begin(theta, *own))  # argmin, or steps to it
        (us.x, us.slope), change = self.formulas.finish(theta, theta_k, *own)
        return np.asarray(theta_k if self.printed else change)

    def compiled(self) -> Compilable | None:
        """The same for the compiled engine, which sums what agents send as it is."""
        theta, zeros = column_sums(self.x0) / len(self.x0), np.zeros_like(self.x0)
        memory = theta, zeros[0]
        rounds = self.local.compiled(self.formulas, memory, x=self.x0, slope=zeros)
        return None if self.printed else rounds
