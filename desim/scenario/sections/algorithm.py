"""The sections `algorithm`, `policy` and `participation`: the method, who acts, whom it awaits."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from desim.errors import spelling
from desim.fields import (
    Count,
    Duration,
    File,
    Flag,
    Form,
    Fraction,
    NonNegative,
    Positive,
    Several,
    Share,
    Squared,
    Strict,
    Whole,
)
from desim.methods.shared.declarations import Method
from desim.network.timeline.waiting_rule import HINGE, POLYNOMIAL, UNWEIGHED, Staleness
from desim.scenario import registry
from desim.scenario.sections.attackers import Aggregate

# The key `policy.staleness`: what a reply weighs that answers an older model.


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


# The sections `algorithm` and `policy`.


class Algorithm(registry.Named):
    """A method by name, and its own parameters."""

    name: str
    """one of desim list algorithms"""
    parameters: SerializeAsAny[Strict]
    """the method's Parameters"""
    aggregate: Aggregate | None = None
    """what replies are added up by in place of their mean"""

    @property
    def method(self) -> type[Method]:
        """The class that the registry holds under this name."""
        return registry.get(self.name)

    @model_serializer(mode="plain")
    def _written(self) -> dict[str, Any]:
        rule = {} if self.aggregate is None else {"aggregate": self.aggregate}
        own = {key: one.model_dump(exclude_none=True) for key, one in rule.items()}
        return {"name": self.name, **self.parameters.model_dump(exclude_none=True), **own}


def read_algorithm(value: object, info: ValidationInfo) -> Algorithm:
    """{name: ..., parameter: ...} as an Algorithm whose parameters its own class has checked."""
    form, rule = "a mapping with name and the method's parameters", None
    if isinstance(value, Mapping) and "aggregate" in value and not _own(value, "aggregate"):
        rule = _Rule.model_validate({"aggregate": value["aggregate"]}).aggregate
        value = {key: one for key, one in value.items() if key != "aggregate"}
    found = Algorithm.read(value, info, registry.names(), registry.get, form=form)
    return found if rule is None else found.model_copy(update={"aggregate": rule})


class _Rule(Strict):
    """What every method may have beside its own parameters."""

    aggregate: Aggregate
    """what replies are added up by in place of their mean, which is the default"""


def _own(value: Mapping[str, Any], key: str) -> bool:
    """Whether a method's parameters have a key themselves."""
    name = value.get("name")
    known = name in registry.names() if isinstance(name, str) else False
    return known and key in (registry.get(str(name)).Parameters or registry.NoParameters).keys()


class _Methods:
    """JSON Schema of the section: one option for each algorithm."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"oneOf": [cls._option(name, handler) for name in registry.names()]}

    @staticmethod
    def _option(name: str, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        method = registry.get(name)
        schema = handler.resolve_ref_schema(handler(method.Parameters.__pydantic_core_schema__))
        properties = {"name": {"const": name, "description": method.summary}}
        if method.totals() or vars(method).get("mixes"):
            own = handler.resolve_ref_schema(handler(_Rule.__pydantic_core_schema__))
            properties |= own["properties"]
        return {
            "title": name,
            "description": f"{method.summary} ({method.paper})",
            "type": "object",
            "properties": {**properties, **schema.get("properties", {})},
            "required": ["name", *schema.get("required", [])],
            "additionalProperties": False,
        }


AlgorithmSection = Annotated[Algorithm, BeforeValidator(read_algorithm), _Methods]


class Adaptive(Form):
    """A deadline that follows how long messages took so far: the latest one of every sender.

    One that did not come in time counts as twice as long as it was waited for, if that was as long
    as anything known of its sender; a shorter wait says nothing. While nothing is known the first
    wait is measured itself, until enough is in to know its limit.
    """

    modifiers = ("times",)
    examples = {"mad": 3, "quantile": "80 %", "times": 1.5}

    mad: NonNegative | None = None
    """the median plus so many median absolute deviations"""
    quantile: Share | None = None
    """the time that this share of the senders needs at most"""
    times: Positive = 1.0
    """by what that is multiplied"""


class Policy(Form):
    """Whom a coordinator waits for before it goes on; on a graph, agents for their neighbours.

    each: a coordinator goes on with every reply; on a graph an agent waits for nobody.
    """

    words = ("all", "each")
    modifiers = ("at_least", "at_most", "late", "staleness")
    examples = {
        "deadline": "2 s", "quorum": 8, "buffer": 5, "adaptive": {"mad": 3},
        "at_least": 5, "at_most": "10 s", "staleness": {"polynomial": 0.5},
    }  # fmt: skip

    deadline: Duration | None = None
    """time after the invitation, on a graph after the agent's own message, at which a wait ends"""
    quorum: Count | None = None
    """a collection closes with this many replies to its own invitation, on a graph a wait with
    the messages of so many neighbours"""
    buffer: Count | None = None
    """a collection closes with this many replies, whenever they were invited"""
    adaptive: Adaptive | None = None
    """a deadline that follows how long messages took so far"""
    at_least: Count | None = None
    """deadline, adaptive, or with at_most: without so many replies no limit ends a wait"""
    at_most: Duration | None = None
    """quorum, buffer, adaptive: time at which a wait ends at the latest"""
    late: Literal["discard", "carry"] | None = None
    """replies that come too late: discard them, or carry them to the next collection; by default
    carry for a buffer and on a graph, else discard"""
    staleness: Weighing | None = None
    """what replies to older models weigh: constant (default), {polynomial: a}, {hinge: {a: ..,
    b: ..}}; with each, {buffer: 1, staleness: ...} says the same"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the fate of late replies that suits the policy."""
        written = super().mapping(data)
        if written.get("(word)") == "each":
            return {**written, "late": "carry"}
        if "buffer" in written:
            return {"late": "carry", **written}
        if "(word)" in written:
            return {"late": "discard", **written}
        return written  # discard, but on a graph

    @model_validator(mode="after")
    def _combines(self) -> "Policy":
        rule, least = self.kind, self.at_least
        if self.staleness is not None and self.late != "carry":
            text = "found staleness where late replies are discarded"
            raise ValueError(f"{text}; allowed: with buffer, or with late: carry")
        if self.at_most is not None and rule not in ("quorum", "buffer", "adaptive"):
            text = f"at_most: found with {rule}"
            raise ValueError(f"{text}; allowed: with quorum, buffer or adaptive, or a deadline")
        if least is not None and not self.limited:
            text = f"at_least: found with {rule}, where no limit ends a wait"
            raise ValueError(f"{text}; allowed: with deadline, adaptive or at_most")
        if least is not None and rule in ("quorum", "buffer") and least > self.value:
            text = f"at_least: found {least}, but {self.value} replies end a wait"
            raise ValueError(f"{text}; allowed: 1 to {self.value}")
        return self

    @property
    def limited(self) -> bool:
        """Whether a wait may end before all that it needs is there."""
        return self.kind in ("deadline", "adaptive") or self.at_most is not None


# The section `participation`: who acts, by a draw of each round or by what was seen before.

COMMON = ("invite", "available", "separation")
DEFAULTS: dict[str, dict[str, Any]] = {  # what each choice has beside, as its paper has it
    "fastest": {},
    "oldest": {},
    "round-robin": {},
    "available": {},
    "power-of-choice": {"candidates": None, "losses": None},
    "oort": {
        "alpha": 2.0,
        "exploration": 0.9,
        "exploration_decay": 0.98,
        "exploration_least": 0.2,
        "explore": "speed",
        "cutoff": 0.95,
        "quantile": 0.95,
        "window": 20,
        "pace": None,
        "most": None,
        "losses": None,
    },
    "tiers": {
        "tiers": 5,
        "profile": 1,
        "probabilities": None,
        "credits": None,
        "interval": None,
        "losses": None,
    },
}
NONE_OF = {"available": "available", "tiers": "separation"}  # tiers begin with everybody
CHOICES = tuple(DEFAULTS)
MODIFIERS = tuple(dict.fromkeys([*COMMON, *(key for own in DEFAULTS.values() for key in own)]))


def keys_of(name: str) -> list[str]:
    """The keys beside one choice."""
    return [key for key in (*COMMON, *DEFAULTS[name]) if key != NONE_OF.get(name)]


class LossNoise(Strict):
    """Noise on what replies say of losses: what bounds one row, and how large it is."""

    examples = {"clip": 2.0, "sigma": 0.1}

    clip: Squared
    """C: the loss of each row is cut to [0, C] before the mean, for oort before squares of it"""
    sigma: Positive
    """standard deviation of Gaussian noise on that mean"""


class Participation(Form):
    """Which agents a coordinator invites to a round."""

    words = ("all",)
    modifiers = ("end", *MODIFIERS)
    examples = {
        "uniform": 5, "schedule": [[0, 2], [1, 3]], "end": "hold", "choose": "fastest", "invite": 5,
        "available": True, "candidates": 10, "pace": "10 s", "most": 10, "interval": 20,
        "probabilities": [0.5, 0.3, 0.2], "credits": [40, 20, 10], "tiers": 3,
        "losses": {"clip": 2.0, "sigma": 0.1}, "separation": 4,
    }  # fmt: skip

    bernoulli: Share | None = None
    """each agent independently with this probability"""
    uniform: Count | None = None
    """this many agents, without replacement"""
    schedule: Several[Several[Whole]] | None = None
    """lists of agents, one for each round, repeated from the start"""
    trace: File | None = None
    """csv with columns round (1, 2, ...) and agent, or npz array rounds x agents of 1 and 0"""
    choose: (
        Literal["fastest", "oldest", "round-robin", "available", "power-of-choice", "oort", "tiers"]
        | None
    ) = None
    """by what was seen before: fastest (reply times), oldest (rounds since heard), round-robin,
    available (those up, by lot), power-of-choice and oort (losses: a release), tiers (TiFL)"""
    end: Literal["loop", "hold", "error"] | None = None
    """trace: it begins again (default), its last round stays, or the run must end before"""
    invite: Count | None = None
    """choose: how many agents a round; those that are not free are left out"""
    available: Flag | None = None
    """choose: whether only agents that are up are invited, as churn has it"""
    separation: Count | None = None
    """uniform, choose: rounds between two of an agent's contributions at least; whoever took part,
    or was invited, in one of the latest separation - 1 rounds is not free"""
    losses: LossNoise | None = None
    """power-of-choice, oort, tiers with interval: noise on losses; without it they cost infinity"""
    candidates: Count | None = None
    """power-of-choice, d: how many are drawn, of which those with the greatest losses are taken"""
    alpha: NonNegative | None = None
    """oort: exponent of the penalty (T/t)^alpha of whoever takes longer than T"""
    exploration: Share | None = None
    """oort, epsilon: share of the invited that were not heard yet, in the first round"""
    exploration_decay: Share | None = None
    """oort: factor on it each round"""
    exploration_least: Share | None = None
    """oort: at which it falls no further"""
    explore: Literal["speed", "random"] | None = None
    """oort: agents not heard yet are drawn by the speed of their devices, or all alike"""
    cutoff: Share | None = None
    """oort, c: share of the cut-off utility from which on agents are admitted"""
    quantile: Share | None = None
    """oort: quantile of the utilities, at which larger ones are cut"""
    window: Count | None = None
    """oort, W: rounds that the pacer compares with as many before"""
    pace: Duration | None = None
    """oort, Delta: by which the preferred duration T of a round begins and grows; default: T covers
    the W K fastest agents more"""
    most: Count | None = None
    """oort: picks after which an agent is exploited no more (10 in the paper); default: none"""
    tiers: Count | None = None
    """tiers: how many, of equally many agents"""
    profile: Count | None = None
    """tiers: first rounds, to which all are invited and by whose times they are told apart"""
    probabilities: Several[Fraction] | None = None
    """tiers: of drawing each, fastest first; default: all alike"""
    credits: Several[Whole] | None = None
    """tiers: how often each may be drawn; default: without end"""
    interval: Count | None = None
    """tiers, I: rounds after which tiers with greater losses become likelier, if the latest one has
    not improved; default: probabilities stay"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the defaults of the choice; only a trace ends."""
        written = super().mapping(data)
        if "choose" in written:
            return cls._choice(written)
        if "separation" in written and "uniform" not in written:
            raise ValueError("found separation; allowed: with uniform or choose")
        if stray := [key for key in MODIFIERS if key in written and key != "separation"]:
            raise ValueError(f"found {stray[0]} without choose; allowed: with choose")
        if "trace" in written:
            return {"end": "loop", **written}
        if "end" in written:
            raise ValueError("found end without trace; allowed: with trace")
        return written

    @classmethod
    def _choice(cls, written: Mapping[str, Any]) -> Mapping[str, Any]:
        """A choice with its defaults; ValueError for keys of other choices."""
        name = written["choose"]
        if not isinstance(name, str) or name not in DEFAULTS:
            return written  # told where the key is read
        own, allowed = DEFAULTS[name], keys_of(name)
        if name == "available" and "available" in written:
            raise ValueError("available: found with choose: available, which is that already")
        for key in written:
            if key not in allowed and key in cls.modifiers:
                text = f"found {key} with choose: {name}; allowed with it: {', '.join(allowed)}"
                raise ValueError(text + spelling(key, allowed))
        if "invite" not in written:
            raise ValueError("found choose without invite; allowed: with how many a round")
        if name == "power-of-choice" and "candidates" not in written:
            raise ValueError("found power-of-choice without candidates; allowed: d of them")
        found = {"available": None if name == "available" else False, **own, **written}
        if name == "tiers" and found.get("losses") is not None and not found.get("interval"):
            raise ValueError("losses: found without interval, so that nobody reads them")
        _tiers(found)
        return {key: value for key, value in found.items() if value is not None}

    @property
    def of_those_up(self) -> bool:
        """Whether only agents that are up are invited."""
        return bool(self.available) or self.choose == "available"

    @property
    def power(self) -> Literal[0, 1, 2]:
        """Which power of losses the choice reads the mean of; 0 for none."""
        if self.choose == "oort":
            return 2
        return 1 if self.choose == "power-of-choice" or self.interval else 0

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """As of a Form, with an option for each choice."""
        schema = super().__get_pydantic_json_schema__(core, handler)
        options = []
        for option in schema["anyOf"]:
            keys = option.get("properties")
            if keys is None:
                options.append(option)
            elif "choose" not in keys:
                own = [key for key in keys if key in cls.alternatives() or key == "end"]
                if "trace" not in keys:
                    own = [key for key in own if key != "end"]
                if "uniform" in keys:
                    own.append("separation")
                options.append({**option, "properties": {key: keys[key] for key in own}})
            else:
                options += [_option(option, name) for name in DEFAULTS]
        return {**schema, "anyOf": options}


def _option(option: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of one choice."""
    keys, own = option["properties"], keys_of(name)
    about = keys["choose"].get("description", "")
    properties = {"choose": {"const": name, "description": about}}
    required = ["choose", "invite", *(["candidates"] if name == "power-of-choice" else [])]
    properties |= {key: keys[key] for key in own}
    return {**option, "properties": properties, "required": required}


def _tiers(found: Mapping[str, Any]) -> None:
    """ValueError where lists have no entry for each tier, or nothing can be drawn."""
    tiers = found.get("tiers")
    if not isinstance(tiers, int):
        return
    for key in ("probabilities", "credits"):
        entries = found.get(key)
        if isinstance(entries, list | tuple) and len(entries) != tiers:
            text = f"found {len(entries)} entries for {tiers} tiers"
            raise ValueError(f"{key}: {text}; allowed: one for each tier")
        if isinstance(entries, list | tuple) and entries and not any(entries):
            raise ValueError(f"{key}: found only 0; allowed: more for some tier")
    shares = found.get("probabilities")
    if isinstance(shares, list | tuple) and all(type(one) in (int, float) for one in shares):
        if abs(sum(shares) - 1.0) > 0.01:
            raise ValueError(f"probabilities: found a sum of {sum(shares):g}; allowed: 1")
