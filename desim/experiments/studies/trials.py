"""What every run took until each target, by method and problem, for those who compare methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from desim.agent_names import NETWORK
from desim.arrays import Array, Mask
from desim.errors import InputError, finite, refusal
from desim.experiments.studies.folder import RUNS, StudyTables
from desim.experiments.studies.sides import LABEL, sided
from desim.experiments.studies.words import terms
from desim.numerics.later import pd
from desim.problem.fairness import RISING
from desim.problem.targets import first_met
from desim.runs.reading.series import Meter, Series, delivered, differing, series_of, setting
from desim.runs.run import Run, open_run

# The measures of one run: where it ended, and what it took until a target was met.
SPENT = ("time", "rounds", "bytes", "joules", "epsilon")  # what it takes until a target
UNBOUNDED = ("loss", "error", "consensus", "gradient")  # metrics that grow with the models
UNITS = {"time": "s", "bytes": "B", "joules": "J", "wall": "s"}


@dataclass(frozen=True)
class Asked:
    """targets: (metric, value) pairs; epsilon: its terms, None where no epsilon is wanted.

    stays: a target counts as met from when on it is met to the end.
    """

    targets: tuple[tuple[str, float], ...] = ()
    epsilon: Mapping[str, Any] | None = field(default_factory=dict)
    stays: bool = False

    def until(self, kind: str, metric: str, value: float) -> str:
        """The name of a measure: time to accuracy 0.93, or time to accuracy 0.93 for good."""
        return f"{kind} to {metric} {value:g}" + " for good" * self.stays


def unit(measure: str) -> str:
    """The unit of a measure, "" for none."""
    return UNITS.get(measure.partition(" ")[0], "")


def rises(measure: str) -> bool:
    """Whether more of a measure is better: of accuracies at the end, not of what is spent."""
    return measure.removeprefix("final ") in RISING


def measured(run: Run, asked: Asked) -> dict[str, float]:
    """Numbers of a run by name; inf until a target that was never met, nan where undefined.

    time s, rounds, bytes delivered, joules (where the scenario has power, and the log what they
    take) and epsilon (of the agent that spends most) at the end and until
    each target; `final` values of the network's metrics; wall s, without compiling. Targets are met
    as in `Run.time_to`; the epsilon is left out where the scenario states no privacy, and also
    infinite where a target was met with none that is finite. Final losses and distances of a run
    that says it has diverged are infinite.
    """
    from desim.log.event_log import levels_with

    manifest = run.manifest
    found = _ended(run)
    compiling = float(manifest.get("compile_seconds", 0.0))
    found["wall"] = float(manifest.get("wall_seconds", np.nan)) - compiling
    curves = curves_of(run)
    found |= {f"final {name}": float(rows[2, -1]) for name, rows in curves.items()}
    if manifest.get("diverged"):  # a number that only says when the run was over
        found |= {f"final {name}": np.inf for name in UNBOUNDED if name in curves}
    counted = manifest.get("counts", {}).get("deliver_bytes")
    known = run.level in levels_with(["deliver"])  # other logs leave messages out
    sent = delivered(run) if known and (asked.targets or counted is None) else None
    if counted is None and sent is not None:  # killed
        counted = sent.totals.max(initial=0.0)
    found["bytes"] = np.nan if counted is None else float(counted)
    powered = run.powered
    if powered:
        found["joules"] = float(run.energy()["joules"].sum())
    spent = None  # the largest epsilon of an agent
    if asked.epsilon is not None and (run.written.get("privacy") is not None or asked.epsilon):
        spent = Meter(*run.account(**asked.epsilon).growth)
        found["epsilon"] = float(spent.totals.max(initial=0.0))
    for metric, value in asked.targets:
        when, rounds = _first(curves.get(metric), metric, value, asked.stays)
        found[asked.until("time", metric, value)] = when
        found[asked.until("rounds", metric, value)] = rounds
        found[asked.until("bytes", metric, value)] = _by(sent, when)
        if powered:
            found[asked.until("joules", metric, value)] = float(run.energy(when)["joules"].sum())
        if spent is not None:
            found[asked.until("epsilon", metric, value)] = _by(spent, when)
    return found


def _ended(run: Run) -> dict[str, float]:
    """Time s and rounds at the end; of a run that was killed, as far as its log goes."""
    if "time" in run.manifest:
        return {"time": float(run.manifest["time"]), "rounds": float(run.manifest["rounds"])}
    times = run.store.table("events", ["time"])["time"]
    rounds = run.metrics.loc[run.metrics["agent"] == NETWORK, "round"]
    return {"time": float(times.max() if len(times) else 0.0), "rounds": float(rounds.max())}


def curves_of(run: Run) -> dict[str, Array]:
    """(3, n) times s, rounds and values of each metric of the whole network, in order of time."""
    rows = run.store.columns("metrics", ["time", "round", "metric", "agent", "value"])
    of_all = rows["agent"] == NETWORK
    numbers = np.array([rows[name][of_all] for name in ("time", "round", "value")], float)
    codes, words = rows["metric"].codes[of_all], rows["metric"].words
    found = {words[code]: numbers[:, codes == code] for code in np.unique(codes)}
    return dict(sorted(found.items()))


def _first(
    curve: Array | None, metric: str, value: float, stays: bool = False
) -> tuple[float, float]:
    """Time s and round at which the target is met; inf where it never is."""
    if curve is None:  # the run ended before it was measured at all
        return float("inf"), float("inf")
    place = first_met(metric, curve[2], value, stays)
    return (float(curve[0, place]), float(curve[1, place])) if place >= 0 else (np.inf, np.inf)


def _by(meter: Meter | None, when: float) -> float:
    """What was spent by a time; inf for never, nan where that is not known."""
    if meter is None:
        return float("nan")
    return float(meter.by(when)) if np.isfinite(when) else float("inf")


# Trials of many runs, with intervals of this level.
LEVEL = 0.95


@dataclass(frozen=True)
class Cell:
    """The runs of one method on one problem until one target, seed by seed: nan for no run.

    spent (seeds,): until the target was met, or the run ended; met (seeds,); unknown: how many
    failed with nothing known of what they had spent.
    """

    spent: Array
    met: Mask
    unknown: int

    @property
    def counted(self) -> Mask:
        """Which seeds have a run."""
        return ~np.isnan(self.spent)


@dataclass(frozen=True)
class Trials:
    """Runs with their method, problem, seed and measures, a row each.

    level: of intervals; about: the terms of epsilons, a line each; mixed: how they differ, if so.
    """

    rows: "pd.DataFrame"
    level: float = 0.95
    about: tuple[str, ...] = ()
    mixed: str = ""

    def __post_init__(self) -> None:
        """Raise InputError for no run, or two of one seed, method and problem."""
        if self.rows.empty:
            raise InputError("no run that is done or failed; allowed: at least one")
        twice = self.rows[self.rows.duplicated(["method", "problem", "seed"])]
        if len(twice):
            one = twice.iloc[0]
            text = f"found two runs of {one['method']} on {one['problem']}; allowed: one"
            raise InputError(f"seed {one['seed']}: {text}")

    @cached_property
    def targets(self) -> list[str]:
        """The targets, as measures call them: accuracy 0.93."""
        return [str(name)[8:] for name in self.rows if str(name).startswith("time to ")]

    @cached_property
    def methods(self) -> list[str]:
        """The methods, in order."""
        return list(dict.fromkeys(self.rows["method"]))

    @cached_property
    def problems(self) -> list[str]:
        """The problems, in order."""
        return list(dict.fromkeys(self.rows["problem"]))

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds, in order."""
        return sorted(set(self.rows["seed"]))

    def cells(self, kind: str) -> dict[tuple[str, str, str], Cell]:
        """The runs by method, problem and target; kind: what they spend.

        A run has met a target when its time says so: its epsilon may be infinite all the same.
        InputError where there is no target, or it is not known what was spent.
        """
        self.check(kind)
        places = {seed: place for place, seed in enumerate(self.seeds)}
        found = {}
        for (method, problem), rows in self.rows.groupby(["method", "problem"], sort=False):
            where = rows["seed"].map(places).to_numpy()
            for target in self.targets:
                lost = rows["status"].map({"failed": np.inf})
                when = rows[f"time to {target}"].fillna(lost).to_numpy(float)
                met, until = np.isfinite(when), rows[f"{kind} to {target}"].to_numpy(float)
                own = np.where(met, until, rows[kind].to_numpy(float))
                played = ~np.isnan(when)
                spent, reached = np.full((2, len(places)), np.nan)
                spent[where[played]], reached[where[played]] = own[played], met[played]
                unknown = int((played & np.isnan(own)).sum())
                found[str(method), str(problem), target] = Cell(spent, reached == 1.0, unknown)
        return found

    def check(self, kind: str) -> None:
        """Raise InputError where there is no target, or nothing is known of what is spent."""
        if kind not in SPENT:
            raise InputError(f"spent: {refusal(kind, ', '.join(SPENT), SPENT)}")
        if not self.targets:
            raise InputError("target: found none; allowed: METRIC=VALUE, or those of the study")
        recorded = {name for name in self.rows if self.rows[name].notna().any()}
        names = {one: {one, *(f"{one} to {target}" for target in self.targets)} for one in SPENT}
        known = [one for one in SPENT if names[one] <= recorded]
        if kind not in known:
            why = {"bytes": ": logs leave messages out", "epsilon": ": no privacy is stated"}
            why |= {"joules": ": no power is stated, or logs leave out what takes it"}
            text = f"spent: found {kind}, which is not known{why.get(kind, '')}"
            raise InputError(f"{text}; allowed: {', '.join(known)}")
        if kind == "epsilon" and self.mixed:
            text = f"spent: found epsilons in different terms ({self.mixed})"
            raise InputError(f"{text}; allowed: one view, relation and delta for all")


# Trials from the table of a study, from its runs, or from any runs.
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
    stated = dict(terms_of or {})
    if isinstance(source, StudyTables):
        return _of_study(source, _again(source, targets, stated, stays), methods, level, stated)
    rows = series_of(source)
    asked = asked_of(rows, targets, stated, stays)
    sides = sided(_differing(rows), chosen=methods)
    if len({side.problem for side in sides}) == 1 and not methods:
        names = [row.label for row in rows]  # which say what is compared
    else:
        names = [side.method for side in sides]
    found = [
        {"method": name, "problem": side.problem, "seed": int(run.manifest.get("seed", 0)),
         "status": run.status, **measured(run, asked)}
        for row, side, name in zip(rows, sides, names, strict=True)
        for run in (*row.runs, *row.lost)
        if run.status in ("done", "failed")
    ]  # fmt: skip
    about = tuple(terms(rows, stated))
    return Trials(pd.DataFrame(found), level or LEVEL, about, _mixed(rows, stated))


def _mixed(rows: Sequence[Series], stated: Mapping[str, Any]) -> str:
    """The terms of the epsilons where they differ in more than how they are computed."""
    found = {}
    for row in rows:
        if row.runs[0].written.get("privacy") is not None or stated:
            one = row.runs[0].account(**stated)
            found[f"view {one.view}, {one.relation}, delta {one.delta:g}"] = row.label
    return " / ".join(found) if len(found) > 1 else ""


def asked_of(
    rows: Sequence[Series],
    targets: Mapping[str, Sequence[float]] | None,
    terms_of: Mapping[str, Any],
    stays: bool = False,
) -> Asked:
    """What is measured of runs; InputError for a metric that no run has recorded."""
    every = [run for row in rows for run in row.runs]
    if targets is None:
        stops = tuple(dict.fromkeys(pair for run in every for pair in run.stops))
        return Asked(stops, dict(terms_of), stays)
    found = {str(n) for run in every for n in (*run.metrics["metric"].unique(), *run.observed)}
    for name in targets:
        if name not in found:
            allowed = ", ".join(sorted(found)) or "none, as these runs have measured nothing"
            raise InputError(f"target: {refusal(name, allowed, sorted(found))}")
    pairs = [(name, one) for name, values in targets.items() for one in values]
    asked = tuple((name, float(finite(f"target: {name}", one))) for name, one in pairs)
    return Asked(asked, dict(terms_of), stays)


def _differing(rows: Sequence[Series]) -> list[dict[str, Any]]:
    """Of each series the settings that not all have, by dotted key, in words."""
    places = differing([row.runs[0] for row in rows])
    found = []
    for row in rows:
        tree = row.runs[0].written
        words = {".".join(place): setting(tree, place).partition(" ")[2] for place in places}
        found.append({key: text for key, text in words.items() if text != "none"})
    return found


def _of_study(
    study: StudyTables,
    runs: "pd.DataFrame",
    methods: Sequence[str],
    level: float | None,
    stated: Mapping[str, Any],
) -> Trials:
    """The runs of a study's table, or one like it, with their sides; stated: terms of epsilons."""
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
    return Trials(pd.concat([head, rest], axis=1), level, *_terms(study, keys, stated))


def _fixed(study: StudyTables, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The terms of epsilons that are those of all cases: the given ones, then the study file's."""
    own = (study.written.get("compare") or {}).get("epsilon")
    return {**(own if isinstance(own, Mapping) else {}), **stated}


def _terms(
    study: StudyTables, keys: Sequence[str], stated: Mapping[str, Any]
) -> tuple[tuple[str, ...], str]:
    """The terms of the study's epsilons, and how they differ between its cases, if they do."""
    fixed = _fixed(study, stated)
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
    stated: Mapping[str, Any],
    stays: bool,
) -> "pd.DataFrame":
    """The table of runs; measured again from those stored where other things are asked for."""
    if "status" not in study.runs:
        raise InputError(f"{study.name}: has no tables yet; allowed: a study that was played")
    stayed = bool((study.written.get("compare") or {}).get("stays"))
    if targets is None and not stated and (stayed or not stays):
        return study.runs
    if study.directory is None:
        raise InputError("targets, terms: the study keeps no runs; allowed: those of its file")
    table = study.runs[study.runs["status"] != "stopped"]
    known = {
        key: run
        for key, status in zip(table["run"], table["status"], strict=True)
        if (run := _opened(study.directory / RUNS / key, status == "failed")) is not None
    }
    if targets is None and study.targets:
        names = dict.fromkeys(name for name, _ in study.targets)
        targets = {one: [value for name, value in study.targets if name == one] for one in names}
    fixed = _fixed(study, stated)
    asked = asked_of(series_of(list(known.values())), targets, fixed, stays or stayed)
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
