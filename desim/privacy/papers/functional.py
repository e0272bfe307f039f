"""PDFC and ADFC (Ding 2021, dissertation, chapter 5): noise on the coefficients of the objective.

Sampled once; the model is post-processing, so every view costs the same. Two groups of
coefficients, with and without the special weight w_s, get noise for eps_s and eps_n.
"""

from math import log, pi, sqrt
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.ledger.mechanisms import Allotted
from desim.privacy.ledger.terms import Mechanism
from desim.privacy.papers.claims import Inputs, inputs


def shared_out(epsilon_s: float, epsilon_n: float, d: float) -> float:
    """Epsilon eps_s / d + (d - 1)/d eps_n (Theorems 18 and 20).

    Their proofs give the special group 1/d of the sensitivity; a record x = e_s puts it all there.
    """
    return epsilon_s / d + (d - 1.0) / d * epsilon_n


def theorem_19(epsilon: float, delta: float, delta2: float) -> float:
    """Deviation delta2 / (sqrt(2) eps) (sqrt(s) + sqrt(s + eps)), s = ln(sqrt(2/pi)/delta): loose.

    The exact one is delta2 / mu_of(epsilon, delta).
    """
    s = log(sqrt(2.0 / pi) / delta)
    return delta2 / (sqrt(2.0) * epsilon) * (sqrt(s) + sqrt(s + epsilon))


def theorem_20_delta(delta_s: float, delta_n: float) -> float:
    """Delta 1 - (1 - delta_s)(1 - delta_n) of Theorem 20, whose epsilon is `shared_out`."""
    return delta_s + delta_n - delta_s * delta_n


def allotted(given: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """The epsilon that the noise was allotted, of each agent that has sent its coefficients."""
    epsilon = np.zeros(given["agents"])
    epsilon[np.unique(releases["agent"])] = given["epsilon"]
    return epsilon, []


def allotted_inputs(method: Any, names: tuple[str, str]) -> Inputs | None:
    """Inputs of the theorem names[0], or names[1] for Gaussian noise; None without epsilons.

    method: has noise, problem, layout and parameters. With two groups epsilon is their mean by
    shares of features, which is what Theorem 18 says with one special feature.
    """
    noise, layout = method.noise, method.layout
    if not isinstance(noise, Allotted):
        return None
    d, k = layout.d, int(layout.special.sum())
    (epsilon_s, delta_s), (epsilon_n, delta_n) = noise.groups(k / d)
    both = noise.epsilon_s is not None
    epsilon = shared_out(epsilon_s, epsilon_n, d / k) if both else epsilon_n
    delta = theorem_20_delta(delta_s, delta_n) if both else delta_n
    unmet = []
    if both and k != 1:
        unmet.append(f"one special feature: here {k} features are special")
    if method.penalty == "exact":
        unmet.append("the printed objective: here c is sent with noise of its own")
    if method.penalty != "none" and method.zbar is None:
        unmet.append("a public zbar: here it is the mean of the data")
    name = names[noise.mechanism is Mechanism.GAUSSIAN]
    return inputs(name, method.problem.agents, unmet, epsilon=epsilon, delta=delta)
