"""The trials of a study, from its table or its runs, or of any runs: who met which target when."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from desim.errors import InputError, refusal
from desim.experiments.studies.folder import RUNS, StudyTables
from desim.experiments.studies.measures import SPENT, Asked, measured
from desim.experiments.studies.notes import terms
from desim.experiments.studies.sides import LABEL, sided
from desim.experiments.studies.trials import LEVEL, Trials
from desim.runs.reading.series import Series, differing, series_of, setting
from desim.runs.run import Run, open_run

TERMS = ("view", "delta", "relation")


def trials(
    source: StudyTables | Sequence[Run] | Mapping[str, Sequence[Run]],
    targets: Mapping[str, Sequence[float]] | None = None,
    methods: Sequence[str] = (),
    terms_of: Mapping[str, Any] | None = None,
    stays: bool = False,
    level: float | None = None,
) -> Trials:
    """The runs of a study, or any runs, with their sides.

    targets: default those of the study, or what the runs themselves stop at; methods: keys of the
    scenario, its sections, or label, that are the method's; default: those of the study file, else
    as `studies.sides` says. Runs that were not played or stopped have no row; those that
    failed count. InputError for a metric that no run has recorded.
    """
    given = dict(terms_of or {})
    if isinstance(source, StudyTables):
        return _of_study(source, _again(source, targets, given, stays), methods, level, given)
    rows = series_of(source)
    wanted = asked_of(rows, targets, given, stays)
    sides = sided(_differing(rows), chosen=methods)
    if len({side.problem for side in sides}) == 1 and not methods:
        names = [row.label for row in rows]  # which say what is compared
    else:
        names = [side.method for side in sides]
    found = [
        {"method": name, "problem": side.problem, "seed": int(run.manifest.get("seed", 0)),
         "status": run.status, **measured(run, wanted)}
        for row, side, name in zip(rows, sides, names, strict=True)
        for run in (*row.runs, *row.lost)
        if run.status in ("done", "failed")
    ]  # fmt: skip
    about = tuple(terms(rows, given))
    return _checked(Trials(pd.DataFrame(found), level or LEVEL, about, _mixed(rows, given)))


def _mixed(rows: Sequence[Series[Run]], given: Mapping[str, Any]) -> str:
    """The terms of the epsilons where they differ in more than how they are computed."""
    found = {}
    for row in rows:
        if row.runs[0].scenario.privacy is not None or given:
            one = row.runs[0].account(**given)
            found[f"view {one.view}, {one.relation}, delta {one.delta:g}"] = row.label
    return " / ".join(found) if len(found) > 1 else ""


def asked_of(
    rows: Sequence[Series[Run]],
    targets: Mapping[str, Sequence[float]] | None,
    terms_of: Mapping[str, Any],
    stays: bool = False,
) -> Asked:
    """What is measured of runs; InputError for a metric that no run has recorded."""
    every = [run for row in rows for run in row.runs]
    if targets is None:
        pairs = tuple(dict.fromkeys(pair for run in every for pair in run.stops))
        return Asked(pairs, dict(terms_of), stays)
    known = {name for run in every for name in (*run.metrics["metric"].unique(), *run.observed)}
    for name in targets:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none, as these runs have measured nothing"
            raise InputError(f"target: {refusal(name, allowed, sorted(known))}")
    pairs = tuple((name, float(one)) for name, values in targets.items() for one in values)
    return Asked(pairs, dict(terms_of), stays)


def _differing(rows: Sequence[Series[Run]]) -> list[dict[str, Any]]:
    """Of each series the settings that not all have, by dotted key, in words."""
    places = differing([row.runs[0] for row in rows])
    found = []
    for row in rows:
        tree = row.runs[0].scenario.written()
        words = {".".join(place): setting(tree, place).partition(" ")[2] for place in places}
        found.append({key: text for key, text in words.items() if text != "none"})
    return found


def _of_study(
    study: StudyTables,
    runs: pd.DataFrame,
    methods: Sequence[str],
    level: float | None,
    given: Mapping[str, Any],
) -> Trials:
    """The runs of a study's table, or one like it, with their sides; given: terms of epsilons."""
    file = study.written
    if file.get("tune"):
        text = "found the directory of a tuner, whose candidates did not meet the same seeds"
        raise InputError(f"{study.name}: {text}; allowed: a study's, or runs")
    listed = frozenset(key for entry in file.get("list") or [{}] for key in entry) - {LABEL}
    varied = {*(file.get("grid") or {}), *listed, *((file.get("random") or {}).get("draw") or {})}
    keys = [str(key) for key in study.runs if key in varied and key != "seed"]
    names = [str(one[LABEL]) for one in file.get("list") or [{}] if LABEL in one]
    compare = file.get("compare") or {}
    chosen = methods or tuple((compare.get("profile") or {}).get("methods") or ())
    firsts = study.runs.drop_duplicates("case")
    cases = [_values(row, keys, names) for row in firsts.to_dict("records")]
    sides = dict(zip(firsts["case"], sided(cases, listed, chosen), strict=True))
    runs = runs[runs["status"] != "stopped"]
    head = pd.DataFrame({
        "method": [sides[case].method for case in runs["case"]],
        "problem": [sides[case].problem for case in runs["case"]],
    }, index=runs.index)  # fmt: skip
    rest = runs.drop(columns=[key for key in keys if key in runs])
    level = float(compare.get("level") or LEVEL) if level is None else level
    return _checked(Trials(pd.concat([head, rest], axis=1), level, *_terms(study, keys, given)))


def _fixed(study: StudyTables, given: Mapping[str, Any]) -> dict[str, Any]:
    """The terms of epsilons that are those of all cases: the given ones, then the study file's."""
    own = (study.written.get("compare") or {}).get("epsilon")
    return {**(own if isinstance(own, Mapping) else {}), **given}


def _terms(
    study: StudyTables, keys: Sequence[str], given: Mapping[str, Any]
) -> tuple[tuple[str, ...], str]:
    """The terms of the study's epsilons, and how they differ between its cases, if they do."""
    fixed = _fixed(study, given)
    varied = [f"privacy.{one}" for one in TERMS if one not in fixed and f"privacy.{one}" in keys]
    about = ["epsilon: of the agent that spends most"]
    if study.directory is not None and "epsilon" in study.runs and not varied:
        about = terms(series_of(next(iter(study.by_case().values()))[:1]), fixed)
    return tuple(about), ", ".join(varied)


def _values(row: Mapping[Any, Any], keys: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """A case's values, and the name of its entry in the list."""
    label = str(row["label"])
    own = [name for name in names if label == name or label.startswith(f"{name}, ")]
    found = {LABEL: max(own, key=len)} if own else {}
    return {**found, **{key: row[key] for key in keys if not pd.isna(row[key])}}


def _again(
    study: StudyTables,
    targets: Mapping[str, Sequence[float]] | None,
    given: Mapping[str, Any],
    stays: bool,
) -> pd.DataFrame:
    """The table of runs; measured again from those stored where other things are asked for."""
    if "status" not in study.runs:
        raise InputError(f"{study.name}: has no tables yet; allowed: a study that was played")
    stayed = bool((study.written.get("compare") or {}).get("stays"))
    if targets is None and not given and (stayed or not stays):
        return study.runs
    if study.directory is None:
        raise InputError("targets, terms: the study keeps no runs; allowed: those of its file")
    table = study.runs[study.runs["status"] != "stopped"]
    known = {
        key: run
        for key, status in zip(table["run"], table["status"], strict=True)
        if (run := _opened(study.directory / RUNS / key, status == "failed")) is not None
    }
    wanted = targets if targets is not None or not study.targets else _listed(study.targets)
    fixed = _fixed(study, given)
    asked = asked_of(series_of(list(known.values())), wanted, fixed, stays or stayed)
    head = [name for name in table if " to " not in str(name) and str(name) not in SPENT]
    rows = [
        {**{name: row[name] for name in head},
         **(measured(known[row["run"]], asked) if row["run"] in known else {})}
        for row in table.to_dict("records")
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _opened(place: Path, failed: bool) -> Run | None:
    """The run; None for one that failed and left nothing that can be read."""
    try:
        return open_run(place)
    except InputError:
        if failed:
            return None
        raise


def _listed(pairs: Sequence[tuple[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _checked(found: Trials) -> Trials:
    """The same; InputError for no run, or two of one seed, method and problem."""
    if found.rows.empty:
        raise InputError("no run that is done or failed; allowed: at least one")
    twice = found.rows[found.rows.duplicated(["method", "problem", "seed"])]
    if len(twice):
        one = twice.iloc[0]
        raise InputError(
            f"seed {one['seed']}: found two runs of {one['method']} on {one['problem']}; "
            "allowed: one"
        )
    return found
