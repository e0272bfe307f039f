"""Random pairwise gossip with three local steps (Boyd, Ghosh, Prabhakar, Shah 2006)."""

from desim.method import Count, Init, Method, Positive, Strict, Us, batch_gradient, random_matching


class Parameters(Strict):
    """What a scenario may say under `algorithm:`."""

    step: Positive = 0.05
    """of each local step"""
    batch: Count = 4
    """rows of each local step"""
    init: Init = Init.of("zeros")
    """models at the start"""


class PairwiseGossip(Method):
    """Three local steps, then the mean with one neighbour, drawn anew in every round."""

    name, kind, noises = "pairwise-gossip", "graph", ()
    summary = "local steps between means of random pairs"
    paper = "Boyd, Ghosh, Prabhakar, Shah 2006"
    Parameters, policies = Parameters, ("all", "each")

    def agents(self, us: Us):
        """All agents `us` at once: arrays have one row for each of them."""
        graph, seed, waits = self.settings.graph, self.settings.seed, self.settings.policy.kind
        us.x, work = self.settings.initial("x0")[us.who], 3 * self.parameters.batch
        for k in us.rounds():
            us.x = yield us.compute(self.train, us.x, work=work)
            us.send(us.x, to=random_matching(graph, seed, k))
            heard = yield us.arrived() if waits == "each" else us.gather()
            us.x = (us.x + us.sum(heard, heard.fresh)) / (1.0 + heard.count)
            us.report(us.x)

    def train(self, us: Us, x):
        """Models (n, dim) after three steps from x (n, dim), each on rows of its own."""
        p, place = self.parameters, (us.round, self.settings.seed, self.problem.data)
        for h in range(3):
            x = x - p.step * batch_gradient(us.who, x, p.batch, *place, step=h)
        return x
