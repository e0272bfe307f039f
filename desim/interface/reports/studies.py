"""What a page says of a study or a tuner: its tables, and figures of which method is first."""

from collections.abc import Sequence
from dataclasses import dataclass

from desim.errors import InputError
from desim.experiments.reported import Reported, reported
from desim.experiments.studies.study import StoredStudy
from desim.interface.plots import ecdf, profile
from desim.interface.reports.page import drawn
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


@dataclass(frozen=True)
class StudyPart:
    """A study's name, sentences about its runs, its tables, and which method is first."""

    name: str
    said: Sequence[str]
    tables: Sequence[Table]
    first: FirstPart | None = None


def study_part(study: StoredStudy) -> StudyPart:
    """What there is to say of it, as a page shows it."""
    found = reported(study)
    return StudyPart(found.name, found.said, found.tables, first_part(found))


def first_part(study: Reported) -> FirstPart | None:
    """The part; None where there is no target, one method, or nobody that met any."""
    if (found := study.trials) is None:
        return None
    try:
        figures = [Figure("Targets met over time", drawn(lambda path: ecdf(found, out=path)), ECDF)]
        if len(found.problems) * len(found.targets) > 1:
            url = drawn(lambda path: profile(found, out=path))
            figures.insert(0, Figure("Performance profile", url, PROFILE))
    except (InputError, KeyError):  # a column that today's tables have
        return None
    return FirstPart(study.expected, figures)
