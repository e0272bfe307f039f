"""Parameters of the compared methods: searches on data sets of their own, one budget for all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from analysis.reproductions.monte_carlo import TUNING, Case, MonteCarlo, share_of_auto
from desim.arrays import Array

Point = dict[str, float]
Settings = Mapping[str, Any]  # what is not tuned: overrides of a scenario
BATCHES, BATCH = 3, 16  # configurations of a search
WIDTH = 1.0 / 3.0  # of a batch's box, in units of the last one's
LINE = 25  # configurations along one parameter
CLOSE = 0.02
ROUNDS = {"stop.rounds": 200}
AGENTS = 10
STEP = "step"  # of local training, in units of the automatic one
PRODUCT = "gamma tau N"  # of 5GCS; its theorem asks for at most 1


def named(point: Point) -> str:
    """Parameters in words."""
    return "; ".join(f"{axis} {value:g}" for axis, value in point.items())


@dataclass(frozen=True)
class Space:
    """A method's scenario and what is tuned of it: lowest and highest value, the main one first."""

    file: str
    axes: Mapping[str, tuple[float, float]]

    def case(self, point: Point, settings: Settings) -> Case:
        """The case at `point`; what it does not name keeps its default."""
        changes = {
            f"algorithm.{name}": value
            for name, value in point.items()
            if name not in (STEP, PRODUCT)
        }
        if PRODUCT in point:
            changes["algorithm.gamma"] = point[PRODUCT] / (point["tau"] * AGENTS)
        step = share_of_auto(point[STEP]) if STEP in point else None
        return Case(self.file, {**settings, **changes}, step)

    def line(self) -> list[Point]:
        """LINE points along the main parameter."""
        name, (low, high) = next(iter(self.axes.items()))
        return [{name: _three_digits(value)} for value in np.geomspace(low, high, LINE)]

    def point(self, logarithms: Array) -> Point:
        """Values with three digits, so that what is printed is what was played."""
        values = map(_three_digits, np.exp(logarithms))
        return dict(zip(self.axes, values, strict=True))


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


SPACES = {
    "fed-plt": Space("fed-plt", {"rho": (0.03, 3.0), STEP: (0.1, 1.0)}),
    "fed-pd": Space("fed-plt-versus-fed-pd", {"eta": (0.03, 3.0), STEP: (0.1, 1.0)}),
    "fedlin": Space("fed-plt-versus-fedlin", {STEP: (0.02, 1.0)}),
    "tamuna": Space("fed-plt-versus-tamuna", {STEP: (0.02, 1.0), "chi": (0.05, 1.0)}),
    "led": Space("fed-plt-versus-led", {STEP: (0.02, 1.0), "beta": (0.005, 0.2)}),
    "5gcs": Space(
        "fed-plt-versus-5gcs", {"tau": (0.03, 3.0), STEP: (0.1, 1.0), PRODUCT: (0.3, 3.0)}
    ),
}
Score = Callable[[Sequence[Point]], Array]  # (points,), the smaller the better


def tuned(monte_carlo: MonteCarlo, space: Space, settings: Settings) -> tuple[Point, float]:
    """The point with the smallest mean rate that a search finds, and that rate."""
    return search(space, lambda points: _rates(monte_carlo, space, points, settings).mean(1))


def nearest(
    monte_carlo: MonteCarlo, space: Space, settings: Sequence[Settings], targets: Sequence[float]
) -> Point:
    """One point for all `settings`, whose mean rates come nearest to `targets`, errors included.

    The main parameter alone where that comes within CLOSE of each, else what a search finds.
    """

    def gaps(points: Sequence[Point]) -> Array:
        pairs = zip(settings, targets, strict=True)
        found = [(_rates(monte_carlo, space, points, one), aim) for one, aim in pairs]
        errors = [rates.std(1) / np.sqrt(rates.shape[1]) for rates, _ in found]
        means = [np.abs(rates.mean(1) - aim) for rates, aim in found]
        return np.asarray(np.max(np.add(means, errors), axis=0))

    line = space.line()
    scores = gaps(line)
    best, gap = line[int(scores.argmin())], float(scores.min())
    if gap > CLOSE:
        found, least = search(space, gaps)
        best = found if least < gap else best
    return best


def search(
    space: Space, score: Score, size: int | None = None, batches: int = BATCHES,
    width: float = WIDTH, start: Point | None = None,
) -> tuple[Point, float]:  # fmt: skip
    """The best of batches * size points (size: default BATCH), and its score.

    The first box is the whole space, or with `start`, which counts as a point, the second one.
    """
    low, high = whole = np.log(np.array(list(space.axes.values()))).T
    best, least = space.point(low), np.inf
    if start is not None:
        low, high = _narrower(start, low, high, width, whole)
    for batch in range(batches):
        unit = qmc.LatinHypercube(len(low), rng=batch).random(size or BATCH)
        points = [space.point(one) for one in low + unit * (high - low)]
        if start is not None and batch == 0:
            points[0] = start
        scores = score(points)
        if scores.min() < least:
            best, least = points[int(scores.argmin())], float(scores.min())
        low, high = _narrower(best, low, high, width, whole)
    return best, least


def _narrower(
    best: Point, low: Array, high: Array, width: float, whole: tuple[Array, Array]
) -> tuple[Array, Array]:
    """A box around `best`, `width` times as wide, as far as it is inside the whole one."""
    centre, half = np.log(list(best.values())), 0.5 * width * (high - low)
    low, high = np.clip([centre - half, centre + half], *whole)
    return low, high


def _rates(
    monte_carlo: MonteCarlo, space: Space, points: Sequence[Point], settings: Settings
) -> Array:
    """Rates (points, seeds) on the data sets of tuning; where a run diverges, 10."""
    cases = {n: space.case(point, {**settings, **ROUNDS}) for n, point in enumerate(points)}
    found = monte_carlo.values(cases, TUNING)
    return np.minimum([found[n] for n in cases], 10.0)
