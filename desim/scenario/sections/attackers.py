"""The keys `algorithm.aggregate` and `attackers`: who lies, and what a mean is replaced by."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema, model_validator

from desim.fields import Count, Duration, Form, Positive, Several, Share, Strict, Whole
from desim.fields.numbers import within
from desim.methods.shared import attacks, robust_sums

Yes = Literal[True]
BESIDE_REPLIES = within(  # a reply of 1e140 over it is a number still
    "a number from 1e-150 to 1e150", lambda x: 1e-150 <= x <= 1e150,
    minimum=1e-150, maximum=1e150, examples=[1e-6],
)  # fmt: skip


class MultiKrum(Strict):
    """The mean of the m replies that are nearest to others."""

    f: Count
    """how many replies may be anything; more than 2 f + 2 are needed"""
    m: Count
    """of how many the mean is taken; 1 is Krum"""


class Weiszfeld(Strict):
    """How a geometric median is computed."""

    nu: Annotated[float, *BESIDE_REPLIES] = 1e-6
    """the distance below which a reply counts as that far away"""
    iterations: Count = 8
    """steps from the median of each coordinate on"""


class Clipping(Strict):
    """How far replies pull the latest aggregate."""

    tau: Positive
    """the distance from the latest aggregate to which replies are shortened"""
    iterations: Count = 1
    """steps from there"""


class Aggregate(Form):
    """What a coordinator makes of replies in place of their mean.

    On a graph clipped-gossip alone: what an agent makes of what it hears.
    """

    words = ("mean", "median", "geometric-median")
    modifiers = ("bucketing", "nnm")
    examples = {
        "mean": True, "median": True, "trimmed-mean": "20 %", "krum": 2,
        "multi-krum": {"f": 2, "m": 5}, "geometric-median": {"nu": 1e-6, "iterations": 8},
        "centred-clipping": {"tau": 1.0}, "clipped-gossip": 1.0, "bucketing": 2, "nnm": 2,
    }  # fmt: skip

    mean: Yes | None = None
    """the mean, which with nnm is a rule, too"""
    median: Yes | None = None
    """the median of each coordinate (Yin et al. 2018)"""
    trimmed_mean: Share | None = Field(None, alias="trimmed-mean")
    """the mean of each coordinate without this share of the values on each side, below 50 %"""
    krum: Count | None = None
    """the reply that is nearest to n - f - 2 others, with this f (Blanchard et al. 2017)"""
    multi_krum: MultiKrum | None = Field(None, alias="multi-krum")
    """the mean of m such replies: {f: 2, m: 5}"""
    geometric_median: Weiszfeld | None = Field(None, alias="geometric-median")
    """the point with the least sum of distances, by Weiszfeld's steps (Pillutla et al. 2022)"""
    centred_clipping: Clipping | None = Field(None, alias="centred-clipping")
    """steps from the latest aggregate to replies that are no further than tau (Karimireddy et al.
    2021)"""
    clipped_gossip: Positive | None = Field(None, alias="clipped-gossip")
    """on a graph: neighbours' models count as no further away than this (He et al. 2022)"""
    bucketing: Count | None = None
    """replies are averaged in random buckets of so many before (Karimireddy et al. 2022)"""
    nnm: Count | None = None
    """replies are averaged with their n - f nearest before, with this f (Allouah et al. 2023)"""

    @model_validator(mode="after")
    def _combines(self) -> "Aggregate":
        if self.trimmed_mean is not None and not self.trimmed_mean < 0.5:
            text = f"trimmed-mean: found {self.trimmed_mean:g}, which leaves nothing"
            raise ValueError(f"{text}; allowed: below 50 %")
        if self.clipped_gossip is not None and (self.bucketing or self.nnm):
            raise ValueError("clipped-gossip: found with bucketing or nnm; allowed: by itself")
        return self

    @property
    def rule(self) -> robust_sums.Rule | None:
        """The same as coordinators take it; None for the mean as it is, and on a graph."""
        kind, value = self.kind, self.value
        if kind == "clipped-gossip" or (kind == "mean" and not (self.bucketing or self.nnm)):
            return None
        own: dict[str, Any] = {}
        match kind:
            case "trimmed-mean":
                own = {"share": value}
            case "krum":
                own = {"f": value}
            case "multi-krum":
                own = {"f": value.f, "m": value.m}
            case "geometric-median":
                found = value or Weiszfeld()
                own = {"nu": found.nu, "iterations": found.iterations}
            case "centred-clipping":
                own = {"tau": value.tau, "iterations": value.iterations}
        return robust_sums.Rule(kind, nearest=self.nnm or 0, bucket=self.bucketing or 1, **own)


def _until(value: object) -> object:
    """A duration, or the deadline."""
    return value if value == "deadline" else TypeAdapter(Duration).validate_python(value)


Late = Annotated[
    float | Literal["deadline"],
    BeforeValidator(_until),
    WithJsonSchema({"anyOf": [{"const": "deadline"}, {"type": ["string", "number"]}]}),
]


class Attack(Form):
    """What attackers do. Those that collude know the honest replies that come with theirs."""

    words = ("sign-flip", "label-flip", "a-little-is-enough", "mimic", "silence")
    examples = {
        "sign-flip": 3.0, "gaussian": 10.0, "a-little-is-enough": 1.5, "inner-product": 0.5,
        "delay": "2 s",
    }  # fmt: skip

    sign_flip: Positive | None = Field(None, alias="sign-flip")
    """minus what they would send, so many times as long; as a word: as long"""
    gaussian: Positive | None = None
    """noise of this standard deviation in place of what they would send"""
    a_little_is_enough: Positive | None = Field(None, alias="a-little-is-enough")
    """the mean of honest replies minus so many of their deviations; as a word: the most that passes
    for honest (Baruch et al. 2019)"""
    inner_product: Positive | None = Field(None, alias="inner-product")
    """minus so many times the mean of honest replies (Xie et al. 2020)"""
    delay: Late | None = None
    """their messages are that much later: a duration, or deadline, that of the policy"""

    @property
    def amount(self) -> float:
        """Its number, nan where none is written."""
        value = self.value
        if self.kind == "sign-flip" and value is None:
            return 1.0
        return float(value) if isinstance(value, int | float) else math.nan

    @property
    def text(self) -> str:
        """It in words, as a scenario writes it."""
        return self.kind if self.word else f"{self.kind} {self.value}"

    @property
    def of_messages(self) -> bool:
        """Whether it is what they send."""
        return self.kind in attacks.OF_MESSAGES

    @property
    def colludes(self) -> bool:
        """Whether it follows from what others send."""
        return self.kind in attacks.COLLUDING

    @property
    def late(self) -> bool:
        """Whether it is an attack on time."""
        return self.kind in ("delay", "silence")


class Attackers(Strict):
    """Agents that do harm: a share of them, drawn by the seed, or the ones that are named."""

    examples = {"share": "20 %", "agents": [0, 3]}

    share: Share | None = None
    """share of the agents, drawn by the seed"""
    agents: Several[Whole] | None = None
    """numbers of the agents"""
    attack: Attack
    """sign-flip, label-flip, {gaussian: 10}, a-little-is-enough, {inner-product: 0.5}, mimic,
    silence, {delay: 2 s}, {delay: deadline}"""

    @model_validator(mode="after")
    def _one(self) -> "Attackers":
        if (self.share is None) == (self.agents is None):
            found = "neither share nor agents" if self.share is None else "share and agents"
            raise ValueError(f"found {found}; allowed: one of them")
        if self.agents is not None and len({*self.agents}) < len(self.agents):
            raise ValueError("agents: found an agent twice; allowed: each once")
        return self

    def number(self, agents: int) -> int:
        """How many of so many agents."""
        return len(self.agents) if self.agents is not None else round((self.share or 0) * agents)
