"""(epsilon, delta)-DP-NFL: the recursion of zCDP-NFL, noise of the classical Gaussian mechanism.

Gauthier, Gratton, Venkategowda, Werner 2023, Section 5, where it is the rival of zCDP-NFL:
sigma(n) = Delta(n) sqrt(2 ln(1.25/delta_n)) / epsilon_n. How epsilon is composed over iterations is
not printed: basic and advanced composition are both here. A Gaussian release costs what it costs,
however its deviation was chosen: the exact account finds less than either.
"""

from desim.algorithms.zcdp_claim import composed
from desim.algorithms.zcdp_nfl import ZcdpNfl
from desim.privacy.bounds.claims import Inputs


class DpNfl(ZcdpNfl):
    """The agents' models are w before noise; their neighbours see w plus noise."""

    name = "dp-nfl"
    summary = "zCDP-NFL with the noise of classical (epsilon, delta) composition"
    noises = ("classical",)

    def claim_inputs(self) -> Inputs | None:
        """The composition that the noise was shared out by."""
        return composed(self.noise, self.problem)
