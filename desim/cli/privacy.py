"""What `desim privacy` prints: a table of views, then what the paper says, flags and caveats."""

import math
from typing import TYPE_CHECKING, Any

from desim.amounts import epsilon
from desim.tabulated import aligned

if TYPE_CHECKING:
    from desim.privacy.bounds.claims import Claim
    from desim.runs.privacy import Statement

HEADS = ("view", "relation", "delta", "paper epsilon", "rigorous epsilon", "method")


def lines(name: str, statement: "Statement") -> list[str]:
    """Lines of text: a title, the table, and one aligned line per fact, none of them twice."""
    rows = [HEADS, *(_cells(row, statement.claim) for _, row in statement.table.iterrows())]
    facts = [*_paper(statement)]
    facts += [("assumes", text) for text in statement.each_once("assumptions")]
    facts += [("flag", text) for text in statement.each_once("flags")]
    facts += [("flag", f"tuned on data, not charged: {text}") for text in statement.tuned]
    facts += [("caveat", text) for text in statement.caveats]
    width = max(len(key) for key, _ in facts) + 2
    told = [f"  {key:{width}}{text}" for key, text in facts]
    return [f"{name}: {_shortly(statement)}", *(f"  {row}" for row in aligned(rows)), "", *told]


def _shortly(statement: "Statement") -> str:
    """The whole in one line: the largest epsilon, whose it is, and its terms."""
    table = statement.table
    if not len(table):
        return "nothing private was released"
    row = table.iloc[int(table["rigorous epsilon"].argmax())]
    said = epsilon(row["rigorous epsilon"], row["flags"])
    terms = f"view {row['view']}, {row['relation']}, delta {row['delta']:g}, {row['method']}"
    return f"epsilon {said} of agent {row['agent']}, which spends most ({terms})"


def _cells(row: Any, claim: "Claim | None") -> tuple[str, ...]:
    paper, rigorous = row["paper epsilon"], epsilon(row["rigorous epsilon"], row["flags"])
    said = "none" if math.isnan(paper) else epsilon(paper)
    if claim is not None and said != "none" and not claim.bound.covers(str(row["view"])):
        said += " (another view)"
    if row["median epsilon"] != row["rigorous epsilon"]:
        rigorous += f" (median {epsilon(row['median epsilon'])})"
    return (
        str(row["view"]), str(row["relation"]), f"{row['delta']:g}", said, rigorous,
        str(row["method"]),
    )  # fmt: skip


def _paper(statement: "Statement") -> list[tuple[str, str]]:
    claim = statement.claim
    if claim is None:
        return [("paper", statement.silence)]
    bound = claim.bound
    terms = f"view: {bound.view}; {claim.relation}; delta {claim.delta:g}; {claim.method}"
    said = f"epsilon {epsilon(claim.worst)} by {bound.theorem} ({bound.paper}); {terms}"
    facts = [("paper", said), ("verdict", f"{bound.verdict}: {bound.wrong}")]
    facts += [("", f"desim says instead: {bound.rigorous}")]
    return facts + [("unmet", text) for text in claim.unmet]
