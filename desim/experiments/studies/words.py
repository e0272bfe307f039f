"""The tables of a study as people read them, and what must be known before runs are compared."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.amounts import NO_NOISE, amount, epsilon
from desim.errors import DesimError
from desim.experiments.studies.folder import RUNS, StudyTables, finished
from desim.experiments.studies.statistics import lacking, skewed
from desim.runs.directory import UNLISTED
from desim.runs.premises import shortly
from desim.runs.reading.series import Series, differing
from desim.runs.run import Run
from desim.tabulated import Table

if TYPE_CHECKING:
    import pandas as pd


def is_final(measure: str) -> bool:
    """Whether a measure is the value of a metric at the end."""
    return measure.startswith("final ")


def awaited(measure: str) -> str:
    """The measure that is infinite where this one's target was never met; "" where it has none."""
    kind, to, target = measure.partition(" to ")
    return f"time to {target}" if to and not is_final(kind) else ""


def estimate(row: Any, seeds: int, bare: bool = False) -> str:
    """The estimate over so many seeds; row: measure, unit, value, never, diverged.

    bare: what is private was released without noise.
    """
    if is_final(row.measure):
        if math.isnan(row.value):
            return "diverged" if row.diverged else amount(row.value)
        some = f" ({row.diverged} of {seeds} diverged)" if row.diverged else ""
        return amount(row.value, row.unit) + some
    if row.measure.startswith("epsilon") and not (math.isinf(row.value) and 2 * row.never >= seeds):
        return one_epsilon(row.value, bare)
    return amount(row.value, row.unit)


def one_epsilon(value: float, bare: bool = False) -> str:
    """An epsilon of something that happened: infinite, never never."""
    if math.isinf(value) and bare:
        return NO_NOISE
    return amount(value) if math.isnan(value) else epsilon(value)


def seeds_played(groups: Iterable[Iterable[int]]) -> Iterator[str]:
    """Seeds, where all groups have the same, as captions say them: seeds 0 to 9; -1: unknown."""
    played = {frozenset(one) for one in groups}
    if len(played) != 1 or -1 in (found := sorted(*played)):
        return
    first, last = found[0], found[-1]
    if found == list(range(first, last + 1)):
        yield f"seeds {first} to {last}" if last > first else f"seed {first}"
    else:
        yield f"seeds {', '.join(map(str, found))}" if len(found) <= 8 else f"{len(found)} seeds"


def ratio(row: Any) -> str:
    """A ratio or difference of pairs; row: measure, unit, value, pairs, counted, neither.

    With how many pairs are behind it where that is not all of them.
    """
    if not row.counted:
        if row.neither == row.pairs:
            return "neither met it"
        if is_final(row.measure):
            return "diverged"
        return "both infinite" if row.measure.startswith("epsilon") else "both 0"
    endless = math.isinf(row.value) and row.measure.startswith("epsilon")
    value = "infinite" if endless else amount(row.value, row.unit)
    return value if row.counted == row.pairs else f"{value} ({row.counted} of {row.pairs} pairs)"


# What must be known of series of runs before they are compared.
MAX_STATED = 40  # cases of which the terms are looked at
MAX_NAMED = 3  # cases that are named before the rest is counted
WORST = "epsilon: of the agent that spends most"
MAX_KEYS = 8  # keys that runs differ in, named before the rest is counted


def notes(rows: Sequence[Series], until: bool = False) -> Iterator[str]:
    """Whether they compare, what they differ in, and what is left out; until: of targets too."""
    firsts = [row.runs[0] for row in rows]
    yield from _unlike(rows)
    keys = list(dict.fromkeys(".".join(place[:2]) for place in differing(firsts)))
    more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
    if keys:
        yield f"differ in: {', '.join(keys[:MAX_KEYS])}{more}"
    for row in rows:
        for status, n in row.ends.items():
            if until and status == "failed":
                how = "never until targets not met before, left out at the end"
                yield f"{row.title}: {n} failed: {how}"
            else:
                yield f"left out of {row.title}: {n} {status}"
        for run in row.runs:
            if run.status != "done":
                yield f"{row.title}: {run.manifest.get('reason', run.status)}"


def _unlike(rows: Sequence[Series]) -> Iterator[str]:
    """Whether one problem is told by all: runs of one seed must share their data and loss."""
    from desim.runs.likeness import problems_apart

    every = (run for row in rows for run in row.runs)
    if problems_apart([row.runs[0] for row in rows], every)[1]:
        yield "warning: not the same data or loss in all runs; their metrics do not compare"
        return
    seeds = {frozenset(run.manifest.get("seed") for run in row.runs) for row in rows}
    if len(seeds) > 1:
        yield "not the same seeds in all rows, and so not the same draws"


def terms(rows: Sequence[Series], asked: Mapping[str, Any]) -> list[str]:
    """In which terms the epsilons are told: once where all share them, else row by row."""
    found = {row.title: _terms(row.runs[0], asked) for row in rows}
    known = {label: text for label, text in found.items() if text}
    doubts = [
        f"epsilon of {row.title}: {text}"
        for row in rows
        for text in dict.fromkeys(run.store.unchecked for run in row.runs)
        if text and row.title in known
    ]
    if len(set(known.values())) == 1:
        return [f"{WORST}; {next(iter(known.values()))}", *doubts]
    return [*(f"{WORST} of {label}; {text}" for label, text in known.items()), *doubts]


def stated(directory: Path | None, runs: "pd.DataFrame", asked: Mapping[str, Any]) -> Iterator[str]:
    """In which terms the epsilons of a table of runs are told, each with the cases that share it.

    directory: of the study or tuner; without stored runs nobody can say by which method, and the
    terms are those that were asked for; asked: these terms.
    """
    if directory is None:
        some = "".join(f"; {key} {value}" for key, value in asked.items())
        yield f"{WORST}; in the terms of each scenario's section privacy{some}"
        return
    cases: dict[str, list[str]] = {}
    for row in runs.drop_duplicates("case").head(MAX_STATED).to_dict("records"):
        run = finished(directory / RUNS / str(row["run"]))
        if run is not None and (text := _terms(run, asked)):
            cases.setdefault(text, []).append(str(row["label"]) or "base")
    for text, labels in cases.items():
        more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
        of = f" of {'; '.join(labels[:MAX_NAMED])}{more}" if len(cases) > 1 else ""
        yield f"{WORST}{of}; {text}"


def _terms(run: Run, asked: Mapping[str, Any]) -> str:
    try:
        if run.written.get("privacy") is None and not asked:
            return ""
    except DesimError:
        return ""
    return run.account(**asked).terms + (f"; {text}" if (text := shortly(run)) else "")


def failures(runs: "pd.DataFrame") -> "pd.Series[int]":
    """How many runs of a table failed for each reason, its first line; the most frequent first."""
    reasons = runs.loc[runs["status"] == "failed", "reason"].astype(str)
    return reasons.map(lambda text: text.partition("\n")[0]).value_counts()


# The tables, one for each measure; never, infinite and diverged are three things in them.
MAX_CASES = 40  # cases of a table; all are in the Parquet files
LONGEST = 60  # letters of a case's label


def shown(study: StudyTables) -> Iterator[Table]:
    """Tables of what it takes until targets, or else of the values at the end."""
    known = list(dict.fromkeys(study.summary["measure"]))
    chosen = [name for name in known if " to " in name and not name.startswith("rounds")]
    for name in chosen or [name for name in known if is_final(name)]:
        yield _table(study, name)


def _table(study: StudyTables, name: str) -> Table:
    all_rows = study.summary[study.summary["measure"] == name]
    rows, more = all_rows.head(MAX_CASES), len(all_rows) - MAX_CASES
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
    cases = study.runs.groupby("case")["seed"] if {"case", "seed"} <= set(study.runs) else ()
    seeds = seeds_played(map(int, some) for _, some in cases)
    return Table(
        name, head, body, [*rest, *few, *skewed(statistic, sizes, level), *doubts],
        terms=[*(text for text in doubts if text.startswith(WORST)), *seeds],
    )  # fmt: skip


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
    return [*cells, _cut(other["against"]), ratio(other), _interval(other, other["unit"]), wins]


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
            from desim.runs.likeness import ALIKE

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
