"""`desim.compare`: what runs took until targets, and what they came to, side by side.

Runs that differ in their seeds only are one row: medians of what is spent, means of final values,
with intervals as in studies. Runs that failed count until targets, as never where they had not met
them, and nowhere else beside runs that are done. No epsilon stands there without its terms.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from desim.amounts import NO_NOISE, amount
from desim.deployments.fidelity.clock_errors import ClockErrors, errors_of_clocks
from desim.errors import InputError
from desim.experiments.studies import words
from desim.experiments.studies.answers import answer_tables, ert
from desim.experiments.studies.answers import profile as profiled
from desim.experiments.studies.folder import groups_of
from desim.experiments.studies.statistics import lacking, skewed
from desim.experiments.studies.study import measures, source, summarised
from desim.experiments.studies.trials import SPENT, Asked, asked_of, curves_of, measured, trials
from desim.log.column_meanings import described
from desim.problem.fairness import RISING
from desim.problem.targets import best
from desim.runs.likeness import sharing
from desim.runs.reading.facts import bare
from desim.runs.reading.series import Series, series_of
from desim.runs.run import Given
from desim.tabulated import Table, card, together

COLUMNS = "run measure unit statistic value low high level seeds never diverged".split()
Targets = Mapping[str, float | Sequence[float]]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    frame: a row for each run, or group of seeds, and measure: columns run, measure, unit,
    statistic, value, low, high, level, seeds, never (met the target), diverged; inf is never, of
    an epsilon also that there is none. tables: the same as people read it. notes: what is to be
    known of all; terms: what its numbers mean. clocks: of each run that simulates a deployed one,
    the errors of its seconds. ert, profile: as those of a study, where a profile was asked for.
    """

    frame: pd.DataFrame
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    clocks: tuple[ClockErrors, ...] = ()
    ert: pd.DataFrame | None = None
    profile: pd.DataFrame | None = None
    terms: tuple[str, ...] = ()

    def written(self, form: str = "text", width: float = np.inf, name: str = "") -> str:
        """All tables as text, markdown or latex, the notes below the last.

        Terms of epsilons and seeds are in every caption of latex, and labels begin with `name`, or
        end with digits of what is compared. width: of text, in letters.
        """
        *before, last = self.tables
        tables = (*before, replace(last, notes=(*last.notes, *self.notes)))
        tables = tuple(replace(one, terms=(*one.terms, *self.terms)) for one in tables)
        clocks = (table for one in self.clocks for table in one.tables)
        return together([*tables, *clocks], form, width, name)

    def __str__(self) -> str:
        return self.written()

    def _repr_html_(self) -> str:
        notes = [("note", note) for note in self.notes]
        every = [*self.tables, *(table for one in self.clocks for table in one.tables)]
        return card("comparison", notes, more=[table.html() for table in every])


def compare(
    runs: Given,
    targets: Targets | None = None,
    *,
    delta: float | None = None,
    view: str | None = None,
    relation: str | None = None,
    level: float = 0.95,
    stays: bool = False,
    clock: bool = False,
    profile: bool = False,
    spent: str = "time",
    methods: Sequence[str] = (),
) -> Comparison:
    """Hold runs against each other: until each target, and at the end.

    Where one of them is deployed, the errors of the others' seconds are told, too.

    runs: runs, folders of runs or of studies, or a label for each group; targets: {metric: value or
    values}, default what the runs themselves stop at; delta, view, relation: the terms of epsilon,
    default each scenario's; level: coverage of intervals; stays: a target is met when it is met for
    good, to the end of the run, and not at the first touch; clock: the first run stands for a
    deployed one; profile: also expected running times and performance profiles, of what is `spent`
    (time, rounds, bytes, joules or epsilon) by `methods`, keys that are the method's and not the
    problem's. InputError for no run, a target that no run has recorded or terms without meaning;
    for a profile also without a target, or of one method.
    """
    groups = groups_of(runs)
    rows = series_of(groups)
    if not rows:
        raise InputError("no run to compare")
    terms_of = {"delta": delta, "view": view, "relation": relation}
    stated = {name: one for name, one in terms_of.items() if one is not None}
    asked = asked_of(rows, _lists(targets), stated, stays)
    frame = described(_summary(rows, asked, level), "comparison")
    tables = _tables(frame, rows, asked)
    means = tuple(words.terms(rows, asked.epsilon or {}))
    played = ([run.manifest.get("seed", -1) for run in row.runs] for row in rows)
    about = [*words.notes(rows, bool(asked.targets)), *means]
    about += filter(None, [sharing([row.runs for row in rows])])
    means = (*means, *words.seeds_played(played))
    every = [*chain(*groups.values())] if isinstance(groups, dict) else groups
    clocks, troubles = errors_of_clocks(every, targets, clock)
    about += [*_over_seeds(frame, level), *troubles]
    if not profile:
        return Comparison(frame, tuple(tables), tuple(about), clocks, terms=means)
    tried = trials(source(runs), _lists(targets), methods, stated, stays, level)
    taken, shares = ert(tried, spent), profiled(tried, spent)
    tables += answer_tables(tried, taken, shares, spent)
    return Comparison(frame, tuple(tables), tuple(about), clocks, taken, shares, means)


def _tables(frame: pd.DataFrame, rows: Sequence[Series], asked: Asked) -> list[Table]:
    """What was spent until each target, and what everything came to at the end."""
    noiseless = frozenset(row.title for row in rows if any(bare(run) for run in row.runs))
    tables = [
        _table(
            frame,
            asked.until("until", *target).replace(" to ", " ", 1),
            {kind: asked.until(kind, *target) for kind in SPENT},
            noiseless,
            {row.title: _nearest(row, target[0]) for row in rows},
        )
        for target in asked.targets
    ]
    finals = [name for name in dict.fromkeys(frame["measure"]) if words.is_final(name)]
    ends = {kind: kind for kind in (*finals, *SPENT)}
    return [*tables, _table(frame, "at the end", ends, noiseless)]


def _lists(targets: Targets | None) -> dict[str, list[float]] | None:
    """The values of each metric, as a list."""
    if targets is None:
        return None
    return {name: [*one] if isinstance(one, Sequence) else [one] for name, one in targets.items()}


def _summary(rows: Sequence[Series], asked: Asked, level: float) -> pd.DataFrame:
    """Of each row its measures, as those of a study's case; who failed counts until targets."""
    records = []
    for row in rows:
        lost = row.lost if asked.targets else ()
        runs = pd.DataFrame([
            {"status": status, **measured(run, asked)}
            for status, some in (("done", row.runs), ("failed", lost))
            for run in some
        ])  # fmt: skip
        found = [summarised(runs, name, level) for name in measures(runs, asked)]
        records += [{"run": row.title, **one, "seeds": one["counted"]} for one in found]
    frame = pd.DataFrame(records, columns=COLUMNS)
    frame = frame[frame["seeds"] > 0].reset_index(drop=True)
    return frame.assign(statistic=frame["statistic"].where(frame["seeds"] > 1, "value"))


def _over_seeds(frame: pd.DataFrame, level: float) -> Iterator[str]:
    """What is estimated over seeds, and where there is no interval or a doubtful one."""
    several = frame[frame["seeds"] > 1]
    if several.empty:
        return
    spent = "medians of what is spent, means of final values"
    yield f"over seeds: {spent}, [{100 * level:g}% interval]"
    sizes = {
        what: sorted(set(map(int, some))) for what, some in several.groupby("statistic")["seeds"]
    }
    for what in ("median", "mean"):
        for n in sizes.get(what, ()):
            if text := lacking(what, n, level):
                yield f"no interval: {text}"
    yield from skewed("mean", sizes.get("mean", ()), level)


def _table(
    frame: pd.DataFrame,
    title: str,
    names: Mapping[str, str],
    noiseless: Container[str],
    nearest: Mapping[str, str] | None = None,
) -> Table:
    """One line for each run: what was spent until a target, or all measures at the end.

    names: of measures, by their kinds; noiseless: the runs that release without noise; nearest: how
    near runs came to a target that they never met.
    """
    known = {kind: name for kind, name in names.items() if (frame["measure"] == name).any()}
    cells = {(row.run, row.measure): row for row in frame.itertuples()}
    several = bool((frame["seeds"] > 1).any())
    labels = list(dict.fromkeys(frame["run"]))
    seeds = frame[frame["measure"].isin(known.values())].groupby("run")["seeds"].max()
    body = [
        [label, *([str(seeds.get(label, 0))] if several else [])]
        + [
            _cell(cells.get((label, name)), kind, label in noiseless, nearest)
            for kind, name in known.items()
        ]
        for label in labels
    ]
    heads = [kind.removeprefix("final ") for kind in known]
    return Table(title, ["run", *(["seeds"] if several else []), *heads], body)


def _nearest(row: Series, metric: str) -> str:
    """The best value of a metric in the runs of a row, their median; "" where it has none."""
    curves = [of[metric][2] for run in row.runs if metric in (of := curves_of(run))]
    ends = [best(values, metric in RISING) for values in curves]
    known = [one for one in ends if np.isfinite(one)]
    return amount(float(np.median(known))) if known else ""


def _cell(row: Any, kind: str, bare: bool, nearest: Mapping[str, str] | None = None) -> str:
    """A value with its interval; runs that never met the target are counted."""
    if row is None:
        return NO_NOISE if kind == "epsilon" and bare else "-"
    text = words.estimate(row, row.seeds, bare)
    if nearest and text == "never" and kind == "time" and (near := nearest.get(row.run)):
        return f"never, at best {near}"
    if row.low < row.high:
        endless = kind == "epsilon" and not row.never
        both = (row.low, row.high)
        ends = [words.one_epsilon(one) if endless else amount(one, row.unit) for one in both]
        known = {one.partition(" ")[2] for one in (text, *ends) if one != "never"}
        alike = len(known) == 1 and text != "never"
        text += f" [{', '.join(one.partition(' ')[0] if alike else one for one in ends)}]"
    return text + (f", {row.never} of {row.seeds} never" if 0 < row.never < row.seeds else "")
