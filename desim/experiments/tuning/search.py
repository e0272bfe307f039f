"""The search of a tuner: batches of candidates race those that are left of the batches before.

A candidate of a new batch is played on one seed after the other. After each seed from the third on,
those that are worse than another one by the race's test are dropped; and whoever can no longer have
met the target on more than half of the seeds. Who is left after the last seed is an elite, which
the next batch has to beat. Every decision falls when all runs of a seed are there, so it is the
same with any number of workers, in any order, and after any interruption.

The test is F-Race (Birattari, Stuetzle, Paquete, Varrentrapp 2002; Birattari, Yuan, Balaprakash,
Stuetzle 2010): Friedman's test on ranks within seeds, then Conover's comparisons of pairs; of two
candidates Wilcoxon's signed ranks of the logarithms of their ratios, exact. What was never reached
is larger than all else, and equal to its like. Each look has its part of the race's error
(Bonferroni): half is shared equally, half falls like 1 / (j (j + 1)) at the j-th look, so that what
is plain is seen early.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError
from desim.experiments.pool import Play
from desim.experiments.studies.cases import key_of
from desim.experiments.studies.folder import RUNS
from desim.experiments.studies.statistics import median
from desim.experiments.studies.trials import Asked
from desim.experiments.studies.work import Job, Result, with_files_stored
from desim.experiments.tuning import BEST, DROPPED, FRONT, INVALID, LEVEL, MISSED, RACING
from desim.experiments.tuning.candidates import Candidate, scenario_of
from desim.experiments.tuning.sampling import Sampler, Values
from desim.numerics.later import special
from desim.runs.retime import training_of
from desim.runs.trackers.grouped import Group
from desim.scenario.load import resolved_yaml, seeded
from desim.scenario.schema import Scenario
from desim.scenario.study_file import StudyFile, Tune

# What was played for a tuner: every run by candidate and seed, stored under its hash.


Tell = Callable[[int, int, str], None]


class Wanted(NamedTuple):
    """A run: a candidate with a seed, which may end at `cap` s."""

    candidate: Candidate
    seed: int
    cap: float = np.inf


class _Resolved(NamedTuple):
    """A candidate as processes read it, up to its seed; cut: whether it ends before its own end."""

    case: Mapping[str, Any]
    text: str
    training: str
    cut: bool


class RunCache:
    """Plays runs in batches and keeps what came of them; nothing is played twice.

    asked: runs that were asked for, stored or not; tell: called after every run, of a batch whose
    number of runs is known.
    """

    def __init__(
        self, tune: Tune, asked: Asked, play: Play, path: Path | None, token: str, share: bool,
        tell: Tell | None, group: Group,
    ) -> None:  # fmt: skip
        self.tune, self.goal, self.path, self.token, self.share = tune, asked, path, token, share
        self.players, self.tell, self.group = play, tell, group
        self.asked = 0
        self.results: dict[str, Result] = {}
        self.keys: dict[tuple[int, int], str] = {}
        self.capped: set[tuple[int, int]] = set()
        self.roots: dict[str, str] = {}
        self._resolved: dict[tuple[int, float], _Resolved] = {}

    @property
    def counts(self) -> dict[str, int]:
        """Runs by how they came: played, told after another one's training, or stored before."""
        return Counter(
            "stored" if one.stored else "told" if one.root else "played"
            for one in self.results.values()
        )

    def play(self, wanted: Iterable[Wanted], what: str) -> None:
        """Play what is wanted of runs that are not known yet; KeyboardInterrupt ends it early."""
        jobs: dict[str, Job] = {}
        for one in wanted:
            place = one.candidate.number, one.seed
            if place in self.keys and (place not in self.capped or np.isfinite(one.cap)):
                continue
            self.asked += 1
            job = self._job(one)
            self.keys[place] = job.key
            if job.key not in self.results and job.key not in jobs:
                members = self.group.members(one.candidate, one.seed)
                jobs[job.key] = replace(job, trackers=members)
        left = self._with_roots(jobs.values())
        for number, result in enumerate(self.players(left), 1):
            self.results[result.key] = with_files_stored(result, self.path)
            self.group.heard(result.lost)
            if self.tell is not None:
                self.tell(number, len(left), what)

    def _job(self, one: Wanted) -> Job:
        """The run as a process is asked for it."""
        place = one.candidate.number, one.seed
        limit = min(one.cap, latest(self.tune))
        if (one.candidate.number, limit) not in self._resolved:
            scenario = one.candidate.scenario
            assert scenario is not None
            ended = until(scenario, limit)
            training = training_of(ended) if self.share else ""
            found = _Resolved(
                ended.written(), resolved_yaml(ended), training, ended is not scenario
            )
            self._resolved[one.candidate.number, limit] = found
        case, unseeded, training, cut = self._resolved[one.candidate.number, limit]
        self.capped.discard(place)
        if np.isfinite(one.cap) and cut:
            self.capped.add(place)
        text = seeded(unseeded, one.seed)
        key = key_of(text)
        where = None if self.path is None else self.path.resolve() / RUNS / key
        family = training and f"{training} {one.seed}"
        return Job(key, case, one.seed, text, self.goal, where, self.token, family)

    def _with_roots(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs with the run whose training theirs is, in this batch or in an earlier one."""
        listed = list(jobs)
        shared = Counter(job.family for job in listed)
        found = []
        for job in listed:
            root = self.roots.setdefault(job.family, job.key) if job.family else ""
            alone = root == job.key and shared[job.family] == 1
            found.append(replace(job, root=job.key if alone or not root else root))
        return sorted(found, key=lambda job: job.family)

    def result(self, candidate: Candidate, seed: int) -> Result | None:
        """What came of a candidate's run; None where it was not played."""
        key = self.keys.get((candidate.number, seed))
        return None if key is None else self.results.get(key)

    def needed(self, candidate: Candidate, seed: int) -> Array:
        """What it took (goals,) until the target, inf where that was not met within the limits."""
        spent = self._numbers(candidate, seed)
        beyond = any(spent[name] > limit for name, limit in self.tune.limits.items())
        return np.array([np.inf if beyond else spent[name] for name in self.tune.least])

    def _numbers(self, candidate: Candidate, seed: int) -> dict[str, float]:
        result = self.result(candidate, seed)
        known = {} if result is None else result.numbers
        metric, value = self.tune.target
        found = {}
        for kind in {*self.tune.least, *self.tune.limits, "time"}:
            number = float(known.get(self.goal.until(kind, metric, value), np.inf))
            found[kind] = np.inf if np.isnan(number) else number
        return found

    def broken(self, candidate: Candidate, seed: int) -> list[str]:
        """What a run went beyond: limits by name, the target that it never met, or its cap."""
        spent = self._numbers(candidate, seed)
        if np.isinf(spent["time"]):
            if (candidate.number, seed) in self.capped:
                return ["cap"]
            if self.tune.limits.get("time", np.inf) < np.inf:
                return ["time"]
            return ["target"]
        return [name for name, limit in self.tune.limits.items() if spent[name] > limit]

    def table(self, candidates: Iterable[Candidate], seeds: tuple[int, ...]) -> Array:
        """What candidates needed on these seeds (goals, candidates, seeds)."""
        every = [[self.needed(one, seed) for seed in seeds] for one in candidates]
        return np.array(every).reshape(-1, len(seeds), len(self.tune.least)).transpose(2, 0, 1)

    def played(self, candidate: Candidate, seeds: Iterable[int]) -> Iterator[int]:
        """The seeds on which the candidate was played."""
        return (seed for seed in seeds if self.result(candidate, seed) is not None)


def latest(tune: Tune) -> float:
    """When a run can no longer meet the target in time, s."""
    return tune.limits.get("time", np.inf) * (1.0 + 1e-9)


def until(scenario: Scenario, limit: float) -> Scenario:
    """The scenario, which ends at `limit` s if not before; itself where that changes nothing.

    What it computes until then is the same.
    """
    if not np.isfinite(limit) or (scenario.stop.time or np.inf) <= limit:
        return scenario
    stop = scenario.stop.model_copy(update={"time": float(f"{limit:.12g}")})
    return scenario.model_copy(update={"stop": stop})


# The race's test: who is worse than another one, by what both needed on the same seeds.
FIRST = 3  # seeds before the first look
Flags = NDArray[np.bool_]


def part(error: float, met: int, seeds: int) -> float:
    """The error of the look after `met` of so many seeds; those of all looks sum to `error`."""
    look, last = met - FIRST + 1, max(seeds - FIRST + 1, 1)
    return 0.5 * error * ((1.0 + 1.0 / last) / (look * (look + 1.0)) + 1.0 / last)


def ranks(values: Array) -> Array:
    """Ranks (candidates, seeds) within each seed, 1 for the least; equal ones share their mean."""
    less = (values[:, None, :] > values[None, :, :]).sum(axis=1)
    equal = (values[:, None, :] == values[None, :, :]).sum(axis=1)
    return np.asarray(less + 0.5 * (equal + 1.0))


def worse(values: Array, error: float) -> Flags:
    """Which candidate (row) is worse than which (column): values (candidates, seeds), least best.

    error: the probability that equal candidates are told apart at all.
    """
    k, n = values.shape
    found = np.zeros((k, k), bool)
    if k < 2 or n < 2:
        return found
    if k == 2:
        if _signed_ranks(values[0], values[1]) <= error:
            found[0, 1] = True
        elif _signed_ranks(values[1], values[0]) <= error:
            found[1, 0] = True
        return found
    ranked = ranks(values)
    sums, squares = ranked.sum(axis=1), float((ranked**2).sum())
    spread = squares - n * k * (k + 1) ** 2 / 4.0
    if spread <= 0.0:
        return found
    friedman = (k - 1) * float(((sums - n * (k + 1) / 2.0) ** 2).sum()) / spread
    if special.chdtrc(k - 1, friedman) > error:
        return found
    freedom = (n - 1) * (k - 1)
    variance = 2.0 * n * max(1.0 - friedman / (n * (k - 1)), 0.0) * spread / freedom
    critical = float(special.stdtrit(freedom, 1.0 - 0.5 * error)) * variance**0.5
    return np.asarray(sums[:, None] - sums[None, :] > critical * (1.0 + 1e-12) + 1e-9)


def _signed_ranks(one: Array, other: Array) -> float:
    """P, two-sided, that `one` is so much larger only by chance (Wilcoxon 1945); ties left out."""
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.log(one) - np.log(other)
    away = away[~np.isnan(away) & (away != 0.0)]
    if not len(away):
        return 1.0
    ranked = ranks(np.abs(away)[:, None])[:, 0]
    positive = round(2.0 * float(ranked[away > 0.0].sum()))
    tail = _tail(tuple(round(2.0 * one) for one in sorted(ranked.tolist())), positive)
    return min(1.0, 2.0 * tail)


@lru_cache(None)
def _tail(doubled: tuple[int, ...], at_least: int) -> float:
    """P that the ranks (doubled, so that halves are whole) with random signs sum to at least."""
    ways = np.zeros(sum(doubled) + 1)
    ways[0] = 1.0
    for rank in doubled:
        ways[rank:] += ways[:-rank].copy() if rank else 0.0
    return float(ways[at_least:].sum() / 2.0 ** len(doubled))


def beaten(values: Array, error: float) -> Flags:
    """Which candidates some other one beats; values (goals, k, seeds).

    It beats them if in each goal they are worse than it or better on no seed, and worse in one.
    """
    k = values.shape[1]
    worst, every = np.zeros((k, k), bool), np.ones((k, k), bool)
    for goal in values:
        apart = worse(goal, error)
        worst |= apart
        every &= apart | (goal[:, None] >= goal[None, :]).all(axis=2)
    return np.asarray((worst & every).any(axis=1))


def lost(values: Array, seeds: int) -> Flags:
    """Which candidates can no longer have a finite median over `seeds`: values (k, so far)."""
    return np.asarray(np.isinf(values).sum(axis=1) >= 0.5 * seeds)


# The search, and when it ends for want of candidates.
BARREN = 1000  # so many candidates in a row that are none end a search


class Search:
    """Candidates by the batch until the budget is spent or there are no more."""

    def __init__(self, study: StudyFile, folder: Path, sampler: Sampler, cache: RunCache) -> None:
        assert study.tune is not None
        self.study, self.folder, self.sampler, self.cache = study, folder, sampler, cache
        self.tune = study.tune
        self.seeds = self.tune.seeds
        self.error = 1.0 - study.compare.level
        self.candidates: list[Candidate] = []
        self.elites: list[Candidate] = []

    def run(self) -> None:
        """Propose, race, tell."""
        barren = 0  # candidates in a row that are none: they cost no runs, which end the search
        while (number := self._affordable()) and (proposed := self.sampler.ask(number)):
            batch = [self.candidate(values) for values in proposed]
            able = [one for one in batch if one.scenario is not None]
            barren = 0 if able else barren + len(batch)
            if barren >= BARREN:
                break
            self._race(able)
            self.sampler.tell([self._score(one) for one in batch])
        self._decide()

    def play_fresh(self, base: Candidate) -> None:
        """The best, or the front, and the base on seeds that nothing was chosen by."""
        best = [one for one in self.elites if one.status != LEVEL]
        again = [*best, base] if best else []
        wanted = [Wanted(one, seed) for one in again for seed in self.tune.fresh_seeds]
        self.cache.play(wanted, "the best on fresh seeds")

    def _affordable(self) -> int:
        """How many candidates of a batch may meet all seeds without more runs than allowed."""
        left = self.tune.budget - self.cache.asked
        return min(self.tune.batch, max(left, 0) // len(self.seeds))

    def candidate(self, values: Values) -> Candidate:
        """The candidate with these values, whose scenario may turn out to be none."""
        found = Candidate(len(self.candidates), values, None)
        self.candidates.append(found)
        try:
            found.scenario = scenario_of(self.study, self.folder, values)
        except InputError as error:
            found.status, found.reason = INVALID, error.problems[0]
        return found

    def _score(self, one: Candidate) -> Array | None:
        """Medians (goals,) over the seeds that every candidate met; None of what is none."""
        if one.scenario is None:
            return None
        some = self.seeds[: FIRST if self.tune.race else len(self.seeds)]
        seen = tuple(self.cache.played(one, some))
        return np.asarray(medians(self.cache.table([one], seen))[:, 0])

    def _race(self, batch: Sequence[Candidate]) -> None:
        running = list(batch)
        for number, seed in enumerate(self.seeds, 1):
            caps = self._cap(seed)
            what = f"candidates {batch[0].number + 1} to {batch[-1].number + 1}" if batch else ""
            self.cache.play([Wanted(one, seed, caps) for one in running], what)
            running = self._after(running, number)
            if not running:
                break
        self._in_full(running)
        self.elites += running
        if self.tune.race:
            self._after(list(self.elites), len(self.seeds))
        self.elites = [one for one in self.elites if one.status == RACING]

    def _after(self, running: list[Candidate], number: int) -> list[Candidate]:
        """Who is left of those that have met so many seeds, held against each other and elites."""
        seen = self.seeds[:number]
        for one, over in zip(running, self._lost(running, seen), strict=True):
            if over:
                cut = any("cap" in self.cache.broken(one, seed) for seed in seen)
                one.status, one.at = DROPPED if cut else MISSED, number
                one.reason = self._why(one, seen)
        left = [one for one in running if one.status == RACING]
        if self.tune.race and number >= FIRST:
            rivals = [*left, *(one for one in self.elites if one not in left)]
            if len(rivals) > 1:
                table = self.cache.table(rivals, seen)
                over = beaten(table, part(self.error, number, len(self.seeds)))
                for one, out in zip(rivals, over, strict=True):
                    if out and one in left:
                        one.status, one.at = DROPPED, number
        return [one for one in left if one.status == RACING]

    def _lost(self, running: list[Candidate], seen: tuple[int, ...]) -> Any:
        """Who has missed the target, or gone beyond limits, too often; epsilon's even once."""
        worst = self.cache.table(running, seen).max(axis=0)
        over = lost(worst, len(self.seeds))
        for place, one in enumerate(running):
            over[place] |= any("epsilon" in self.cache.broken(one, seed) for seed in seen)
        return over

    def _why(self, one: Candidate, seen: tuple[int, ...]) -> str:
        """Why its runs failed, or what it went beyond, most often first."""
        played = [self.cache.result(one, seed) for seed in seen]
        failed = [run.reason.partition("\n")[0] for run in played if run and run.status == "failed"]
        every = [name for seed in seen for name in self.cache.broken(one, seed)]
        names = sorted(dict.fromkeys(every), key=lambda name: -every.count(name))
        metric, value = self.tune.target
        words = {
            "target": f"{metric} {value:g} not met",
            "cap": f"beyond {self.tune.cap:g} times the best",
        }
        why = [f"failed on {len(failed)} of {len(seen)} seeds: {failed[0]}"] if failed else []
        for name in names:
            word = words.get(name, f"limit on {name}")
            why.append(f"{word} on {every.count(name)} of {len(seen)} seeds")
        return ", ".join(why)

    def _cap(self, seed: int) -> float:
        """When a run can win no more on a seed: so many times what the best elite took there."""
        if not self.tune.cap or self.tune.least != ("time",) or not self.elites:
            return np.inf
        best = min(self.elites, key=lambda one: medians(self.cache.table([one], self.seeds))[0, 0])
        taken = float(self.cache.needed(best, seed)[0])
        return float(f"{self.tune.cap * taken:.4g}") if np.isfinite(taken) else np.inf

    def _in_full(self, running: list[Candidate]) -> None:
        """Play what was capped again, of those that are left, until its own end."""
        again = [
            Wanted(one, seed)
            for one in running
            for seed in self.seeds
            if (one.number, seed) in self.cache.capped
        ]
        self.cache.play(again, "runs that were cut off, in full")

    def _decide(self) -> None:
        """The best of the elites, or the front, and who is within their noise."""
        if not self.elites:
            return
        middle = medians(self.cache.table(self.elites, self.seeds))
        first = front(middle)
        several = len(self.tune.least) > 1
        if not several:
            first = np.arange(len(self.elites)) == int(np.argmin(middle[0]))
        for one, best in zip(self.elites, first, strict=True):
            one.status = (FRONT if several else BEST) if best else LEVEL
            one.at = len(self.seeds)


def medians(table: Array) -> Array:
    """Medians (goals, candidates) over seeds of (goals, candidates, seeds), perhaps infinite."""
    return np.array([[median(values) for values in goal] for goal in table])


def front(values: Array) -> Any:
    """Which columns of values (goals, n) no other one beats: as small in all, smaller in one."""
    no_worse = (values[:, :, None] <= values[:, None, :]).all(axis=0)
    better = (values[:, :, None] < values[:, None, :]).any(axis=0)
    return np.isfinite(values).all(axis=0) & ~(no_worse & better).any(axis=0)
