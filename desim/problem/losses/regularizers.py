"""Separable regularisers: l1 |x|_1 + (l2/2) ||x||^2 on a box, each coefficient or bound optional.

One family covers none, ridge, lasso, elastic net and box, and it is closed under addition, so a
scenario's list of regularisers is again one of these.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from desim.arrays import Array


def prox(v: Any, t: float, h: tuple[float, float, float, float, bool]) -> Any:
    """argmin_x h(x) + (x - v)^2 / (2 t) of numbers or arrays v, h as `Regularizer.numbers`.

    Each coordinate is a convex problem on an interval of the line: its solution is the free one,
    soft(v, t l1) / (1 + t l2), moved to the nearest point of the interval.
    """
    l1, l2, lower, upper, vanishes = h
    if vanishes:
        return v
    free = np.sign(v) * np.maximum(np.abs(v) - t * l1, 0.0) / (1.0 + t * l2)
    return np.clip(free, lower, upper)


@dataclass(frozen=True)
class Regularizer:
    """h(x) = sum_j l1 |x_j| + (l2/2) x_j^2, and infinite outside lower <= x_j <= upper."""

    l1: float = 0.0
    l2: float = 0.0
    lower: float = -np.inf
    upper: float = np.inf

    def __post_init__(self) -> None:
        for name in ("l1", "l2"):
            found = getattr(self, name)
            if not 0.0 <= found < np.inf:
                raise ValueError(f"regularizer.{name}: {found} is not a finite number >= 0")
        if not self.lower < self.upper:
            raise ValueError(f"regularizer.box: [{self.lower}, {self.upper}] has no inside")

    def __add__(self, other: "Regularizer") -> "Regularizer":
        """The sum of two: coefficients add and boxes intersect."""
        return Regularizer(
            self.l1 + other.l1,
            self.l2 + other.l2,
            max(self.lower, other.lower),
            min(self.upper, other.upper),
        )

    @property
    def boxed(self) -> bool:
        """Whether it bounds x at all."""
        return self.lower > -np.inf or self.upper < np.inf

    @cached_property
    def vanishes(self) -> bool:
        """Whether it is zero everywhere."""
        return self.smooth and self.l2 == 0.0

    @property
    def smooth(self) -> bool:
        """Whether it is differentiable everywhere: at most l2."""
        return self.l1 == 0.0 and not self.boxed

    def value(self, x: Array) -> float:
        """h(x) of x (dim,)."""
        if self.boxed and (np.min(x) < self.lower or np.max(x) > self.upper):
            return np.inf
        return float(self.l1 * np.sum(np.abs(x)) + 0.5 * self.l2 * np.sum(x * x))

    def subgradient(self, x: Array) -> Array:
        """l1 sign(x) + l2 x, any shape, with sign(0) = 0; the box has none that is bounded."""
        return np.asarray(self.l1 * np.sign(x) + self.l2 * x)

    def prox(self, v: Array, t: float) -> Array:
        """argmin_x h(x) + ||x - v||^2 / (2 t), any shape."""
        return np.asarray(prox(v, t, self.numbers))

    @property
    def numbers(self) -> tuple[float, float, float, float, bool]:
        """l1, l2, lower, upper, and whether it vanishes, as `prox` takes them."""
        return self.l1, self.l2, self.lower, self.upper, self.vanishes


NONE = Regularizer()
