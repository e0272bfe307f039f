"""Noise schedules, and the terms of a release: its mechanism, sensitivity and scale in a round.

sigma is always the standard deviation per coordinate of what a method perturbs. A method states the
L2 sensitivity of its value once; `terms` turns it into that of the mechanism.
"""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import RunError
from desim.unplayed import of_unplayed

# What one release costs: mechanism, who sees it, sensitivity, and the scale of its noise.


AMOUNTS = ("sensitivity", "scale", "sampling")


class Mechanism(IntEnum):
    """How a release was randomised, and what sensitivity D and scale s of its row mean.

    gaussian: L2 and standard deviation, (D/s)-GDP; noisy-gradient: the same for the end of a noisy
    training, D being the effective sensitivity; laplace: L1 and b; discrete-gaussian: L2 on a
    lattice, zCDP D^2/(2 s^2); objective-perturbation: noise on the objective that is minimised,
    zCDP D^2/(2 s^2) and a rest of 1e-8; sparse-vector: one noisy comparison, pure DP D/s; reused: a
    noise draw that has served another value, infinite; l2-laplace: density exp(-||e||/s), L2, pure
    DP D/s; objective-laplace: the same on an objective; clipped-gaussian: (D/s)-GDP of a value that
    was shortened to a norm of D/2, whatever becomes of the agent's rows, one or all of them; sum:
    the same for a sum of such values of several agents, whose row has agent -1 where it is for all
    that replied in its round; poisson-sum: each agent was invited to it with probability
    `sampling`; subset-sum: that share of all agents was, all sets alike; toeplitz-sum, tree-sum:
    noise is correlated over rounds, `sampling` in round t is the coefficient t - 1 of a matrix, or
    one over the rounds of a tree; lattice-sum: of whole numbers with shares of discrete noise, zCDP
    D^2/(2 s^2) where one agent is replaced; skellam-sum: the same at whole orders of the Renyi
    divergence; chained-gaussian: (D/s)-GDP given all that the agent has released before, with whose
    noise its noise is correlated; none: infinite unless D = 0.
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
    SUM = 11
    POISSON_SUM = 12
    SUBSET_SUM = 13
    TOEPLITZ_SUM = 14
    TREE_SUM = 15
    LATTICE_SUM = 16
    SKELLAM_SUM = 17
    CHAINED_GAUSSIAN = 18


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
    the assumption in words that the sensitivity rests on, empty where it needs none; chain: of
    noise that is correlated over rounds, where scale is that of the draws and coupled the
    sensitivity of the value itself.
    """

    mechanism: Mechanism
    view: View
    sensitivity: NDArray[np.float64]
    scale: NDArray[np.float64]
    sampling: NDArray[np.float64]
    resolution: float = 0.0
    coupled: NDArray[np.float64] | None = None
    basis: str = ""
    chain: Any = None

    def of(self, who: Any) -> "Terms":
        """Rows (n,) of agents who (n,)."""
        coupled = None if self.coupled is None else self.coupled[who]
        chain = None if self.chain is None else self.chain.of(who)
        rows = self.sensitivity[who], self.scale[who], self.sampling[who]
        return Terms(self.mechanism, self.view, *rows, self.resolution, coupled, self.basis, chain)

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


CLIPS = 1e-100, 1e100  # bounds of norms S: squares about them are neither 0 nor infinite
MECHANISMS = [one.name.lower().replace("_", "-") for one in Mechanism]
VIEWS = [one.name.lower() for one in View]

# Noise schedules, and the terms of a method's releases by them.


def raised(number: float, power: Any) -> Any:
    """A number to a power; of a column (rounds, 1) of powers each to the bit as it is alone.

    NumPy's loops over arrays may round otherwise.
    """
    if np.shape(power)[1:] != (1,):
        return number**power
    return np.array([[number**one] for one in power[:, 0]])


@dataclass(frozen=True)
class _Deviation:
    """Noise of standard deviation sigma in round 1, variance times `decay` each round.

    Ding 2021, dissertation: variance times `decay` every `period` rounds (16); with iteration = R_T
    sigma^2 / (R_T (k - 1) k) from round k = 2 on (17), where round 1 divides by 0 and has sigma^2.
    """

    sigma: float
    decay: float = 1.0
    period: int = field(default=1, kw_only=True)
    iteration: float | None = field(default=None, kw_only=True)

    @property
    def constant(self) -> bool:
        """Whether all rounds have the same noise."""
        return self.decay == 1.0 and self.iteration is None

    def deviation(self, round_: Any, like: Array) -> Array:
        """Standard deviation per coordinate, shaped as `like`, in rounds 1, 2, ..."""
        before = np.asarray(round_, float) - 1.0
        if self.iteration is not None:
            divided = self.iteration * np.maximum(before, 1.0) * (before + 1.0)
            deviation = self.sigma / np.sqrt(np.where(before > 0.0, divided, 1.0))
        else:
            deviation = self.sigma * raised(self.decay, before // self.period / 2.0)
        return np.asarray(deviation + np.zeros(like.shape))

    def scale(self, round_: Any, sensitivity: Array) -> Array:
        """That of the mechanism per coordinate, shaped as `sensitivity`, in rounds 1, 2, ..."""
        return self.deviation(round_, sensitivity)

    def times(self, factor: float) -> Self:
        """The same schedule with `factor` times the deviation."""
        return replace(self, sigma=self.sigma * factor)

    @property
    def given(self) -> dict[str, float]:
        """What a target calibrates: {key of privacy.noise: value}."""
        return {"sigma": self.sigma}


@dataclass(frozen=True)
class Gaussian(_Deviation):
    """Gaussian noise: standard deviation sigma in round 1, variance times `decay` each round."""

    mechanism: ClassVar[Mechanism] = Mechanism.GAUSSIAN


@dataclass(frozen=True)
class Laplace(_Deviation):
    """Laplace noise of scale b = sigma / sqrt 2 on each coordinate (Dwork, Roth 2014, Def. 3.3)."""

    mechanism: ClassVar[Mechanism] = Mechanism.LAPLACE

    def scale(self, round_: Any, sensitivity: Array) -> Array:
        """Scale b, shaped as `sensitivity`, in rounds 1, 2, ..."""
        return np.asarray(self.deviation(round_, sensitivity) / np.sqrt(2.0))


@dataclass(frozen=True)
class L2Laplace(_Deviation):
    """Noise of density exp(-||e|| / s) (Chaudhuri, Monteleoni, Sarwate 2011).

    Its variance per coordinate is (dim + 1) s^2, which `terms` turns sigma into s by.
    """

    mechanism: ClassVar[Mechanism] = Mechanism.L2_LAPLACE


@dataclass(frozen=True)
class DiscreteGaussian(_Deviation):
    """Noise resolution * N_Z(0, (sigma / resolution)^2) (Canonne, Kamath, Steinke 2020, Thm 4).

    Values are rounded to multiples of `resolution` first: on other values its support would tell
    them. sigma is the parameter; the standard deviation of N_Z is never above it.
    """

    resolution: float = 1.0
    mechanism: ClassVar[Mechanism] = Mechanism.DISCRETE_GAUSSIAN


@dataclass(frozen=True)
class DynamicZcdp:
    """Gaussian noise that spends phi_n = phi / growth^(n-1) of zCDP in round n.

    sigma^2(n) = Delta^2(n) / (2 phi_n) (zCDP-NFL, eq. 12 and its corollary, with growth for tau).
    """

    phi: float
    growth: float = 1.0
    mechanism: ClassVar[Mechanism] = Mechanism.GAUSSIAN

    @property
    def constant(self) -> bool:
        """Whether all rounds have the same noise."""
        return self.growth == 1.0

    def scale(self, round_: Any, sensitivity: Array) -> Array:
        """Standard deviation per coordinate, shaped as `sensitivity`, in rounds 1, 2, ..."""
        with np.errstate(divide="ignore", over="ignore"):
            phi = self.phi / raised(self.growth, np.asarray(round_, float) - 1.0)
        if not np.all(phi < np.inf):
            raise RunError(
                f"privacy.noise.growth: {self.growth:g}: phi / growth^(n - 1) is beyond every "
                f"number in round {int(np.max(round_))}; use a growth nearer to 1"
            )
        return np.asarray(sensitivity / np.sqrt(2.0 * phi))

    def times(self, factor: float) -> "DynamicZcdp":
        """The same schedule with `factor` times the deviation."""
        return replace(self, phi=self.phi / factor**2)

    @property
    def given(self) -> dict[str, float]:
        """What a target calibrates: {key of privacy.noise: value}."""
        return {"phi": self.phi}


@dataclass(frozen=True)
class Classical(DynamicZcdp):
    """sigma = Delta sqrt(2 ln(1.25/delta)) / epsilon in every round (Dwork, Roth 2014, Thm A.1).

    epsilon, delta: of one round, (epsilon, delta)-DP where epsilon < 1; composition: how they came
    from those of the run. It spends phi = epsilon^2 / (4 ln(1.25/delta)) of zCDP in a round.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    composition: str = "none"

    @classmethod
    def of(cls, epsilon: float, delta: float, composition: str) -> Self:
        """The mechanism that gives every round epsilon and delta."""
        phi = epsilon**2 / (4.0 * np.log(1.25 / delta))
        return cls(float(phi), 1.0, epsilon, delta, composition)


@dataclass(frozen=True)
class Allotted:
    """Noise for an epsilon (Gaussian: and a delta) of one release, or of two groups of its parts.

    epsilon alone: of everything; epsilon_s and epsilon_n: of the groups s and n; epsilon and
    epsilon_s: n gets what s leaves of epsilon, as (Ding 2021, dissertation, Theorems 18 and 20)
    count it: share epsilon_s + (1 - share) epsilon_n, and 1 - (1 - delta_s)(1 - delta_n).
    """

    epsilon: float | None = None
    epsilon_s: float | None = None
    epsilon_n: float | None = None
    delta: float | None = None
    delta_s: float | None = None
    delta_n: float | None = None
    constant: ClassVar[bool] = True

    @property
    def mechanism(self) -> Mechanism:
        """Laplace, or Gaussian where a delta is given."""
        pure = self.delta is None and self.delta_s is None
        return Mechanism.LAPLACE if pure else Mechanism.GAUSSIAN

    def groups(self, share: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """(epsilon, delta) of group s, which has that share, and of group n; <= 0: nothing left."""
        delta = self.delta or 0.0
        if self.epsilon_s is None:
            return ((self.epsilon or 0.0, delta),) * 2
        delta_s = self.delta_s or 0.0
        epsilon_n, delta_n = self.epsilon_n, self.delta_n
        if epsilon_n is None:
            whole = self.epsilon or 0.0
            epsilon_n = (whole - share * self.epsilon_s) / (1.0 - share) if share < 1.0 else 0.0
            delta_n = 1.0 - (1.0 - delta) / (1.0 - delta_s)
        return (self.epsilon_s, delta_s), (epsilon_n, delta_n or 0.0)

    def scale(self, round_: Any, sensitivity: Array) -> Array:
        """Scale of group n, shaped as `sensitivity`, which is in the norm of the mechanism."""
        epsilon, delta = self.groups(0.0)[1]
        if delta == 0.0:
            return sensitivity / epsilon
        from desim.privacy.accounting.gaussian import mu_of

        return sensitivity / mu_of(epsilon, delta)

    def times(self, factor: float) -> "Allotted":
        """Itself: no target calibrates what has an epsilon."""
        return self

    @property
    def given(self) -> dict[str, float]:
        """What a target calibrates: nothing."""
        return {}


Noise = Gaussian | Laplace | L2Laplace | DiscreteGaussian | DynamicZcdp | Allotted


def unbounded(noise: Noise | None, clipped: bool) -> list[str]:
    """Why noise in proportion to a sensitivity has no size, if gradients are not `clipped`."""
    if clipped or not isinstance(noise, DynamicZcdp):
        return []
    form = "{epsilon, delta, composition}" if isinstance(noise, Classical) else "{phi, growth}"
    return [
        f"privacy.noise: {form} needs a bounded gradient; set problem.clip (the largest gradient "
        "norm of one example)"
    ]


@of_unplayed(2, columns=True)
def terms(
    noise: Noise | None, view: View, round_: Any, sensitivity: Array, dim: int,
    sampling: Array | None = None,
) -> Terms:  # fmt: skip
    """Return the terms (n,) of releasing values (n, dim) in rounds 1, 2, ...

    Of a column of rounds (rounds, 1) the scale is (rounds, n). sensitivity (n,): L2, replace-one,
    before noise; sampling (n,): fraction of the rows used.
    Laplace: L1 <= sqrt(dim) L2. Discrete Gaussian: rounding moves each coordinate by at most half a
    level in both values, so that L2 grows by resolution sqrt(dim).
    """
    share = np.full(sensitivity.shape, np.nan) if sampling is None else sampling
    if noise is None:
        nothing = np.zeros_like(sensitivity)
        return Terms(Mechanism.NONE, view, sensitivity, nothing, share)
    scale, kind = noise.scale(round_, sensitivity), noise.mechanism
    if isinstance(noise, Gaussian) and (of := getattr(noise, "chain", None)) is not None:
        chain = of(round_, sensitivity, share)
        moved = sensitivity * chain.step
        return Terms(kind, view, moved, scale, share, coupled=sensitivity, chain=chain)
    if isinstance(noise, Laplace):
        wide = np.sqrt(dim) * sensitivity
        return Terms(kind, view, wide, scale, share, coupled=sensitivity)
    if isinstance(noise, L2Laplace):
        return Terms(kind, view, sensitivity, scale / np.sqrt(dim + 1.0), share)
    if isinstance(noise, DiscreteGaussian):
        step = noise.resolution * np.sqrt(dim)
        rounded = np.where(sensitivity > 0.0, sensitivity + step, 0.0)
        return Terms(kind, view, rounded, scale, share, noise.resolution)
    return Terms(kind, view, sensitivity, scale, share)
