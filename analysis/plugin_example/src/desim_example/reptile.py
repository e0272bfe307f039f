"""Reptile (Nichol, Achiam, Schulman 2018, arXiv 1803.02999), its batched version."""

from desim.method import Clients, Count, Hub, Init, Method, Positive, Strict, gradient


class Parameters(Strict):
    """What a scenario may say under `algorithm:`."""

    epsilon: Positive = 0.5
    """how far the coordinator moves towards the mean"""
    step: Positive = 0.1
    """of each local step"""
    epochs: Count = 3
    """local steps of a round"""
    init: Init = Init.of("zeros")
    """models at the start"""


class Reptile(Method):
    """Local steps on f_i from x, then x moves towards the mean of the replies."""

    name, kind, noises = "reptile", "coordinator", ()
    summary = "steps of the coordinator towards the mean of locally trained models"
    paper = "Nichol, Achiam, Schulman 2018"
    Parameters, policies = Parameters, ("all", "deadline", "quorum", "buffer", "each")

    def coordinator(self, hub: Hub):
        """The coordinator, whose model moves towards the mean of the replies."""
        x0, work = self.settings.initial("x0"), self.parameters.epochs * self.problem.rows
        state = hub.memory(x=x0.mean(axis=0))
        hub.start(x=x0)
        hub.publish(state.x)
        while hub.open:
            hub.call(hub.invite(), self.train, state.x, work=work)
            replies = yield hub.collect()
            if len(replies.who):
                mean = replies.payload.sum(axis=0) / len(replies.who)
                state.x = state.x + self.parameters.epsilon * (mean - state.x)
            hub.publish(state.x)

    def train(self, us: Clients, x):
        """Models (n, dim) of agents `us` after their steps from x (n, dim)."""
        p, w = self.parameters, x.copy()
        for _ in range(p.epochs):
            w -= p.step * gradient(us.who, w, self.problem.data)
        us.x = w
        return w
