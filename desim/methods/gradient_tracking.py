"""Gradient tracking: a second variable of every agent follows the mean of all gradients.

Numbers are this file's. DIGing (Nedic, Olshevsky, Shi 2017, arXiv 1607.03218, Algorithm 1): x_i =
sum_j w_ij x_j - alpha y_i (1), y_i = sum_j w_ij y_j + g_i(x_i) - g_i(x_i before) (2), y_i = g_i(x0)
at first. NEXT (Di Lorenzo, Scutari 2016, arXiv 1602.00591) and SONATA mix what has stepped: x_i =
sum_j w_ij (x_j - alpha y_j) (3). The sum of all y is that of all gradients, so that a constant step
ends at the optimum. With batches g_i is of fresh rows each time (Pu, Nedic 2021, arXiv 1805.11454).
Aug-DGM mixes the new gradients, too, which takes a second message in every iteration.
Noise is on g_i, once: (2) adds it and takes the very same away an iteration later, so that the sum
of all y has that of one iteration only. Who hears all that enters (2) knows g_i with its noise, and
nothing else: an iteration costs what one of dsgd does.
"""

from typing import ClassVar, Literal

import numpy as np

from desim.method import Count, Program, Strict, Us
from desim.methods.decentralised_sgd import Averaging
from desim.methods.dsgd import DSGD


class Tracking(Averaging):
    """batch: rows of a gradient; form: what is mixed."""

    batch: Count | None = None
    """fresh rows of every gradient; default: all that an agent has"""
    form: Literal["diging", "next"] = "diging"
    """diging: models are mixed, then step; next: what has stepped is mixed"""


class GradientTracking(DSGD):
    """A message is x and y, twice as long as one of dsgd."""

    name = "gradient-tracking"
    summary = "gradient tracking (DIGing, NEXT): constant steps end at the optimum itself"
    paper = "Di Lorenzo, Scutari 2016; Nedic, Olshevsky, Shi 2017"
    shown = "released"
    linear = True
    Parameters: ClassVar[type[Strict]] = Tracking
    policies = ("all",)  # what is lost of y is never made up for
    restarts = ()
    forgetting = "the sum of all y is that of all gradients no more once one agent forgets its own"

    def agents(self, us: Us) -> Program:
        """The recursion for agents `us`."""
        samples, mixes = self.samples(us.who), self.parameters.form == "next"
        weights = self.averages.of(us)
        us.x = self.x0[us.who]
        us.y = us.g = np.zeros_like(us.x)
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples))
            us.y = us.y + g - us.g  # (2), whose sum is below
            us.g, step = g, self.alpha.at(k) * us.y
            x = us.x - step if mixes else us.x
            us.send(np.hstack([x, us.y]))
            heard = yield us.gather()
            w_own, w_link = weights(k)
            mean = w_own * np.hstack([x, us.y]) + us.sum(heard, w_link)
            x, us.y = np.hsplit(mean, 2)
            us.x = x if mixes else x - step  # (3) or (1)
            us.report(us.x)
