"""Parts of pages that are read from the code when the documentation is built.

A line `% generated: NAME` of a page is replaced by what PARTS[NAME] says, and {{NAME}} by a number;
each page of an algorithm is completed around the equations that are written there.
"""

import re
from collections.abc import Callable

from sphinx.application import Sphinx

from analysis.docs.generate import (
    accounting,
    algorithms,
    commands,
    interface,
    named,
    scenario,
    tables,
    written,
)

PARTS: dict[str, Callable[[], str]] = {
    "scenario": scenario.scenario,
    "study": scenario.study,
    "algorithms": algorithms.index,
    "mechanisms": accounting.mechanisms,
    "verdicts": accounting.verdicts,
    "stored": tables.stored,
    "computed": tables.computed,
    "kinds": tables.kinds,
    "metrics": tables.metrics,
    "commands": commands.commands,
    "named": named.everything,
    "reproductions": written.reproductions,
    "peers": written.peers,
    "python": interface.interface,
}
LINE = re.compile(r"^% generated: (\w+)$", re.MULTILINE)
NUMBER = re.compile(r"\{\{(\w+)\}\}")
PAGES = "reference/algorithms/"


def expanded(page: str, text: str) -> str:
    """A page, by its name in the documentation, with its generated parts."""
    if page.startswith(PAGES) and not page.endswith("/index"):
        return algorithms.page(page.removeprefix(PAGES), text)
    text = NUMBER.sub(lambda told: written.counts()[told[1]], text)
    return LINE.sub(lambda told: PARTS[told[1]](), text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Expand every page as it is read."""

    def read(_: Sphinx, page: str, source: list[str]) -> None:
        source[0] = expanded(page, source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
