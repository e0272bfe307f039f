"""What a report says of which method of a study is first, over its problems and targets."""

from collections.abc import Sequence
from dataclasses import dataclass

from desim.errors import InputError
from desim.experiments.studies import answers
from desim.experiments.studies.answers import answer_tables
from desim.experiments.studies.tables import StoredStudy
from desim.interface.plots import ecdf, profile
from desim.interface.reports.drawn import drawn
from desim.tabulated import Table

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
