"""AD-PSGD: a gradient at a model that others average with meanwhile, then a mean with one of them.

Lian, Zhang, Zhang, Liu 2018 (arXiv 1710.06952), Algorithm 1: X = X W_k - gamma g(x^_i; xi) e_i' (1)
for whichever agent i is done, W_k the mean of i and one random neighbour, x^_i the model that i had
when it began; their g is the sum over a batch, here it is the mean. Numbers are this file's.
With policy: each nobody waits. The mean is by request and answer, see `averages`: both
ends move by opposite amounts, each when it next looks, which is between two gradients; their agents
answer at once, in a thread beside. That i asks one neighbour at a time is as theirs; that nobody
stands still for an answer spares the bipartite graph by which they avoid deadlocks.
With a barrier it is the synchronous twin: pairs are a random matching of round k, models are on
their way while gradients are computed, and (1) holds for all agents at once.
"""

from typing import ClassVar

from desim.method import Count, Ingredients, InputError, Program, Strict, Us
from desim.methods.decentralised_sgd import Stepping
from desim.methods.dsgd import DSGD
from desim.methods.shared.averages import Pairs, PairwiseAverages
from desim.methods.zcdp_subgradient import UNEVEN


class Meeting(Stepping):
    """repeat: of requests."""

    repeat: Count = 10
    """policy each: own iterations after which a request without an answer is sent again"""


class ADPSGD(DSGD):
    """A message is a model, and with policy: each what its sender was moved by, or both."""

    name = "ad-psgd"
    summary = "asynchronous decentralised SGD: gradients, and means with one random neighbour"
    paper = "Lian, Zhang, Zhang, Liu 2018"
    linear = True
    Parameters: ClassVar[type[Strict]] = Meeting
    policies = ("all", "each")
    restarts = ()
    forgetting = "what its neighbours were moved by for its sake would be undone no more"
    directed = changing = False
    keeping = "pairs that are drawn on a graph that stays"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.pairs = Pairs(ingredients.settings)
        self.waits = ingredients.settings.policy.kind != "each"
        if not self.waits and ingredients.settings.budget is not None:
            text = "found with policy each, where requests to who has retired are never answered"
            raise InputError(f"privacy.budget: {text}; allowed: leave it out, or policy: all")
        self.warnings += [] if self.waits else [UNEVEN]

    def agents(self, us: Us) -> Program:
        """Algorithm 1 for agents `us`."""
        return self.in_step(us) if self.waits else self.alone(us)

    def in_step(self, us: Us) -> Program:
        """Matchings: all agents average, and step, in every round."""
        samples = self.samples(us.who)
        us.x = self.x0[us.who]
        for k in us.rounds():
            us.send(us.x, to=self.pairs.matching(k))
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples), kept=True)
            heard = yield us.gather()
            mean = (us.x + us.sum(heard, heard.fresh)) / (1.0 + heard.count)
            us.x = mean - self.alpha.at(k) * g  # (1)
            us.report(us.x)

    def alone(self, us: Us) -> Program:
        """Nobody waits: an agent takes in what has come while it computed."""
        samples = self.samples(us.who)
        means = PairwiseAverages(us, self.problem.dim, self.parameters.repeat, self.pairs)
        us.x = self.x0[us.who]
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples), kept=True)
            mean = yield from means.meet(us.x)
            us.x = mean - self.alpha.at(k) * g  # (1)
            us.report(us.x)
            means.tell(us.x)
