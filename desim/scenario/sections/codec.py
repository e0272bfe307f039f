"""The section `codec`: how messages are coded before they are sent."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    PlainValidator,
    WithJsonSchema,
)

from desim import units
from desim.errors import refusal
from desim.fields import Form, Strict
from desim.fields.numbers import quantity, wholes
from desim.network.conditions import codec

ALLOWED = "a share of the coordinates, such as 10 %, or a whole number of them"
SPARSE = ("top-k", "random-k")
UNDERSCORED = {"top_k": "top-k", "random_k": "random-k"}  # also allowed


def _amount(value: object) -> float | int:
    """A share as a float, a number of coordinates as an int."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(refusal(value, ALLOWED))
        return value
    try:
        share = units.fraction(value)
    except ValueError:
        raise ValueError(refusal(value, ALLOWED)) from None
    if share == 0.0:
        raise ValueError(refusal(value, ALLOWED))
    return share


def _feedback(value: object) -> object:
    if isinstance(value, bool) or value == "ef21":
        return value
    raise ValueError(refusal(value, "true, false or ef21"))


Amount = Annotated[
    float | int,
    PlainValidator(_amount),
    WithJsonSchema({**quantity(units.SHARE), "description": ALLOWED, "examples": ["10 %"]}),
]
Levels = Annotated[int, *wholes(2, 32)]

Feedback = Annotated[
    bool | Literal["ef21"],
    PlainValidator(_feedback),
    WithJsonSchema({"enum": [True, False, "ef21"]}),
]


class Quantise(Strict):
    """QSGD: signed multiples of norm / s with s = 2^(bits - 1) - 1, rounded at random."""

    examples: ClassVar[Mapping[str, Any]] = {"bits": 4}

    bits: Levels
    """bits of one number, its sign among them; the norm takes 32 more"""


class OneWay(Form):
    """How messages of one direction are coded: none, float32 and float16 write all numbers."""

    words: ClassVar[tuple[str, ...]] = ("none", "float32", "float16")
    modifiers: ClassVar[tuple[str, ...]] = ("error_feedback", "numbers", "indices")
    examples: ClassVar[Mapping[str, Any]] = {"quantise": {"bits": 4}}

    top_k: Amount | None = Field(None, alias="top-k")
    """the largest coordinates alone, the first of equal ones: a share or a number of them"""
    random_k: Amount | None = Field(None, alias="random-k")
    """coordinates drawn anew for every message: a share or a number of them"""
    quantise: Quantise | None = None
    """levels between minus and plus the norm, rounded at random (QSGD)"""
    error_feedback: Feedback | None = None
    """whether what a message lost is added to the next; ef21: differences to what the receiver
    has are coded instead, as it is always where methods send models; default: true with top-k"""
    numbers: Literal["float64", "float32", "float16"] | None = None
    """top-k, random-k: how values are written; default: float32"""
    indices: Literal["sent", "seeded"] | None = None
    """random-k: sent (default), or both ends draw them from a seed that they share"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, every default explicit."""
        if isinstance(data, Mapping):
            data = {UNDERSCORED.get(key, key): value for key, value in data.items()}
        written = super().mapping(UNDERSCORED.get(data, data) if isinstance(data, str) else data)
        return written if "(word)" in written else {**_defaults(written), **written}

    def codec(self, known: bool) -> codec.Codec:
        """As engines use it; known: differences to what the receiver has are coded."""
        kind: Any = self.kind
        amount = self.quantise.bits if self.quantise else self.value or 0
        memory: Any = "none"
        if kind in codec.LOSSY:
            known = known or self.error_feedback == "ef21"
            memory = "known" if known else "error" if self.error_feedback else "none"
        return codec.Codec(
            kind, amount, self.numbers or "float32", self.indices == "seeded", memory
        )


class Codec(OneWay):
    """How messages are coded before they are sent.

    A word is for both directions, a mapping for what agents send: what a coordinator sends goes
    out whole unless `downlink` says more.
    """

    modifiers = (*OneWay.modifiers, "downlink")
    examples: ClassVar[Mapping[str, Any]] = {
        **OneWay.examples, "uplink": {"top-k": "10 %"}, "downlink": "float32",
    }  # fmt: skip

    uplink: OneWay | None = None
    """what agents send to a coordinator"""
    downlink: OneWay | None = None
    """what a coordinator sends to agents; default: none"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with both directions where they are named."""
        if isinstance(data, Mapping) and data and set(data) <= {"downlink"}:
            data = {"uplink": "none", **data}
        written = super().mapping(data)
        beside = [key for key in OneWay.modifiers if "uplink" in written and key in written]
        if beside:
            raise ValueError(f"found {beside[0]} beside uplink; allowed: inside it")
        return written if "(word)" in written else {"downlink": "none", **written}

    @property
    def up(self) -> OneWay:
        """What agents send, to a coordinator or to each other."""
        return self.uplink or self

    @property
    def down(self) -> OneWay:
        """What a coordinator sends."""
        return self if self.word else self.downlink or OneWay.of("none")

    def codecs(self, known: bool) -> codec.Codecs:
        """As engines use them; known: of what agents send, differences to what is there."""
        return codec.Codecs(self.up.codec(known), self.down.codec(known=True))


def _defaults(written: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the keys that go with what was chosen; ValueError for others."""
    sparse, found = any(one in written for one in SPARSE), dict[str, Any]()
    if sparse or "quantise" in written:
        found["error_feedback"] = "top-k" in written
    if sparse:
        found["numbers"] = "float32"
    elif "numbers" in written and "uplink" not in written:
        raise ValueError("found numbers; allowed: with top-k and random-k")
    if "random-k" in written:
        found["indices"] = "sent"
    elif "indices" in written and "uplink" not in written:
        raise ValueError("found indices; allowed: with random-k")
    return found
