"""Parts of pages that are read from the code, and stand in the pages for who reads them as files.

Between `<!-- begin NAME -->` and `<!-- end NAME -->` a page has what PARTS[NAME] says; each page of
an algorithm has `summary` and `details` around the equations. `python -m analysis.docs.generate`
writes them anew, and a test holds them to the code. Sphinx reads the pages as they are; only lists
of pages get their place in the side bar, and the report of reproductions is taken in whole.
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
    "peers": written.peers,
    "python": interface.interface,
    "number-of-algorithms": written.algorithms,
}
OF_ALGORITHMS: dict[str, Callable[[str], str]] = {
    "summary": algorithms.summary,
    "details": algorithms.details,
}
PART = re.compile(r"<!-- begin ([\w-]+) -->(.*?)<!-- end \1 -->", re.DOTALL)
FOLDER = "reference/algorithms/"
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
LISTED = re.compile(r"^- \[([^\]]+)\]\(([^):#]+)\.md\)", re.MULTILINE)


def completed(page: str, text: str) -> str:
    """The text of a page, by its name in the documentation, with its parts written anew."""

    def written_anew(part: re.Match[str]) -> str:
        name = part[1]
        if name in OF_ALGORITHMS:
            says = OF_ALGORITHMS[name](page.removeprefix(FOLDER))
        else:
            says = PARTS[name]()
        inside = f"\n\n{says}\n\n" if "\n" in part[2] else says
        return f"<!-- begin {name} -->{inside}<!-- end {name} -->"

    return PART.sub(written_anew, text)


def side_bar(text: str) -> str:
    """Hidden trees of the pages that a page lists under its headings, for Sphinx."""
    trees = []
    for about, below in zip(*[iter(HEADING.split(text)[1:])] * 2, strict=True):
        if pages := LISTED.findall(below):
            lines = "\n".join(f"{words} <{page}>" for words, page in pages)
            trees.append(f"```{{toctree}}\n:caption: {about}\n:hidden:\n\n{lines}\n```")
    return "\n\n".join(trees)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add what only the site has, as each page is read."""

    def read(_: Sphinx, page: str, source: list[str]) -> None:
        if page == "index":
            source[0] += "\n" + side_bar(source[0])
        elif page == f"{FOLDER}index":
            source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
        elif page == "reproductions":
            source[0] = f"# {written.REPORT}\n{written.reproductions()}"

    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
