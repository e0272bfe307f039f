"""zCDP-NFL (Gauthier, Gratton, Venkategowda, Werner 2023): right for clipped gradients, loose.

The argmin of eq. (7) moves by the gradient's change over 2 rho |N| + 1/eta, duals and neighbours'
models are released values, so every message to every link is covered by adaptive composition.
"""

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.papers.claims import Inputs, once, ratios, summed
from desim.privacy.papers.conversions import simple


def corollary(given: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon of the Corollary, as the sum over rounds that it is: phi_n = Delta^2 / (2 sigma^2).

    With phi_(n+1) = phi_n / tau that is phi_1 (1 - tau^T) / (tau^(T-1) - tau^T), n = 1 .. T; the
    printed "0 < n < T" leaves one release out.
    """
    rows = once(releases)
    phi = 0.5 * ratios(rows) ** 2  # (12)
    return simple(summed(rows["agent"], phi, given["agents"]), delta), []
