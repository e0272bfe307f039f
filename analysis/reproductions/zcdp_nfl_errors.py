"""Errors of zCDP-NFL and its rivals, all played on a data set that is built once.

The error is the paper's, sum_k ||w_k - w_c||^2 / ||w_c||^2 over all 50 agents (0 scores 50): w_k
before noise, as printed, and w_c the minimiser of the problem as printed, without clipping.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

import numpy as np

import desim
from analysis.reproductions.monte_carlo import SCENARIOS, Case, Measure, MonteCarlo
from analysis.reproductions.zcdp_nfl_methods import ROUNDS, WATCHED
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.methods.shared.declarations import Ingredients
from desim.numerics.cache import cache_home
from desim.privacy.ledger.mechanisms import Noise
from desim.problem.optimum import centralised_optimum
from desim.problem.problem import Problem
from desim.scenario.noise_target import noise_of

KEPT = (0, 1, 2, 3, *range(4, ROUNDS + 1, 4))  # rounds of a learning curve
SLOW = 0.1  # of the initial error: where initial speed is measured
CHUNK = 2  # data sets that a process plays all cases on
Key = TypeVar("Key")


@dataclass(frozen=True)
class Variant:
    """What a case has of its own: the method, its parameters, and its noise."""

    kind: Any
    parameters: Any
    noise: Noise | None

    @classmethod
    def of(cls, case: Case) -> "Variant":
        """The variant of its scenario that a case is."""
        told = desim.load(SCENARIOS / f"{case.file}.yaml", case.overrides)
        return cls(told.algorithm.method, told.algorithm.parameters, noise_of(told))

    def on(self, base: Simulation) -> Simulation:
        """The case on the data, graph and start of `base`."""
        method = self.kind(Ingredients(self.parameters, base.settings, self.noise))
        return replace(base, method=method)


def together(
    monte_carlo: MonteCarlo, cases: Mapping[Key, Case], seeds: Sequence[int], measure: Measure
) -> dict[Key, Array]:
    """`measure` (seeds, ...) of every case; they differ in method, parameters and noise only."""
    (file,) = {case.file for case in cases.values()}
    every = cast(Any, partial(_each, [Variant.of(case) for case in cases.values()], measure))
    found = monte_carlo.values({file: Case(file, WATCHED)}, seeds, every, CHUNK)[file]
    return dict(zip(cases, np.moveaxis(found, 1, 0), strict=True))


def _each(variants: Sequence[Variant], measure: Measure, base: Simulation) -> list[Any]:
    return [measure(variant.on(base)) for variant in variants]


def curve(made: Simulation) -> Array:
    """Errors (rounds + 1,) of the agents' own models; infinite where the run diverges."""
    played = made.play(Discard())
    if played.status != "done" or played.iterates is None:
        return np.full(ROUNDS + 1, np.inf)
    best = minimiser(made.problem)
    return np.asarray(((played.iterates - best) ** 2).sum((1, 2)) / (best @ best))


@lru_cache(maxsize=1)
def minimiser(problem: Problem) -> Array:
    """w_c (dim,), of the problem without clipping."""
    return centralised_optimum(replace(problem, clip=np.inf), cache_home() / "optima").x


def errors(made: Simulation) -> tuple[float, ...]:
    """Errors at rounds KEPT, and at last that of what the agents have sent, noise included.

    The last noise is in nobody's model yet, so it adds its variance to the expected error.
    """
    found, best = curve(made), minimiser(made.problem)
    planned = made.method.planned(ROUNDS)
    sent = made.problem.dim * np.sum(np.square(planned.scale)) / (best @ best)
    return (*found[list(KEPT)].tolist(), float(found[-1] + sent))


def last(made: Simulation) -> float:
    """The error after the last round."""
    return float(curve(made)[-1])


def speed(made: Simulation) -> float:
    """Rounds until the error is SLOW of the initial one, interpolated; inf if it never is."""
    level = np.log(curve(made))
    below = level <= level[0] + np.log(SLOW)
    if not below.any():
        return float("inf")
    k = int(below.argmax())
    return float(k - (level[0] + np.log(SLOW) - level[k]) / (level[k - 1] - level[k]))
