"""zCDP-NFL (Gauthier, Gratton, Venkategowda, Werner 2023): right for clipped gradients, loose.

The argmin of eq. (7) moves by the gradient's change over 2 rho |N| + 1/eta, duals and neighbours'
models are released values, so every message to every link is covered by adaptive composition.
"""

from typing import TYPE_CHECKING

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.ledger.mechanisms import DynamicZcdp, Gaussian, Noise
from desim.privacy.papers.claims import Inputs, inputs, once, ratios, summed, unclipped
from desim.privacy.papers.conversions import simple

if TYPE_CHECKING:
    from desim.problem.problem import Problem


def corollary(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon of the Corollary, as the sum over rounds that it is: phi_n = Delta^2 / (2 sigma^2).

    With phi_(n+1) = phi_n / tau that is phi_1 (1 - tau^T) / (tau^(T-1) - tau^T), n = 1 .. T; the
    printed "0 < n < T" leaves one release out.
    """
    rows = once(releases)
    phi = 0.5 * ratios(rows) ** 2  # (12)
    return simple(summed(rows["agent"], phi, inputs["agents"]), delta), []


def corollary_inputs(noise: Noise | None, problem: "Problem", varies: str = "") -> Inputs | None:
    """Inputs of the Corollary; None where the noise is not Gaussian.

    varies: what makes the sensitivity change over rounds, if anything does.
    """
    if not isinstance(noise, Gaussian | DynamicZcdp):
        return None
    unmet = unclipped(problem)
    if isinstance(noise, Gaussian) and varies:
        unmet.append(f"{varies} varies, so phi does not grow by 1/tau: Theorem I is summed instead")
    return inputs("zcdp-nfl/corollary", problem.agents, unmet)
