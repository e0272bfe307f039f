"""What a page says of a study or a tuner: its tables, and figures of which method is first."""

from collections.abc import Sequence

from desim.errors import InputError
from desim.experiments.reported import Reported, reported
from desim.experiments.studies.study import StoredStudy
from desim.experiments.studies.trials import Trials
from desim.interface.plots import ecdf, profile
from desim.interface.reports.page import drawn

PROFILE = (
    "On what share of problems and targets each method's expected time is within a ratio of that "
    "of the best one (Dolan and Moré 2002): at the left, where it is first; at the right, where it "
    "gets there at all."
)
ECDF = (
    "What share of problems, targets and simulated runs has been met by when; a run that ends "
    "without is started again with other draws (COCO)."
)


Figure = tuple[str, str, str]  # a caption, a data URL, and what is seen


def study_part(study: StoredStudy) -> tuple[Reported, Sequence[Figure]]:
    """What there is to say of it, and figures of which method is first, if any is."""
    found = reported(study)
    return found, () if found.trials is None else _first(found.trials)


def _first(found: Trials) -> Sequence[Figure]:
    """Figures of which method is first; none where nobody has met any target."""
    try:
        figures = [("Targets met over time", drawn(lambda path: ecdf(found, out=path)), ECDF)]
        if len(found.problems) * len(found.targets) > 1:
            url = drawn(lambda path: profile(found, out=path))
            figures.insert(0, ("Performance profile", url, PROFILE))
    except (InputError, KeyError):  # a column that today's tables have
        return ()
    return figures
