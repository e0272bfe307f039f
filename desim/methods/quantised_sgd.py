"""Decentralised SGD with quantised messages and deadlines: what Q-DPSGD-1 and Q-DPSGD-2 share."""

from typing import Any, ClassVar

from desim.method import Count, Duration, Ingredients, Noise, Positive, Problem, Share, Strict
from desim.methods.decentralised_sgd import Averaging, DecentralisedSGD


class Quantised(Averaging):
    """mixing: the paper's epsilon; bits, resolution: the quantiser's s and eta; deadline: T_d."""

    mixing: Share
    """weight of the averaging step (the paper's epsilon)"""
    bits: Count
    """s: bits for one number"""
    resolution: Positive
    """eta: distance between two levels"""
    deadline: Duration
    """T_d: time for gradients in each iteration"""
    least: Count = 1
    """with fewer samples at the deadline there is no gradient, no noise and no cost"""


class QuantisedSGD(DecentralisedSGD):
    """A number in a message is one of 2^bits levels; a batch has the rows that fit a deadline."""

    Parameters: ClassVar[type[Strict]] = Quantised
    timed = True
    uncoded = "it has a codec of its own, algorithm.bits"
    cures = ("algorithm.alpha", "algorithm.mixing")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        half, eta = 2.0 ** (self.parameters.bits - 1), self.parameters.resolution
        self.ends = -half * eta, (half - 1.0) * eta
        low, high = self.x0.min(), self.x0.max()
        if low < self.ends[0] or high > self.ends[1]:
            text = f"{self.range}, the start {low:.3g} to {high:.3g}: messages are cut and biased"
            self.warnings.append(f"algorithm.resolution: {text}")

    @property
    def range(self) -> str:
        """Which numbers a message can hold, in words."""
        return f"{self.parameters.bits} bits hold {self.ends[0]:.3g} to {self.ends[1]:.3g}"

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        bits = parameters.bits
        return [] if 2 <= bits <= 52 else [f"algorithm.bits: found {bits}; allowed: 2 to 52"]
