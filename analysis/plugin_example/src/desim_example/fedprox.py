"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, arXiv 1812.06127)."""

from desim.method import Clients, Count, Hub, Init, Method, Positive, Strict, gradient


class Parameters(Strict):
    """What a scenario may say under `algorithm:`."""

    mu: Positive = 0.1
    """weight of the pull to the coordinator's model"""
    step: Positive = 0.1
    """of each local step"""
    epochs: Count = 3
    """local steps of a round"""
    init: Init = Init.of("zeros")
    """models at the start"""


class FedProx(Method):
    """Local steps on f_i(w) + mu/2 ||w - x||^2, then the mean x of the replies."""

    name, kind, noises = "fedprox", "coordinator", ()
    summary = "federated averaging of local models near the coordinator's"
    paper = "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020"
    Parameters, policies = Parameters, ("all", "deadline", "quorum", "buffer", "each")

    def coordinator(self, hub: Hub):
        """The coordinator, whose model is the mean of the replies."""
        x0, work = self.settings.initial("x0"), self.parameters.epochs * self.problem.rows
        state = hub.memory(x=x0.mean(axis=0))
        hub.start(x=x0)
        hub.publish(state.x)
        while hub.open:
            hub.call(hub.invite(), self.train, state.x, work=work)
            replies = yield hub.collect()
            if len(replies.who):
                state.x = replies.payload.sum(axis=0) / len(replies.who)
            hub.publish(state.x)

    def train(self, us: Clients, x):
        """Models (n, dim) of agents `us` after their steps from x (n, dim)."""
        p, w = self.parameters, x.copy()
        for _ in range(p.epochs):
            w -= p.step * (gradient(us.who, w, self.problem.data) + p.mu * (w - x))
        us.x = w
        return w
