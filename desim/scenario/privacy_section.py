"""The section `privacy`: noise, the target it is calibrated to, the budget, and the terms of both.

An epsilon is always about neighbouring data sets (relation), an adversary (view) and a delta.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from desim.errors import refusal, spelling
from desim.fields import Flag, NonNegative, Positive, Share, Strict
from desim.fields.numbers import number

VIEWS = ("eavesdropper", "coordinator", "final-model")
NAMING = ("neighbour", "direct", "collusion")  # views that name agents
NAMED = re.compile(
    r"(neighbour|direct):\s*(\d{1,9})|(collusion):\s*\[\s*(\d{1,9}(?:\s*,\s*\d{1,9})*)\s*\]"
)
WRITTEN_VIEW = rf"^({'|'.join(VIEWS)}|(neighbour|direct):\s*\d+|collusion:\s*\[[\d\s,]+\])$"
ALLOWED_VIEWS = (
    f"{', '.join(VIEWS)}, 'neighbour:3', 'direct:3', 'collusion:[0, 3]' or the same as a mapping"
)
DELTA = 1e-5

Delta = Annotated[
    float,
    PlainValidator(
        lambda value: number(value, "a number above 0 and below 1", lambda x: 0 < x < 1)
    ),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
]


class Noise(Strict):
    """Noise on what the method perturbs, in one of three forms.

    {kind, sigma, decay}; zCDP-NFL's {phi, growth}; or the classical {epsilon, delta, composition}.
    """

    kind: Literal["gaussian", "laplace", "l2-laplace", "discrete-gaussian"] | None = None
    """distribution; default gaussian, with sigma"""
    sigma: NonNegative | None = None
    """standard deviation per coordinate, in the first round; left to privacy.target if not given"""
    decay: Share | None = None
    """factor on the variance each round; default 1"""
    resolution: Positive | None = None
    """discrete-gaussian: distance between two levels, to which values are rounded before noise"""
    phi: Positive | None = None
    """zCDP that the first round spends; the variance follows from it"""
    growth: Share | None = None
    """round n spends phi / growth^(n - 1)"""
    epsilon: Positive | None = None
    """what the classical Gaussian mechanism promises, all rounds of stop.rounds together"""
    delta: Delta | None = None
    """delta of that epsilon"""
    composition: Literal["none", "basic", "advanced"] | None = None
    """how epsilon and delta are shared out over rounds; none: they are those of every round"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the defaults of the form it takes."""
        written = super().mapping(data)
        direct = [key for key in ("sigma", "kind", "decay", "resolution") if key in written]
        paper = [key for key in ("phi", "growth") if key in written]
        classical = [key for key in ("epsilon", "delta", "composition") if key in written]
        if classical:
            return cls._classical(written, [*direct, *paper])
        if direct and paper:
            found = f"found {direct[0]} and {paper[0]}"
            raise ValueError(f"{found}; allowed: {{kind, sigma, decay}} or {{phi, growth}}")
        if paper:
            if "growth" not in written:
                raise ValueError("found no growth; allowed: {phi: ..., growth: ...}")
            return written
        discrete = written.get("kind") == "discrete-gaussian"
        if discrete and "resolution" not in written:
            raise ValueError(
                "found discrete-gaussian without resolution; allowed: the distance "
                "between two levels, a number > 0"
            )
        if not discrete and "resolution" in written:
            raise ValueError("found resolution; allowed: with kind: discrete-gaussian")
        return {"kind": "gaussian", "decay": 1.0, **written}

    @classmethod
    def _classical(cls, written: Mapping[str, Any], others: list[str]) -> Mapping[str, Any]:
        """The form {epsilon, delta, composition}, whole and alone."""
        keys = ("epsilon", "delta", "composition")
        lacking = [key for key in keys if key not in written]
        if lacking or others:
            found = f"no {lacking[0]}" if lacking else f"epsilon and {others[0]}"
            allowed = "{epsilon: ..., delta: ..., composition: none | basic | advanced}"
            raise ValueError(f"found {found}; allowed: {allowed}")
        return written

    @property
    def form(self) -> str:
        """The kind of noise, or `schedule` or `classical`."""
        if self.composition is not None:
            return "classical"
        return "schedule" if self.scheduled else self.kind or "gaussian"

    @property
    def scheduled(self) -> bool:
        """Whether the paper's own schedule {phi, growth} sets the noise."""
        return self.growth is not None

    @property
    def complete(self) -> bool:
        """Whether it says how much noise there is."""
        return any(one is not None for one in (self.phi, self.sigma, self.epsilon))


class Target(Strict):
    """The privacy that the planned rounds may cost; the noise follows from it."""

    epsilon: Positive
    """epsilon of all planned releases of the agent that spends most"""
    delta: Delta
    """delta of that epsilon; below 1 / rows of every agent"""
    calibrated: Flag = False
    """whether privacy.noise is what this target gave; a stored scenario says so"""


def read_view(value: object) -> object:
    """A view in its one spelling: a word, or `neighbour:3`, `direct:3`, `collusion:[0, 3]`."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((word, agents),) = value.items()
        listed = list(agents) if isinstance(agents, list | tuple) else agents
        value = f"{word}:{listed}"
    if isinstance(value, str):
        if value in VIEWS:
            return value
        if named := NAMED.fullmatch(value):
            if named[1]:
                return f"{named[1]}:{int(named[2])}"
            agents = sorted({int(one) for one in named[4].split(",")})
            return f"collusion:{agents}"
        if value in NAMING:
            text = f"found {value!r}, a view that names no agent"
            example = f"{value}:[0, 3]" if value == "collusion" else f"{value}:3"
            raise ValueError(f"{text}; allowed: {example}")
    raise ValueError(refusal(value, ALLOWED_VIEWS) + spelling(value, (*VIEWS, *NAMING)))


def agents_of(view: str) -> tuple[int, ...]:
    """The agents that a view names."""
    return tuple(int(one) for one in re.findall(r"\d+", view))


View = Annotated[
    str,
    BeforeValidator(read_view),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": WRITTEN_VIEW},
                {"type": "object", "minProperties": 1, "maxProperties": 1},
            ]
        }
    ),
]


class Privacy(Strict):
    """Noise, and the terms in which privacy is stated."""

    noise: Noise | None = None
    """noise on what the method perturbs; default: none, or gaussian where a target is given"""
    target: Target | None = None
    """calibrates what privacy.noise leaves out, over the rounds of stop.rounds"""
    relation: Literal["replace-one", "add-or-remove-one", "agent"] = "replace-one"
    """neighbouring data sets: one row replaced, one added or removed, or all rows of one agent"""
    view: View = "eavesdropper"
    """what the adversary sees: every message, the uploads, agents' inboxes, the last model"""
    delta: Delta = DELTA
    """delta of a reported epsilon and of the budget; default: the target's, else 1e-5"""
    budget: Positive | None = None
    """epsilon that no agent's releases exceed"""
    on_exhausted: Literal["retire", "stop"] | None = None
    """what a spent budget ends: the agent's part in the run (the default), or the run"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the defaults that a target and a budget bring."""
        written = dict(super().mapping(data))
        if "budget" in written:
            written.setdefault("on_exhausted", "retire")
        elif "on_exhausted" in written:
            raise ValueError("found on_exhausted without budget; allowed: both, or none of them")
        target = written.get("target")
        if isinstance(target, Target):
            written.setdefault("delta", target.delta)
        elif isinstance(target, Mapping) and "delta" in target:
            written.setdefault("delta", target["delta"])
        if "target" in written:
            written.setdefault("noise", {"kind": "gaussian"})
        return written
