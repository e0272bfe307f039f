"""What methods without gradients share: estimates from values, their noise, and what it costs.

An estimate sees the data only through samples x steps differences of values. With clipped examples
one record moves a difference by at most 2 clip scale ||v2||, whatever the directions are; noise of
deviation sigma ||v2|| on each makes it a Gaussian release, given all before it, so that all of a
round are one of sensitivity 2 clip scale sqrt(samples steps). The model that comes of them is
post-processing. Without that noise nothing bounds what the random directions leave unseen.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from desim.algorithms.method import Array
from desim.algorithms.zcdp_claim import unbounded
from desim.privacy.ledger import Mechanism, Terms, View, plain
from desim.privacy.mechanisms import Noise, terms
from desim.problem import Problem

NOISES = ("gaussian", "schedule", "classical")
Job = Callable[..., Array]


class Estimates:
    """Estimates of one round: `samples` (agents,) differences in each of `steps` steps."""

    def __init__(
        self, problem: Problem, noise: Noise | None, samples: Any, steps: int, view: View
    ) -> None:
        self.problem, self.noise, self.view = problem, noise, view
        self.count = np.asarray(samples, float) * steps
        self.work = 2.0 * self.count * problem.rows
        self.warnings: list[str] = []
        if noise is None:
            self.warnings.append(
                "privacy: epsilon is infinite: random directions are no noise of a known law, and "
                "their spread depends on the data; set privacy.noise and problem.clip"
            )

    @staticmethod
    def problems(problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return unbounded(noise, problem)

    def directions(self, us: Any, seed: int) -> int:
        """Seed of the directions: the run's, or, where they are the only noise, that of noise."""
        return seed if self.noise is not None else int(us.noise_seed)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of all estimates of round k."""
        problem = self.problem
        if self.noise is None:
            return plain(problem.agents, self.view)
        reach = 2.0 * problem.clip * problem.scale * np.sqrt(self.count)
        one = terms(self.noise, self.view, k, reach, problem.dim)
        nothing = np.full(problem.agents, np.inf)
        return replace(one, mechanism=Mechanism.NOISY_GRADIENT, coupled=nothing)

    def of(self, us: Any, k: int, job: Job, *inputs: Array) -> Generator[Any, Any, Array]:
        """What job(us, *inputs, key, deviation) makes (n, dim) of the estimates of round k."""
        silent, work = np.zeros(len(us.who)), self.work[us.who]
        if self.noise is None:
            key = silent.astype(np.uint64)
            return np.asarray((yield us.compute(job, *inputs, key, silent, work=work)))
        due = self.planned(k).of(us.who)
        key = us.charged(due)
        made = yield us.compute(job, *inputs, key, due.scale, work=work)
        return np.asarray(us.released(made, partial(job, us, *inputs, key, silent), due))
