"""What the contests came to, in words and tables: medians, who is first, what waiting costs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from analysis.reproductions import page
from analysis.studies.contests import ASYNCHRONOUS, METHODS, NETWORKS, WAYS, Contest
from desim.arrays import Array

MEASURES = ("seconds", "bytes", "rounds")
UNITS = {"seconds": ("seconds", 1.0), "bytes": ("kB", 1e-3)}
Found = Mapping[Contest, Array]  # seconds, bytes, rounds (sets, 3)


class Interval(NamedTuple):
    """A median and its confidence interval, at least 95 % whatever the distribution."""

    median: float
    low: float
    high: float


def interval(values: Array) -> Interval:
    """The median of values (n,), n > 5, and the order statistics that hold it (sign test)."""
    rank = int(stats.binom.ppf(0.025, len(values), 0.5))
    ordered = np.sort(values)
    return Interval(float(np.median(values)), float(ordered[rank - 1]), float(ordered[-rank]))


def columns(name: str, values: Array) -> dict[str, float]:
    """The median of values (n,) and its interval, by the names that a CSV has."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), interval(values), strict=True))


def label(one: Contest) -> str:
    """The contestant, without its network."""
    return METHODS[one.method].label + ("" if one.way == "all" else f", {SHORT[one.way]}")


SHORT = {"half": "half", "buffer": "five replies", "each": "each reply"}


def against(found: Found, one: Contest, other: Contest, place: int) -> Interval:
    """How many times as much `one` takes as `other`, data set by data set."""
    mine, theirs = found[one][:, place], found[other][:, place]
    both = np.isinf(mine) & np.isinf(theirs)
    return interval(np.where(both, 1.0, mine / np.where(both, 1.0, theirs)))


def _times(ratio: Interval) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def ranking(found: Found, network: str, place: int, ways: Sequence[str]) -> list[Contest]:
    """Contests of a network in these ways, the best one first."""
    mine = [one for one in found if one.network == network and one.way in ways]
    return sorted(mine, key=lambda one: interval(found[one][:, place]).median)


def level(found: Found, one: Contest, measure: str) -> bool:
    """Whether a contest is the first of its network, or cannot be told from it."""
    place = MEASURES.index(measure)
    first = ranking(found, one.network, place, tuple(WAYS))[0]
    return one == first or against(found, one, first, place).low <= 1.0


def winners(found: Found) -> str:
    """For each network, measure and group of ways: who is best, and how far ahead."""
    groups = {"all agents": ("all",), "half of them": ("half",), "any way": tuple(WAYS)}
    lines = []
    for network in NETWORKS:
        for measure in UNITS:
            place, cells = MEASURES.index(measure), []
            for ways in groups.values():
                first, second = ranking(found, network, place, ways)[:2]
                ahead = against(found, second, first, place)
                verb = "before" if ahead.low > 1.0 else "level with"
                cells.append(f"**{label(first)}** {verb} {label(second)}, {_times(ahead)}")
            lines.append((network, measure, *cells))
    return page.table(("network", "least", *groups), lines)


def waiting(found: Found) -> str:
    """What Fed-PLT takes without waiting for all, in units of what it takes when it waits."""
    lines = []
    for network in NETWORKS:
        base = Contest(network, "fed-plt", "all")
        cells = [
            _times(against(found, base._replace(way=way), base, place))
            for place in range(2)
            for way in ("half", *ASYNCHRONOUS)
        ]
        lines.append((network, *cells))
    heads = [f"{measure}: {SHORT[way]}" for measure in UNITS for way in ("half", *ASYNCHRONOUS)]
    return page.table(("network", *heads), lines)
