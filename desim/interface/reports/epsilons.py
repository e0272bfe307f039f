"""What the report says of privacy: every epsilon with its terms, and the paper's beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.amounts import epsilon
from desim.interface.reports.charts import terms
from desim.interface.reports.readable import NOTHING, Reading, by_text, number
from desim.privacy.accounting.risk import Risk
from desim.privacy.accounting.views import each_once
from desim.runs.privacy import Statement, statement
from desim.tabulated import Table

Fact = tuple[str, str]
HEADS = (
    "run", "view", "relation", "delta", "paper's epsilon", "rigorous epsilon", "median agent",
    "method",
)  # fmt: skip
FOLDED = ("assumes", "caveat")
NOTE = (
    "Rigorous: an upper bound over the whole run, of the agent that spends most. Paper: its "
    "theorem as printed, whether or not it holds. Advantage, below: the largest true less false "
    "positive rate of the best attack on a record of that agent; ≤ where it is an upper bound."
)


@dataclass(frozen=True)
class Privacy:
    """table: a row for each run and view; facts: what all runs share; own: (run, its facts).

    folded: of what all share, what each number rests on: assumptions and caveats.
    """

    table: Table | None
    facts: Sequence[Fact]
    folded: Sequence[Fact]
    own: Sequence[tuple[str, Sequence[Fact]]]


def privacy(found: Sequence[Reading]) -> Privacy:
    """The privacy of the runs, or why nothing can be said of one."""
    said = [(one, *_said(one)) for one in found]
    rows = [row for _, some, _ in said for row in some]
    facts = [list(dict.fromkeys(some)) for _, _, some in said]
    shared = [fact for fact in facts[0] if all(fact in some for some in facts)]
    own = [
        (one.label, [fact for fact in some if fact not in shared])
        for one, some in zip(found, facts, strict=True)
    ]
    table = Table("Epsilon by view", HEADS, rows, [NOTE]) if rows else None
    plain = [fact for fact in shared if fact[0] not in FOLDED]
    rest = [fact for fact in shared if fact[0] in FOLDED]
    return Privacy(table, plain, rest, [(label, some) for label, some in own if some])


def epsilon_terms(found: Sequence[Reading]) -> dict[str, list[str]]:
    """What the epsilons over time are about, or why there is no curve, with the runs of each."""
    return by_text((one.label, _terms(one)) for one in found)


def _terms(one: Reading) -> str:
    account = one.account
    if account is None:
        return "no releases of private data, or none that can be read"
    endless = [text for text in account.flags if text.startswith("infinite")]
    return terms(one) if one.spent is not None else f"{'; '.join(endless)} ({terms(one)})"


def _said(one: Reading) -> tuple[list[list[str]], list[Fact]]:
    """Rows of the table and facts of one run."""
    if one.released is None:
        return [], [("unknown", "the releases cannot be read")]
    if not one.released:
        return [], [("releases", "none was recorded")]
    stated = one.tried("privacy", lambda: statement(one.run))
    if stated is None:
        return [], [("unknown", "see the warnings")]
    return [[one.label, *_cells(row, stated)] for _, row in stated.table.iterrows()], [
        *_facts(stated)
    ]


def _cells(row: Any, stated: Statement) -> Iterator[str]:
    paper, claim = float(row["paper epsilon"]), stated.claim
    said = NOTHING if np.isnan(paper) else number(paper)
    if claim is not None and not np.isnan(paper) and not claim.bound.covers(str(row["view"])):
        said += " (of another view)"
    yield from (str(row["view"]), str(row["relation"]), f"{row['delta']:g}", said)
    yield from (
        epsilon(row["rigorous epsilon"], row["flags"]),
        number(row["median epsilon"]),
        str(row["method"]),
    )


def _risk(risk: Risk) -> str:
    bound = "" if risk.exact else "≤ "
    return f"advantage {bound}{number(risk.advantage)}; {risk.words}"


def _facts(stated: Statement) -> Iterator[Fact]:
    table = stated.table
    risks = zip(table["view"], ([_risk(one)] for one in table["risk"]), strict=True)
    yield from (("risk", text) for text in each_once(list(risks)))
    yield from stated.paper()
    if stated.accountant:
        for _, row in stated.table.iterrows():
            own = f"epsilon {number(row['own epsilon'])} by plug-in {stated.accountant}"
            yield "accountant", f"{row['view']}: {own}, its own number"
    yield from sorted(stated.notes(), key=lambda fact: fact[0] in FOLDED)
