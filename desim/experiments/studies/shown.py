"""A study's tables as people read them: one for each measure that was asked for."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from desim.amounts import amount
from desim.experiments.studies.folder import StudyTables
from desim.experiments.studies.notes import WORST, stated
from desim.experiments.studies.statistics import lacking, skewed
from desim.experiments.studies.words import awaited, estimate, is_final, ratio, seeds_played
from desim.runs.directory import UNLISTED
from desim.runs.likeness import ALIKE
from desim.tabulated import Table

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 40  # cases of a table; all are in the Parquet files
LONGEST = 60  # letters of a case's label


def shown(study: StudyTables) -> Iterator[Table]:
    """Tables of what it takes until targets, or else of the values at the end."""
    known = list(dict.fromkeys(study.summary["measure"]))
    chosen = [name for name in known if " to " in name and not name.startswith("rounds")]
    for name in chosen or [name for name in known if is_final(name)]:
        yield _table(study, name)


def _table(study: StudyTables, name: str) -> Table:
    all_rows = study.summary[study.summary["measure"] == name]
    rows, more = all_rows.head(SHOWN), len(all_rows) - SHOWN
    level, unit = float(rows["level"].iloc[0]), rows["unit"].iloc[0]
    statistic = rows["statistic"].iloc[0]
    ratios = study.comparisons
    ratios = ratios[ratios["measure"] == name].set_index("case") if len(ratios) else ratios
    missed = "diverged" if is_final(name) else "never"
    head = ["case", statistic, f"{100 * level:g}% interval", "done", "failed", missed]
    head += ["against", "ratio" if statistic == "median" else "difference", "interval"]
    head += ["better (sign test)"]
    cells = [head, *(_row(row, ratios, unit) for _, row in rows.iterrows())]
    head, *body = cells if len(ratios) else [line[:6] for line in cells]
    rest = [f"... and {more} more cases, in summary.parquet"] if more > 0 else []
    sizes = {
        *(_counted(row) for _, row in rows.iterrows()),
        *(map(int, ratios["counted"]) if len(ratios) else ()),
    }
    few = [text for n in sorted(sizes) if (text := lacking(statistic, n, level))]
    doubts = list(_doubts(study, name))
    return Table(
        name, head, body, [*rest, *few, *skewed(statistic, sizes, level), *doubts],
        terms=[*(text for text in doubts if text.startswith(WORST)), *_seeds(study)],
    )  # fmt: skip


def _seeds(study: StudyTables) -> Iterator[str]:
    """Which seeds were played, where all cases have the same ones."""
    if not {"case", "seed"} <= set(study.runs):
        return
    played = {frozenset(map(int, rows)) for _, rows in study.runs.groupby("case")["seed"]}
    if len(played) == 1:
        yield seeds_played(next(iter(played)))


def _row(row: "pd.Series[Any]", ratios: "pd.DataFrame", unit: str) -> list[str]:
    open_ended = math.isfinite(row["value"]) and not row["settled"]
    value = estimate(row, _counted(row)) + (" or less" if open_ended else "")
    counts = [str(row[name]) for name in ("done", "failed")]
    counts += [str(row["diverged" if is_final(row["measure"]) else "never"])]
    cells = [_cut(row["label"] or "base"), value, _interval(row, unit), *counts]
    if row["case"] not in ratios.index:
        return cells + [""] * 4
    other = ratios.loc[row["case"]]
    wins = f"{other['wins']} of {other['pairs']} (p {other['p']:.2g})"
    own = other["unit"]
    return [
        *cells,
        _cut(other["against"]),
        ratio(other),
        _interval(other, own),
        wins,
    ]


def _doubts(study: StudyTables, name: str) -> Iterator[str]:
    """That some epsilons are of runs whose files cannot be checked."""
    if name.startswith("epsilon"):
        compare = study.written.get("compare")
        own = compare.get("epsilon") if isinstance(compare, Mapping) else None
        yield from stated(study.directory, study.runs, own if isinstance(own, Mapping) else {})
        unlisted = study.runs["reason"].astype(str).str.endswith(UNLISTED).sum()
        if unlisted:
            yield f"epsilon of {unlisted} of {len(study.runs)} runs: {UNLISTED}"
        if _noise_shared(study.runs):
            yield ALIKE


def _noise_shared(runs: "pd.DataFrame") -> bool:
    """Whether runs of different cases have one seed, and an epsilon that is finite."""
    if "epsilon" not in runs:
        return False
    private = runs[runs["epsilon"].map(math.isfinite)]
    return bool((private.groupby("seed")["case"].nunique() > 1).any())


def _counted(row: "pd.Series[Any]") -> int:
    """The runs behind an estimate: those that failed count until targets only."""
    return int(row["done"]) + (int(row["failed"]) if awaited(row["measure"]) else 0)


def _interval(row: "pd.Series[Any]", unit: str) -> str:
    text = interval(row["low"], row["high"], unit)
    endless = row["measure"].startswith("epsilon") and not row.get("never", 0)
    return text.replace("never", "infinite") if endless else text


def interval(low: float, high: float, unit: str) -> str:
    """An interval in words: 1.2 s to 3.4 s; nothing where there is none."""
    if math.isnan(low) or math.isinf(low):
        return ""
    return f"{amount(low, unit)} to {amount(high, unit)}"


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST else label[: LONGEST - 3] + "..."
