"""Parameters of the functional mechanism and of fair methods, and what may be wrong with them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import PlainValidator, WithJsonSchema

from desim.fields.numbers import number
from desim.method import Allotted, Noise, NonNegative, Problem, Strict, Text, refusal, spelling

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


class Parameters(Strict):
    """domain: of the features; sensitivity: what noise is scaled to."""

    domain: Literal["ball", "box"] = "ball"
    """rows are brought into the unit ball, divided by their norm, or their features into [-1, 1]"""
    sensitivity: Literal["own", "printed"] = "own"
    """own: of the domain, and exact Gaussian noise; printed: the papers', and their deviation"""


class FairParameters(Parameters):
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


class GroupedParameters(FairParameters):
    """x_s: the special attribute."""

    x_s: Text | None = None
    """attribute whose coefficients have epsilon_s: a feature, or a column that became several"""


class StarParameters(FairParameters):
    """As for the other fair methods, and the penalties of PFLR*."""

    penalty: Literal["exact", "printed", "shifted", "shifted-rows"] = "exact"  # type: ignore[assignment]
    """PFLR: exact alpha |c.w| or printed alpha sum_h |z_h - zbar| x_h.w; PFLR*: noise of mean
    alpha |c_j| (shifted), or of mean alpha sum_h |z_h - zbar| x_hj (shifted-rows)"""


def special(parameters: Any, problem: Problem) -> Any:
    """Which features (d,) are special: x_s itself, or those that encode its values."""
    x_s = getattr(parameters, "x_s", None)
    if x_s is None:
        return np.zeros(problem.dim, bool)
    return np.array([_of(name, x_s) for name in problem.names], bool)


def misfits(method: Any, parameters: Any, problem: Problem, noise: Noise | None) -> Iterator[str]:
    """What is wrong with the loss, its gradients or the noise, of any of these methods."""
    name = method.name
    if problem.loss.name != "logistic":
        yield (
            f"problem.loss: found {problem.loss.name}, but {name} expands the logistic "
            "loss of labels in two classes; allowed: logistic"
        )
    if problem.clipped:
        yield (
            f"problem.clip: found {problem.clip:g}, but {name} uses no gradients and "
            "bounds features instead (algorithm.domain); allowed: leave it out"
        )
    if isinstance(noise, Allotted) and noise.mechanism.name.lower() not in method.noises:
        kinds = ", ".join(kind for kind in method.noises if kind != "allotted")
        found = noise.mechanism.name.lower()
        yield f"privacy.noise.kind: found {found}; allowed with {name}: {kinds}"
    if isinstance(noise, Allotted) and noise.epsilon_s is not None and not method.grouped:
        yield f"privacy.noise.epsilon_s: {name} has no special attribute; allowed: epsilon"


def unfair(method: Any, parameters: Any, problem: Problem, noise: Noise | None) -> Iterator[str]:
    """What is wrong with the protected group, and with the special attribute where there is one."""
    if problem.protected is None:
        yield (
            f"problem.data.protected: missing; {method.name} needs the protected group; allowed: "
            "{column: ..., value: ...} or {column: ..., above: ...}"
        )
    x_s = getattr(parameters, "x_s", None)
    if x_s is not None and not special(parameters, problem).any():
        near = spelling(x_s, problem.names)
        yield f"algorithm.x_s: {refusal(x_s, ', '.join(problem.names))}{near}"
    elif method.grouped and isinstance(noise, Allotted):
        yield from _split(special(parameters, problem), noise)


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
