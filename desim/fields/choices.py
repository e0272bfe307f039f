"""Keys that hold a word or a mapping with one alternative: `all` or `{bernoulli: 0.5}`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from desim.errors import refusal, spelling
from desim.fields.strict import Strict


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
            name for name in self.alternatives() if getattr(self, name) is not None
        )

    @property
    def value(self) -> Any:
        """The value of the chosen alternative; None for a word."""
        return None if self.word else getattr(self, self.kind)

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
        return {key: value for key, value in handler(self).items() if key != "word"}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """One option for the words and one for each alternative."""
        whole = handler.resolve_ref_schema(handler(core))
        properties = whole.get("properties", {})
        options: list[dict[str, Any]] = [{"enum": list(cls.words)}] if cls.words else []
        for name in cls.alternatives():
            keys = {key: properties[key] for key in (name, *cls.modifiers)}
            option = {"type": "object", "properties": keys, "required": [name]}
            options.append({**option, "additionalProperties": False})
        about = (cls.__doc__ or "").strip()
        return {"title": cls.__name__, "description": about, "anyOf": options}

    @classmethod
    def of(cls, written: object) -> Self:
        """The form that `written`, a word or mapping, stands for."""
        return cls.model_validate(written)
