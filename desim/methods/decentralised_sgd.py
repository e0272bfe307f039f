"""Decentralised SGD: what methods share that average with neighbours and step on batch gradients.

x_i+ = sum_j w_ij x_j - alpha g_i(x_i) with W = I - L / kappa or Metropolis weights (Yuan, Ling,
Yin 2016; with batches Lian et al. 2017). Noise is added to g_i, so that models and messages are
post-processing; a batch is a fresh uniform subset, as secret as amplification by sampling needs it.
"""

from typing import ClassVar, Literal

import numpy as np

from desim.method import (
    DRIFTS,
    Array,
    Averages,
    Count,
    Ingredients,
    Init,
    Int,
    Method,
    Positive,
    Step,
    Strict,
    Terms,
    Us,
    batch_gradient,
)


class Stepping(Strict):
    """alpha: gradient step; batch: rows of a gradient; init: x0."""

    alpha: Step
    """gradient step in iteration k = 1, 2, ..."""
    batch: Count | None = None
    """fresh rows of every gradient; default: all that an agent has"""
    init: Init = Init.of("zeros")
    """x0, a public start"""


class Averaging(Strict):
    """alpha: gradient step; weights, kappa: how agents average; init: x0."""

    examples = {"kappa": 8.0}

    alpha: Step
    """gradient step in iteration k = 1, 2, ..."""
    weights: Literal["laplacian", "metropolis"] = "laplacian"
    """laplacian: W = I - L / kappa; metropolis: w_ij = 1 / (1 + larger degree)"""
    kappa: Positive | None = None
    """with laplacian; default: the largest eigenvalue of the Laplacian L"""
    init: Init = Init.of("zeros")
    """x0, a public start"""


class Batched(Averaging):
    """batch: rows of a gradient."""

    batch: Count | None = None
    """fresh rows of every gradient; default: all that an agent has"""


class Batches(Batched):
    """numbers: how a message writes them."""

    numbers: Literal["float64", "float32", "float16"] = "float64"
    """format of the numbers in a message, to which they are rounded"""


class Ordered(Batched):
    """order: which rows of a gradient."""

    order: Literal["fresh", "cyclic"] = "fresh"
    """batches: fresh ones, uniform and secret; cyclic: an agent's rows in turn, in public, each in
    every b-th round of the m = b batch rows"""


class OrderedBatches(Ordered, Batches):
    """What DSGD's rows are, and how its messages are written."""


class DecentralisedSGD(Method):
    """Averages with the neighbours' models, steps along noisy gradients of fresh batches."""

    kind = "graph"
    smooth_only = True
    directed: ClassVar[bool] = True
    changing: ClassVar[bool] = True
    models = "any"
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline")
    noises: ClassVar[tuple[str, ...]] = ("gaussian", "laplace", "discrete-gaussian")
    cures: ClassVar[tuple[str, ...]] = ("algorithm.alpha",)
    uncoded: ClassVar[str] = DRIFTS

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        parameters = self.parameters
        if hasattr(parameters, "weights"):  # push-sum and means of two have none
            self.averages = Averages(ingredients.settings, parameters.weights, parameters.kappa)
            self.warnings += self.averages.warnings
        self.alpha, self.x0 = parameters.alpha, ingredients.settings.initial("x0")

    def batch_gradient(self, us: Us, x: Array, samples: Int) -> Array:
        """Mean clipped gradients (n, dim) over fresh uniform batches of samples (n,) rows, or 0."""
        return np.asarray(
            batch_gradient(us.who, x, samples, us.round, self.settings.seed, self.problem.data)
        )

    def sensitivity(self, who: Int, samples: Int) -> Array:
        """Sensitivity (n,) 2 K / |S| of the mean over |S| of m rows (2 K m / |S| of a sum)."""
        whole = 2.0 * self.problem.clip * self.problem.scale[who] * self.problem.rows[who]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(samples > 0, whole / samples, 0.0)

    def terms(self, who: Int, k: int, samples: Int) -> Terms:
        """What releasing gradients of samples (n,) rows in round k costs agents who (n,)."""
        key = who.tobytes(), samples.tobytes()
        return self.priced(
            k, key, lambda: (self.sensitivity(who, samples), samples / self.problem.rows[who])
        )
