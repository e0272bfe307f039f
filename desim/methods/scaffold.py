"""SCAFFOLD: local steps whose drift is corrected by control variates.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic controlled averaging for
federated learning" (arXiv 1910.06378), Algorithm 1 with option II for c_i. Messages are two vectors
each way, as printed: (x, c) down and (change of y_i, change of c_i) up. No c_i depends on how the
coordinator steps, so that it may have an optimiser for x, which the paper does not prove.
"""

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
    beyond,
    formulas,
)
from desim.methods.shared.federated import (
    Server,
    Steps,
    means_in_turn,
    step_along,
    sums_in_turn,
)

PROVED = "1/(81 smoothness epochs global_step), up to which scaffold is proved,"


class Parameters(Strict):
    """local: training between messages; global_step: eta_g; init: x0, and c = c_i = 0."""

    local: Local = Local()
    """training between two messages; its step is the paper's eta_l"""
    global_step: Positive = 1.0
    """the paper's eta_g: share of the mean change that the coordinator takes over"""
    server: Server = Server.of("none")
    """the coordinator's optimiser for x, as in fedavg; c is the mean of all c_i with any"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; all control variates start at zero"""


@formulas
class Formulas(NamedTuple):
    """Algorithm 1 without its loops, for arrays or numbers; path: K eta_l of an agent."""

    agents: int
    eta_g: float
    steps: Steps

    def begin(self, heard: Any, _: Any, c_i: Any, path: Any) -> Any:
        """From where an agent trains, the centre of its proximal term, and the linear term."""
        x, c = heard
        return x, x, c - c_i  # line 10

    def finish(self, heard: Any, y: Any, _: Any, c_i: Any, path: Any) -> Any:
        """Its y_i and c_i, and its reply."""
        x, c = heard
        ahead = c_i - c + (x - y) / path  # line 12, option II
        return (y, ahead), (y - x, ahead - c_i)  # line 13

    def aggregate(self, memory: Any, change: Any, replies: float) -> Any:
        """The new x, m and v of the optimiser, and c; change: sums of the replies' parts."""
        x, m, v, c = memory
        m, v, along, n = step_along(self.steps, m, v, change[0], replies)
        return x + self.eta_g / max(n, 1) * along, m, v, c + change[1] / self.agents  # line 17

    def model(self, memory: Any) -> Any:
        """What it shows: x."""
        return memory[0]

    def messages(self, memory: Any) -> Any:
        """What it sends: x and c."""
        return memory[0], memory[3]  # line 5


class Scaffold(Federated):
    """The agents keep c_i (`control`), the coordinator x and c, the mean of all c_i."""

    name = "scaffold"
    summary = "local steps corrected by control variates"
    paper = "Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020"
    Parameters = Parameters
    cures = ("algorithm.local.step", "algorithm.global_step")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    unweighable = "c is the mean of all c_i only where their changes weigh alike"
    restarts = policies
    no_exact = "c_i divides by the number of steps"
    cohorts = "uniform"
    summed = True
    forgetting = "the server's control variate keeps what an agent that begins anew has lost"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        K, eta_g = self.parameters.local.epochs, self.parameters.global_step
        if K > 1:
            bound = 1.0 / (81.0 * self.local.hi * K * eta_g)
            self.warnings += beyond("algorithm.local.step", self.local.gamma, bound, PROVED)
        self.path = (K * self.local.gamma)[:, None]  # K eta_l
        self.formulas = Formulas(len(self.x0), eta_g, self.server.steps)

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1, server side."""
        server, x0 = self.server, np.mean(self.x0, axis=0)
        state = hub.memory(x=x0, c=np.zeros_like(x0), **server.memory())
        hub.start(x=self.x0, control=np.zeros_like(self.x0))
        hub.publish(state.x)
        while hub.open:
            memory = state.x, *server.of(state), state.c
            message = np.concatenate(self.formulas.messages(memory))  # line 5
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, message, work=work, charge=charge)
            replies = yield hub.collect()
            change, n = hub.total(replies)  # line 16
            news = self.formulas.aggregate(memory, np.split(change, 2), n)
            state.x, *own, state.c = news  # line 17
            server.put(state, *own)
            hub.publish(state.x)

    def train(self, us: Clients, message: Array) -> Array:
        """Lines 7 to 14 for agents `us`, which hear (x, c) (n, 2 dim); replies (n, 2 dim)."""
        heard = [np.ascontiguousarray(part) for part in np.split(message, 2, axis=1)]
        own = us.x, us.control, self.path[us.who]
        y = self.local.train(us, *self.formulas.begin(heard, *own))  # lines 7-11
        (us.x, us.control), reply = self.formulas.finish(heard, y, *own)  # lines 12, 13
        return np.concatenate(reply, axis=1)

    def turns(self, totals: Array, counts: Array) -> tuple[Array, float]:
        """Means of changes of x, and changes of c, in sums (k, 2 dim) of counts (k,) replies."""
        x, c = np.split(totals, 2, axis=1)
        change, n = means_in_turn(x, counts)
        return np.concatenate([change, sums_in_turn(c, counts)[0]]), n

    def compiled(self) -> Compilable | None:
        """The same for the compiled engine."""
        x0, zeros = np.mean(self.x0, axis=0), np.zeros_like(self.x0)
        memory = x0, *self.server.start(), zeros[0]
        beside = (np.broadcast_to(self.path, self.x0.shape),)
        return self.local.compiled(self.formulas, memory, beside=beside, x=self.x0, control=zeros)
