"""The key `problem.data.protected`: which rows belong to the protected group."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import WithJsonSchema, model_validator

from desim.errors import refusal
from desim.fields import Number, Strict, Text
from desim.fields.numbers import scalars

FORMS = "{column: ..., value: ...} or {column: ..., above: ...}"


ONE = {"type": ["string", "number"]}
Values = Annotated[
    tuple[str | int | float, ...],
    scalars("text or a number, or a list of them"),
    WithJsonSchema({"anyOf": [ONE, {"type": "array", "items": ONE}]}),
]


class Protected(Strict):
    """The group that fairness is about: rows whose column has some value, or is above a number."""

    column: Text
    """column that tells the groups apart; no feature unless named"""
    value: Values = ()
    """what it holds in the rows of the protected group: a value, or a list of values"""
    above: Number | None = None
    """the protected group has more than this there"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if it is a mapping with a column."""
        if not isinstance(data, Mapping) or "column" not in data:
            raise ValueError(refusal(data, FORMS))
        return super().mapping(data)

    @model_validator(mode="after")
    def _one_rule(self) -> "Protected":
        if bool(self.value) == (self.above is not None):
            found = "both" if self.value else "neither"
            raise ValueError(f"found {found} of value and above; allowed: {FORMS}")
        return self
