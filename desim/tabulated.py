"""Tables of words, written as text, Markdown, LaTeX or HTML; nothing in a cell is taken as code."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from desim.errors import chosen

Format = Literal["text", "markdown", "latex"]
TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
NUMBER = re.compile(r"^(-?[\d.,]+(e[-+]?\d+)?( .*)?|-|infinite.*|never.*|not recorded)$")
MARKS = re.compile(r"([\\`*_\[\]<>|])")
NEEDS = r"% in the preamble: \usepackage{booktabs}"
CELL = "padding:.15em .9em .15em 0;text-align:left;vertical-align:top"


@dataclass(frozen=True)
class Table:
    """A table: title, head and rows of one length, and notes that belong below it.

    terms: what a caption says of its numbers (seeds, the terms of an epsilon); only LaTeX has one,
    and leaves these out of the notes. Of a report: rows `marked` stand out; bars: of each row pairs
    (class, share of the whole), drawn beside its cells under `bar_head`; more: what stands folded
    below it.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    terms: Sequence[str] = ()
    marked: frozenset[int] = frozenset()
    bars: Sequence[Sequence[tuple[str, float]]] = ()
    bar_head: str = ""
    more: Sequence["Table"] = ()

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers only, which stand to the right."""
        columns = range(len(self.head))
        return [n > 0 and all(NUMBER.match(row[n]) for row in self.rows) for n in columns]

    def written(self, form: str, width: float = math.inf) -> str:
        """The table as text (see there), markdown or latex; InputError for another format."""
        forms = {"text": lambda: self.text(width), "markdown": self.markdown, "latex": self.latex}
        return forms[chosen("format", form, forms)]()

    def text(self, width: float = math.inf) -> str:
        """Aligned columns under their title; what is wider than so many letters goes below.

        Every part of a table that is cut between columns begins with the first column.
        """
        parts = list(self._parts(width - 2))
        blocks = [
            "\n".join(
                f"  {line}".rstrip()
                for line in aligned([[row[n] for n in part] for row in (self.head, *self.rows)])
            )
            for part in parts
        ]
        notes = [f"  {note}" for note in self.notes]
        return "\n".join([self.title, "\n\n".join(blocks), *notes])

    def _parts(self, width: float) -> Iterator[list[int]]:
        """The columns of each part: as many as fit, at least one beside the first."""
        wide = [
            max(_width(row[n]) for row in (self.head, *self.rows)) for n in range(len(self.head))
        ]
        part, used = [0], wide[0]
        for column in range(1, len(wide)):
            if len(part) > 1 and used + 2 + wide[column] > width:
                yield part
                part, used = [0], wide[0]
            part.append(column)
            used += 2 + wide[column]
        yield part

    def markdown(self) -> str:
        """A pipe table, as GitHub and Pandoc read it."""
        cells = [[_markdown(cell) for cell in row] for row in (self.head, *self.rows)]
        cells.insert(1, ["---"] * len(self.head))
        lines = [f"| {' | '.join(row)} |" for row in cells]
        notes = [f"\n{_markdown(note)}" for note in self.notes]
        return "\n".join([f"**{_markdown(self.title)}**", "", *lines, *notes])

    def latex(self, label: str = "") -> str:
        """A table environment with caption and label, by default its title; needs booktabs."""
        caption = "; ".join([self.title, *self.terms])
        head, *rows = [" & ".join(map(_tex, row)) + r" \\" for row in (self.head, *self.rows)]
        below = [note for note in self.notes if note not in self.terms]
        notes = [rf"\par\footnotesize {_tex(note)}" for note in below]
        columns = "l" * len(self.head)
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_tex(caption)}}}",
                rf"\label{{tab:{label or _slug(self.title)}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                head,
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                *notes,
                r"\end{table}",
            ]
        )

    def html(self) -> str:
        """A table for notebooks; it takes their colours, light or dark."""
        head = "".join(f'<th scope="col" style="{CELL}">{escape(cell)}</th>' for cell in self.head)
        rows = "".join(f"<tr>{_cells(row)}</tr>" for row in self.rows)
        notes = "".join(f"<div><small>{escape(note)}</small></div>" for note in self.notes)
        caption = f'<caption style="text-align:left">{escape(self.title)}</caption>'
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def together(
    tables: Iterable[Table], form: str = "text", width: float = math.inf, name: str = ""
) -> str:
    """Tables one below the other, as text (see there), markdown or latex.

    No two tables of latex have one label. All begin with `name`; without one they end with a few
    digits of what the tables hold, so that those of several calls can stand in one paper.
    """
    every = list(tables)
    if form != "latex":
        return "\n\n".join(one.written(form, width) for one in every)
    end, labels = "" if name else _digits(every), list[str]()
    for one in every:
        first = label = "-".join(filter(None, (_slug(name), _slug(one.title), end)))
        while label in labels:
            label = f"{first}-{len(labels) + 1}"
        labels.append(label)
    return "\n\n".join([NEEDS, *map(Table.latex, every, labels)])


def _slug(text: str) -> str:
    """A text in letters that a label may have."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _digits(tables: Sequence[Table]) -> str:
    return hashlib.sha256("".join(one.latex() for one in tables).encode()).hexdigest()[:6]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text whose columns stand below each other, two blanks apart."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: two for a letter of Chinese, Japanese or Korean."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def card(title: str, facts: Iterable[tuple[str, str]], *, more: Iterable[str] = ()) -> str:
    """A title and one row per fact in HTML; `more` is HTML already."""
    rows = "".join(
        f'<tr><th scope="row" style="{CELL}">{escape(name)}</th>'
        f'<td style="{CELL}">{escape(text)}</td></tr>'
        for name, text in facts
    )
    facts_table = f"<table>{rows}</table>" if rows else ""
    return f"<div><strong>{escape(title)}</strong>{facts_table}{''.join(more)}</div>"


def folded(title: str, text: str) -> str:
    """Text behind a title that unfolds, in HTML."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _cells(row: Sequence[str]) -> str:
    return "".join(f'<td style="{CELL}">{escape(cell)}</td>' for cell in row)


def _markdown(text: str) -> str:
    return MARKS.sub(r"\\\1", text)


def _tex(text: str) -> str:
    """LaTeX for a text; at a line's beginning a [ or * would be an option of the line before."""
    told = "".join(TEX.get(letter, letter) for letter in text)
    return f"{{{told[0]}}}{told[1:]}" if told.startswith(("[", "*")) else told


# Notes below tables.


def each_once(said: Sequence[tuple[str, Iterable[str]]]) -> list[str]:
    """Each text once, with the names of whom it is about where not all have it."""
    found: dict[str, list[str]] = {}
    for name, texts in said:
        for text in texts:
            found.setdefault(text, []).append(name)
    every = len(said)
    return [
        text if len(who) == every else f"{', '.join(who)}: {text}" for text, who in found.items()
    ]
