"""What the dissertation says that Q-DPSGD costs: Theorems 11 and 15, a curve that adds up."""

from typing import Any

import numpy as np

from desim.method import (
    Array,
    Claim,
    DiscreteGaussian,
    Gaussian,
    Noise,
    Problem,
    Releases,
    once,
    summed,
)
from desim.privacy.bounds.conversions import own_order
from desim.privacy.bounds.theorems import BY_NAME


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


def theorem_11(
    noise: Noise | None, problem: Problem, releases: Releases, delta: float
) -> Claim | None:
    """Theorem 11 for the rounds in which an agent had a sample at its deadline."""
    if not isinstance(noise, Gaussian):
        return None
    rows = once(releases)
    return claimed(problem, "q-dpsgd-1/theorem-11", rows, lipschitz(problem, rows), delta)


def theorem_15(
    noise: Noise | None, problem: Problem, parameters: Any, releases: Releases, delta: float
) -> Claim | None:
    """Theorem 15 for the messages after a step that had samples."""
    if not isinstance(noise, DiscreteGaussian):
        return None
    rows, p = once(releases), parameters
    rows = rows[rows["sampling"] > 0.0]
    size = rows["sampling"].to_numpy() * problem.rows[rows["agent"].to_numpy()]
    step = p.mixing * np.asarray(p.alpha.at(rows["round"].to_numpy() - 1))
    rounding = p.resolution * np.sqrt(problem.dim) * size
    reach = lipschitz(problem, rows) * step + rounding
    return claimed(problem, "q-dpsgd-2/theorem-15", rows, reach, delta)
