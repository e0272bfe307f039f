"""The methods of zCDP-NFL's Figures 1 to 3: what each of them has to choose, and its noise.

The paper prints no parameter. It says that all methods spend the same privacy, by the Corollary;
zcdp_nfl_tuning chooses the rest.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.reproductions.monte_carlo import Case
from analysis.reproductions.printed import total
from analysis.reproductions.tuning import Point

ROUNDS = 200
DELTA = 1e-5
SHOWN = 10.0  # epsilon of the learning curves
EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0)
WATCHED = {"observe": {"metrics": [], "iterates": True}}
WINDOW = "window"  # 1 / (1 - tau): rounds over which the noise's variance falls by e
Algorithm = Callable[[Point], dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """A figure: its scenario, its methods (zCDP-NFL first), and the epsilons of its trade-off."""

    file: str
    methods: tuple[str, ...]
    epsilons: tuple[float, ...] = EPSILONS


def _admm(name: str) -> Algorithm:
    def algorithm(point: Point) -> dict[str, Any]:
        eta = {"initial": point["eta"], "decay": "sqrt"}
        return {"name": name, "rho": point["rho"], "eta": eta}

    return algorithm


def _subgradient(point: Point) -> dict[str, Any]:
    power = point.get("power", 0.0)
    step = {"initial": point["last step"] * ROUNDS**power, "decay": {"power": power}}
    return {"name": "zcdp-subgradient", "step": step if power else point["last step"]}


def _exact(point: Point) -> dict[str, Any]:
    return {"name": "p-admm", "rho": point["rho"]}


@dataclass(frozen=True)
class Rival:
    """A method: its name in the figures, what is searched for, and what sets its initial speed.

    axes: lowest and highest value of each parameter; speed: the parameter, with its range, that
    makes it as fast as zCDP-NFL at first; none where zCDP-NFL's own parameters do.
    """

    label: str
    algorithm: Algorithm
    axes: Mapping[str, tuple[float, float]]
    speed: Mapping[str, tuple[float, float]]

    @property
    def classical(self) -> bool:
        """Whether its noise is that of classical (epsilon, delta) composition, the same always."""
        return WINDOW not in self.axes

    def case(self, file: str, point: Point, epsilon: float) -> Case:
        """The method on a problem, at a privacy of epsilon by its own paper's account."""
        noise: dict[str, Any] = {"sigma": 0.0}
        if math.isfinite(epsilon) and self.classical:
            noise = {"epsilon": epsilon, "delta": DELTA, "composition": "advanced"}
        elif math.isfinite(epsilon):
            growth = 1.0 - 1.0 / point[WINDOW]
            noise = {"phi": first_phi(epsilon, growth), "growth": growth}
        privacy = {"noise": noise, "delta": DELTA}
        return Case(file, {"algorithm": self.algorithm(point), "privacy": privacy, **WATCHED})


def first_phi(epsilon: float, tau: float) -> float:
    """The phi of round 1 with which the Corollary gives epsilon for all rounds."""
    root = math.log(1.0 / DELTA)
    whole = (math.sqrt(root + epsilon) - math.sqrt(root)) ** 2
    return whole / float(total(1.0, tau, ROUNDS))


_LINEARISED = {"rho": (1.0, 30.0), "eta": (0.5, 8.0)}
_FALLING = {WINDOW: (12.0, 400.0)}
ZCDP = "zcdp-nfl"
RIVALS = {
    ZCDP: Rival("zCDP-NFL", _admm(ZCDP), {**_LINEARISED, **_FALLING}, {}),
    "dp-nfl": Rival("(ε, δ)-DP-NFL", _admm("dp-nfl"), _LINEARISED, {}),
    "zcdp-subgradient": Rival(
        "zCDP-grad-NFL",
        _subgradient,
        {"last step": (0.002, 0.05), "power": (0.25, 1.0), **_FALLING},
        {"last step": (0.003, 0.3)},
    ),
    "p-admm": Rival("P-ADMM", _exact, {"rho": (1.0, 30.0), **_FALLING}, {"rho": (2.0, 60.0)}),
}
_ALL = (ZCDP, "dp-nfl", "zcdp-subgradient")
PLANS = {
    "zcdp_nfl_fig1": Plan("zcdp-nfl-elastic-net", _ALL),
    "zcdp_nfl_fig2": Plan("zcdp-nfl-least-absolute", _ALL, (SHOWN,)),
    "zcdp_nfl_fig3": Plan("zcdp-nfl-ridge", (ZCDP, "dp-nfl", "p-admm", "zcdp-subgradient")),
}
