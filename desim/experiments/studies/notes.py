"""What must be known of series of runs before one is held against another."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.errors import DesimError
from desim.experiments.studies.folder import RUNS, finished
from desim.runs.likeness import other_problem, sharing
from desim.runs.premises import shortly
from desim.runs.reading.series import Series, differing, other_problems
from desim.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

MOST = 40  # cases of which the terms are looked at
FEW = 3  # cases that are named before the rest is counted
WORST = "epsilon: of the agent that spends most"
SHOWN = 8  # keys that runs differ in, named before the rest is counted


def notes(rows: Sequence[Series[Run]], until: bool = False) -> Iterator[str]:
    """Whether they compare, what they differ in, and what is left out; until: of targets too."""
    firsts = [row.runs[0] for row in rows]
    yield from _unlike(rows)
    keys = list(dict.fromkeys(".".join(place[:2]) for place in differing(firsts)))
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    if keys:
        yield f"differ in: {', '.join(keys[:SHOWN])}{more}"
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


def shared(rows: Sequence[Series[Run]]) -> Iterator[str]:
    """That runs of different rows share their noise, where any do."""
    if text := sharing([row.runs for row in rows]):
        yield text


def _unlike(rows: Sequence[Series[Run]]) -> Iterator[str]:
    """Whether one problem is told by all: runs of one seed must share their data and loss."""
    others = other_problems([row.runs[0] for row in rows])
    if others or other_problem(run for row in rows for run in row.runs):
        yield "warning: not the same data or loss in all runs; their metrics do not compare"
        return
    seeds = {frozenset(run.manifest.get("seed") for run in row.runs) for row in rows}
    if len(seeds) > 1:
        yield "not the same seeds in all rows, and so not the same draws"


def terms(rows: Sequence[Series[Run]], given: Mapping[str, Any]) -> list[str]:
    """In which terms the epsilons are told: once where all share them, else row by row."""
    found = {row.title: _terms(row.runs[0], given) for row in rows}
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


def stated(directory: Path | None, runs: "pd.DataFrame", given: Mapping[str, Any]) -> Iterator[str]:
    """In which terms the epsilons of a table of runs are told, each with the cases that share it.

    directory: of the study or tuner; without stored runs nobody can say by which method, and the
    terms are those that were asked for; given: these terms.
    """
    if directory is None:
        asked = "".join(f"; {key} {value}" for key, value in given.items())
        yield f"{WORST}; in the terms of each scenario's section privacy{asked}"
        return
    cases: dict[str, list[str]] = {}
    for row in runs.drop_duplicates("case").head(MOST).to_dict("records"):
        run = finished(directory / RUNS / str(row["run"]))
        if run is not None and (text := _terms(run, given)):
            cases.setdefault(text, []).append(str(row["label"]) or "base")
    for text, labels in cases.items():
        more = f" and {len(labels) - FEW} more" if len(labels) > FEW else ""
        of = f" of {'; '.join(labels[:FEW])}{more}" if len(cases) > 1 else ""
        yield f"{WORST}{of}; {text}"


def _terms(run: Run, given: Mapping[str, Any]) -> str:
    try:
        if run.scenario.privacy is None and not given:
            return ""
    except DesimError:
        return ""
    return run.account(**given).terms + (f"; {text}" if (text := shortly(run)) else "")
