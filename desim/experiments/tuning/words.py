"""What came of a tuner, in words: the best, what it is worth, who is level, and the caveats."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from desim.amounts import amount
from desim.experiments.studies.measures import UNITS
from desim.experiments.studies.notes import stated
from desim.experiments.studies.shown import interval
from desim.experiments.studies.statistics import lacking
from desim.experiments.tuning.candidates import (
    BEST,
    DROPPED,
    FRONT,
    INVALID,
    LEVEL,
    MISSED,
    OPEN,
    Candidate,
)
from desim.experiments.tuning.found import Found
from desim.tabulated import Table

SHOWN = 12  # candidates of the table; all are in candidates.parquet
ORDER = (BEST, FRONT, LEVEL, OPEN, DROPPED, MISSED, INVALID)
UNCHARGED = (
    "privacy: these runs looked at the data to choose, which no epsilon here pays for; tune.charge "
    "says how it is paid"
)


def lines(found: Found) -> list[str]:
    """All of it."""
    return [*_head(found), *_best(found), "", *table(found).text().splitlines(), *_foot(found)]


def _head(found: Found) -> Iterator[str]:
    metric, value = found.target
    of = "" if math.isinf(found.size) else f" of {found.size:g}"
    counted: Mapping[str, int] = (
        dict(found.candidates["status"].value_counts()) if len(found.candidates) else {}
    )
    ends = ", ".join(f"{counted[one]} {one}" for one in ORDER if one in counted)
    yield f"{found.name}: {len(found.candidates)} candidates{of}: {ends or 'none'}"
    kinds = ", ".join(f"{n} {how}" for how, n in sorted(found.counts.items()))
    many = found.fresh.groupby("candidate")["seeds"].first().sum() if len(found.fresh) else 0
    aside = f", {many} of them on fresh seeds" if many else ""
    yield f"  {found.asked} runs asked for{aside}: {kinds or 'none'}"
    yield f"  least {' and '.join(found.least)} to {metric} {value:g}"
    if found.directory is not None:
        yield f"  stored in {found.directory}"
    if not found.complete:
        yield "  stopped early: nothing is decided"


def _best(found: Found) -> Iterator[str]:
    if not found.best:
        if not found.complete:
            return
        none = "no candidate met the target within the limits on more than half of the seeds"
        yield none if len(found.candidates) else "no run was drawn, so that nothing is released"
        return
    for one in found.best:
        yield ""
        yield f"{one.status}: {one.label or 'base'}"
        yield from _worth(found, one)
    if found.price is not None:
        yield f"  {found.price.text()}"
        yield from (f"  {note}" for note in found.price.notes)


def _worth(found: Found, one: Candidate) -> Iterator[str]:
    """What it needed where it was chosen, on fresh seeds, and beside the base."""
    known = found.candidates[found.candidates["candidate"] == one.number].iloc[0]
    many = len(found.candidates)
    for kind in found.least:
        text = _estimated(known, kind, kind)
        if found.price is not None:
            yield f"  {kind}: {text} on the one seed that it was played on"
            continue
        yield f"  {kind}: {text} on {known['seeds']} seeds, where it is the best of {many}" + (
            " candidates, so this is optimistic"
        )
        if not len(found.fresh):
            continue
        rows = found.fresh[(found.fresh["candidate"] == one.number) & (found.fresh["kind"] == kind)]
        for row in rows.to_dict("records"):
            yield f"    {_estimated(row, 'fresh', kind)} on {row['seeds']} fresh seeds"
            if not math.isnan(row["to base"]):
                ends = interval(row["to base low"], row["to base high"], "")
                yield (
                    f"    {amount(row['to base'])} of what the base takes there"
                    f"{f' ({ends})' if ends else ''}, better on {row['better']}, worse on "
                    f"{row['worse']}"
                )


def _estimated(row: Any, name: str, kind: str) -> str:
    unit = UNITS.get(kind, "")
    ends = interval(row[f"{name} low"], row[f"{name} high"], unit)
    return f"{amount(row[name], unit)}{f' ({ends})' if ends else ''}"


def table(found: Found) -> Table:
    """The candidates that stand best, with their ratio to the best over the same seeds."""
    level = f"{100 * found.level:g}% interval"
    head = ["candidate", "status", "seeds"]
    for kind in found.least:
        head += [kind, level, "ratio to best", level]
    if not len(found.candidates):
        return Table("candidates", head, [])
    place = found.candidates["status"].map(ORDER.index)
    order = found.candidates.assign(place=place).sort_values(
        ["place", "seeds", found.least[0]], ascending=[True, False, True]
    )
    rows = []
    for row in order.head(SHOWN).to_dict("records"):
        cells = [row["label"], row["status"], str(row["seeds"])]
        for kind in found.least:
            unit = UNITS.get(kind, "")
            cells += [
                amount(row[kind], unit),
                interval(row[f"{kind} low"], row[f"{kind} high"], unit),
            ]
            ratio = row[f"{kind} ratio"]
            cells += ["" if math.isnan(ratio) else amount(ratio)]
            cells += [interval(row[f"{kind} ratio low"], row[f"{kind} ratio high"], "")]
        rows.append([*cells, row["reason"]])
    more = len(order) - SHOWN
    rest = [f"... and {more} more candidates, in the table candidates"] if more > 0 else []
    few = lacking("median", len(found.seeds), found.level)
    notes = [*rest, *([few] if few and found.price is None else [])]
    return Table("candidates", [*head, "why"], rows, notes)


def terms(found: Found) -> Iterator[str]:
    """In which terms the epsilons of the best are told, where any are asked for."""
    if found.terms is not None and found.best:
        mine = found.runs["case"].isin([one.number for one in found.best])
        yield from stated(found.directory, found.runs[mine], found.terms)


def _foot(found: Found) -> Iterator[str]:
    known = found.sensitivity.dropna()
    if len(known):
        pairs = zip(known["key"].tolist(), known["share"].tolist(), strict=True)
        shares = ", ".join(f"{key} {100 * share:.0f} %" for key, share in pairs)
        yield f"  what each key alone explains of the order of candidates: {shares}"
    yield from (f"  {text}" for text in terms(found))
    if found.price is None:
        yield f"  {UNCHARGED}"
