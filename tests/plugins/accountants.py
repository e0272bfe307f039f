"""Accountants: one by privacy loss distributions of dp-accounting, and some that are wrong."""

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as loss

from desim.privacy.accounting.plugged import Accountant

INTERVAL = 1e-3


def distribution(prices):
    """The privacy loss distribution of Gaussian and Laplace releases."""
    parts = []
    if prices.mu2.any():
        deviation = float(1.0 / np.sqrt(prices.mu2.sum()))
        parts = [loss.from_gaussian_mechanism(deviation, value_discretization_interval=INTERVAL)]
    for ratio in prices.laplace[prices.laplace > 0.0]:
        parts += [loss.from_laplace_mechanism(1.0 / ratio, value_discretization_interval=INTERVAL)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return whole


class Pld(Accountant):
    """What dp-accounting says of the whole distribution of the privacy loss."""

    name = "pld"
    summary = "privacy loss distributions, by dp-accounting"

    def epsilon(self, prices, delta):
        """Upper bound by a distribution that is rounded up."""
        if (prices.rho + prices.pure + prices.ratio).any():
            raise NotImplementedError("Gaussian and Laplace releases only")
        return distribution(prices).get_epsilon_for_delta(delta)


class Half(Pld):
    """Half of that, which is wrong."""

    name = "half"
    summary = "half of pld"

    def epsilon(self, prices, delta):
        """Less than is attained."""
        return 0.5 * super().epsilon(prices, delta)


def answering(label, answer):
    """An accountant that always says the same."""

    def epsilon(self, prices, delta):
        return answer() if callable(answer) else answer

    body = {"__module__": __name__, "name": label, "summary": label, "epsilon": epsilon}
    return type(label.title(), (Accountant,), body)


Nan = answering("nan", float("nan"))
Negative = answering("negative", -1.0)
Arrays = answering("array", np.ones(2))
Text = answering("text", "much")
Nothing = answering("nothing", None)
Truth = answering("truth", True)
Raises = answering("raises", lambda: 1 / 0)
Leaves = answering("leaves", lambda: exit("bye"))
