"""Runs that differ in nothing but the seed, as one row of a report: medians of what they show."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from desim.amounts import epsilon
from desim.experiments.studies.statistics import median
from desim.interface.reports.readable import Reading
from desim.interface.reports.wording import NOTHING, metric_value, number, seconds, size
from desim.problem.fairness import RISING


def together(
    some: Sequence[Reading], rows: Sequence[Sequence[str]], names: Sequence[str]
) -> list[str]:
    """One row of the runs: how many ended how, and medians of time, bytes, metrics and epsilon.

    rows: how the report words each run by itself: run, status, method, agents, and so on. Runs that
    failed where others are done are in no median.
    """
    ends, seeds = Counter(row[1] for row in rows), len(some)
    some = [one for one in some if not one.lost]
    alike = [" / ".join(dict.fromkeys(row[column] for row in rows)) for column in (2, 3)]
    rounds = [one.stored("rounds", int) for one in some]
    spent = [one.account for one in some]
    flags = [flag for account in spent if account is not None for flag in account.flags]
    worst = [np.nan if account is None else account.worst for account in spent]
    private = _median(worst)
    return [
        f"{some[0].series}: {seeds} seeds", ", ".join(f"{n} {end}" for end, n in ends.items()),
        *alike, seconds(_median([one.ended for one in some])),
        number(_median([np.nan if one is None else one for one in rounds])),
        size(_median([one.arrived for one in some])), *(_final(some, name) for name in names),
        NOTHING if np.isnan(private) else epsilon(private, flags),
    ]  # fmt: skip


def _median(values: Sequence[float]) -> float:
    """The median of those that are known; nan of none."""
    known = np.array(values, float)
    return median(known[~np.isnan(known)])


def _final(some: Sequence[Reading], name: str) -> str:
    """The median of a metric's last values; one that diverged counts as the worst."""
    worst = -np.inf if name in RISING else np.inf
    last = [float(one.curves[name].value[-1]) for one in some if name in one.curves]
    middle = median(np.array([worst if np.isnan(one) else one for one in last]))
    if np.isinf(middle):
        return "diverged"
    return metric_value(name, middle)
