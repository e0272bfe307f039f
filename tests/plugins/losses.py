"""Losses as a user would write them: twins of desim's own, and one with a kink."""

import math

from desim.losses.plugged import ScalarLoss


class Twin(ScalarLoss):
    """The squared loss again."""

    name = "twin"
    summary = "(a.x - b)^2 of a plug-in"
    curvature = 2.0

    @staticmethod
    def value(u: float, b: float) -> float:
        """r^2."""
        return (u - b) * (u - b)

    @staticmethod
    def slope(u: float, b: float) -> float:
        """2 r."""
        return 2.0 * (u - b)

    @staticmethod
    def bend(u: float, b: float) -> float:
        """2."""
        return 2.0


class Margin(ScalarLoss):
    """The logistic loss again."""

    name = "margin"
    summary = "log(1 + exp(-b a.x)) of a plug-in"
    labels = "signs"
    curvature = 0.25

    @staticmethod
    def value(u: float, b: float) -> float:
        """log(1 + exp(-z))."""
        z = b * u
        return math.log1p(math.exp(-abs(z))) + max(0.0, -z)

    @staticmethod
    def slope(u: float, b: float) -> float:
        """-b / (1 + exp(z))."""
        return -b / (1.0 + math.exp(b * u))

    @staticmethod
    def bend(u: float, b: float) -> float:
        """e / (1 + e)^2."""
        e = math.exp(-abs(u))
        return e / ((1.0 + e) * (1.0 + e))


class Pinball(ScalarLoss):
    """The quantile loss, which has a kink and no curvature."""

    name = "pinball"
    summary = "0.8 r above, -0.2 r below"

    @staticmethod
    def value(u: float, b: float) -> float:
        """The larger of 0.8 r and -0.2 r."""
        return max(0.8 * (u - b), -0.2 * (u - b))

    @staticmethod
    def slope(u: float, b: float) -> float:
        """0.8, -0.2, or 0 in between."""
        return (0.8 if u > b else 0.0) - (0.2 if u < b else 0.0)

    @staticmethod
    def bend(u: float, b: float) -> float:
        """0."""
        return 0.0
