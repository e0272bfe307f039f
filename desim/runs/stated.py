"""What is said of a run's privacy, as plain values for a file or another program."""

import math
from collections.abc import Mapping
from typing import Any

from desim.privacy.accounting.risk import RATES, Risk
from desim.runs.joint import Joint
from desim.runs.privacy import Statement


def plain(statement: Statement) -> dict[str, Any]:
    """A statement about one run: a list of views, and what is to be said of all of them.

    Numbers that are infinite are the word `infinite`, those that are not known are None.
    """
    return {
        "views": [_view(row, statement) for _, row in statement.table.iterrows()],
        "paper": _paper(statement),
        "tuned on data, not charged": list(statement.tuned),
        "caveats": list(statement.caveats),
    }


def together(found: Joint) -> dict[str, Any]:
    """A statement about several runs for one view."""
    values = found._asdict() | _risk(found.risk) | {"epsilon": number(found.epsilon)}
    del values["risk"]
    return values | {name: list(values[name]) for name in ("assumptions", "flags")}


def number(value: float) -> float | str | None:
    """A number as JSON can hold it."""
    if math.isnan(value):
        return None
    return "infinite" if math.isinf(value) else float(value)


def _view(row: Any, statement: Statement) -> dict[str, Any]:
    values: dict[str, Any] = {name: str(row[name]) for name in ("view", "relation", "method")}
    values |= {"delta": float(row["delta"]), "epsilon": number(row["rigorous epsilon"])}
    values |= {"agent": int(row["agent"]), "median epsilon": number(row["median epsilon"])}
    values |= {"paper epsilon": number(row["paper epsilon"]), **_risk(row["risk"])}
    if statement.accountant:
        values |= {"accountant": statement.accountant, "own epsilon": number(row["own epsilon"])}
    values |= {"sensitivities": statement.unsure or "desim's"}
    return values | {name: list(row[name]) for name in ("assumptions", "flags")}


def _risk(risk: Risk) -> dict[str, Any]:
    rates = {f"{rate:g}": found for rate, found in zip(RATES, risk.tpr, strict=True)}
    bound = "attained" if risk.exact else "upper bound"
    values: Mapping[str, Any] = {"advantage": risk.advantage, "true positives at": rates}
    return {**values, "risk is": bound}


def _paper(statement: Statement) -> dict[str, Any]:
    claim = statement.claim
    if claim is None:
        return {"claims": statement.silence}
    bound, unmet = claim.bound, list(claim.unmet)
    values: dict[str, Any] = {"theorem": bound.theorem, "paper": bound.paper, "view": bound.view}
    values |= {"relation": claim.relation, "method": claim.method, "verdict": bound.verdict}
    return {**values, "epsilon": number(claim.worst), "delta": claim.delta, "unmet": unmet}
