"""What is said of a study or a tuner that is stored: how its runs ended, and its tables."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from desim.amounts import amount
from desim.errors import InputError
from desim.experiments.studies import answers
from desim.experiments.studies.answers import answer_tables
from desim.experiments.studies.folder import FRESH, SEARCHED, stored_table
from desim.experiments.studies.trials import UNITS, Trials
from desim.experiments.studies.words import failures, shown
from desim.experiments.tuning import BEST, FRONT, ORDER
from desim.numerics.later import pd
from desim.runs.run import Run
from desim.tabulated import Table

if TYPE_CHECKING:
    from desim.experiments.studies.study import StoredStudy

BASE = "base"  # the label of a study's base
REASONS = 5  # that are listed of runs that failed
UNWRITTEN = "The study has not written its tables: it was ended before, or is still being played."

OLD = "Its tables are of another version of desim: play the study again, which keeps its runs."


class Reported(NamedTuple):
    """A study's name, sentences about its runs, and its tables.

    trials, expected: of which methods can be told apart, and tables of their expected times; None
    where there is no target, one method, or nobody that met any.
    """

    name: str
    said: Sequence[str]
    tables: Sequence[Table]
    trials: Trials | None = None
    expected: Sequence[Table] = ()


def reported(study: "StoredStudy") -> Reported:
    """How many runs ended how and why, and the tables that `desim study` prints."""
    if study.written.get("tune") and study.directory is not None:
        return _tuner(study, study.directory)
    if "measure" not in study.summary or "status" not in study.runs:
        return Reported(study.name, [UNWRITTEN], [])
    try:
        return Reported(study.name, _said(study.runs), list(shown(study)), *_expected(study))
    except KeyError:  # a column that today's tables have
        return Reported(study.name, [*_said(study.runs), OLD], [])


def _expected(study: "StoredStudy") -> tuple[Trials | None, Sequence[Table]]:
    """Which method is first, over the problems and targets of a study."""
    try:
        found = study.trials()
        if len(found.methods) < 2 or not found.targets:
            return None, ()
        return found, answer_tables(found, answers.ert(found), answers.profile(found))
    except (InputError, KeyError):  # a column that today's tables have
        return None, ()


def _tuner(study: "StoredStudy", folder: Path) -> Reported:
    """Of a tuner: what it looked for, its candidates over the keys that varied, and fresh seeds."""
    from desim.experiments.tuning.tune import UNCHARGED

    candidates, fresh = (stored_table(folder / f"{one}.parquet") for one in ("candidates", "fresh"))
    if not len(candidates):
        return Reported(study.name, [UNWRITTEN], [])
    tune = study.written["tune"]
    goals, until = list(tune["least"]), ", ".join(f"{k} {v:g}" for k, v in tune["until"].items())
    counts = ", ".join(f"{n} {how}" for how, n in candidates["status"].value_counts().items())
    said = [f"Tuned: least {' and '.join(goals)} to {until}.", f"Candidates: {counts}."]
    said += [] if tune.get("charge") else [UNCHARGED]
    return Reported(
        study.name, said, [_candidates(candidates, list(tune["vary"]), goals), *_fresh(fresh)]
    )


def _candidates(table: "pd.DataFrame", keys: list[str], goals: list[str]) -> Table:
    """A row for each candidate, best first: the keys that varied, and what it needed."""
    from desim.experiments.tuning.tune import RATIOS, beside_best, estimated

    place = table["status"].map({name: n for n, name in enumerate(ORDER)})
    order = table.assign(place=place).sort_values(["place", goals[0]])
    rows: list[Any] = order.to_dict("records")
    beside = (one for goal in goals for one in (goal, beside_best(goal)))
    heads = [*keys, "status", "seeds", *beside]
    cells = [[str(row[key]) for key in (*keys, "status", "seeds")] for row in rows]
    for row, words in zip(rows, cells, strict=True):
        for goal in goals:
            ratio = row[f"{goal} ratio"]
            words += [estimated(row, goal, goal), "" if math.isnan(ratio) else amount(ratio)]
    return Table("Candidates", heads, cells, [RATIOS])


def _fresh(table: "pd.DataFrame") -> Iterator[Table]:
    """The best and the base on seeds by which nothing was chosen."""
    from desim.experiments.tuning.tune import estimated

    if not len(table):
        return
    heads = ["", "goal", "seeds", "where it was chosen", "on fresh seeds", "of what the base takes"]
    rows = []
    for row in table.to_dict("records"):
        tuned = amount(row["tuned"], UNITS.get(row["kind"], ""))
        fresh, ratio = estimated(row, "fresh", row["kind"]), amount(row["to base"])
        rows.append([row["label"], row["kind"], str(row["seeds"]), tuned, fresh, ratio])
    yield Table(
        "On fresh seeds", heads, rows, ["Where it was chosen, the best is better than it is."]
    )


def of_the_best(study: "StoredStudy", runs: Mapping[str, Sequence[Run]]) -> dict[str, list[Run]]:
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


def _said(runs: "pd.DataFrame") -> list[str]:
    counts = ", ".join(f"{n} {status}" for status, n in runs["status"].value_counts().items())
    first = f"{runs['case'].nunique()} cases, {len(runs)} runs: {counts}."
    why = failures(runs)
    said = [f"Failed {n} times: {reason}" for reason, n in why.head(REASONS).items()]
    more = [f"And {len(why) - REASONS} other reasons."] if len(why) > REASONS else []
    return [first, *said, *more]
