"""The YAML that desim writes: version 1.2, in the order of the schema."""

import io
import pickle
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

HEAD = "# Resolved by desim: every default is explicit; s, bit/s and 1/s\n"


def parser() -> YAML:
    """The one kind of YAML that is read and written."""
    return YAML(typ="safe", pure=True)


def plain(text: str) -> dict[str, Any]:
    """The sections of a resolved scenario's text, unchecked; ValueError where it is none."""
    try:
        found = parser().load(text)
    except (YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError("not a mapping")
    return found


def dumped(sections: Mapping[str, Any]) -> str:
    """The sections of a resolved scenario as text."""
    return HEAD + "".join(_section(pickle.dumps({name: one})) for name, one in sections.items())


@lru_cache(512)
def _section(pickled: bytes) -> str:
    """One section, pickled to be a key: runs of a study differ in few, and YAML is slow."""
    section = pickle.loads(pickled)
    (value,) = section.values()
    yaml = parser()
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.default_flow_style = None if isinstance(value, dict | list) else False
    yaml.allow_unicode = True
    yaml.width = 1000
    text = io.StringIO()
    yaml.dump(section, text)
    return text.getvalue()
