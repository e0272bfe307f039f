"""Fair tuning: every contest gets the same trials, on data sets and networks of its own.

Delays change clocks, not iterates, where a method waits for all whom it has called. Then, for a
given number of local steps, the best parameters are the same on every network, and are looked for
once; how many local steps are best is decided on each network.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import qmc

from analysis.reproductions.monte_carlo import Case, MonteCarlo
from analysis.studies.contests import ASYNCHRONOUS, EPOCHS, NETWORKS, Contest, Point, reach
from desim.arrays import Array

BATCHES, BATCH = 3, 8  # trials for each number of local steps; a batch's box is a third of the last
FIRST, OTHERS = range(1001, 1004), range(1004, 1011)  # data sets; those reported are 1, 2, ...
PROMISING = 1.15  # a trial goes on to the others if it takes so much longer at most than the best
HOPELESS = 3.0  # a run is given up when it takes so much longer than the best trial


class Search:
    """The best parameters of a contest with so many local steps, and where to look for better."""

    def __init__(self, contest: Contest, epochs: int) -> None:
        self.contest, self.epochs = contest, epochs
        self.box, self.score, self.place = contest.box, np.inf, contest.box.mean(axis=0)

    @property
    def point(self) -> Point:
        """The best parameters so far, with three digits: what is printed is what is played."""
        return self.points(self.place[None])[0]

    def points(self, places: Array) -> list[Point]:
        """Parameters at logarithms (n, 2)."""
        values = [[float(f"{one:.3g}") for one in place] for place in np.exp(places)]
        return [Point(own, step, self.epochs) for own, step in values]

    def places(self, unit: Array) -> Array:
        """Logarithms (n, 2) of parameters at unit (n, 2) of the box."""
        low, high = self.box
        return np.asarray(low + unit * (high - low))

    def cases(self, unit: Array) -> list[Case]:
        """What to play at these places of the box."""
        limit = float(HOPELESS * np.exp(self.score))
        points = self.points(self.places(unit))
        return [self.contest.case(point, seconds=limit) for point in points]

    def learn(self, unit: Array, scores: Array) -> None:
        """Take over the mean log s (n,) at these places; the next box is around the best."""
        n = int(scores.argmin())
        if scores[n] < self.score:
            self.place, self.score = self.places(unit)[n], float(scores[n])
        if self.score < np.inf:
            half = (self.box[1] - self.box[0]) / 6.0
            self.box = np.clip([self.place - half, self.place + half], *self.contest.box)


Key = tuple[int, int]


def scores(monte_carlo: MonteCarlo, cases: Mapping[Key, Case], best: Array) -> dict[Key, float]:
    """Mean log s over the data sets of tuning, inf for trials that are no match for the best.

    A key's first entry counts the searches, best (searches,) are their least scores so far.
    """
    first = _means(monte_carlo, cases, FIRST)
    least = best.copy()
    for (search, _), score in first.items():
        least[search] = min(least[search], score)
    limits = {key: least[key[0]] + np.log(PROMISING) for key in cases}
    kept = {key: case for key, case in cases.items() if first[key] <= limits[key] < np.inf}
    rest = _means(monte_carlo, kept, OTHERS)
    a, b = len(FIRST), len(OTHERS)
    whole = {key: (a * first[key] + b * rest[key]) / (a + b) for key in kept}
    return {key: whole.get(key, np.inf) for key in cases}


def _means(
    monte_carlo: MonteCarlo, cases: Mapping[Key, Case], seeds: Sequence[int]
) -> dict[Key, float]:
    found = monte_carlo.values(cases, seeds, reach)
    return {key: float(np.log(values[:, 0]).mean()) for key, values in found.items()}


def searched(monte_carlo: MonteCarlo, contests: Sequence[Contest]) -> list[Search]:
    """The searches of these contests, for each number of local steps, at their end."""
    searches = [Search(one, epochs) for one in contests for epochs in EPOCHS]
    for batch in range(BATCHES):
        unit = qmc.LatinHypercube(2, rng=batch).random(BATCH)
        cases = {(s, n): case for s, one in enumerate(searches)
                 for n, case in enumerate(one.cases(unit))}  # fmt: skip
        best = np.array([one.score for one in searches])
        found = scores(monte_carlo, cases, best)
        for s, one in enumerate(searches):
            one.learn(unit, np.array([found[s, n] for n in range(BATCH)]))
    return searches


def tuned(monte_carlo: MonteCarlo, contests: Sequence[Contest]) -> dict[Contest, Point]:
    """The best parameters found for each contest."""
    asked = dict.fromkeys(_representative(one) for one in contests)
    points: dict[Contest, list[Point]] = {}
    for search in searched(monte_carlo, list(asked)):
        points.setdefault(search.contest, []).append(search.point)
    cases = {
        (one, point): one.case(point) for one in contests for point in points[_representative(one)]
    }
    found = monte_carlo.values(cases, [*FIRST, *OTHERS], reach)
    means = {key: float(np.log(values[:, 0]).mean()) for key, values in found.items()}
    return {
        one: min(points[_representative(one)], key=lambda point: means[one, point])
        for one in contests
    }


def _representative(contest: Contest) -> Contest:
    """The contest whose parameters this one shares, for a given number of local steps."""
    if contest.way in ASYNCHRONOUS:
        return contest
    return contest._replace(network=NETWORKS[0])
