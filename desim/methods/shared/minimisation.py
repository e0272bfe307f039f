"""Exact minimisation at the agents: its parameters, and what a round does with its outcome."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from desim.arrays import Array
from desim.errors import RunError
from desim.fields import Count, Init, Positive, Strict
from desim.methods.shared.checked_kernels import minimise
from desim.methods.shared.consensus import ConsensusADMM
from desim.methods.shared.declarations import Ingredients
from desim.privacy.ledger.mechanisms import Noise
from desim.problem.kernels.twofold import least_tolerance, longest_rows
from desim.problem.problem import Problem
from desim.unplayed import of_unplayed

if TYPE_CHECKING:
    from desim.engine.us import Cohort


class Minimisation(Strict):
    """tolerance, passes: of a minimisation; init: x0."""

    examples: ClassVar[Mapping[str, Any]] = {"tolerance": 1e-8}

    tolerance: Positive = 1e-10
    """largest gradient norm that a minimisation leaves; with noise the default is what rounding
    leaves of gradients of the size of the clip, if that is more"""
    passes: Count = 1
    """passes over its rows that a minimisation takes of an agent's time"""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class ExactADMM(ConsensusADMM):
    """Consensus ADMM whose agents minimise f_i itself, up to a gradient norm."""

    restarts: ClassVar[tuple[str, ...]] = ()
    forgetting = ""
    cures: ClassVar[tuple[str, ...]] = ("algorithm.eta",)
    letter = "eta"
    #: what the paper calls the gradient norm that a minimisation leaves
    accuracy: ClassVar[str] = "tolerance"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.private = self.noise is not None and self.problem.clipped
        self.tolerance = tolerance_of(self.parameters, self.accuracy, self.problem, self.private)
        self.goal = 0.01 * self.tolerance  # what the last step of Newton's method mostly reaches
        self.demanded = self.tolerance if self.private else np.inf

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found, accuracy = super().problems(parameters, problem, noise), cls.accuracy
        if noise is None or not problem.clipped or not problem.loss.curvature < np.inf:
            return found
        tolerance, key = tolerance_of(parameters, accuracy, problem), f"algorithm.{accuracy}"
        penalty = 2.0 * float(getattr(parameters, cls.letter)) * (problem.agents > 1)
        return found + _unresolved(problem, key, tolerance, penalty)

    def argmin(self, us: "Cohort", w: Array, v: Array, c: Array) -> Array:
        """Argmin of f_i + (c/2) ||.||^2 - <v, .> from w, gradient norm, rounding: (n, dim + 2)."""
        return np.hstack(
            minimise(us.who, w, c[:, 0], v, self.goal, self.problem.data, self.demanded)
        )

    def checked(self, us: "Cohort", solution: Array) -> Array:
        """The minimisers (n, dim); RunError where the tolerance that the ledger counts on fails."""
        keys = f"algorithm.{self.accuracy}, {self.cures[0]}"
        return minimisers(us, solution, self.tolerance, self.private, keys)


def tolerance_of(parameters: Any, accuracy: str, problem: Problem, private: bool = True) -> float:
    """The gradient norm that is charged: as written; the default is what doubles tell, at least.

    Clip and numbers of rows are public.
    """
    written = float(getattr(parameters, accuracy))
    if not private or written != type(parameters).model_fields[accuracy].default:
        return written
    return max(written, least_tolerance(problem.clip, problem.scale * problem.rows))


def _unresolved(problem: Problem, key: str, tolerance: float, penalty: float) -> list[str]:
    """One line for a tolerance, or a row so long, that no minimisation ends within the tolerance.

    With noise that would end the run of whoever has such a row, and of nobody else. penalty: twice
    that of the ADMM, times the least number of neighbours.
    """
    total, found = problem.scale * problem.rows, f"{key}: found {tolerance:g} with noise and clip"
    if not tolerance >= (least := least_tolerance(problem.clip, total)):
        return [f"{found} {problem.clip:g}; allowed: at least {least:.4g}"]
    weight, bend = penalty + problem.ridge, problem.loss.curvature
    each = longest_rows(tolerance, weight, bend, total, problem.rows, problem.dim)
    longest, norms = np.repeat(each, problem.rows), np.linalg.norm(problem.A, axis=1)
    over = np.flatnonzero(~(norms <= longest))
    if not len(over):
        return []
    place = int(over[0])
    agent = int(np.searchsorted(problem.start, place, side="right")) - 1
    row = place - int(problem.start[agent])
    text = f"but row {row} of agent {agent} has norm {norms[place]:.6g}"
    cures = "scale the features (problem.data.scale, or problem.row_norm: {clip: ...})"
    allowed = f"rows up to {longest[place]:.4g}, or a larger number; {cures}"
    return [f"{found}, {text}; allowed: {allowed}"]


@of_unplayed(1, gives=lambda columns: columns - 2)
def minimisers(us: "Cohort", solution: Array, tolerance: float, private: bool, keys: str) -> Array:
    """The minimisers (n, dim) of solution (n, dim + 2), which `argmin` returned.

    Where they are `private`, RunError at a gradient norm above `tolerance`, which the ledger counts
    on; else where it is above what rounding leaves, too. keys: those to change.
    """
    left, rounding = solution[:, -2], solution[:, -1]
    enough = tolerance if private else np.maximum(tolerance, rounding)
    short = np.flatnonzero(us.live & (left > enough) & (left < np.inf))
    if len(short):
        r = short[np.argmax(left[short])]
        why = "rounding leaves" if left[r] <= rounding[r] else "Newton's method leaves"
        named, cure = keys.split(", ")
        error = RunError(
            f"agent {us.who[r]} could not minimise to {named} {tolerance:g} in round "
            f"{us.round[r]}: {why} a gradient of norm {left[r]:.6g}; raise it, scale the features "
            f"(problem.data.scale), or change {cure} where models grow without end"
        )
        error.time = float(us.clock[r])
        raise error
    return np.ascontiguousarray(solution[:, :-2])
