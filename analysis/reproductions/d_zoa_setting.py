"""Section VI of D-ZOA: what is compared there, with the noise and the J that the paper gives it.

Gratton, Venkategowda, Arablouei, Werner 2021, "Privacy-preserved distributed learning with
zeroth-order optimization". The paper takes c1 = 1 for the largest gradient of one example, does not
clip, and sets all noise by it: so do `Player.case` and `samples`. `Player.honest_case` clips.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from analysis.reproductions.monte_carlo import TUNING, Case, Measure
from analysis.reproductions.tuning import Point
from analysis.reproductions.zcdp_nfl_errors import curve, minimiser
from desim.engine.play import Simulation
from desim.methods.shared.declarations import Ingredients
from desim.numerics.cache import cache_home
from desim.privacy.papers import d_zoa as printed
from desim.privacy.papers.d_zoa import ALPHA_0
from desim.problem.optimum import centralised_optimum

Axes = Mapping[str, tuple[float, float]]
ROUNDS, AGENTS, ROWS, DIM = 200, 5, 20, 10
C1, DELTA = 1.0, 1e-6
RHO, STEP = 4.0, 0.27  # of D-ZOA; the step is alpha_0 R / L with R / L = 1/2
NEVER = 1e6  # a clip that no gradient meets, so that noise can be set for another bound
CAP = 150  # samples of one estimate at most
SEEDS, SIZE = TUNING[:4], 8  # of a search: its data sets, and a third of its configurations
HONEST_SIZE = 24  # the same where gradients are clipped, with as many as four parameters
KEPT = (*range(11), *range(12, ROUNDS + 1, 4))  # rounds of a learning curve
REGULARIZERS = {"ridge": {"l2": 2.0}, "lasso": {"l1": 1.0}}
D_ZOA, DVP, EXACT = "D-ZOA", "DVP", "exact ADMM"


@dataclass(frozen=True)
class Level:
    """Epsilon and delta of one round, as the paper counts them."""

    epsilon: float
    delta: float = DELTA

    @property
    def total(self) -> float:
        """Epsilon of all rounds by Theorem 2."""
        return printed.theorem_2(self.epsilon, ROUNDS, self.delta)

    @property
    def phi(self) -> float:
        """The zCDP of noise sqrt(2 ln(1.25/delta)) / epsilon times what it hides."""
        return float(self.epsilon**2 / (4.0 * np.log(1.25 / self.delta)))

    def samples(self, radius: float, degree: int, rho: float = RHO, inner: int = 100) -> float:
        """J of (22) for an agent with `degree` neighbours; R and the optimum's norm are radius."""
        one = printed.lemma_2(ALPHA_0, radius, 1, DIM, inner, optimum_norm=radius)
        reach = printed.lemma_3(C1, rho, degree, ROWS)
        return float(one * (self.epsilon / reach) ** 2 / (2.1 * np.log(1.25 / self.delta)))


def samples(made: Simulation, level: Level, cap: int | None = None) -> tuple[int, ...]:
    """J of every agent on this data set, from 1 to cap (CAP); R is what no agent knows."""
    graph, p, most = made.settings.graph, made.method.parameters, CAP if cap is None else cap
    assert graph is not None
    radius = float(np.linalg.norm(minimiser(made.problem)))
    each = (level.samples(radius, int(degree), p.rho, p.inner) for degree in graph.degree)
    return tuple(min(max(round(one), 1), most) for one in each)


def with_samples(made: Simulation, level: Level, cap: int | None = None) -> Simulation:
    """D-ZOA with the J that (22) gives on this data set."""
    method = made.method
    parameters = method.parameters.model_copy(update={"samples": samples(made, level, cap)})
    changed = type(method)(Ingredients(parameters, made.settings, method.noise))
    return replace(made, method=changed)


def kept(made: Simulation) -> tuple[float, ...]:
    """Errors at rounds KEPT, from the optimum without clipping; infinite if the run diverges."""
    with np.errstate(over="ignore"):
        return tuple(curve(made)[list(KEPT)].tolist())


def kept_at(made: Simulation, level: Level) -> tuple[float, ...]:
    """The same for D-ZOA with the J of `level`."""
    return kept(with_samples(made, level))


def sums_apart(made: Simulation) -> float:
    """Error of (2)'s optimum from that of (30) or (31), which the paper calls centralised.

    The latter weigh the sum over an agent's rows, not their mean, against the same eta.
    """
    other = centralised_optimum(replace(made.problem, average="sum"), cache_home() / "optima").x
    return float(AGENTS * np.sum((minimiser(made.problem) - other) ** 2) / (other @ other))


def largest_gradient(made: Simulation) -> float:
    """Largest gradient norm of one example at the optimum, which the paper takes to be 1."""
    problem = made.problem
    apart = np.abs(problem.A @ minimiser(made.problem) - problem.b)
    return float(np.max(2.0 * apart * np.linalg.norm(problem.A, axis=1)))


def dual_noise(rho: float, level: Level) -> float:
    """Deviation per coordinate of DVP's noise (c1 / N) b, b of density exp(-zeta ||b||).

    zeta = (epsilon - 2 ln(1 + c4 / (N (mu + 2 rho d)))) / 2 with c4 = 2, the curvature of a square,
    and the ridge mu, for the agent with one neighbour; epsilon / 4 where nothing is left.
    """
    ridge = REGULARIZERS["ridge"]["l2"] / AGENTS
    lost = 2.0 * np.log1p(2.0 / (ROWS * (ridge + 2.0 * rho)))
    left = level.epsilon - lost if lost < level.epsilon else 0.5 * level.epsilon
    return float(2.0 * C1 / (ROWS * left) * np.sqrt(DIM + 1.0))


@dataclass(frozen=True)
class Player:
    """A method on the paper's problem: its file, and what is tuned where the paper's way is taken.

    honest: what is tuned where gradients are clipped and epsilon is exact, all else left as it is.
    """

    name: str
    file: str
    axes: Axes
    honest: Axes = field(default_factory=dict)

    def case(self, regularizer: str, point: Point, level: Level) -> Case:
        """The case with the paper's noise at `level`; D-ZOA's is its J."""
        changes = _changes(regularizer, point)
        if self.name == DVP:
            changes["privacy.noise.sigma"] = dual_noise(point["rho"], level)
        elif self.name != D_ZOA:
            phi = level.phi * (NEVER / C1) ** 2
            changes |= {"problem.clip": NEVER, "privacy": {"noise": {"phi": phi, "growth": 1.0}}}
        return Case(self.file, changes)

    def honest_case(self, regularizer: str, point: Point, epsilon: float) -> Case:
        """The case whose releases cost exactly epsilon at DELTA, all rounds together."""
        target = {"privacy": {"target": {"epsilon": epsilon, "delta": DELTA}}}
        file = f"{self.file}-with-noise" if self.name == D_ZOA else self.file
        return Case(file, {**_changes(regularizer, point), **target, "stop.rounds": ROUNDS})

    def measure(self, level: Level) -> Measure:
        """What plays a simulation of the case."""
        return partial(kept_at, level=level) if self.name == D_ZOA else kept


def _changes(regularizer: str, point: Point) -> dict[str, Any]:
    """Overrides: clip is a key of the problem, all else of the algorithm; inner is a count."""
    own: dict[str, Any] = {
        ("problem.clip" if key == "clip" else f"algorithm.{key}"): value
        for key, value in point.items()
    }
    if "inner" in point:
        own["algorithm.inner"] = round(point["inner"])
    seen = {"metrics": [], "iterates": True}
    return {"problem.regularizer": REGULARIZERS[regularizer], "observe": seen, **own}


_CLIP, _RHO, _POWER = {"clip": (0.3, 20.0)}, (0.03, 30.0), (0.05, 1.0)
_STEP = {"step.initial": (0.01, 3.0), "step.decay.power": _POWER}
_ADMM = {"rho": _RHO, "eta.initial": (0.01, 3.0), "eta.decay.power": _POWER}
_INNER = {"rho": (0.1, 30.0), "step": (0.02, 2.0), "inner": (10.0, 300.0)}
PLAYERS = (
    Player("DPSG", "d-zoa-versus-dpsg", _STEP, {**_STEP, **_CLIP}),
    Player("DP-ADMM", "d-zoa-versus-dp-admm", _ADMM, {**_ADMM, **_CLIP}),
    Player("PVP", "d-zoa-versus-pvp", {"rho": _RHO}, {"rho": _RHO, **_CLIP}),
    Player(DVP, "d-zoa-versus-dvp", {"rho": _RHO}),
    Player(D_ZOA, "d-zoa", {}, {**_INNER, **_CLIP}),
)
SMOOTH_ONLY = ("PVP", DVP)


def players(regularizer: str) -> tuple[Player, ...]:
    """Those that the paper compares with this regulariser."""
    return tuple(one for one in PLAYERS if regularizer == "ridge" or one.name not in SMOOTH_ONLY)
