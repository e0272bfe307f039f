"""The section `privacy`: noise, the target it is calibrated to, the budget, and the terms of both.

An epsilon is always about neighbouring data sets (relation), an adversary (view) and a delta.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from desim.errors import refusal
from desim.fields import (
    Bandwidth,
    Count,
    Flag,
    Form,
    Fraction,
    NonNegative,
    Positive,
    Seconds,
    Share,
    Strict,
    Text,
)
from desim.fields.numbers import number, share, wholes, within
from desim.privacy.accounting.views import PATTERN, read_view

DELTA = 1e-5
SCHEDULE = ("sigma", "kind", "decay", "period", "iteration")
AMOUNTS = ("phi", "sigma", "multiplier", "epsilon", "epsilon_s")
RELATIVE = ("multiplier", "kind", "decay", "period", "iteration", "correlated")
ALLOTTED = ("epsilon", "epsilon_s", "epsilon_n", "delta", "delta_s", "delta_n")

BETWEEN = "a number above 0 and below 1"
_BELOW_1 = within(BETWEEN, lambda x: 0 < x < 1, exclusiveMinimum=0, exclusiveMaximum=1)
Delta = Annotated[float, *_BELOW_1]


class Correlated(Form):
    """How noise is correlated over rounds, so that prefix sums have less: DP-FTRL, MAFALDA-SGD.

    With trust: coordinator it is the noise on sums, and the multiplier that of an agent that is in
    one sum. How often agents take part, and how far apart, decides what all sums tell:
    participation.separation bounds it. On a graph each agent has such noise of its own, sigma is
    that of a record that is in one round, and algorithm.order says how far apart its rounds are.
    """

    words = ("tree", "root", "workload")
    modifiers = ("measure",)
    examples = {"tree": 16, "root": 8, "banded": 8, "buffered": 3, "measure": "max"}

    tree: Count | None = None
    """binary trees over so many rounds each, one after the other, with Honaker's estimate from
    below (Kairouz et al. 2021); tree: one over all rounds"""
    root: Count | None = None
    """square root of the matrix of prefix sums, of which so many bands; root: all of them"""
    banded: Count | None = None
    """the Toeplitz matrix of so many bands with the least error (Choquette-Choo et al. 2023)"""
    buffered: Count | None = None
    """buffered linear Toeplitz (BLT) of so many buffers with the least error at the separation"""
    workload: Literal["graph"] | None = None
    """graph: the matrix with the least error of all models of all rounds on this graph
    (MAFALDA-SGD, Bellet et al. 2026); not with a coordinator"""
    measure: Literal["mean", "max"] | None = None
    """banded, buffered: the error that is least, the mean one (default) or the largest"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; only an optimum has a measure."""
        written = super().mapping(data)
        if "measure" in written and not {"banded", "buffered"} & written.keys():
            raise ValueError("found measure; allowed: with banded or buffered")
        return written


class Noise(Strict):
    """Noise on what the method perturbs, in one of four forms.

    {kind, sigma, decay}; zCDP-NFL's {phi, growth}; the classical {epsilon, delta, composition}; or
    of methods that release once, {kind, epsilon}, with groups {kind, epsilon_s, epsilon_n}, and as
    many deltas where kind is gaussian. With trust: coordinator it is on the sum of clipped replies:
    {sigma, decay} or {multiplier, decay}.
    """

    examples = {"epsilon_n": 1.0, "delta_n": 1e-5}

    kind: Literal["gaussian", "laplace", "l2-laplace", "discrete-gaussian"] | None = None
    """distribution; default gaussian, with sigma"""
    sigma: NonNegative | None = None
    """standard deviation per coordinate, in the first round; left to privacy.target if not given"""
    multiplier: NonNegative | None = None
    """the same in units of privacy.clip, of the sum that a trusted coordinator noises"""
    decay: Share | None = None
    """factor on the variance each round; default 1"""
    period: Count | None = None
    """rounds between two such factors (Ding's T_p, with decay R_P); default 1"""
    iteration: Positive | None = None
    """R_T: the variance is sigma^2 / (R_T (k - 1) k) in round k > 1, which first raises it"""
    resolution: Positive | None = None
    """discrete-gaussian: distance between two levels, to which values are rounded before noise"""
    correlated: Correlated | None = None
    """noise on a sum, by its multiplier, or of an agent of a graph, by sigma, that depends on that
    of earlier rounds; default: it is independent"""
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
    epsilon_s: Positive | None = None
    """epsilon of the coefficients with the special attribute; with epsilon_n, or with the whole"""
    epsilon_n: Positive | None = None
    """epsilon of all other coefficients"""
    delta_s: Delta | None = None
    """delta of epsilon_s, gaussian only"""
    delta_n: Delta | None = None
    """delta of epsilon_n, gaussian only"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the defaults of the form it takes."""
        written = super().mapping(data)
        direct = [key for key in (*SCHEDULE, "resolution") if key in written]
        if "multiplier" in written or "correlated" in written:
            return cls._relative(written)
        paper = [key for key in ("phi", "growth") if key in written]
        once = [key for key in ALLOTTED if key in written]
        if once and ("kind" in written or not {"epsilon", "delta"}.issuperset(once)):
            return cls._allotted(written, once)
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
        if "iteration" in written:
            fixed = [key for key in ("decay", "period") if key in written]
            if fixed:
                raise ValueError(f"found iteration and {fixed[0]}; allowed: one of them")
            return {"kind": "gaussian", **written}
        return {"kind": "gaussian", "decay": 1.0, **written}

    @classmethod
    def _relative(cls, written: Mapping[str, Any]) -> Mapping[str, Any]:
        """The form {multiplier, decay, ...}, which says no sigma."""
        key = "correlated" if "correlated" in written else "multiplier"
        if "multiplier" in written and "sigma" in written:
            raise ValueError("found multiplier and sigma; allowed: one of them")
        sizes = ("multiplier", "sigma") if key == "correlated" else ()
        if stray := sorted(written.keys() - {*RELATIVE, *sizes}):
            others = ", ".join((*sizes, "kind") if sizes else RELATIVE[1:])
            raise ValueError(f"found {key} and {stray[0]}; allowed with {key}: {others}")
        if written.get("kind", "gaussian") != "gaussian":
            raise ValueError(f"found {key} with {written['kind']}; allowed: kind: gaussian")
        changes = ["decay"] * (written.get("decay", 1.0) != 1.0)
        changes += ["iteration"] * ("iteration" in written)  # 1 is a schedule, too
        if "correlated" in written and changes:
            raise ValueError(f"found correlated and {changes[0]}; allowed: one of them")
        return {"kind": "gaussian", **({} if "iteration" in written else {"decay": 1.0}), **written}

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

    @classmethod
    def _allotted(cls, written: Mapping[str, Any], once: list[str]) -> Mapping[str, Any]:
        """The form {kind, epsilon...}, alone, with a delta for every epsilon if it is gaussian."""
        kind = written.get("kind", "gaussian" if any("delta" in key for key in once) else "laplace")
        if kind not in ("laplace", "gaussian"):
            raise ValueError(f"kind: {refusal(kind, f'laplace or gaussian, with {once[0]}')}")
        wanted = [["epsilon"], ["epsilon", "epsilon_s"], ["epsilon_s", "epsilon_n"]]
        if kind == "gaussian":
            wanted = [keys + [key.replace("epsilon", "delta") for key in keys] for keys in wanted]
        if written.keys() - {"kind"} not in [set(keys) for keys in wanted]:
            forms = " or ".join(f"{{{', '.join(keys)}}}" for keys in wanted)
            found = ", ".join(str(key) for key in written if key != "kind")
            raise ValueError(f"found {found} with kind: {kind}; allowed: {forms}")
        return {"kind": kind, **written}

    @property
    def form(self) -> str:
        """The kind of noise, or `schedule`, `classical` or `allotted`."""
        if self.composition is None and (self.epsilon or self.epsilon_s):
            return "allotted"
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
        return any(getattr(self, key) is not None for key in AMOUNTS)


class Target(Strict):
    """The privacy that the planned rounds may cost; the noise follows from it."""

    epsilon: Positive
    """epsilon of all planned releases of the agent that spends most"""
    delta: Delta
    """delta of that epsilon; below 1 / rows of every agent"""
    calibrated: Flag = False
    """whether privacy.noise is what this target gave; a stored scenario says so"""


View = Annotated[
    str,
    BeforeValidator(lambda value: str(read_view(value))),  # in its one spelling
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": PATTERN},
                {"type": "object", "minProperties": 1, "maxProperties": 1},
            ]
        }
    ),
]


class Clip(Strict):
    """Largest norm of what an agent adds to a sum: a number, or one that follows a quantile.

    Adaptive clipping (Andrew, Thakkar, McMahan, Ramaswamy 2021): {start, quantile, rate, noise}.
    """

    start: Positive
    """largest norm; of adaptive clipping the first one"""
    quantile: Fraction | None = None
    """share of agents whose replies are to be no longer, which the norm follows"""
    rate: Positive | None = None
    """how fast: the norm is multiplied by e^(-rate (share - quantile))"""
    noise: Positive | None = None
    """standard deviation of noise on the count of agents with shorter replies"""

    examples = {"quantile": 0.5, "rate": 0.2, "noise": 5.0}

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """A bare number stays as it is; adaptive clipping has all of its keys."""
        if not isinstance(data, Mapping):
            return {"start": data}
        own = [key for key in ("quantile", "rate", "noise") if key in data]
        if own and len(own) < 3:
            found = f"found {' and '.join(own)}"
            raise ValueError(f"{found}; allowed: a number, or {{start, quantile, rate, noise}}")
        return data


def _threshold(value: object) -> float:
    """A share of a neighbourhood, or a whole number of shares."""
    allowed = "a share such as 70 %, or a whole number >= 2"
    if isinstance(value, str) and value.strip().endswith("%"):
        return share(value)
    return number(value, allowed, lambda x: 0 < x <= 1 or (x >= 2 and x == int(x)))


PERCENT = {"type": "string", "pattern": r"^\s*(\d+\.?\d*|\.\d+)\s*%\s*$"}
Threshold = Annotated[
    float,
    BeforeValidator(_threshold),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, PERCENT]}),
]
Bits = Annotated[int, *wholes(4, 40)]


class Secure(Strict):
    """How agents have a sum made that nobody sees the parts of (trust: secure-sum).

    Vectors become whole numbers modulo 2^bits; each agent adds a share of discrete noise, whose
    size privacy.noise says of the whole sum.
    """

    examples = {
        "neighbours": 8, "granularity": 1e-4, "bits": 24, "threshold": "70 %", "overflow": 1e-6,
    }  # fmt: skip

    protocol: Literal["secagg", "secagg+"] = "secagg"
    """shares go to everybody (Bonawitz et al. 2017), or to neighbours on a circle (Bell et al.
    2020)"""
    neighbours: Count | None = None
    """secagg+: how many an agent has, an even number; default: 2 ceil(log2 n)"""
    threshold: Threshold = 2.0 / 3.0
    """shares that make a secret known: a share of a neighbourhood, itself included, or a number"""
    bits: Bits = 24
    """of a number, modulo 2^bits"""
    granularity: Positive | None = None
    """distance of two levels; default: the least with which a sum does not wrap around"""
    overflow: Delta = 1e-6
    """probability that a round's sum wraps around, at most"""
    noise: Literal["ddgauss", "skellam"] = "ddgauss"
    """shares of discrete Gaussian noise, or of Skellam noise"""
    tolerate: Fraction = 0.0
    """share of those expected that may be missing: others add so much more noise"""
    agree: Seconds = 35e-6
    """what it takes to make a pair of keys, or to agree on a secret, on a device of factor 1"""
    expand: Bandwidth = 36e9
    """how fast a seed grows to a mask"""
    share: Seconds = 1.5e-6
    """what it takes to make or use one share of a secret"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; who shares with everybody chooses no number of neighbours."""
        written = super().mapping(data)
        if "neighbours" in written and written.get("protocol") != "secagg+":
            raise ValueError("found neighbours without protocol: secagg+; allowed: both, or none")
        return written


class Privacy(Strict):
    """Noise, and the terms in which privacy is stated."""

    examples = {"budget": 8.0, "unit": "record", "trust": "local", "clip": 1.0}

    noise: Noise | None = None
    """noise on what the method perturbs; default: none, or gaussian where a target is given"""
    target: Target | None = None
    """calibrates what privacy.noise leaves out, over the rounds of stop.rounds"""
    unit: Literal["record", "agent"] | None = None
    """what is protected: a record (the default), or all records of an agent"""
    trust: Literal["local", "coordinator", "secure-sum"] | None = None
    """who is trusted: local (the default): nobody, agents noise what they send; coordinator: it
    clips what they reply and noises the sum, which all others see; secure-sum: nobody, agents clip
    and noise what they mask, and the coordinator sees the sum alone"""
    clip: Clip | None = None
    """trust coordinator or secure-sum: largest norm of a whole reply, to which it is shortened"""
    secure: Secure | None = None
    """trust secure-sum: the protocol, whole numbers, and what they take; default: {}"""
    relation: Literal["replace-one", "add-or-remove-one", "agent"] = "replace-one"
    """neighbouring data sets: one unit replaced, or one added or removed; agent: unit agent with
    replace-one"""
    view: View = "eavesdropper"
    """what the adversary sees: every message, the uploads, agents' inboxes, the last model, or, as
    participants do, all models; default: eavesdropper, with trust coordinator participants"""
    delta: Delta = DELTA
    """delta of a reported epsilon and of the budget; default: the target's, else 1e-5"""
    budget: Positive | None = None
    """epsilon that no agent's releases exceed"""
    on_exhausted: Literal["retire", "stop"] | None = None
    """what a spent budget ends: the agent's part in the run (the default), or the run"""
    accountant: Text | None = None
    """a plug-in's accountant, whose epsilon stands beside desim's own; no budget counts by it"""
    noise_seed: Literal["os", "scenario"] = "os"
    """desim deploy: noise of the operating system, which nobody can draw again, or that of the
    scenario's seed, as in a simulation"""

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
        if written.get("trust") == "coordinator":
            written.setdefault("view", "participants")
        if written.get("trust") == "secure-sum":
            written.setdefault("secure", {})
        elif "secure" in written:
            raise ValueError("found secure without trust: secure-sum; allowed: both, or none")
        if written.get("unit") == "record" and written.get("relation") == "agent":
            text = "found record with relation agent, which is unit agent with replace-one"
            raise ValueError(f"unit: {text}; allowed: agent")
        return written

    @property
    def neighbours(self) -> str:
        """The relation of neighbouring data sets in one word, as accounts have it."""
        if self.unit != "agent" and self.relation != "agent":
            return self.relation
        return "add-or-remove-agent" if self.relation == "add-or-remove-one" else "agent"

    @property
    def trusted(self) -> bool:
        """Whether the coordinator is, or adds up what it cannot see."""
        return self.trust in ("coordinator", "secure-sum")
