"""Noise from a target: how far a schedule must be scaled for its planned releases to cost epsilon.

Every agent is counted in every planned round, whether it will take part or not. Gaussian releases
are inverted in closed form from mu^2 (Balle, Wang 2018, Thm 8, not the classical formula);
everything else by a root of the account, on the side that is private enough: of loss distributions
where these are known, else of Renyi divergences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from desim.columns import columns_of
from desim.errors import InputError
from desim.numerics.later import optimize, pd, sparse
from desim.privacy.accounting.gaussian import epsilon_of, mu_of
from desim.privacy.accounting.loss_distribution import sharpen
from desim.privacy.accounting.prices import (
    NOTHING,
    Prices,
    concentrated,
    distinct_prices,
    epsilon_of_divergences,
    prices,
    tallies,
)
from desim.privacy.ledger.ledger import MECHANISMS, Terms

Plan = Callable[[int], Terms | None]
SCALED = (
    "laplace pure ratio poisson".split()
)  # in proportion to 1 / scale; mu2 and rho to its square
TOLERANCE = 1e-6  # relative, of a scale that has no closed form; epsilon stays below its target


@dataclass(frozen=True)
class Target:
    """(epsilon, delta) under a relation, for the agent that spends most."""

    epsilon: float
    delta: float
    relation: str = "replace-one"


def planned(plan: Plan, rounds: int) -> "pd.DataFrame | None":
    """Table of all planned releases (columns of releases.parquet); None without a plan."""
    tables = []
    for k in range(1, rounds + 1):
        terms = plan(k)
        if terms is None:
            return None
        agents = len(terms.sensitivity)
        names = "round agent mechanism sensitivity scale sampling".split()
        place = np.full(agents, k), np.arange(agents), np.full(agents, int(terms.mechanism))
        columns = (*place, terms.sensitivity, terms.scale, terms.sampling)
        tables.append(dict(zip(names, columns, strict=True)))
    joined = {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}
    words = pd.Categorical.from_codes(joined["mechanism"], pd.Index(MECHANISMS))
    return pd.DataFrame({**joined, "mechanism": words})


def factor(releases: "pd.DataFrame", rows: NDArray[np.int64], target: Target) -> float:
    """How many times the scales of `releases` must be for the target to hold, and no more.

    rows (agents,): records of each agent. InputError where no noise is enough.
    """
    check(releases)
    costs = prices(columns_of(releases), rows, target.relation)
    agent = releases["agent"].to_numpy()
    spent = np.zeros(len(rows))
    np.add.at(spent, agent, costs.mu2 + 2.0 * (costs.rho + costs.ceiled) + costs.sampled**2)
    root = np.sqrt(spent.max()) / mu_of(target.epsilon, target.delta)
    if costs.gaussian.all():
        return float(root)
    table = _Table(costs, agent, len(rows))

    def excess(log_scale: float, sharp: bool) -> float:
        epsilon = table.epsilon(np.exp(log_scale), target.delta, sharp)
        return float(np.log(max(min(1e-300, 1e-9 * target.epsilon), epsilon) / target.epsilon))

    found = least(partial(excess, sharp=False), np.log(root) if root > 0.0 else 0.0, 1.0)
    return float(np.exp(least(partial(excess, sharp=True), found, 0.1)))


def least(excess: Callable[[float], float], start: float, stride: float) -> float:
    """The least number, to a quarter of TOLERANCE, from which on `excess`, which falls, is <= 0."""
    low = high = start
    while excess(high) > 0.0:
        low, high = high, high + stride
    while low == high or excess(low) <= 0.0:
        low, high = low - stride, low
    found, step = optimize.brentq(excess, low, high, xtol=0.25 * TOLERANCE), 0.25 * TOLERANCE
    while excess(found) > 0.0:
        found, step = found + step, 2.0 * step
    return float(found)


UNPROVED = ", or, where it is set, choose a method or variant with a guarantee"


def check(releases: "pd.DataFrame") -> None:
    """Raise InputError for the first planned release that no scale makes private."""
    mechanism = releases["mechanism"].astype(str).to_numpy()
    sensitivity, scale = releases["sensitivity"].to_numpy(), releases["scale"].to_numpy()
    for wrong, what in (
        ((mechanism == "none") | (scale == 0.0), "has no noise in round {round}"),
        (np.isinf(sensitivity), "has no bound in round {round}; set problem.clip" + UNPROVED),
    ):
        place = np.flatnonzero(wrong & (sensitivity > 0.0))
        if len(place):
            row = releases.iloc[place[0]]
            problem = what.format(round=row["round"])
            subject = "the sensitivity of agent" if "bound" in what else "what is released by agent"
            raise InputError(f"privacy.target: {subject} {row['agent']} {problem}")


class _Table:
    """Prices at scale 1: sums per agent, and what does not add up, each different one once.

    linear (agents, 4): sums of mu2, rho, xi, ceiled; times (agents, prices): how often each other
    price is paid; pure (agents,): sums of pure epsilons, infinite where anything else is paid.
    """

    def __init__(self, costs: Prices, agent: NDArray[np.int64], agents: int) -> None:
        self.linear, own = np.zeros((agents, 4)), (costs.mu2, costs.rho, costs.xi, costs.ceiled)
        np.add.at(self.linear, agent, np.stack(own, axis=1))
        self.others, which = distinct_prices(costs)
        shape = agents, len(self.others.mu2)
        self.times = sparse.csr_matrix((np.ones(len(agent)), (agent, which)), shape)
        self.tallies = tallies(costs, agent)
        each = [self.tallies.get(i, NOTHING) for i in range(agents)]
        self.pure = np.array([one.pure for one in each])
        self.exact = np.array([one.exact for one in each])

    def epsilon(self, scale: float, delta: float, sharp: bool = False) -> float:
        """Epsilon of the agent that spends most, with `scale` times the noise.

        sharp: by loss distributions, where they say less.
        """
        mu2, rho, xi, ceiled = self.linear.T
        mu2, rho, ceiled = mu2 / scale**2, rho / scale**2, ceiled / scale**2
        smaller = {name: getattr(self.others, name) / scale for name in SCALED}
        total = concentrated(rho + 0.5 * mu2, xi, ceiled)
        total += self.times @ self.others._replace(**smaller).divergences()
        bound = np.minimum(epsilon_of_divergences(total, delta), self.pure / scale)
        worst = np.where(self.exact, epsilon_of(np.sqrt(mu2), delta), bound)
        if sharp:
            sharpen(worst, {i: one.scaled(scale) for i, one in self.tallies.items()}, delta)
        return float(worst.max())
