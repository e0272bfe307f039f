"""The key `policy.staleness`: what a reply weighs that answers an older model."""

from typing import Any, TypeVar

from desim.fields import Form, NonNegative, Positive, Strict
from desim.network.timeline.staleness import HINGE, POLYNOMIAL, UNWEIGHED, Staleness

P = TypeVar("P", bound=Any)


class Hinge(Strict):
    """1 up to a staleness of b, and 1 / (a (t - b) + 1) of a staleness t above it."""

    a: Positive = 10.0
    """how fast the weight falls above b"""
    b: NonNegative = 4.0
    """the largest staleness that costs nothing"""


class Weighing(Form):
    """What a reply weighs that answers an older model: s(t) of its staleness t.

    t counts the rounds published between the call and the collection, 0 of a reply to the latest
    model (Xie, Koyejo, Gupta 2019, arXiv 1903.03934, Section 5.2).
    """

    words = ("constant",)
    examples = {"polynomial": 0.5, "hinge": {"a": 10, "b": 4}}

    polynomial: NonNegative | None = None
    """(t + 1)^-a"""
    hinge: Hinge | None = None
    """1 up to t = b, and 1 / (a (t - b) + 1) above it"""

    @property
    def rule(self) -> Staleness:
        """The same as engines take it."""
        if self.polynomial is not None:
            return Staleness(POLYNOMIAL, self.polynomial)
        return Staleness(HINGE, self.hinge.a, self.hinge.b) if self.hinge else UNWEIGHED


def weighable(policy: P) -> P:
    """The policy; ValueError where its weights have no late reply to weigh."""
    if policy.staleness is not None and policy.late != "carry":
        text = "found staleness where late replies are discarded"
        raise ValueError(f"{text}; allowed: with buffer, or with late: carry")
    return policy
