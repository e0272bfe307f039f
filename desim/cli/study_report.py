"""What `desim study` prints: counts, a table for each measure, and paired comparisons."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.cli.summary import size

if TYPE_CHECKING:
    import pandas as pd

    from desim.studies.study import Plan, Study

SHOWN = 40  # cases of a table; all are in the Parquet files
LONGEST = 60  # letters of a case's label


def planned(plan: "Plan", out: Path) -> list[str]:
    """What a study would do: its cases, and how many runs are stored already."""
    from desim.studies.work import finished

    stored = sum(finished(job.place) is not None for job in plan.jobs)
    lines = [f"{plan.study.name}: {len(plan.cases)} cases, {len(plan.jobs)} runs, {stored} stored"]
    lines += [f"  {case.label or 'base'}: {_seeds(case.seeds)}" for case in plan.cases]
    return [*lines, f"  goes to {out}"]


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"


def report(study: "Study") -> list[str]:
    """Lines of text: how the runs ended, then a table for each measure that was asked for."""
    status = study.runs["status"].value_counts()
    stored = sum(one.stored for one in study.results.values())
    counts = [f"{status.get('done', 0)} done" + (f" ({stored} stored before)" if stored else "")]
    counts += [f"{status[name]} {name}" for name in ("failed", "stopped") if name in status]
    cases = len(study.plan.cases)
    lines = [f"{study.name}: {cases} cases, {len(study.runs)} runs: {', '.join(counts)}"]
    lines += [f"  stored in {study.directory}"] if study.directory else []
    lines += _failures(study)
    for name in _asked(study):
        lines += _table(study, name)
    return lines


def _failures(study: "Study") -> list[str]:
    """Each reason of a failure once, with how many runs it ended."""
    failed = study.runs.loc[study.runs["status"] == "failed", "reason"]
    counts = failed.map(lambda text: text.partition("\n")[0]).value_counts()
    lines = [f"  failed {n} times: {reason}" for reason, n in counts.head(5).items()]
    return lines + ([f"  and {len(counts) - 5} other reasons"] if len(counts) > 5 else [])


def _asked(study: "Study") -> list[str]:
    """Measures that are printed: what it takes until targets, else the values at the end."""
    known = list(dict.fromkeys(study.summary["measure"]))
    chosen = [name for name in known if " to " in name and not name.startswith("rounds")]
    return chosen or [name for name in known if name.startswith("final ")]


def _table(study: "Study", name: str) -> list[str]:
    rows = study.summary[study.summary["measure"] == name].head(SHOWN)
    level, unit = float(rows["level"].iloc[0]), rows["unit"].iloc[0]
    statistic = rows["statistic"].iloc[0]
    ratios = study.comparisons
    ratios = ratios[ratios["measure"] == name].set_index("case") if len(ratios) else ratios
    head = ["case", statistic, f"{level:.0%} interval", "done", "failed", "never"]
    head += ["against", "ratio" if statistic == "median" else "difference", "interval", "better"]
    body = [_row(row, ratios, unit) for _, row in rows.iterrows()]
    wide = len(ratios) > 0
    cells = [line if wide else line[:6] for line in (head, *body)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    text = ["  ".join(f"{c:{w}}" for c, w in zip(line, widths, strict=True)) for line in cells]
    more = len(study.plan.cases) - SHOWN
    rest = [f"  ... and {more} more cases, in summary.parquet"] if more > 0 else []
    return ["", name, *(f"  {line}".rstrip() for line in text), *rest]


def _row(row: "pd.Series[Any]", ratios: "pd.DataFrame", unit: str) -> list[str]:
    open_ended = math.isfinite(row["value"]) and not row["settled"]
    estimate = _number(row["value"], unit) + (" or less" if open_ended else "")
    counts = [str(row[name]) for name in ("done", "failed", "never")]
    cells = [_cut(row["label"] or "base"), estimate, _interval(row, unit), *counts]
    if row["case"] not in ratios.index:
        return cells + [""] * 4
    other = ratios.loc[row["case"]]
    wins = f"{other['wins']} of {other['pairs']} (p {other['p']:.2g})"
    own = other["unit"]
    return [
        *cells,
        _cut(other["against"]),
        _number(other["value"], own),
        _interval(other, own),
        wins,
    ]


def _interval(row: "pd.Series[Any]", unit: str) -> str:
    if math.isnan(row["low"]) or math.isinf(row["low"]):
        return ""
    return f"{_number(row['low'], unit)} to {_number(row['high'], unit)}"


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never" if value > 0 else "-infinite"
    if unit == "B":
        return size(value)
    return f"{value:.4g}" + (f" {unit}" if unit else "")


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST else label[: LONGEST - 3] + "..."
