"""What the claims about noisy coefficients follow from: the epsilon that was allotted."""

from typing import Any

from desim.privacy.ledger.ledger import Mechanism
from desim.privacy.ledger.mechanisms import Allotted
from desim.privacy.papers.claims import Inputs, inputs
from desim.privacy.papers.functional import shared_out, theorem_20_delta


def allotted(method: Any, names: tuple[str, str]) -> Inputs | None:
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
