"""What it costs to release the best of a random number of private runs.

Each run draws a candidate, trains with fresh noise, and is scored by what it releases; K runs are
made, and the best one alone is released (Liu and Talwar 2019, arXiv 1811.07971; Papernot and
Steinke 2022, arXiv 2110.03620). How many there are is drawn from a law that looks at no data:
a fixed K has no such bound, and costs K runs. K >= 1 of the truncated negative binomial law of
shape eta and gamma (Papernot and Steinke, Definition 1): eta 1 is geometric, eta 0 logarithmic.
"""

import math
from collections.abc import Sequence

import numpy as np

from desim.arrays import Array
from desim.errors import chosen
from desim.numerics.later import optimize
from desim.privacy.accounting.accountants import Account
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.accounting.loss_distribution import delta_at
from desim.privacy.accounting.prices import NOTHING, ORDERS, epsilon_of_divergences, tallies

SHAPES = {"geometric": 1.0, "logarithmic": 0.0}
LAWS = (*SHAPES, "poisson")
SMALL: Array = np.log1p(1.0 / (ORDERS - 1.0))  # epsilons (orders,) of Theorem 6
TINY = 1e-300  # the least gamma that is looked at
PAPERS = {
    "geometric": "Papernot and Steinke (2022), Theorem 2, as Liu and Talwar (2019)",
    "logarithmic": "Papernot and Steinke (2022), Theorem 2",
    "poisson": "Papernot and Steinke (2022), Theorem 6",
}


def mean_of(gamma: float, law: str) -> float:
    """The mean number of runs of a geometric or logarithmic law (ibid., Definition 1)."""
    if SHAPES[law] == 1.0:
        return 1.0 / gamma
    return (1.0 / gamma - 1.0) / math.log(1.0 / gamma)


def gamma_of(mean: float, law: str) -> float:
    """The gamma at which a geometric or logarithmic law has this mean > 1."""
    if SHAPES[law] == 1.0:
        return 1.0 / mean
    near = math.log1p(1.0 / mean)

    def missing(log_gamma: float) -> float:
        return mean_of(math.exp(log_gamma), law) - mean

    return float(math.exp(optimize.brentq(missing, math.log(TINY), -1e-9 * near)))


def drawn(law: str, mean: float, rng: np.random.Generator) -> int:
    """A number of runs; of the law poisson it may be 0, and then nothing is released."""
    chosen("law", law, LAWS)
    if law == "poisson":
        return int(rng.poisson(mean))
    gamma = gamma_of(mean, law)
    return int(rng.geometric(gamma) if law == "geometric" else rng.logseries(1.0 - gamma))


def best_of(divergences: Array, law: str, mean: float, deltas: Array | None = None) -> Array:
    """Renyi divergences (orders,) of releasing the best run, each of `divergences` (orders,).

    On the grid ORDERS; inf where a theorem says nothing. deltas (orders,): what a run costs at the
    epsilons SMALL, where that is known better than from its divergences.
    """
    chosen("law", law, LAWS)
    spent = np.asarray(divergences, float)
    if law == "poisson":
        found = _poisson(spent, mean, deltas)
    else:
        eta, gamma = SHAPES[law], gamma_of(mean, law)
        other = (1.0 - 1.0 / ORDERS) * spent + math.log(1.0 / gamma) / ORDERS
        found = spent + (1.0 + eta) * other.min() + math.log(mean) / (ORDERS - 1.0)  # Theorem 2
    return np.asarray(np.minimum.accumulate(found[::-1])[::-1])


def _poisson(spent: Array, mean: float, deltas: Array | None) -> Array:
    """Theorem 6, with e^epsilon^ = 1 + 1 / (lambda - 1) and the least delta^ that is known."""
    delta = np.array([delta_of_divergences(spent, one) for one in SMALL])
    delta = delta if deltas is None else np.minimum(delta, deltas)
    return np.asarray(spent + mean * delta + math.log(mean) / (ORDERS - 1.0))  # Theorem 6


def delta_of_divergences(total: Array, epsilon: float) -> float:
    """Least delta at an epsilon from divergences (orders,).

    Canonne, Kamath and Steinke (2020, Proposition 12), the inverse of `epsilon_of_divergences`.
    """
    log = (ORDERS - 1.0) * (total - epsilon + np.log1p(-1.0 / ORDERS)) - np.log(ORDERS)
    return float(min(1.0, np.exp(min(0.0, float(log.min())))))


def pure_best_of(epsilon: float, law: str) -> float:
    """Epsilon of releasing the best of runs that are (epsilon, 0)-DP each; inf for poisson.

    (2 + eta) epsilon (Papernot and Steinke 2022, Corollary 3: Theorem 2 with both orders infinite):
    of the geometric law 3 epsilon, as Liu and Talwar 2019 have it, of the logarithmic one 2.
    """
    chosen("law", law, LAWS)
    return (2.0 + SHAPES[law]) * epsilon if law in SHAPES else math.inf


def epsilon_of_best(accounts: Sequence[Account], law: str, mean: float) -> tuple[float, str]:
    """Epsilon of releasing the best of runs with these accounts, and by which theorem.

    By the most costly agents of the most costly runs; at the delta of the first account.
    """
    curve, pure, deltas = np.zeros(len(ORDERS)), 0.0, np.zeros(len(ORDERS))
    for account in accounts:
        for agent in range(account.agents):
            priced = account.prices(agent)
            curve = np.maximum(curve, priced.divergences().sum(axis=0, initial=0.0))
            found = tallies(priced, np.zeros(len(priced.mu2), np.int64)).get(0, NOTHING)
            deltas = np.maximum(deltas, delta_at(found, SMALL))
            alone = priced.laplace.sum() + priced.pure.sum()
            others = (priced.mu2 + priced.rho + priced.xi + priced.sampled + priced.ceiled).any()
            pure = max(pure, np.inf if others else float(alone))
    released = best_of(curve, law, mean, deltas)
    best = float(epsilon_of_divergences(released, accounts[0].delta))
    if pure_best_of(pure, law) < best:
        return pure_best_of(pure, law), f"{PAPERS[law]}, of pure epsilons"
    return best, PAPERS[law]


def check(law: str, mean: float, delta: float) -> None:
    """Raise InputError for a law, mean or delta that has no meaning."""
    chosen("law", law, LAWS)
    check_delta(delta)
