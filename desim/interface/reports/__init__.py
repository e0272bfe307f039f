"""Reports: one page about one or more runs, with nothing to fetch from anywhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.errors import InputError, finite
from desim.experiments.reported import Reported, of_the_best, reported
from desim.experiments.studies.folder import StudyTables, groups_of
from desim.experiments.studies.trials import Trials
from desim.interface.plots import ecdf, profile
from desim.interface.reports.each_client import each_client
from desim.interface.reports.each_other import mutual
from desim.interface.reports.page import chart_data, drawn, metrics, thinning, write
from desim.interface.reports.readable import Reading, readings
from desim.interface.reports.results import (
    RULE,
    clocks,
    default_targets,
    epsilon_terms,
    headline,
    occupation,
    privacy,
    time_to_targets,
    traffic,
    waiting,
)
from desim.interface.reports.scenarios import cautions, differences, manifests, scenario_text
from desim.runs.run import Given

if TYPE_CHECKING:
    from desim.experiments.studies.study import StoredStudy

DETAILS = (
    "Told about one by one: {} of {} runs, the first of each series of runs that differ in their "
    "seeds only. The tables and charts above have them all."
)

__all__ = ["MAX_RUNS", "report"]

MAX_RUNS = 300
ALONE = 4  # runs that are told about one by one; of more, the first of each series
DETAILED = 24  # of these series


def report(
    runs: "Given | StoredStudy",
    out: str | Path,
    targets: Mapping[str, float] | None = None,
    studies: "Sequence[StoredStudy]" = (),
) -> Path:
    """Write one HTML file about the runs to `out` and return its path.

    The file needs no network and no other file. runs: those that differ in their seeds only can be
    shown as one curve with a band, as can lists of runs by label. studies: those whose runs these
    are; their names, targets, intervals, ratios and p-values stand first, as they do where a study
    is given for the runs. Where one run is deployed, the seconds of those that simulate it are held
    against its own. targets: values of metrics to which times, bytes and epsilons are listed;
    default: those of the studies, at which the scenarios stop, or what the runs met.
    What cannot be read of a run is left out, and the reason stands first in the report. InputError
    for no run or too many, a metric that no run has, or a place that cannot be written.
    """
    tuner = len(studies) == 1 and studies[0].written.get("tune")
    if isinstance(runs, StudyTables):
        studies, tuner = [*studies, runs], runs.written.get("tune")
        chosen: Any = runs.by_case()
    else:
        chosen = groups_of(runs)
    if tuner and isinstance(chosen, Mapping):
        chosen = of_the_best(studies[-1], chosen)
    found = readings(chosen)
    if not 0 < len(found) <= MAX_RUNS:
        raise InputError(f"report: found {len(found)} runs; allowed: 1 to {MAX_RUNS}")
    first = {one.series: one for one in reversed(found)}
    some = found if len(found) <= ALONE else list(first.values())[::-1][:DETAILED]
    compared = list(dict.fromkeys(pair for one in studies for pair in one.targets))
    usual = [pair for pair in compared if pair[0] in metrics(found)] or default_targets(found)
    wanted = usual
    if targets is not None:
        wanted = _asked(targets, metrics(found))
    names = list(dict.fromkeys(one.series for one in found))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    parts = {
        "headline": headline(found),
        "charts": chart_data(found),
        "clients": each_client(found, some),
        "targets": time_to_targets(found, wanted),
        "runs": [_about(one) for one in some],
        "privacy": privacy(some),
        "mutual": mutual(some),
        "terms": epsilon_terms(found),
        "title": ", ".join(one.name for one in studies) or ", ".join(names[:3]) + more,
        "studies": [study_part(one) for one in studies],
        "finite": any(one.spent is not None for one in found),
        "count": len(found),
        "thinning": thinning(found),
        "details": DETAILS.format(len(some), len(found)) if len(some) < len(found) else "",
        "differences": differences(some),
        "manifests": manifests(some),
        "clock": clocks(found, wanted),
        "target_rule": RULE if targets is None else "",
    }
    return write(Path(out), {**parts, "cautions": cautions(found)})  # last: it tells of troubles


def _asked(targets: Mapping[str, float], known: Sequence[str]) -> list[tuple[str, float]]:
    """Targets that were asked for; InputError for a metric that is not known."""
    if odd := [name for name in targets if name not in known]:
        allowed = ", ".join(known) or "none, as no run has recorded a metric"
        raise InputError(f"target: found metric {odd[0]!r}; allowed: {allowed}")
    return [(name, finite(f"target: {name}", value)) for name, value in targets.items()]


def _about(one: Reading) -> dict[str, object]:
    """What is told of each run by itself."""
    return {
        "label": one.label,
        "waiting": waiting(one),
        "occupation": occupation(one),
        "traffic": traffic(one),
        "scenario": scenario_text(one),
    }


# Of a study or a tuner: its tables, and figures of which method is first.
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


def study_part(study: "StoredStudy") -> tuple[Reported, Sequence[Figure]]:
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
