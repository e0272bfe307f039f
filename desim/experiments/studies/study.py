"""`desim.study`: many runs of a scenario, stored by their hashes; `repeat`: seeds in memory."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from desim.arrays import Array
from desim.errors import InputError, RunError, refusal
from desim.experiments.pool import check, players
from desim.experiments.studies import answers
from desim.experiments.studies.cases import Case, cases, check_methods, key_of, opponents
from desim.experiments.studies.folder import (
    RUNS,
    STUDY,
    StudyTables,
    about,
    claimed,
    finished,
    from_file,
    groups_of,
    opened,
    stored_table,
    write_tables,
)
from desim.experiments.studies.statistics import mean_estimate, median_estimate, paired, settled
from desim.experiments.studies.trials import SPENT, Asked, Trials, rises, trials, unit
from desim.experiments.studies.words import awaited, failures, is_final, shown
from desim.experiments.studies.work import Job, Result, families, run_job, with_files_stored
from desim.log.column_meanings import described
from desim.pace import seen
from desim.runs.directory import named
from desim.runs.reading.series import setting_text
from desim.runs.recording import played
from desim.runs.retime import training_of
from desim.runs.run import Run, is_run, open_run
from desim.runs.trackers.grouped import Group
from desim.scenario.load import loaded, resolved_yaml, seeded
from desim.scenario.noise_target import require_measured
from desim.scenario.schema import Scenario
from desim.scenario.study_file import StudyFile, check_overrides, read_study
from desim.tabulated import card, together

if TYPE_CHECKING:
    from desim.runs.trackers import Tracker

# The tables of a study (runs, cases, comparisons), and a stored study that is opened again.


RUN = ("case", "label", "seed", "run", "status", "reason")
SUMMARY = (
    "case label measure unit statistic value low high level runs failed done never diverged settled"
).split()


def runs_table(
    cases: Sequence[Case],
    keys: Mapping[tuple[int, int], str],
    results: Mapping[str, Result],
    asked: Asked,
) -> pd.DataFrame:
    """One row per case and seed: the case's values, how the run ended and its measures.

    keys: (case, seed) -> the run's hash. Measures are infinite until a target that a run never met,
    be it that it failed before; nan where a run is missing, and at the end of one that failed, but
    for what it had spent by then.
    """
    missing = Result("", "stopped", "not simulated yet")
    varied = list(dict.fromkeys(key for case in cases for key in case.values))
    rows = []
    for case in cases:
        for seed in case.seeds:
            key = keys[case.number, seed]
            found = results.get(key, missing)
            head = (case.number, case.label, seed, key, found.status, found.reason)
            values = {one: case.values[one] for one in varied if one in case.values}
            nested = {
                k: setting_text(v)
                for k, v in values.items()
                if isinstance(v, Mapping | list | tuple)
            }
            rows.append({**dict(zip(RUN, head, strict=True)), **values, **nested, **found.numbers})
    names = dict.fromkeys([*RUN, *varied, *(name for row in rows for name in row)])
    table = pd.DataFrame(rows, columns=list(names))
    for one in varied:
        table[one] = _column(table[one])
    return _never(table, asked)


def _never(table: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """The table; a run that failed with nothing measured at all has met no target."""
    for target in asked.targets:
        when = asked.until("time", *target)
        if when not in table and (table["status"] == "failed").any():
            table[when] = np.nan
        if when not in table:
            continue
        lost = (table["status"] == "failed") & table[when].isna()
        names = [asked.until(kind, *target) for kind in SPENT]
        recorded = [name for name in names if name in table and table[name].notna().any()]
        for name in dict.fromkeys([when, *recorded]):
            table.loc[lost, name] = np.inf
    return table


def _column(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """One kind of value, as Parquet wants it: numbers, or text."""
    kinds = {type(one) for one in values.dropna()}
    if kinds <= {int, float} or kinds == {bool}:
        return values
    return values.map(lambda one: None if pd.isna(one) else str(setting_text(one)))


def measures(runs: pd.DataFrame, asked: Asked) -> list[str]:
    """The measures that are worth comparing, in order: until each target, then at the end."""
    wanted = [asked.until(kind, *target) for target in asked.targets for kind in SPENT]
    known = [str(name) for name in runs]
    finals = sorted(name for name in known if is_final(name))
    return [name for name in (*wanted, *finals, *SPENT) if name in known]


def summary_table(
    cases: Sequence[Case], runs: pd.DataFrame, asked: Asked, level: float
) -> pd.DataFrame:
    """One row per case and measure: the estimate over seeds, its interval, and what is behind it.

    Medians of what it takes, means of final values. `never` counts runs that did not meet the
    target, be it that they failed before, which medians take as infinite; `done` counts no failed
    run, and at the end none stands in an estimate. `diverged` counts those whose final value is not
    finite, or that say so themselves, which means leave out; `settled` tells whether those that
    never met it lasted long enough not to matter.
    """
    rows = []
    for case in cases:
        own = runs[runs["case"] == case.number]
        for name in measures(runs, asked):
            found = summarised(own, name, level)
            rows.append({"case": case.number, "label": case.label, **found})
    return pd.DataFrame(rows, columns=SUMMARY if rows else ["case", "label", "measure", "value"])


def summarised(own: pd.DataFrame, name: str, level: float) -> dict[str, Any]:
    """The row of one measure of one case's runs; counted: how many are behind the estimate."""
    final, known = is_final(name), own[_counts(own, name)]
    values = known[name].to_numpy(float)
    when = known[awaited(name)] if awaited(name) else pd.Series([], dtype=float)
    whole = values[np.isfinite(values)] if final else values
    found = (mean_estimate if final else median_estimate)(whole, level)
    return {
        "measure": name, "unit": unit(name), "statistic": "mean" if final else "median",
        "value": found.value, "low": found.low, "high": found.high, "level": level,
        "runs": len(own), "failed": int((own["status"] == "failed").sum()),
        "done": int((known["status"] == "done").sum()), "never": int(np.isinf(when).sum()),
        "diverged": len(values) - len(whole), "settled": final or _settled(own, name),
        "counted": len(values),
    }  # fmt: skip


def _counts(runs: pd.DataFrame, name: str, of: str = "") -> "pd.Series[Any]":
    """Which rows a measure counts: those that failed only until targets; of: what columns end in.

    To leave them out there would leave the survivors, which are faster or slower than all.
    """
    known = runs[name + of].notna()
    return known if awaited(name) else known & (runs["status" + of] != "failed")


def _settled(own: pd.DataFrame, name: str) -> bool:
    """See `settled`; runs that never met a target may have, any time after their own end."""
    kind = name.partition(" to ")[0]
    known = own[_counts(own, name)]
    values = known[name].to_numpy(float)
    ends = known[kind].fillna(0.0).to_numpy(float) if kind in known else np.zeros(len(known))
    return len(known) == 0 or settled(values, ends)


def comparisons_table(
    opponents: Sequence[tuple[Case, Case]], runs: pd.DataFrame, asked: Asked, level: float
) -> pd.DataFrame:
    """Every case against its counterpart, seed by seed: one row per measure.

    Runs with one seed share their draws, so pairs differ by the case alone. A run that failed
    before a target has lost its pair there, as one that never met it; a pair in which either is
    missing, or failed where ends are compared, is counted in `dropped`. The estimate stands on the
    `counted` pairs: a ratio needs one finite number and one that is not 0. p is of the sign test,
    and of each comparison alone: of many, some are small by chance.
    """
    rows: list[dict[str, Any]] = []
    for case, other in opponents:
        one, two = (runs[runs["case"] == who.number] for who in (case, other))
        both = one.merge(two, on="seed", suffixes=(" of case", " of other"))
        for name in measures(runs, asked):
            known = both[_counts(both, name, " of case") & _counts(both, name, " of other")]
            pairs = _columns(known, name)
            if not len(pairs):
                continue
            ratio, until_when = not is_final(name), awaited(name)
            never = np.isinf(_columns(known, until_when)).all(axis=1) if until_when else pairs[:0]
            found = paired(pairs[:, 0], pairs[:, 1], ratio=ratio, rising=rises(name), level=level)
            rows.append({
                "case": case.number, "label": case.label, "against": other.label or "base",
                "measure": name, "unit": "" if ratio else unit(name),
                "statistic": "median ratio" if ratio else "mean difference",
                "value": found.estimate.value, "low": found.estimate.low,
                "high": found.estimate.high, "level": level, "pairs": len(pairs),
                "counted": found.estimate.n, "neither": int(np.sum(never)),
                "dropped": len(both) - len(pairs), "wins": found.wins, "losses": found.losses,
                "ties": found.ties, "p": found.p,
            })  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else ["case", "label", "against", "measure"])


def _columns(both: pd.DataFrame, name: str) -> Array:
    """Values (pairs, 2) of a measure: of the case and of the other."""
    return np.asarray(both[[f"{name} of case", f"{name} of other"]].to_numpy(float))


# A study that was played: its tables, and which of its methods is first.


class StoredStudy(StudyTables):
    """Its tables `runs`, `summary` and `comparisons`, and what is computed from them.

    spent: time, rounds, bytes, joules or epsilon; methods: keys, sections or label that are the
    method's, default as the study file says; level: of intervals, default the study's. InputError
    where it has no target, or it is not known what was spent until one.
    """

    def ert(
        self, spent: str = "time", methods: Sequence[str] = (), level: float | None = None
    ) -> pd.DataFrame:
        """Expected running times by method, problem and target; see `studies.answers`."""
        return answers.ert(self.trials(methods, level), spent)

    def ecdf(
        self, spent: str = "time", methods: Sequence[str] = (), level: float | None = None
    ) -> pd.DataFrame:
        """The share of problems and targets met for so much, with simulated restarts."""
        return answers.ecdf(self.trials(methods, level), spent)

    def profile(
        self, spent: str = "time", methods: Sequence[str] = (), level: float | None = None
    ) -> pd.DataFrame:
        """The share of problems on which each method is within a factor of the best.

        InputError for fewer than two methods.
        """
        return answers.profile(self.trials(methods, level), spent)

    def trials(self, methods: Sequence[str] = (), level: float | None = None) -> Trials:
        """The runs, each with its method and its problem."""
        return trials(self, methods=methods, level=level)


def open_study(path: str | Path) -> StoredStudy:
    """The study in a directory; InputError where there is none, or it cannot be read."""
    folder = Path(path)
    name, targets, written = from_file(folder, lambda file: _named_and_asked(file["study"]))
    runs, summary, pairs = (
        stored_table(folder / f"{one}.parquet") for one in ("runs", "summary", "comparisons")
    )
    return StoredStudy(name, folder, targets, runs, summary, pairs, written)


def _named_and_asked(study: Any) -> tuple[str, tuple[tuple[str, float], ...], dict[str, Any]]:
    asked = (
        (study.get("compare") or {}).get("targets") or (study.get("tune") or {}).get("until") or {}
    )
    several = {name: one if isinstance(one, list) else [one] for name, one in asked.items()}
    pairs = ((str(name), float(one)) for name, values in several.items() for one in values)
    return str(study["name"]), tuple(pairs), dict(study)


def source(runs: Any) -> StoredStudy | Sequence[Run] | Mapping[str, Sequence[Run]]:
    """The study where its folder is all there is, as its file says what is a method; else runs."""
    if isinstance(runs, str | Path):
        runs = [runs]
    if isinstance(runs, Mapping) or is_run(runs):
        found: Sequence[Run] | Mapping[str, Sequence[Run]] = groups_of(runs)
        return found
    if len(runs) == 1 and not isinstance(runs[0], Run) and (Path(runs[0]) / STUDY).is_file():
        return open_study(runs[0])
    return opened(runs)


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
    trackers: "Sequence[Tracker]" = (),
) -> Study:
    """Simulate the runs of a study that are not stored yet, and compare what came of all of them.

    source: a study file, or the same as a dict; out: directory, where runs are stored under the
    hash of their resolved scenario (default: nothing is stored, only measured); overrides: keys of
    the base scenario; workers: local processes of one thread each, default one per core, 0 for
    this process alone; dask: address of a scheduler instead; memory: bytes that a worker may hold,
    default an equal share of 80 % of what is free; progress is told how many runs of how many are
    done and how many of them failed; share: runs that differ in network or devices alone, where
    everybody waits for everybody, share one training, with the same bits as without; trackers:
    others that are told of all runs, as members of one group, by the processes that play them.

    A run that fails is counted and its error kept, the others go on; Ctrl-C ends a study early
    with what is there. InputError with nothing played for what is wrong with a case or directory,
    RunError where the tables cannot be stored or the scheduler is gone.
    """
    path = named(out)
    planned = plan(source, path, overrides, share)
    check(workers, dask, memory)
    group = Group(trackers, dask)
    results: dict[str, Result] = {}
    error: RunError | None = None
    with contextlib.ExitStack() as stack:
        token = stack.enter_context(claimed(path, planned.about)) if path else ""
        stack.enter_context(group.begun(planned.study.name, planned.about["study"], planned.cases))
        jobs = _followed(group, planned, token)
        try:
            tell = stack.enter_context(seen(planned.study.name, progress, runs=True))
            with players(workers, dask, memory) as play:
                for result in play(jobs):
                    results[result.key] = with_files_stored(result, path)
                    group.heard(result.lost)
                    if tell is not None:
                        failed = sum(one.status == "failed" for one in results.values())
                        tell(len(results), len(jobs), failed)
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


def _followed(group: Group, planned: Plan, token: str) -> list[Job]:
    """The jobs of the study in this directory, each with those who follow its run."""
    cases = {one.number: one for one in planned.cases}
    first: dict[str, tuple[Case, int]] = {}
    for (number, seed), key in planned.keys.items():
        first.setdefault(key, (cases[number], seed))
    return [
        replace(job, token=token, trackers=group.members(*first[job.key])) for job in planned.jobs
    ]


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
