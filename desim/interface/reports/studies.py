"""What a report says of a study or a tuner: its runs, its tables, and which method is first."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from desim.amounts import amount
from desim.errors import InputError
from desim.experiments.studies import answers
from desim.experiments.studies.answers import answer_tables
from desim.experiments.studies.folder import FRESH, SEARCHED, stored_table
from desim.experiments.studies.study_tables import StoredStudy
from desim.experiments.studies.trials import UNITS
from desim.experiments.studies.words import failures, interval, shown
from desim.experiments.tuning.candidates import BEST, FRONT
from desim.experiments.tuning.tuned import ORDER, UNCHARGED
from desim.interface.plots import ecdf, profile
from desim.interface.reports.page import drawn
from desim.runs.run import Run
from desim.tabulated import Table

# Which method is first, over the problems and targets of a study.
PROFILE = (
    "On what share of problems and targets each method's expected time is within a ratio of that "
    "of the best one (Dolan and Moré 2002): at the left, where it is first; at the right, where it "
    "gets there at all."
)
ECDF = (
    "What share of problems, targets and simulated runs has been met by when; a run that ends "
    "without is started again with other draws (COCO)."
)


@dataclass(frozen=True)
class Figure:
    """A caption, a data URL, and what is seen."""

    caption: str
    url: str
    about: str


@dataclass(frozen=True)
class FirstPart:
    """Tables of expected times and the profile, and their figures."""

    tables: Sequence[Table]
    figures: Sequence[Figure]


def first_part(study: StoredStudy) -> FirstPart | None:
    """The part; None where there is no target, one method, or nobody that met any."""
    try:
        found = study.trials()
        if len(found.methods) < 2 or not found.targets:
            return None
        tables = answer_tables(found, answers.ert(found), answers.profile(found))
        figures = [Figure("Targets met over time", drawn(lambda path: ecdf(found, out=path)), ECDF)]
        if len(found.problems) * len(found.targets) > 1:
            url = drawn(lambda path: profile(found, out=path))
            figures.insert(0, Figure("Performance profile", url, PROFILE))
    except (InputError, KeyError):  # a column that today's tables have
        return None
    return FirstPart(tables, figures)


# The parts of a study and of a tuner.
BASE = "base"  # the label of a study's base
REASONS = 5  # that are listed of runs that failed
UNWRITTEN = "The study has not written its tables: it was ended before, or is still being played."

OLD = "Its tables are of another version of desim: play the study again, which keeps its runs."


@dataclass(frozen=True)
class StudyPart:
    """A study's name, sentences about its runs, its tables, and which method is first."""

    name: str
    said: Sequence[str]
    tables: Sequence[Table]
    first: FirstPart | None = None


def study_part(study: StoredStudy) -> StudyPart:
    """The name, how many runs ended how and why, and the tables that `desim study` prints."""
    if study.written.get("tune") and study.directory is not None:
        return tuner_part(study, study.directory)
    if "measure" not in study.summary or "status" not in study.runs:
        return StudyPart(study.name, [UNWRITTEN], [])
    try:
        return StudyPart(study.name, _said(study.runs), list(shown(study)), first_part(study))
    except KeyError:  # a column that today's tables have
        return StudyPart(study.name, [*_said(study.runs), OLD], [])


def tuner_part(study: StoredStudy, folder: Path) -> StudyPart:
    """Of a tuner: what it looked for, its candidates over the keys that varied, and fresh seeds."""
    candidates, fresh = (stored_table(folder / f"{one}.parquet") for one in ("candidates", "fresh"))
    if not len(candidates):
        return StudyPart(study.name, [UNWRITTEN], [])
    tune = study.written["tune"]
    goals, until = list(tune["least"]), ", ".join(f"{k} {v:g}" for k, v in tune["until"].items())
    counts = ", ".join(f"{n} {how}" for how, n in candidates["status"].value_counts().items())
    said = [f"Tuned: least {' and '.join(goals)} to {until}.", f"Candidates: {counts}."]
    said += [] if tune.get("charge") else [UNCHARGED]
    return StudyPart(
        study.name, said, [_candidates(candidates, list(tune["vary"]), goals), *_fresh(fresh)]
    )


def _candidates(table: pd.DataFrame, keys: list[str], goals: list[str]) -> Table:
    """A row for each candidate, best first: the keys that varied, and what it needed."""
    place = table["status"].map({name: n for n, name in enumerate(ORDER)})
    order = table.assign(place=place).sort_values(["place", goals[0]])
    rows: list[Any] = order.to_dict("records")
    heads = [*keys, "status", "seeds", *(one for goal in goals for one in (goal, "ratio to best"))]
    cells = [[str(row[key]) for key in (*keys, "status", "seeds")] for row in rows]
    for row, words in zip(rows, cells, strict=True):
        for goal in goals:
            value, ratio = amount(row[goal], UNITS.get(goal, "")), row[f"{goal} ratio"]
            ends = interval(row[f"{goal} low"], row[f"{goal} high"], UNITS.get(goal, ""))
            words += [f"{value} ({ends})" if ends else value]
            words += ["" if math.isnan(ratio) else amount(ratio)]
    note = "Medians over the seeds that a candidate met; ratios over those it shares with the best."
    return Table("Candidates", heads, cells, [note])


def _fresh(table: pd.DataFrame) -> Iterator[Table]:
    """The best and the base on seeds by which nothing was chosen."""
    if not len(table):
        return
    heads = ["", "goal", "seeds", "where it was chosen", "on fresh seeds", "of what the base takes"]
    rows = []
    for row in table.to_dict("records"):
        unit = UNITS.get(row["kind"], "")
        ends = interval(row["fresh low"], row["fresh high"], unit)
        rows.append([
            row["label"], row["kind"], str(row["seeds"]), amount(row["tuned"], unit),
            amount(row["fresh"], unit) + (f" ({ends})" if ends else ""), amount(row["to base"]),
        ])  # fmt: skip
    yield Table(
        "On fresh seeds", heads, rows, ["Where it was chosen, the best is better than it is."]
    )


def of_the_best(study: StoredStudy, runs: Mapping[str, Sequence[Run]]) -> dict[str, list[Run]]:
    """Of a tuner's runs those of the best and of the base, on the seeds that both have met.

    Of runs that are parted by what their seeds are for, the fresh ones where there are any.
    """
    candidates = stored_table(study.directory / "candidates.parquet") if study.directory else None
    if candidates is None or not len(candidates):
        return {label: list(some) for label, some in runs.items()}
    best = candidates.loc[candidates["status"].isin([BEST, FRONT]), "label"].tolist()
    found: dict[str, list[Run]] = {}
    for end in ("", f", {FRESH}", f", {SEARCHED}"):
        wanted = [f"{label}{end}" for label in (*best, BASE)]
        found = found or {label: list(some) for label, some in runs.items() if label in wanted}
    seeds = [{run.manifest.get("seed") for run in some} for some in found.values()]
    shared = set.intersection(*seeds) if seeds else set()
    return {
        label: [run for run in some if run.manifest.get("seed") in shared]
        for label, some in found.items()
    }


def _said(runs: pd.DataFrame) -> list[str]:
    counts = ", ".join(f"{n} {status}" for status, n in runs["status"].value_counts().items())
    first = f"{runs['case'].nunique()} cases, {len(runs)} runs: {counts}."
    why = failures(runs)
    said = [f"Failed {n} times: {reason}" for reason, n in why.head(REASONS).items()]
    more = [f"And {len(why) - REASONS} other reasons."] if len(why) > REASONS else []
    return [first, *said, *more]
