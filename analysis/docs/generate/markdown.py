"""Pieces of Markdown: tables, code in a line, and prose whose signs are not meant as Markdown."""

import re
from collections.abc import Iterable, Sequence

SIGNS = re.compile(r"([\\`*_\[\]<>{}$|~#])")
CODE = re.compile(r"`([^`]+)`")
ALONE = re.compile(r"(?<=.)\n(?=.)")


def escaped(text: str) -> str:
    """Prose that shows every sign as it is; what stands in `backticks` stays code."""
    parts = CODE.split(text)
    return "".join(
        code(one) if place % 2 else SIGNS.sub(r"\\\1", one) for place, one in enumerate(parts)
    )


def flowing(text: str) -> str:
    """Text without the line breaks of a docstring; blank lines stay."""
    return ALONE.sub(" ", text.strip())


def code(text: object) -> str:
    """Text as code within a line, also within a table."""
    written = str(text).replace("|", r"\|")
    fence = "``" if "`" in written else "`"
    return f"{fence}{written}{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a line break in a cell is shown as one."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace(chr(10), '<br>') for cell in line)} |" for line in lines
    )


def paragraphs(*parts: str) -> str:
    """Parts that are not empty, a blank line between them."""
    return "\n\n".join(part for part in parts if part)
