"""What the report says of privacy: every epsilon with its terms, and the paper's beside it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.reports.charts import terms
from desim.reports.reading import Reading
from desim.reports.wording import NOTHING, Table, number
from desim.runs.privacy import Statement, statement

HEADS = (
    "view", "relation", "delta", "paper's epsilon", "rigorous epsilon", "median agent", "method",
)  # fmt: skip


@dataclass(frozen=True)
class Privacy:
    """table: a row for each view; facts: (what, text) pairs, the paper's claim first."""

    table: Table | None
    facts: tuple[tuple[str, str], ...]


def epsilon_terms(one: Reading) -> str:
    """What a run's epsilon over time is about, or why there is no curve of it."""
    told = one.account
    if told is None:
        return "no releases of private data, or none that can be read"
    about = f"{terms(one)}, method {told.method}"
    endless = [text for text in told.flags if text.startswith("infinite")]
    return about if one.spent is not None else f"{'; '.join(endless) or 'infinite'} ({about})"


def privacy(one: Reading) -> Privacy:
    """The privacy of a run, or why nothing can be said."""
    releases = one.tried("releases", lambda: one.run.releases)
    if releases is None:
        return Privacy(None, (("unknown", "the releases cannot be read"),))
    if releases.empty:
        return Privacy(None, (("releases", "none was recorded"),))
    told = one.tried("privacy", lambda: statement(one.run))
    if told is None:
        return Privacy(None, (("unknown", "see the warnings"),))
    rows = [list(_cells(row, told)) for _, row in told.table.iterrows()]
    note = "Rigorous: of the agent that spends most. Epsilons are upper bounds over the whole run."
    table = Table("Epsilon by view", list(HEADS), rows, note)
    return Privacy(table, tuple(_facts(told)))


def _cells(row: Any, told: Statement) -> Iterator[str]:
    paper, claim = float(row["paper epsilon"]), told.claim
    said = NOTHING if np.isnan(paper) else number(paper)
    if claim is not None and not np.isnan(paper) and not claim.bound.covers(str(row["view"])):
        said += " (of another view)"
    yield from (str(row["view"]), str(row["relation"]), f"{row['delta']:g}", said)
    yield from (number(row["rigorous epsilon"]), number(row["median epsilon"]), str(row["method"]))


def _facts(told: Statement) -> Iterator[tuple[str, str]]:
    claim = told.claim
    if claim is None:
        yield "paper", told.silence
    else:
        bound = claim.bound
        yield (
            "paper",
            f"epsilon {number(claim.worst)} by {bound.theorem} ({bound.paper}); view: {bound.view};"
            f" {claim.relation}; delta {claim.delta:g}; {claim.method}",
        )
        yield "verdict", f"{bound.verdict}: {bound.wrong}"
        yield "instead", bound.rigorous
        yield from (("unmet", text) for text in claim.unmet)
    for column, name in (("flags", "flag"), ("assumptions", "assumes")):
        yield from ((name, text) for text in _each_once(told, column))
    yield from (("flag", f"tuned on data, not charged: {text}") for text in told.tuned)
    yield from (("caveat", text) for text in told.caveats)


def _each_once(told: Statement, column: str) -> Iterator[str]:
    """Each text once, with the views that it is about where not all have it."""
    views: dict[str, list[str]] = {}
    for view, texts in zip(told.table["view"], told.table[column], strict=True):
        for text in texts:
            views.setdefault(text, []).append(str(view))
    for text, about in views.items():
        yield text if len(about) == len(told.table) else f"{', '.join(about)}: {text}"
