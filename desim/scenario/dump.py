"""The YAML that desim writes: version 1.2, in the order of the schema."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

HEAD = "# Resolved by desim: every default is explicit; s, bit/s and 1/s\n"


def parser() -> YAML:
    """The one kind of YAML that is read and written."""
    return YAML(typ="safe", pure=True)


def dumped(sections: Mapping[str, Any]) -> str:
    """The sections of a resolved scenario as text."""
    yaml = parser()
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.default_flow_style = None
    yaml.allow_unicode = True
    yaml.width = 1000
    text = io.StringIO()
    yaml.dump(sections, text)
    return HEAD + text.getvalue()
