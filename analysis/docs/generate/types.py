"""What a key may hold, in words: from the JSON Schema of its type, and the classes in it."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from desim.fields import Strict

PLAIN = {"string": "text", "boolean": "true or false", "number": "a number", "object": "a mapping"}


def schema_of(field: FieldInfo) -> dict[str, Any]:
    """JSON Schema of a field's own type, without what the key's docstring says."""
    own = field.annotation
    if field.metadata:
        own = Annotated[own, *field.metadata]  # type: ignore[assignment]
    return TypeAdapter(own).json_schema()


def phrase(schema: dict[str, Any]) -> str:
    """What a value of this type is, in words."""
    if "$ref" in schema or "title" in schema:
        return ""
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "description" in schema:
        return str(schema["description"])
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if options:
        return " or ".join(dict.fromkeys(word for one in options if (word := phrase(one))))
    kind = schema.get("type")
    if kind == "integer":
        return f"a whole number{_bounds(schema)}"
    if kind == "array":
        items = phrase(schema.get("items", {}))
        return f"a list of {items}" if items else "a list"
    if isinstance(kind, list):
        return " or ".join(PLAIN[one] for one in kind)
    return PLAIN[str(kind)] + _bounds(schema) if kind else ""


def _bounds(schema: dict[str, Any]) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    found = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    return f" {' and '.join(found)}" if found else ""


def sections_in(annotation: Any) -> Iterator[type[Strict]]:
    """The classes of sections that occur in a type."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
        return
    for part in get_args(annotation):
        yield from sections_in(part)
