"""What the zCDP-NFL paper says that a run costs: its Corollary, and the classical compositions."""

import numpy as np

from desim.privacy.bounds.claims import Claim, Releases, once, summed
from desim.privacy.bounds.composition import advanced, basic, classical
from desim.privacy.bounds.conversions import simple
from desim.privacy.bounds.theorems import BY_NAME
from desim.privacy.mechanisms import Classical, DynamicZcdp, Gaussian, Noise
from desim.problem import Problem

UNCLIPPED = "gradients are not clipped, so c1 is infinite"
STEEP = "epsilon of a round is not below 1, where the classical deviation is no bound"


def dynamic(
    noise: Noise | None, problem: Problem, releases: Releases, delta: float, varies: str = ""
) -> Claim | None:
    """The Corollary, as the sum over rounds that it is: phi_n = Delta^2 / (2 sigma^2).

    varies: what makes the sensitivity change over rounds, if anything does. None where the noise
    is not Gaussian.
    """
    if not isinstance(noise, Gaussian | DynamicZcdp):
        return None
    rows = once(releases)
    phi = 0.5 * (rows["sensitivity"] / rows["scale"]) ** 2  # (12)
    rho = summed(rows["agent"], phi, problem.agents)
    unmet = [] if problem.clipped else [UNCLIPPED]
    if isinstance(noise, Gaussian) and varies:
        unmet.append(f"{varies} varies, so phi does not grow by 1/tau: Theorem I is summed instead")
    bound = BY_NAME["zcdp-nfl/corollary"]
    return Claim(bound, simple(rho, delta), delta, "zCDP, simple conversion", tuple(unmet))


def composed(
    noise: Noise | None, problem: Problem, releases: Releases, delta: float
) -> Claim | None:
    """Advanced composition where the noise is shared out by it, else basic; None without noise."""
    if not isinstance(noise, Classical):
        return None
    rule = "advanced" if noise.composition == "advanced" else "basic"
    total = advanced if rule == "advanced" else basic
    rows, epsilon = once(releases), np.zeros(problem.agents)
    ratio = rows["sensitivity"] / rows["scale"]
    for agent, own in ratio.groupby(rows["agent"]):
        epsilon[agent] = total(own, delta)
    unmet = [] if problem.clipped else [UNCLIPPED]
    if (classical(ratio, noise.delta) >= 1.0).any():
        unmet.append(STEEP)
    bound = BY_NAME[f"dp-nfl/{rule}"]
    return Claim(bound, epsilon, delta, f"{rule} composition", tuple(unmet))
