"""Fair classification by noisy coefficients: a penalty on the covariance with a protected group.

Xu, Yuan, Wu 2019 (doi 10.1145/3308560.3317584) and Ding 2021, dissertation, (101): the objective
has alpha |c.w|, c = sum_h (z_h - zbar) x_h, z_h = 1 in the protected group. That is no polynomial:
(102) replaces it by alpha sum_h |z_h - zbar| x_h.w, which only makes all scores fall. Here c is
sent by itself, with noise of its own, and the coordinator minimises what (101) says.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import PlainValidator, WithJsonSchema

from desim.algorithms.coefficients import Penalty
from desim.algorithms.functional_mechanism import FunctionalMechanism
from desim.algorithms.functional_mechanism import Parameters as Plain
from desim.algorithms.method import LOGISTIC, Ingredients
from desim.errors import refusal, spelling
from desim.fields import NonNegative, Strict, Text
from desim.fields.numbers import number
from desim.privacy.bounds.coefficient_noise import Reach
from desim.privacy.mechanisms import Allotted, Noise
from desim.problem import Problem

ALLOWED = "data, or a public share of the protected group, above 0 and below 1"


def _inside(value: object, allowed: str) -> float:
    return number(value, allowed, lambda x: 0.0 < x < 1.0)


def _zbar(value: object) -> str | float:
    return "data" if value == "data" else _inside(value, ALLOWED)


OPEN = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
Zbar = Annotated[
    str | float, PlainValidator(_zbar), WithJsonSchema({"anyOf": [{"enum": ["data"]}, OPEN]})
]
Part = Annotated[
    float,
    PlainValidator(lambda value: _inside(value, "above 0 and below 1: both parts need something")),
    WithJsonSchema(OPEN),
]


class Parameters(Plain):
    """alpha, zbar, penalty: the fairness term; share: the budget of c."""

    examples: ClassVar[Mapping[str, Any]] = {"zbar": 0.5, "share": 0.3}

    alpha: NonNegative = 1.0
    """weight of the penalty; 0 for none"""
    zbar: Zbar = "data"
    """mean of z: data, of each agent's own rows, which the sensitivity pays for; or a public one"""
    penalty: Literal["exact", "printed"] = "exact"
    """exact: alpha |c.w|; printed: alpha sum_h |z_h - zbar| x_h.w"""
    share: Part = 0.5
    """part of epsilon (Gaussian: of mu^2) for c, exact only; the rest is for the objective"""


class GroupedParameters(Parameters):
    """x_s: the special attribute."""

    x_s: Text | None = None
    """attribute whose coefficients have epsilon_s: a feature, or a column that became several"""


class Fair(FunctionalMechanism):
    """A method with a protected group; `grouped` ones have a special attribute."""

    wants = (LOGISTIC, "a protected attribute")
    Parameters: ClassVar[type[Strict]] = Parameters

    def __init__(self, ingredients: Ingredients) -> None:
        given = ingredients.parameters
        self.shifted = given.penalty.startswith("shifted")
        self.penalty: Penalty = "printed" if given.penalty == "shifted-rows" else given.penalty
        self.alpha = given.alpha
        self.zbar = None if given.zbar == "data" else given.zbar
        self.share = given.share if given.penalty == "exact" else 0.0
        super().__init__(ingredients)

    def reach(self) -> Reach:
        """A record's |z - zbar| is at most that, and through zbar it moves all others by 1."""
        far = 2.0 if self.zbar is None else max(self.zbar, 1.0 - self.zbar)
        fair = 0.5 + self.alpha * far
        if self.penalty == "exact":
            return Reach(0.5, 0.5, 0.5, far)
        if self.shifted:
            return Reach(fair, 0.5, 0.5, far)
        return Reach(fair, fair, 0.5 + self.alpha, far)

    @classmethod
    def special(cls, parameters: Any, problem: Problem) -> Any:
        """Which features (d,) are special: x_s itself, or those that encode its values."""
        x_s = getattr(parameters, "x_s", None)
        names = problem.names
        return np.array([x_s is not None and _of(name, x_s) for name in names], bool)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        if problem.protected is None:
            found.append(
                f"problem.data.protected: missing; {cls.name} needs the protected group; allowed: "
                "{column: ..., value: ...} or {column: ..., above: ...}"
            )
        x_s = getattr(parameters, "x_s", None)
        if x_s is not None and not any(_of(name, x_s) for name in problem.names):
            near = spelling(x_s, problem.names)
            found.append(f"algorithm.x_s: {refusal(x_s, ', '.join(problem.names))}{near}")
        elif cls.grouped and isinstance(noise, Allotted):
            found += _split(cls.special(parameters, problem), noise)
        return found


def _of(name: str, attribute: str) -> bool:
    return name == attribute or name.startswith(f"{attribute}=")


def _split(special: Any, noise: Allotted) -> list[str]:
    """What is wrong with how epsilon and delta are split between the two groups."""
    if noise.epsilon_s is None:
        return []
    if not special.any():
        return ["algorithm.x_s: missing; privacy.noise.epsilon_s is for its coefficients"]
    share = float(special.mean())
    _, (epsilon, delta) = noise.groups(share)
    found = []
    if epsilon <= 0.0:
        most = (noise.epsilon or 0.0) / share
        found.append(
            f"privacy.noise.epsilon_s: found {noise.epsilon_s:g}, which leaves nothing of epsilon "
            f"{noise.epsilon:g} for the other features; allowed: below {most:g}"
        )
    if noise.delta_s is not None and delta <= 0.0:
        found.append(
            f"privacy.noise.delta_s: found {noise.delta_s:g}, which leaves nothing of delta "
            f"{noise.delta:g} for the other features; allowed: below {noise.delta:g}"
        )
    return found
