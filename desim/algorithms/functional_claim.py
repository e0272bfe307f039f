"""What the papers say that noisy coefficients cost: the epsilon that was allotted, shared out."""

from typing import Any

import numpy as np

from desim.privacy.bounds.claims import Claim, Releases
from desim.privacy.bounds.functional import shared_out, theorem_20_delta
from desim.privacy.bounds.theorems import BY_NAME
from desim.privacy.ledger import Mechanism
from desim.privacy.mechanisms import Allotted


def allotted(method: Any, names: tuple[str, str], releases: Releases, delta: float) -> Claim | None:
    """The claim by the theorem names[0], or names[1] for Gaussian noise; None without epsilons.

    method: has noise, problem, layout and parameters. With two groups epsilon is their mean by
    shares of features, which is what Theorem 18 says with one special feature.
    """
    noise, problem, layout = method.noise, method.problem, method.layout
    if not isinstance(noise, Allotted):
        return None
    d, k = layout.d, int(layout.special.sum())
    (epsilon_s, delta_s), (epsilon_n, delta_n) = noise.groups(k / d)
    both = noise.epsilon_s is not None
    epsilon = shared_out(epsilon_s, epsilon_n, d / k) if both else epsilon_n
    total = theorem_20_delta(delta_s, delta_n) if both else delta_n
    gaussian = noise.mechanism is Mechanism.GAUSSIAN
    each = np.zeros(problem.agents)
    each[releases["agent"].unique()] = epsilon
    unmet = []
    if total > delta:
        unmet.append(f"it is stated at delta {total:g}")
    if both and k != 1:
        unmet.append(f"one special feature: here {k} features are special")
    if method.penalty == "exact":
        unmet.append("the printed objective: here c is sent with noise of its own")
    if method.penalty != "none" and method.zbar is None:
        unmet.append("a public zbar: here it is the mean of the data")
    bound = BY_NAME[names[gaussian]]
    return Claim(bound, each, max(delta, total), "as allotted", tuple(unmet))
