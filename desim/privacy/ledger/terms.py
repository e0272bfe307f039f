"""What one release costs: mechanism, who sees it, sensitivity, and the scale of its noise."""

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

AMOUNTS = ("sensitivity", "scale", "sampling")


class Mechanism(IntEnum):
    """How a release was randomised, and what sensitivity D and scale s of its row mean.

    gaussian: L2 and standard deviation, (D/s)-GDP; noisy-gradient: the same for the end of a noisy
    training, D being the effective sensitivity; laplace: L1 and b; discrete-gaussian: L2 on a
    lattice, zCDP D^2/(2 s^2); objective-perturbation: noise on the objective that is minimised,
    zCDP D^2/(2 s^2) and a rest of 1e-8; sparse-vector: one noisy comparison, pure DP D/s; reused: a
    noise draw that has served another value, infinite; l2-laplace: density exp(-||e||/s), L2, pure
    DP D/s; objective-laplace: the same on an objective; clipped-gaussian: (D/s)-GDP of a value that
    was shortened to a norm of D/2, whatever becomes of the agent's rows, one or all of them; none:
    infinite unless D = 0.
    """

    NONE = 0
    GAUSSIAN = 1
    NOISY_GRADIENT = 2
    LAPLACE = 3
    DISCRETE_GAUSSIAN = 4
    OBJECTIVE_PERTURBATION = 5
    SPARSE_VECTOR = 6
    REUSED = 7
    L2_LAPLACE = 8
    OBJECTIVE_LAPLACE = 9
    CLIPPED_GAUSSIAN = 10


class View(IntEnum):
    """Who receives a release."""

    COORDINATOR = 0
    NEIGHBOURS = 1
    PUBLIC = 2


@dataclass(frozen=True)
class Terms:
    """What one release of each agent costs, arrays (agents,).

    sensitivity: replace-one, of the value before noise, in the norm of the mechanism (inf:
    unbounded); scale: of the noise per coordinate in the same unit; sampling: fraction of the rows
    used, nan for all; resolution: distance of the levels of discrete noise; coupled: bound on the
    L2 difference of two values with the same noise inside, None where it is the sensitivity; basis:
    the assumption in words that the sensitivity rests on, empty where it needs none.
    """

    mechanism: Mechanism
    view: View
    sensitivity: NDArray[np.float64]
    scale: NDArray[np.float64]
    sampling: NDArray[np.float64]
    resolution: float = 0.0
    coupled: NDArray[np.float64] | None = None
    basis: str = ""

    def of(self, who: Any) -> "Terms":
        """Rows (n,) of agents who (n,)."""
        coupled = None if self.coupled is None else self.coupled[who]
        rows = self.sensitivity[who], self.scale[who], self.sampling[who]
        return Terms(self.mechanism, self.view, *rows, self.resolution, coupled, self.basis)

    @cached_property
    def compiled(self) -> tuple[int, int, NDArray[np.float64]]:
        """(mechanism, view, (3, agents) sensitivity, scale, sampling) for kernels."""
        amounts = np.array([self.sensitivity, self.scale, self.sampling], float)
        return int(self.mechanism), int(self.view), amounts

    def fix(self, amounts: NDArray[np.float64]) -> None:
        """Have these rows (3 or 4, agents) of right numbers, coupled last, from now on, for good.

        Whoever writes to the arrays that the terms were made of changes neither price nor noise.
        """
        shown = amounts.view()
        shown.flags.writeable = False
        own = dict(zip((*AMOUNTS, "coupled"), shown, strict=False))
        compiled = int(self.mechanism), int(self.view), amounts[:3]
        vars(self).update(own, compiled=compiled, fixed=amounts.shape[1])

    def scaled(self, scale: NDArray[np.float64]) -> "Terms":
        """The same with noise of this scale (agents,), fixed where these are and it is >= 0."""
        if "fixed" not in vars(self) or not np.minimum.reduce(scale) >= 0.0:
            return replace(self, scale=scale)
        amounts, other = self.compiled[2].copy(), object.__new__(Terms)
        amounts[1] = scale
        vars(other).update(vars(self))
        other.fix(amounts)
        return other


def plain(agents: int, view: View, sensitivity: float = np.inf) -> Terms:
    """Terms of a release without noise."""
    if not (isinstance(view, View) and sensitivity >= 0.0):
        found = f"view {view}, sensitivity {sensitivity}"
        raise ValueError(f"plain: found {found}; allowed: one of View, and a number >= 0")
    costs = np.empty((3, agents))
    costs[0], costs[1], costs[2] = sensitivity, 0.0, np.nan
    terms = Terms(Mechanism.NONE, view, *costs)
    terms.fix(costs)
    return terms


MECHANISMS = [one.name.lower().replace("_", "-") for one in Mechanism]
VIEWS = [one.name.lower() for one in View]
