"""Tables of keys: what each says, its type and unit, its default and an example."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import PydanticUndefined

from analysis.docs.generate.examples import example
from analysis.docs.generate.markdown import code, escaped, flowing, table
from analysis.docs.generate.types import phrase, schema_of, sections_in
from desim.fields import Form, Strict
from desim.fields.strict import plain

HEAD = ("key", "what it says", "default", "example")
Link = Callable[[type[Strict]], str]


def key_table(owner: type[Strict], link: Link, skip: tuple[str, ...] = ()) -> str:
    """The keys of a section; link: where the reader finds a section that a key holds, or ""."""
    return table(HEAD, (_row(owner, key, link) for key in owner.keys() if key not in skip))


def _row(owner: type[Strict], key: str, link: Link) -> tuple[str, ...]:
    field = owner.model_fields[owner.attribute(key)]
    says = escaped(flowing(owner.about(key)))
    inside = dict.fromkeys(name for one in sections_in(field.annotation) if (name := link(one)))
    kind = escaped(phrase(schema_of(field)))
    more = " or ".join([*([kind] if kind else []), *inside])
    return (
        f"**{code(key)}**",
        f"{says}\n*{more}*" if more else says,
        "" if "default:" in says else _default(field.default, kind),
        code(f"{key}: {flow(example(owner, key))}"),
    )


def _default(default: Any, kind: str) -> str:
    if default is PydanticUndefined:
        return "required"
    if default is None or default == ():
        return ""
    if isinstance(default, Form):
        return code(flow(plain(default.model_dump(exclude_none=True))))
    if isinstance(default, Strict):
        return ""
    unit = " s" if kind.startswith("a duration") and isinstance(default, float) else ""
    return code(f"{flow(plain(default))}{unit}")


def flow(value: Any) -> str:
    """A value as one line of YAML."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {flow(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else str(value)
    text = str(value)
    return f"'{text}'" if not text.strip() or text[0] in ",;:{[$*&%" else text
