"""What claims about zCDP noise follow from: the paper's Corollary, and classical compositions."""

from desim.privacy.ledger.mechanisms import Classical, DynamicZcdp, Gaussian, Noise
from desim.privacy.papers.claims import UNCLIPPED, Inputs, inputs
from desim.problem.problem import Problem


def dynamic(noise: Noise | None, problem: Problem, varies: str = "") -> Inputs | None:
    """Inputs of the Corollary; None where the noise is not Gaussian.

    varies: what makes the sensitivity change over rounds, if anything does.
    """
    if not isinstance(noise, Gaussian | DynamicZcdp):
        return None
    unmet = [] if problem.clipped else [UNCLIPPED]
    if isinstance(noise, Gaussian) and varies:
        unmet.append(f"{varies} varies, so phi does not grow by 1/tau: Theorem I is summed instead")
    return inputs("zcdp-nfl/corollary", problem.agents, unmet)


def composed(noise: Noise | None, problem: Problem) -> Inputs | None:
    """Those of the composition that the noise was shared out by, else basic; None without noise."""
    if not isinstance(noise, Classical):
        return None
    rule = "advanced" if noise.composition == "advanced" else "basic"
    unmet = [] if problem.clipped else [UNCLIPPED]
    return inputs(f"dp-nfl/{rule}", problem.agents, unmet, delta_of_a_round=noise.delta)
