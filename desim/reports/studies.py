"""What a report says of studies first: each one's name, how its runs ended, and its own tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from desim.reports.first import FirstPart, first_part
from desim.studies.shown import shown
from desim.studies.stored import StoredStudy
from desim.tabulated import Table

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
    if "measure" not in study.summary or "status" not in study.runs:
        return StudyPart(study.name, [UNWRITTEN], [])
    try:
        return StudyPart(study.name, _said(study.runs), list(shown(study)), first_part(study))
    except KeyError:  # a column that today's tables have
        return StudyPart(study.name, [*_said(study.runs), OLD], [])


def _said(runs: pd.DataFrame) -> list[str]:
    counts = ", ".join(f"{n} {status}" for status, n in runs["status"].value_counts().items())
    first = f"{runs['case'].nunique()} cases, {len(runs)} runs: {counts}."
    failed = runs.loc[runs["status"] == "failed", "reason"].astype(str)
    why = failed.map(lambda text: text.partition("\n")[0]).value_counts()
    said = [f"Failed {n} times: {reason}" for reason, n in why.head(REASONS).items()]
    more = [f"And {len(why) - REASONS} other reasons."] if len(why) > REASONS else []
    return [first, *said, *more]
