"""`desim.study`: many runs of a scenario, stored by their hashes; `repeat`: seeds in memory."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from desim.errors import InputError, RunError, refusal
from desim.experiments.pool import check, players
from desim.experiments.studies.cases import Case, cases, check_methods, key_of, opponents
from desim.experiments.studies.folder import RUNS, about, claimed, finished, write_tables
from desim.experiments.studies.study_tables import (
    StoredStudy,
    comparisons_table,
    runs_table,
    summary_table,
)
from desim.experiments.studies.trials import Asked
from desim.experiments.studies.words import failures, shown
from desim.experiments.studies.work import Job, Result, families, run_job, with_files_stored
from desim.log.column_meanings import described
from desim.runs.directory import named
from desim.runs.recording import played
from desim.runs.retime import training_of
from desim.runs.run import Run, open_run
from desim.scenario.load import loaded, resolved_yaml, seeded
from desim.scenario.noise_target import require_measured
from desim.scenario.schema import Scenario
from desim.scenario.study_file import StudyFile, check_overrides, read_study
from desim.tabulated import card, together

Tell = Callable[[int, int, int], None]
Keys = dict[tuple[int, int], str]


@dataclass(frozen=True)
class Plan:
    """A study before it is played: its cases and, for each run (case, seed), what is to be done.

    pairs: cases with those that they are held against.
    """

    study: StudyFile
    folder: Path
    cases: tuple[Case, ...]
    asked: Asked
    pairs: tuple[tuple[Case, Case], ...]
    keys: Keys
    jobs: tuple[Job, ...]

    @property
    def about(self) -> dict[str, Any]:
        """What the study's directory says of it."""
        return about(self.study, self.folder, self.keys)

    def lines(self) -> list[str]:
        """What there is to play, in lines: how many runs, and the seeds of each case."""
        stored = sum(finished(job.place) is not None for job in self.jobs)
        counts = f"{len(self.cases)} cases, {len(self.jobs)} runs, {stored} stored"
        cases = [f"  {one.label or 'base'}: {_seeds(one.seeds)}" for one in self.cases]
        return [f"{self.study.name}: {counts}", *cases]


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"


class Study(StoredStudy):
    """What came of a study: tables `runs`, `summary` and `comparisons`, and the runs themselves.

    complete: whether every run was played, be it that it failed.
    """

    def __init__(self, plan: Plan, results: Mapping[str, Result], directory: Path | None) -> None:
        asked, level = plan.asked, plan.study.compare.level
        runs = described(runs_table(plan.cases, plan.keys, results, asked), "runs")
        summary = described(summary_table(plan.cases, runs, asked, level), "summary")
        pairs = described(comparisons_table(plan.pairs, runs, asked, level), "comparisons")
        written = plan.study.written()
        super().__init__(plan.study.name, directory, asked.targets, runs, summary, pairs, written)
        self.plan, self.results = plan, dict(results)

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{n} {status}" for status, n in self.runs["status"].value_counts().items()
        )
        return f"<Study {self.name}: {len(self.plan.cases)} cases, {counts}>"

    def _repr_html_(self) -> str:
        where = [("stored in", str(self.directory))] if self.directory else []
        return card(self.counted, where, more=[table.html() for table in shown(self)])

    def text(self, form: str = "text", width: float = math.inf) -> str:
        """How the runs ended, then a table for each measure that was asked for; or these alone.

        form: text, markdown or latex, which are the tables alone; width: columns into which text is
        folded.
        """
        if form != "text":
            return together(shown(self), form, name=self.name)
        lines = [self.counted]
        lines += [f"  stored in {self.directory}"] if self.directory else []
        roots = list(self.shared.items())
        many = "runs share the training of"
        lines += [f"  {n} {many} {key}, with the same bits" for key, n in roots[:3]]
        lines += [f"  and so with {len(roots) - 3} other runs"] if len(roots) > 3 else []
        counts = failures(self.runs)
        for reason, n in counts.head(5).items():
            lines.append(f"  failed {'once' if n == 1 else f'{n} times'}: {reason}")
        lines += [f"  and {len(counts) - 5} other reasons"] if len(counts) > 5 else []
        for table in shown(self):
            lines += ["", *table.text(width).splitlines()]
        return "\n".join(lines)

    @property
    def counted(self) -> str:
        """One line: how many cases and runs, and how these ended."""
        status = self.runs["status"].value_counts()
        stored = sum(one.stored for one in self.results.values())
        counts = [f"{status.get('done', 0)} done" + (f" ({stored} stored before)" * (stored > 0))]
        counts += [f"{status[name]} {name}" for name in ("failed", "stopped") if name in status]
        cases = len(self.plan.cases)
        return f"{self.name}: {cases} cases, {len(self.runs)} runs: {', '.join(counts)}"

    @property
    def shared(self) -> dict[str, int]:
        """How many runs share the training of each run that others share, by its hash."""
        return dict(Counter(one.root for one in self.results.values() if one.root))

    @property
    def complete(self) -> bool:
        """Whether there is a result for every run."""
        return bool((self.runs["status"] != "stopped").all())

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by name; expected running times where there are any."""
        found = {"runs": self.runs, "summary": self.summary, "comparisons": self.comparisons}
        with contextlib.suppress(InputError):  # no target, or nothing was played
            found["ert"] = self.ert()
        return found

    def run(self, key: str) -> Run:
        """The run whose hash begins so; InputError where none is stored."""
        found = [one for one in dict.fromkeys(self.runs["run"]) if one.startswith(key)]
        if self.directory is None or len(found) != 1:
            why = "the study keeps no runs" if self.directory is None else f"{len(found)} runs"
            raise InputError(f"run {key!r}: {why}; allowed: a hash of the table runs")
        return open_run(self.directory / RUNS / found[0])


def plan(
    source: str | Path | Mapping[str, Any],
    out: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    share: bool = True,
) -> Plan:
    """Read a study and check each of its cases; InputError with all that is wrong, if anything.

    overrides: dotted keys of the base scenario, for all cases; share: see `study`.
    """
    study, folder = read_study(source)
    if study.tune is not None:
        raise InputError("tune: found a tuner's file; allowed: a study (desim tune plays this one)")
    varied = {*study.grid, *(key for entry in study.list for key in entry)}
    varied |= set(study.random.draw) if study.random else set()
    check_overrides(overrides or {}, varied, "the study")
    study = study.model_copy(update={"set": {**study.set, **(overrides or {})}})
    found = tuple(cases(study, folder))
    check_methods(study, found)
    asked = _asked(study, found)
    against = study.compare.against
    pairs = opponents(found, against) if against or study.random is None else []
    keys: Keys = {}
    jobs: dict[str, Job] = {}
    for case in found:
        written, training = case.scenario.written(), training_of(case.scenario) if share else ""
        for seed, text in case.texts():
            key = keys[case.number, seed] = key_of(text)
            place = None if out is None else out.resolve() / RUNS / key
            kin = training and f"{training} {seed}"
            jobs.setdefault(key, Job(key, written, seed, text, asked, place, family=kin))
    return Plan(study, folder, found, asked, tuple(pairs), keys, families(jobs.values()))


def name_of(source: str | Path | Mapping[str, Any]) -> str:
    """The name of a study."""
    return read_study(source)[0].name


def _asked(study: StudyFile, cases: Sequence[Case]) -> Asked:
    """What is measured; InputError for a target whose metric some case does not observe."""
    compare = study.compare
    targets = [(name, value) for name, values in compare.targets.items() for value in values]
    for case in cases:
        observed = case.scenario.observe.metrics
        for name in dict.fromkeys(name for name, _ in targets):
            if name not in observed:
                where = f"case {case.label}: " if case.label else ""
                allowed = ", ".join(observed) or "none, as observe.metrics says"
                raise InputError(f"{where}compare.targets: {refusal(name, allowed, observed)}")
        if not compare.targets:
            stops = case.scenario.stop.targets.items()
            targets += [one for one in stops if one[0] in observed and one not in targets]
    return Asked(
        tuple(targets), None if compare.epsilon.off else compare.epsilon.stated, compare.stays
    )


def study(
    source: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    workers: int | None = None,
    dask: str | None = None,
    memory: float | None = None,
    progress: Tell | None = None,
    share: bool = True,
) -> Study:
    """Simulate the runs of a study that are not stored yet, and compare what came of all of them.

    source: a study file, or the same as a dict; out: directory, where runs are stored under the
    hash of their resolved scenario (default: nothing is stored, only measured); overrides: keys of
    the base scenario; workers: local processes of one thread each, default one per core, 0 for
    this process alone; dask: address of a scheduler instead; memory: bytes that a worker may hold,
    default an equal share of 80 % of what is free; progress is told how many runs of how many are
    done and how many of them failed; share: runs that differ in network or devices alone, where
    everybody waits for everybody, share one training, with the same bits as without.

    A run that fails is counted and its error kept, the others go on; Ctrl-C ends a study early
    with what is there. InputError with nothing played for what is wrong with a case or directory,
    RunError where the tables cannot be stored or the scheduler is gone.
    """
    path = named(out)
    planned = plan(source, path, overrides, share)
    check(workers, dask, memory)
    results: dict[str, Result] = {}
    error: RunError | None = None
    with contextlib.ExitStack() as stack:
        token = stack.enter_context(claimed(path, planned.about)) if path else ""
        jobs = [replace(job, token=token) for job in planned.jobs]
        try:
            with players(workers, dask, memory) as play:
                for result in play(jobs):
                    results[result.key] = with_files_stored(result, path)
                    if progress is not None:
                        failed = sum(one.status == "failed" for one in results.values())
                        progress(len(results), len(jobs), failed)
        except KeyboardInterrupt:
            results |= _unheard(jobs, results)
        except RunError as gone:
            error, results = gone, results | _unheard(jobs, results)
        found = Study(planned, results, path)
        if path is not None:
            write_tables(path, found.tables)
    if error is not None:
        raise error
    return found


def _unheard(jobs: list[Job], results: Mapping[str, Result]) -> dict[str, Result]:
    """Results of runs that are stored, although whoever played them could not say so any more."""
    stored = [job for job in jobs if job.key not in results and finished(job.place)]
    return {job.key: run_job(job) for job in stored}


# Many seeds of one scenario in this process; the scenario is read and checked once.


def repeat(
    scenario: Scenario | str | Path | Mapping[str, Any],
    seeds: Iterable[int],
    overrides: Mapping[str, Any] | None = None,
) -> Iterator[Run]:
    """Runs in memory of a scenario with each of the seeds, bit for bit those of `desim.run`.

    They are played as they are asked for, so that thousands need the memory of one. InputError for
    a wrong scenario or seed, RunError for a run that fails, as in `desim.run`.
    """
    found = loaded(scenario, overrides)
    require_measured(found, "repeat")
    text = resolved_yaml(found)

    def run(seed: int) -> Run:
        if isinstance(seed, bool) or seed != int(seed) or seed < 0:
            raise InputError(f"seeds: {refusal(seed, 'whole numbers, at least 0')}")
        again = found.model_copy(update={"seed": int(seed)})
        return played(again, text=seeded(text, int(seed)))

    return map(run, seeds)
