"""The tables of a study (runs, cases, comparisons), and a stored study that is opened again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from desim.arrays import Array
from desim.experiments.studies import answers
from desim.experiments.studies.cases import Case
from desim.experiments.studies.folder import (
    STUDY,
    StudyTables,
    from_file,
    groups_of,
    opened,
    stored_table,
)
from desim.experiments.studies.statistics import mean_estimate, median_estimate, paired, settled
from desim.experiments.studies.trials import SPENT, Asked, Trials, rises, trials, unit
from desim.experiments.studies.words import awaited, is_final
from desim.experiments.studies.work import Result
from desim.runs.reading.series import setting_text
from desim.runs.run import Run, is_run

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

    spent: time, rounds, bytes or epsilon; methods: keys, sections or label that are the method's,
    default as the study file says; level: of intervals, default the study's. InputError where it
    has no target, or it is not known what was spent until one.
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
