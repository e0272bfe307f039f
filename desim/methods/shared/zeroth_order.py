"""What methods without gradients share: estimates from values, their noise, and what it costs.

An estimate sees the data only through samples x steps difference quotients. With clipped examples
one record moves a quotient by at most 2 clip scale ||v2||, whatever the directions are; noise of
deviation sigma ||v2|| on each makes it a Gaussian release, given all before it, so that all of a
round are one of sensitivity 2 clip scale sqrt(samples steps). The model that comes of them is
post-processing. Without that noise nothing bounds what the random directions leave unseen.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.methods.shared.declarations import Ingredients, Method
from desim.privacy.ledger.ledger import Mechanism, Terms, View, plain
from desim.privacy.ledger.mechanisms import terms

if TYPE_CHECKING:
    from desim.engine.us import Cohort

UNKNOWN = (
    "privacy: epsilon is infinite: random directions are no noise of a known law, and their spread "
    "depends on the data; set privacy.noise and problem.clip"
)
Job = Callable[..., Array]


class ZerothOrder(Method):
    """A round takes `samples` (agents,) quotients in each of its `inner` steps, from x0."""

    smooth_only = False
    values_only = True
    uncoded = "there is nobody to whom it sends"
    wants = ("values of the loss only",)
    noises = ("gaussian", "schedule", "classical")
    needs_clip = True
    view = View.PUBLIC

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        p, problem = self.parameters, self.problem
        self.x0 = self.settings.initial("x0")
        self.samples: Int = np.broadcast_to(p.samples, problem.agents)
        self.count = self.samples.astype(float) * getattr(p, "inner", 1)
        self.work = 2.0 * self.count * problem.rows
        self.warnings += [UNKNOWN] * (self.noise is None)

    def seed(self, us: "Cohort") -> int:
        """Seed of the directions: the run's, or, where they are the only noise, that of noise."""
        return self.settings.seed if self.noise is not None else us.noise_seed

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of all estimates of round k."""
        problem = self.problem
        if self.noise is None:
            return plain(problem.agents, self.view)
        sensitivity = 2.0 * problem.clip * problem.scale * np.sqrt(self.count)
        one = terms(self.noise, self.view, k, sensitivity, problem.dim)
        nothing = np.full(problem.agents, np.inf)
        return replace(one, mechanism=Mechanism.NOISY_GRADIENT, coupled=nothing)

    def estimated(
        self, us: "Cohort", k: int, job: Job, *inputs: Array
    ) -> Generator[Any, Any, Array]:
        """What job(us, *inputs, key, deviation) makes (n, dim) of the estimates of round k."""
        silent, work = np.zeros(len(us.who)), self.work[us.who]
        if self.noise is None:
            key = silent.astype(np.uint64)
            return np.asarray((yield us.compute(job, *inputs, key, silent, work=work)))
        terms = self.planned(k).of(us.who)
        key = us.charged(terms)
        estimate = yield us.compute(job, *inputs, key, terms.scale, work=work)
        return us.released(estimate, partial(job, us, *inputs, key, silent), terms)
