"""What a reply weighs that answers an older model: s(t) of its staleness t, for every engine.

Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization" (arXiv 1903.03934), Section 5.2.
Staleness is the number of rounds that were published between a call and its collection: 0 of a
reply to the latest model, for which the paper's t - tau is 1, so that a fresh reply weighs 1.
"""

from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int
from desim.numerics.elementary import exp_, log_
from desim.numerics.jit import kernel, lean_inline

CONSTANT, POLYNOMIAL, HINGE = range(3)


class Staleness(NamedTuple):
    """The kind of s(t) and its numbers; a plain tuple is what compiled code takes."""

    kind: int = CONSTANT
    a: float = 0.0
    b: float = 0.0

    def weights(self, staleness: Int) -> Array:
        """Return s (n,) of staleness (n,)."""
        if self.kind == CONSTANT:
            return np.ones(len(staleness))
        return np.asarray(_weights(tuple(self), staleness))


UNWEIGHED = Staleness()


@lean_inline
def weight(rule: Any, t: Any) -> Any:
    """s(t): 1; (t + 1)^-a; or 1 up to t = b, and 1 / (a (t - b) + 1) above it."""
    kind, a, b = rule
    if kind == POLYNOMIAL:
        return exp_(-a * log_(t + 1.0))
    if kind == HINGE and t > b:
        return 1.0 / (a * (t - b) + 1.0)
    return 1.0


@kernel
def _weights(rule, staleness):
    out = np.empty(staleness.shape[0])
    for r in range(out.size):
        out[r] = weight(rule, staleness[r])
    return out
