"""What the dissertation says that Q-DPSGD costs: Theorems 11 and 15, a curve that adds up."""

import numpy as np

from desim.algorithms.method import Array
from desim.privacy.bounds.claims import Claim, Releases, summed
from desim.privacy.bounds.conversions import own_order
from desim.privacy.bounds.theorems import BY_NAME
from desim.problem import Problem


def lipschitz(problem: Problem, rows: Releases) -> Array:
    """K (n,) of the agents of `rows` of releases.parquet: m clip for a sum over their m records."""
    who = rows["agent"].to_numpy()
    return np.asarray((problem.clip * problem.scale * problem.rows)[who])


def claimed(problem: Problem, theorem: str, rows: Releases, reach: Array, delta: float) -> Claim:
    """8 alpha (reach / (scale m))^2 a row at the order that the theorems choose; reach (n,)."""
    agent = rows["agent"].to_numpy()
    with np.errstate(divide="ignore"):
        spent = 8.0 * (reach / (rows["scale"].to_numpy() * problem.rows[agent])) ** 2
    epsilon = own_order(summed(agent, spent, problem.agents), delta)
    unmet = () if problem.clipped else ("gradients are not clipped, so K is infinite",)
    return Claim(BY_NAME[theorem], epsilon, delta, "RDP at the paper's order", unmet)
