"""The parent of every section of a scenario: frozen, strict, all errors at once, in words."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import (
    ErrorDetails,
    InitErrorDetails,
    PydanticCustomError,
    PydanticSerializationError,
)

from desim.errors import AtOnce, refusal, spelling

EXPLAINED = "explained"
UNKNOWN_KEY = "unknown_key"


class Strict(BaseModel):
    """A mapping with known keys: no unknown key, NaN, infinity or converted type gets in.

    Every problem below it is one line error whose message is final: "found ...; allowed: ...".
    `examples` holds values, as a scenario writes them, of keys whose type does not say enough.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        json_schema_extra=lambda schema, owner: _describe(schema, owner),
    )
    examples: ClassVar[Mapping[str, Any]] = {}
    #: keys as a file spells them, by their names in Python, where these differ
    spellings: ClassVar[Mapping[str, str]] = {}
    _keys: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        fields = cls.model_fields.items()
        cls._keys = tuple(name for name, field in fields if field.alias is None)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The keys that a scenario may write here."""
        return cls._keys

    @classmethod
    def about(cls, key: str) -> str:
        """What the docstring below a key says; read when it is asked for, because that is slow."""
        return next((text[key] for one in cls.__mro__ if key in (text := _docstrings(one))), "")

    @classmethod
    def example(cls, key: str) -> Any:
        """What the class or a parent gives as an example of a key; None if nothing."""
        own = (vars(one).get("examples", {}) for one in cls.__mro__)
        return next((given[key] for given in own if key in given), None)

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, as a mapping; subclasses turn their short forms into one here."""
        if not isinstance(data, Mapping):
            raise ValueError(refusal(data, f"a mapping with the keys {', '.join(cls.keys())}"))
        return data

    @model_validator(mode="wrap")
    @classmethod
    def _gather(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return data
        written = cls.mapping(data)
        raw = data if isinstance(data, Mapping) else {}
        known = {*cls.keys(), *(key for key in written if key not in raw)}
        errors = [cls._unknown(key) for key in written if key not in known]
        try:
            valid = handler({key: value for key, value in written.items() if key in known})
        except ValidationError as error:
            found = error.errors(include_url=False)
            errors += [_final(one, cls) for one in found]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return valid

    @classmethod
    def _unknown(cls, key: str) -> InitErrorDetails:
        text = "unknown key; allowed: " + (", ".join(cls.keys()) or "none")
        text += spelling(key, cls.keys())
        return {"type": PydanticCustomError(UNKNOWN_KEY, text), "loc": (key,), "input": key}

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """As pydantic's; a Ctrl-C in a serializer stays one, where pydantic has but its name."""
        try:
            return super().model_dump(**options)
        except PydanticSerializationError as error:
            for pressed in (AtOnce, KeyboardInterrupt):
                if f" {pressed.__name__}:" in str(error):
                    raise pressed from None
            raise

    def written(self) -> dict[str, Any]:
        """The section as a scenario writes it, every default explicit, in s, bit/s and 1/s."""
        section: dict[str, Any] = plain(self.model_dump(exclude_none=True))
        return section


def plain(value: Any) -> Any:
    """`value` made of dict, list and scalars only, as YAML holds it."""
    if type(value) in (str, float, int, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def explain(error: ErrorDetails, owner: type[Strict] | None = None) -> str:
    """What is wrong, in the words of the one message shape."""
    kind, found = error["type"], error["input"]
    if kind in (EXPLAINED, UNKNOWN_KEY):
        return error["msg"]
    context = error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        field = owner.model_fields.get(str(error["loc"][-1])) if owner else None
        about = (owner and field and owner.about(str(error["loc"][-1]))) or "it has no default"
        return f"missing; this key is required: {about}"
    if kind == "literal_error":
        options = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return refusal(found, ", ".join(options), options)
    allowed = error["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return refusal(found, allowed)


def _final(error: ErrorDetails, owner: type[Strict]) -> InitErrorDetails:
    kind = UNKNOWN_KEY if error["type"] == UNKNOWN_KEY else EXPLAINED
    text = explain(error, owner)
    place = tuple(owner.spellings.get(str(part), part) for part in error["loc"])
    return {"type": PydanticCustomError(kind, text), "loc": place, "input": error["input"]}


def _describe(schema: dict[str, Any], owner: type[Strict]) -> None:
    """Put the docstrings and examples of the keys into the JSON Schema of a section."""
    for key, form in schema.get("properties", {}).items():
        about, example = owner.about(key), owner.example(key)
        more = {} if example is None else {"examples": [example]}
        if about or more:
            schema["properties"][key] = {**form, "description": about, **more}


@cache
def _docstrings(owner: type) -> dict[str, str]:
    """The strings below the annotated names in the body of a class, by name."""
    if not issubclass(owner, Strict):
        return {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        key.target.id: inspect.cleandoc(below.value.value)
        for key, below in itertools.pairwise(tree.body)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }
