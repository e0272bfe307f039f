"""What was played for a tuner: every run by candidate and seed, stored under its hash."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array
from desim.experiments.studies.cases import key_of
from desim.experiments.studies.folder import RUNS, store_run
from desim.experiments.studies.hands import Carry
from desim.experiments.studies.trials import Asked
from desim.experiments.studies.tuner import Tune
from desim.experiments.studies.work import Job, Result
from desim.experiments.tuning.candidates import Candidate
from desim.runs.retime import training_of
from desim.scenario.load import resolved_yaml, seeded
from desim.scenario.schema import Scenario

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


class Book:
    """Plays runs in batches and keeps what came of them; nothing is played twice.

    asked: runs that were asked for, stored or not; told after every run, of a batch whose number
    of runs is known.
    """

    def __init__(
        self, tune: Tune, asked: Asked, carry: Carry, path: Path | None, token: str, share: bool,
        tell: Tell | None,
    ) -> None:  # fmt: skip
        self.tune, self.goal, self.path, self.token, self.share = tune, asked, path, token, share
        self.carry, self.tell = carry, tell
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
            "stored" if one.stored else "told" if one.told else "played"
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
            if job.key not in self.results:
                jobs.setdefault(job.key, job)
        left = self._with_roots(jobs.values())
        for number, result in enumerate(self.carry(left), 1):
            self.results[result.key] = self._kept(result)
            if self.tell is not None:
                self.tell(number, len(left), what)

    def _job(self, one: Wanted) -> Job:
        """The run as a process is asked for it."""
        place = one.candidate.number, one.seed
        limit = min(one.cap, latest(self.tune))
        if (one.candidate.number, limit) not in self._resolved:
            self._resolved[one.candidate.number, limit] = self._read(one.candidate, limit)
        case, unseeded, training, cut = self._resolved[one.candidate.number, limit]
        self.capped.discard(place)
        if np.isfinite(one.cap) and cut:
            self.capped.add(place)
        text = seeded(unseeded, one.seed)
        key = key_of(text)
        where = None if self.path is None else self.path.resolve() / RUNS / key
        family = training and f"{training} {one.seed}"
        return Job(key, case, one.seed, text, self.goal, where, self.token, family)

    def _read(self, candidate: Candidate, limit: float) -> _Resolved:
        scenario = candidate.scenario
        assert scenario is not None
        ended = until(scenario, limit)
        training = training_of(ended) if self.share else ""
        return _Resolved(ended.written(), resolved_yaml(ended), training, ended is not scenario)

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

    def _kept(self, result: Result) -> Result:
        """The result without its files, which are stored first."""
        if self.path is not None and result.files:
            store_run(self.path / RUNS / result.key, result.files)
        return replace(result, files={})

    def result(self, candidate: Candidate, seed: int) -> Result | None:
        """What came of a candidate's run; None where it was not played."""
        key = self.keys.get((candidate.number, seed))
        return None if key is None else self.results.get(key)

    def needed(self, candidate: Candidate, seed: int) -> Array:
        """What it took (goals,) until the target, inf where that was not met within the limits."""
        return self._within(self._numbers(candidate, seed))

    def _numbers(self, candidate: Candidate, seed: int) -> dict[str, float]:
        result = self.result(candidate, seed)
        known = {} if result is None else result.numbers
        metric, value = self.tune.target
        found = {}
        for kind in {*self.tune.least, *self.tune.limits, "time"}:
            number = float(known.get(self.goal.until(kind, metric, value), np.inf))
            found[kind] = np.inf if np.isnan(number) else number
        return found

    def _within(self, spent: dict[str, float]) -> Array:
        beyond = any(spent[name] > limit for name, limit in self.tune.limits.items())
        return np.array([np.inf if beyond else spent[name] for name in self.tune.least])

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
