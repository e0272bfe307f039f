"""What a coordinator makes of the mean change of its agents' models: a step of its own optimiser.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan 2021, "Adaptive federated
optimization" (arXiv 2003.00295), Algorithm 2, whose pseudo-gradient Delta_t is the mean change;
momentum: Hsu, Qi, Brown 2019, "Measuring the effects of non-identical data distribution for
federated visual classification" (arXiv 1909.06335), FedAvgM. A round without replies is no step.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from desim.arrays import Array
from desim.fields import Form, Positive, Squared, Strict
from desim.fields.numbers import within

_BELOW_ONE = within(
    "a number >= 0 and below 1", lambda x: 0 <= x < 1, minimum=0, exclusiveMaximum=1
)
BelowOne = Annotated[float, *_BELOW_ONE]


class Adagrad(Strict):
    """FedAdagrad: v is the sum of all squares so far."""

    rate: Positive
    """the paper's eta: step of the coordinator, in place of global_step"""
    beta1: BelowOne = 0.0
    """weight of the earlier changes in m"""
    tau: Squared = 1e-3
    """what is added to the root of v, which starts at tau^2"""


class Adaptive(Adagrad):
    """FedAdam or FedYogi: v forgets."""

    beta1: BelowOne = 0.9
    """weight of the earlier changes in m"""
    beta2: BelowOne = 0.99
    """weight of the earlier squares in v"""


class Server(Form):
    """The coordinator's optimiser, which takes the mean change for a descent direction."""

    words = ("none",)
    examples = {
        "momentum": 0.9, "adam": {"rate": 0.1}, "yogi": {"rate": 0.1}, "adagrad": {"rate": 0.1},
    }  # fmt: skip

    momentum: BelowOne | None = None
    """FedAvgM: m = beta m + mean change, with this beta; global_step is its step"""
    adam: Adaptive | None = None
    """FedAdam: {rate: .., beta1: 0.9, beta2: 0.99, tau: 0.001}"""
    yogi: Adaptive | None = None
    """FedYogi: {rate: .., beta1: 0.9, beta2: 0.99, tau: 0.001}"""
    adagrad: Adagrad | None = None
    """FedAdagrad: {rate: .., beta1: 0, tau: 0.001}"""


class ServerSteps:
    """The steps of one optimiser, on what a coordinator remembers: m and v, each (dim,)."""

    def __init__(self, server: Server, dim: int) -> None:
        self.kind, self.value, self.dim = server.kind, server.value, dim

    def memory(self) -> dict[str, Array]:
        """What it keeps from round to round, by name, as it starts."""
        if self.kind == "none":
            return {}
        m = np.zeros(self.dim)
        return {"m": m} if self.kind == "momentum" else {"m": m, "v": m + self.value.tau**2}

    def along(self, state: Any, total: Array, n: int) -> tuple[Array, int]:
        """What n replies, of which `total` (dim,) is the sum, move the model along, times a number.

        (direction, number) is (total, n) where there is no optimiser.
        """
        if self.kind == "none" or n == 0:
            return total, n
        mean = total / n  # Delta_t
        if self.kind == "momentum":
            state.m = self.value * state.m + mean  # v <- beta v + Delta w
            return state.m, 1
        own = self.value
        state.m = own.beta1 * state.m + (1.0 - own.beta1) * mean  # m_t
        state.v = self._squares(state.v, mean * mean)  # v_t
        return own.rate * (state.m / (np.sqrt(state.v) + own.tau)), 1

    def _squares(self, v: Array, square: Array) -> Array:
        if self.kind == "adagrad":
            return v + square
        rest = 1.0 - self.value.beta2
        if self.kind == "adam":
            return np.asarray(self.value.beta2 * v + rest * square)
        return np.asarray(v - rest * square * np.sign(v - square))


def two_steps(server: Server, global_step: float) -> Iterator[str]:
    """What is wrong with a global step beside the rate of an optimiser, one line."""
    if server.kind not in ("none", "momentum") and global_step != 1.0:
        text = f"found {global_step:g} with server {server.kind}, whose rate is the step"
        yield f"algorithm.global_step: {text}; allowed: 1"
