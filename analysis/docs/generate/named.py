"""What a scenario can name, as `desim list` tells it."""

import inspect

from analysis.docs.generate.markdown import code, escaped, paragraphs, table
from desim.scenario.catalogue import NONE, SECTIONS


def entries(section: str) -> str:
    """One section of `desim list`."""
    if not SECTIONS[section]():
        return escaped(NONE[section]) + "."
    rows = ((code(name), escaped(about)) for name, about in SECTIONS[section]())
    return table(("name", "what it is"), rows)


def everything() -> str:
    """All sections but the algorithms, which have pages of their own."""
    parts: list[str] = []
    for name, listed in SECTIONS.items():
        if name != "algorithms":
            about = escaped(inspect.getdoc(listed) or "")
            parts += [f"## {name.capitalize()}", about, entries(name)]
    return paragraphs(*parts)
