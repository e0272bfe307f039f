"""The loss log cosh r: r^2 / 2 near 0 and |r| - log 2 far away, smooth everywhere."""

import math

from desim.losses.plugged import ScalarLoss


class LogCosh(ScalarLoss):
    """log cosh(u - b) of a row with label b, u = a.x."""

    name = "log-cosh"
    summary = "log cosh(a.x - b): squares small residuals, takes the size of large ones"
    labels = "numbers"
    curvature = 1.0

    @staticmethod
    def value(u: float, b: float) -> float:
        """Log cosh r without overflow."""
        r = abs(u - b)
        return r + math.log1p(math.exp(-2.0 * r)) - math.log(2.0)

    @staticmethod
    def slope(u: float, b: float) -> float:
        """Tanh r."""
        return math.tanh(u - b)

    @staticmethod
    def bend(u: float, b: float) -> float:
        """1 - tanh^2 r."""
        t = math.tanh(u - b)
        return 1.0 - t * t
