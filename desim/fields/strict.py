"""The parent of every section of a scenario: frozen, strict, all errors at once, in words."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import (
    CoreSchema,
    ErrorDetails,
    InitErrorDetails,
    PydanticCustomError,
    PydanticSerializationError,
    core_schema,
)

from desim.errors import AtOnce, refusal, spelling
from desim.fields.numbers import (
    Count,
    File,
    NonNegative,
    Positive,
    number,
    positive,
    share,
    whole,
    within,
)
from desim.unplayed import of_unplayed

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
    _names: ClassVar[Mapping[str, str]] = {}  # in Python, by key

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        named = {field.alias or name: name for name, field in cls.model_fields.items()}
        cls._names = {key: name for key, name in named.items() if not key.startswith("(")}

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The keys that a scenario may write here: top-k is the field top_k, of that alias."""
        return tuple(cls._names)

    @classmethod
    def attribute(cls, key: str) -> str:
        """The name in Python of a key."""
        return cls._names.get(key, key)

    @classmethod
    def about(cls, key: str) -> str:
        """What the docstring below a key says; read when it is asked for, because that is slow."""
        key = cls.attribute(key)
        return next((text[key] for one in cls.__mro__ if key in (text := _docstrings(one))), "")

    @classmethod
    def example(cls, key: str) -> Any:
        """What the class or a parent gives as an example of a key; None if nothing."""
        own = (vars(one).get("examples", {}) for one in cls.__mro__)
        return next((examples[key] for examples in own if key in examples), None)

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
        """As pydantic's, by key; a Ctrl-C in a serializer stays one: pydantic has but its name."""
        try:
            return super().model_dump(**{"by_alias": True, **options})
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
        about = (owner and owner.about(str(error["loc"][-1]))) or "it has no default"
        return f"missing; this key is required: {about}"
    if kind == "literal_error":
        options = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return refusal(found, ", ".join(options), options)
    allowed = error["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return refusal(found, allowed)


def _final(error: ErrorDetails, owner: type[Strict]) -> InitErrorDetails:
    kind = UNKNOWN_KEY if error["type"] == UNKNOWN_KEY else EXPLAINED
    text = explain(error, owner)
    return {"type": PydanticCustomError(kind, text), "loc": error["loc"], "input": error["input"]}


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


# Keys that hold a word or a mapping with one alternative: `all` or `{bernoulli: 0.5}`.


@dataclass(frozen=True)
class OrElse:
    """Annotation for JSON Schema: short forms that a key admits besides its own type.

    options: their schemas; single: whether one item may stand for a list of it.
    """

    options: tuple[JsonSchemaValue, ...]
    single: bool = False

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The type's own schema with the short forms before it."""
        own = handler(core)
        about = own.pop("description", None)
        lists = [one for one in (own, *own.get("anyOf", ())) if "items" in one]
        item = [one["items"] for one in lists] if self.single else []
        schema: JsonSchemaValue = {"anyOf": [*self.options, *item, own]}
        return {**schema, "description": about} if about else schema


@dataclass(frozen=True, eq=False)
class OrRead:
    """Annotation of a key that holds one of some sections, or what `read` takes.

    written: the same as a scenario has it; schema: its JSON Schema; sections: by the key that tells
    a mapping to be one, "" for any mapping; words: keys that, as text alone, are a section, too.
    """

    read: Callable[[Any], Any]
    written: Callable[[Any], Any]
    schema: Callable[[], JsonSchemaValue]
    sections: Mapping[str, type[Strict]]
    words: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The section whose key is there."""

        def chosen(value: object, _: Any, info: ValidationInfo) -> Any:
            if isinstance(value, Strict):
                return value
            for key, section in self.sections.items():
                mapped = isinstance(value, Mapping) and (not key or key in value)
                if mapped or (value == key and key in self.words):
                    return section.model_validate(value, context=info.context)
            return self.read(value)

        def dumped(value: Any) -> Any:
            whole = isinstance(value, Strict)
            return value.model_dump(exclude_none=True) if whole else self.written(value)

        serialization = core_schema.plain_serializer_function_ser_schema(dumped)
        return core_schema.with_info_wrap_validator_function(
            chosen, handler(source), serialization=serialization
        )

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """All of them."""
        form, own = self.schema(), handler(core["schema"])
        about = {key: form[key] for key in ("description",) if key in form}
        words = [{"enum": [*self.words]}] if self.words else []
        sections = own["anyOf"] if len(self.sections) > 1 else [own]
        return {"anyOf": [*words, *form["anyOf"], *sections], **about}


class Form(Strict):
    """One of the class's `words`, or a mapping with exactly one alternative and its `modifiers`.

    Every field that is no modifier is an alternative, optional with default None.
    """

    words: ClassVar[tuple[str, ...]] = ()
    modifiers: ClassVar[tuple[str, ...]] = ()
    word: str = Field("", alias="(word)", repr=False)

    @property
    def kind(self) -> str:
        """The word or the alternative that was chosen."""
        return self.word or next(
            name for name in self.alternatives() if getattr(self, self.attribute(name)) is not None
        )

    @property
    def value(self) -> Any:
        """The value of the chosen alternative; None for a word."""
        return None if self.word else getattr(self, self.attribute(self.kind))

    @classmethod
    def alternatives(cls) -> tuple[str, ...]:
        """The keys of which exactly one may be written."""
        return tuple(key for key in cls.keys() if key not in cls.modifiers)

    @classmethod
    def allowed(cls) -> str:
        """Words and alternatives as messages list them."""
        return ", ".join([*cls.words, *(f"{{{key}: ...}}" for key in cls.alternatives())])

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """The word, or the mapping after a check that it chooses exactly one alternative."""
        if isinstance(data, str):
            return cls._word(data)
        if not isinstance(data, Mapping):
            raise ValueError(refusal(data, cls.allowed()))
        chosen = [key for key in data if key in cls.alternatives()]
        if len(chosen) > 1:
            raise ValueError(f"found {' and '.join(chosen)}; allowed: only one of them")
        if not chosen and all(key in cls.modifiers for key in data):
            raise ValueError(refusal(dict(data), cls.allowed()))
        for key in chosen:
            if data[key] is None:  # subclasses go by the alternative that there is
                raise ValueError(f"{key}: {refusal(None, 'a value')}")
        return data

    @classmethod
    def _word(cls, data: str) -> Mapping[str, Any]:
        if data in cls.words:
            return {"(word)": data}
        if data in cls.alternatives():
            raise ValueError(f"found {data!r} without its value; allowed: {{{data}: ...}}")
        names = [*cls.words, *cls.alternatives()]
        raise ValueError(refusal(data, cls.allowed()) + spelling(data, names))

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.word:
            return self.word
        return {key: it for key, it in handler(self).items() if key not in ("word", "(word)")}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """One option for the words and one for each alternative."""
        whole = handler.resolve_ref_schema(handler(core))
        properties = whole.get("properties", {})
        options: list[dict[str, Any]] = [{"enum": list(cls.words)}] if cls.words else []
        for name in cls.alternatives():
            own = (name, *cls.modifiers)  # the schema is by names of keys, or of attributes
            keys = {
                key: properties[key if key in properties else cls.attribute(key)] for key in own
            }
            option = {"type": "object", "properties": keys, "required": [name]}
            options.append({**option, "additionalProperties": False})
        about = (cls.__doc__ or "").strip()
        return {"title": cls.__name__, "description": about, "anyOf": options}

    @classmethod
    def of(cls, written: object) -> Self:
        """The form that `written`, a word or mapping, stands for."""
        return cls.model_validate(written)


# Parameters that many algorithms have in common: decaying steps, starts, local training.


T = TypeVar("T")
EXPONENTS = {"constant": 0.0, "linear": 1.0, "sqrt": 0.5}
SOLVERS = ("gradient", "accelerated", "sgd", "noisy", "exact")

POWER = within("a number, 0 to 30", lambda x: 0 <= x <= 30, minimum=0, maximum=30)


class Decay(Form):
    """How a step shrinks over rounds k = 1, 2, ...: value / k^power."""

    words = ("constant", "sqrt", "linear")

    power: Annotated[float, *POWER] | None = None  # infinite in no number of rounds
    """the power of k"""

    @property
    def exponent(self) -> float:
        """The power of k, whichever way it was written."""
        return EXPONENTS[self.word] if self.word else float(self.value)


class Step(Strict):
    """A step size, constant or decaying over rounds: a number, or {initial: 0.3, decay: sqrt}."""

    initial: Positive
    """the step of round 1"""
    decay: Decay = Decay.of("constant")
    """constant, sqrt, linear, or {power: p}"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """A bare number is a constant step."""
        if isinstance(data, Mapping):
            return data
        try:
            return {"initial": positive(data)}
        except ValueError:
            allowed = (
                "a number > 0, or {initial: ..., decay: constant | sqrt | linear | {power: p}}"
            )
            raise ValueError(refusal(data, allowed)) from None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A number, or the mapping."""
        whole = handler.resolve_ref_schema(handler(core))
        about = (cls.__doc__ or "").strip()
        number = {"type": "number", "exclusiveMinimum": 0}
        return {"title": cls.__name__, "description": about, "anyOf": [number, {**whole}]}

    @model_serializer(mode="plain")
    def _written(self) -> Any:
        if self.decay.kind == "constant":
            return self.initial
        return {"initial": self.initial, "decay": self.decay.model_dump(exclude_none=True)}

    @of_unplayed(1, columns=True)
    def at(self, k: int | NDArray[np.int64]) -> Any:
        """The step of round k = 1, 2, ...: a float, or an array like `k` with the same bits."""
        if isinstance(k, np.ndarray):
            rounds, place = np.unique(k, return_inverse=True)
            return np.array([self.at(int(one)) for one in rounds])[place].reshape(k.shape)
        if (exponent := self.decay.exponent) == 0.0:
            return self.initial
        return self.initial / float(k) ** exponent


AutoStep = Annotated[
    Literal["auto"] | Step, BeforeValidator(lambda x: x if x == "auto" else Step.model_validate(x))
]

AutoShare = Annotated[
    Literal["auto"] | float, BeforeValidator(lambda x: x if x == "auto" else share(x))
]
StepOrNone = Annotated[
    Literal[0] | Step, BeforeValidator(lambda x: 0 if x == 0 else Step.model_validate(x))
]


class Init(Form):
    """Where the iterates start: zeros; model: where problem.model says, its default."""

    words: ClassVar[tuple[str, ...]] = ("zeros", "model")
    examples = {"npz": "init.npz"}

    normal: NonNegative | None = None
    """standard deviation of a normal start, each agent's its own"""
    common: NonNegative | None = None
    """standard deviation of a normal start that all agents share"""
    npz: File | None = None
    """arrays x0, z0 (agents, dim), as the method needs"""


def _some(
    read: Callable[[object], T],
    form: dict[str, Any],
    allowed: str,
    *words: str,
    several: bool = True,
) -> tuple[PlainValidator, WithJsonSchema]:
    """How one of `words` is read, or what `read` takes, or `several` of that; and the JSON Schema.

    form: JSON Schema of what `read` takes.
    """

    def some(value: object) -> str | T | tuple[T, ...]:
        if value in words:
            return str(value)
        if several and isinstance(value, list | tuple) and value:
            return tuple(read(one) for one in value)
        try:
            return read(value)
        except ValueError:
            raise ValueError(refusal(value, allowed) + spelling(value, words)) from None

    word = {"enum": [*words]}
    forms = [word, form] if words and form != word else [form]
    forms += [{"type": "array", "items": form, "minItems": 1}] if several else []
    return PlainValidator(some), WithJsonSchema({"anyOf": forms})


def _solver(value: object) -> str:
    if value in SOLVERS:
        return str(value)
    raise ValueError(refusal(value, SOLVING) + spelling(value, SOLVERS))


SOLVING = f"{', '.join(SOLVERS)}, or a list of them, one for each agent"
STEPS = "auto, per-agent, a number > 0, or a list of numbers, one for each agent"
COUNTS = "a whole number >= 1, or a list of them, one for each agent"
ABOVE_ZERO: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0}
AT_LEAST_ONE: dict[str, Any] = {"type": "integer", "minimum": 1}
MOMENTUM: tuple[Any, ...] = (
    lambda value: number(value, "a number >= 0 and below 1", lambda x: 0 <= x < 1),
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "auto, from-step, or a number >= 0 and below 1", "auto", "from-step",
)  # fmt: skip

Momentum = Annotated[str | float, *_some(*MOMENTUM, several=False)]
LocalMomentum = Annotated[str | float | tuple[float, ...], *_some(*MOMENTUM)]
Solver = Annotated[str | tuple[str, ...], *_some(_solver, {"enum": [*SOLVERS]}, SOLVING, *SOLVERS)]
LocalStep = Annotated[
    str | float | tuple[float, ...], *_some(positive, ABOVE_ZERO, STEPS, "auto", "per-agent")
]
Counts = Annotated[
    int | tuple[int, ...], *_some(lambda value: whole(value, 1), AT_LEAST_ONE, COUNTS)
]


class Local(Strict):
    """How an agent trains on its own data between two messages."""

    solver: Solver = "gradient"
    """gradient, accelerated, sgd, noisy or exact; a list gives every agent its own"""
    epochs: Count = 1
    """local steps in a round"""
    step: LocalStep = "auto"
    """auto: best for the worst moduli of all agents; per-agent: for each agent's own; or numbers"""
    momentum: LocalMomentum = "auto"
    """accelerated: auto, from the moduli; from-step, that of the smoothness 1/step; or numbers"""
    batch: Count | None = None
    """sgd: rows in a batch, drawn afresh for each step"""
    tau: NonNegative = 0.0
    """noisy: standard deviation; each step adds sqrt(2 gamma) N(0, tau^2 I)"""
    scaling: Literal["unbiased", "printed"] = "unbiased"
    """sgd: divide by the batch size, or by the number of rows as Fed-PLT's paper prints"""

    @property
    def solvers(self) -> tuple[str, ...]:
        """The solvers in use, once each, in a fixed order."""
        used = (self.solver,) if isinstance(self.solver, str) else self.solver
        return tuple(name for name in SOLVERS if name in used)

    @model_validator(mode="after")
    def _consistent(self) -> "Local":
        if "sgd" in self.solvers and self.batch is None:
            raise ValueError("solver sgd needs batch; allowed: batch: a whole number of rows >= 1")
        for key, found, solver in (
            ("batch", self.batch is not None, "sgd"),
            ("momentum", self.momentum != "auto", "accelerated"),
            ("tau", self.tau > 0, "noisy"),
        ):
            if found and solver not in self.solvers:
                allowed = f"{key} with solver {solver}"
                raise ValueError(f"found {key} with solver {self.solver}; allowed: {allowed}")
        return self
