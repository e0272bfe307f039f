"""`desim.tune`: which values of keys reach a target with least time, bytes, joules or epsilon."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.amounts import amount
from desim.arrays import Array
from desim.errors import RunError
from desim.experiments.pool import check, players
from desim.experiments.studies.folder import (
    RUNS,
    about,
    claimed,
    finished,
    write_about,
    write_tables,
)
from desim.experiments.studies.statistics import Estimate, lacking, median, median_estimate, paired
from desim.experiments.studies.study import runs_table
from desim.experiments.studies.trials import UNITS
from desim.experiments.studies.words import interval, stated
from desim.experiments.tuning import (
    BEST,
    FRONT,
    INVALID,
    LEVEL,
    MISSED,
    OPEN,
    ORDER,
    RACING,
)
from desim.experiments.tuning.candidates import (
    Candidate,
    Planned,
    Price,
    number_of_runs,
    planned,
    price,
)
from desim.experiments.tuning.search import RunCache, Search, Tell, Wanted, latest, until
from desim.numerics.later import pd
from desim.pace import seen
from desim.runs.directory import named, output
from desim.runs.reading.series import setting_text
from desim.runs.run import Run
from desim.runs.trackers.grouped import Group
from desim.scenario.load import resolved_yaml
from desim.scenario.schema import Scenario
from desim.scenario.varied import Range, Vary
from desim.tabulated import Table, card

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from desim.runs.trackers import Tracker


# The result of a tuner for its user: the best candidate, what it is worth, and which keys matter.


# What is known of a search that has ended, or was stopped.


@dataclass(eq=False, repr=False)
class Tuned:
    """The end of a search, or how far it came; see `desim.tune`.

    candidates: a row each, in the order in which they were proposed: values, status (best, front,
    within noise, dropped, infeasible, invalid, not decided), at so many seeds, median of each goal
    with its interval, ratio to the best over the same seeds with its interval, reason; runs: as of
    a study; fresh: the best, or the front, and the base on seeds that nothing was chosen by;
    sensitivity: of each key the share of the differences that it explains; counts: runs played,
    told (with another training), and stored before; released: scenarios of the best, charged the
    run that was chosen itself; terms: those that were asked for of epsilons, None where none is
    looked at.
    """

    name: str
    directory: Path | None
    complete: bool
    target: tuple[str, float]
    least: tuple[str, ...]
    level: float
    candidates: "pd.DataFrame"
    runs: "pd.DataFrame"
    fresh: "pd.DataFrame"
    sensitivity: "pd.DataFrame"
    counts: Mapping[str, int]
    asked: int
    size: float
    seeds: tuple[int, ...]
    best: tuple[Candidate, ...]
    released: tuple[Scenario, ...] = ()
    price: Price | None = None
    terms: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<Tuned {self.name}: {len(self.candidates)} candidates, {self.asked} runs>"

    def _repr_html_(self) -> str:
        title, *said = [*_head(self), *_best(self)]
        notes = (*table(self).notes, *_foot(self))
        whole = replace(table(self), notes=[text.strip() for text in notes if text.strip()])
        return card(title, [("", text.strip()) for text in said if text], more=[whole.html()])

    @property
    def tables(self) -> "dict[str, pd.DataFrame]":
        """The tables by name, as they are stored."""
        return {
            "candidates": self.candidates, "runs": self.runs, "fresh": self.fresh,
            "sensitivity": self.sensitivity,
        }  # fmt: skip

    @property
    def values(self) -> dict[str, Any]:
        """The values of the best candidate, of a front the first; empty where there is none."""
        return dict(self.best[0].values) if self.best else {}

    def yaml(self, place: int = 0) -> str:
        """The scenario of the best candidate, or of one of the front, as `desim run` takes it."""
        if len(self.best) <= place:
            return ""
        return resolved_yaml(self.released[place])

    def text(self) -> str:
        """All that there is to say, in lines."""
        return "\n".join(lines(self))

    def stated(self) -> list[str]:
        """In which terms the epsilons of the best are told, where any are asked for."""
        if self.terms is None or not self.best:
            return []
        mine = self.runs["case"].isin([one.number for one in self.best])
        return list(stated(self.directory, self.runs[mine], self.terms))


# The result in words: the best, what it is worth, who is level, and the caveats.
MAX_ROWS = 12  # candidates of the table; all are in candidates.parquet
UNCHARGED = (
    "privacy: these runs looked at the data to choose, which no epsilon here pays for; tune.charge "
    "says how it is paid"
)


def lines(found: Tuned) -> list[str]:
    """All of it."""
    return [*_head(found), *_best(found), "", *table(found).text().splitlines(), *_foot(found)]


def _head(found: Tuned) -> Iterator[str]:
    metric, value = found.target
    of = "" if math.isinf(found.size) else f" of {found.size:g}"
    counted: Mapping[str, int] = (
        dict(found.candidates["status"].value_counts()) if len(found.candidates) else {}
    )
    ends = ", ".join(f"{counted[one]} {one}" for one in ORDER if one in counted)
    yield f"{found.name}: {len(found.candidates)} candidates{of}: {ends or 'none'}"
    kinds = ", ".join(f"{n} {how}" for how, n in sorted(found.counts.items()))
    many = found.fresh.groupby("candidate")["seeds"].first().sum() if len(found.fresh) else 0
    aside = f", {many} of them on fresh seeds" if many else ""
    yield f"  {found.asked} runs asked for{aside}: {kinds or 'none'}"
    yield f"  least {' and '.join(found.least)} to {metric} {value:g}"
    if found.directory is not None:
        yield f"  stored in {found.directory}"
    if not found.complete:
        yield "  stopped early: nothing is decided"


def _best(found: Tuned) -> Iterator[str]:
    if not found.best:
        if not found.complete:
            return
        none = "no candidate met the target within the limits on more than half of the seeds"
        yield none if len(found.candidates) else "no run was drawn, so that nothing is released"
        return
    for one in found.best:
        yield ""
        yield f"{one.status}: {one.label or 'base'}"
        yield from _worth(found, one)
    if found.price is not None:
        yield f"  {found.price.text()}"
        yield from (f"  {note}" for note in found.price.notes)


def _worth(found: Tuned, one: Candidate) -> Iterator[str]:
    """What it needed where it was chosen, on fresh seeds, and beside the base."""
    known = found.candidates[found.candidates["candidate"] == one.number].iloc[0]
    many = len(found.candidates)
    chosen = f"where it is the best of {many} candidates, so this is optimistic"
    fresh = found.fresh.to_dict("records")
    for kind in found.least:
        text = estimated(known, kind, kind)
        if found.price is not None:
            yield f"  {kind}: {text} on the one seed that it was played on"
            continue
        yield f"  {kind}: {text} on {known['seeds']} seeds, {chosen}"
        for row in (row for row in fresh if (row["candidate"], row["kind"]) == (one.number, kind)):
            yield f"    {estimated(row, 'fresh', kind)} on {row['seeds']} fresh seeds"
            if not math.isnan(row["to base"]):
                ends = interval(row["to base low"], row["to base high"], "")
                yield (
                    f"    {amount(row['to base'])} of what the base takes there"
                    f"{f' ({ends})' if ends else ''}, better on {row['better']}, worse on "
                    f"{row['worse']}"
                )


def estimated(row: Any, name: str, kind: str) -> str:
    """An amount of what is spent, of that kind, with its interval."""
    unit = UNITS.get(kind, "")
    ends = interval(row[f"{name} low"], row[f"{name} high"], unit)
    return f"{amount(row[name], unit)}{f' ({ends})' if ends else ''}"


RATIOS = (
    "medians are over the seeds that a candidate met; ratios are seed by seed, over those that the "
    "best met, too: they need not agree"
)


def beside_best(kind: str) -> str:
    """The head of the column that holds what is spent against what the best one spends of it."""
    return f"{kind} / best's, same seeds"


def table(found: Tuned) -> Table:
    """The candidates that stand best, each beside the best one on the same seeds."""
    level = f"{100 * found.level:g}% interval"
    head = ["candidate", "status", "seeds"]
    for kind in found.least:
        head += [kind, level, beside_best(kind), level]
    if not len(found.candidates):
        return Table("candidates", head, [])
    place = found.candidates["status"].map(ORDER.index)
    order = found.candidates.assign(place=place).sort_values(
        ["place", "seeds", found.least[0]], ascending=[True, False, True]
    )
    rows = []
    for row in order.head(MAX_ROWS).to_dict("records"):
        cells = [row["label"], row["status"], str(row["seeds"])]
        for kind in found.least:
            unit, ratio = UNITS.get(kind, ""), row[f"{kind} ratio"]
            cells += [
                amount(row[kind], unit), interval(row[f"{kind} low"], row[f"{kind} high"], unit),
                "" if math.isnan(ratio) else amount(ratio),
                interval(row[f"{kind} ratio low"], row[f"{kind} ratio high"], ""),
            ]  # fmt: skip
        rows.append([*cells, row["reason"]])
    more = len(order) - MAX_ROWS
    rest = [f"... and {more} more candidates, in the table candidates"] if more > 0 else []
    few = lacking("median", len(found.seeds), found.level)
    ratios = [RATIOS] if found.price is None else []
    notes = [*rest, *([few] if few and found.price is None else []), *ratios]
    return Table("candidates", [*head, "why"], rows, notes)


def _foot(found: Tuned) -> Iterator[str]:
    known = found.sensitivity.dropna()
    if len(known):
        pairs = zip(known["key"].tolist(), known["share"].tolist(), strict=True)
        shares = ", ".join(f"{key} {100 * share:.0f} %" for key, share in pairs)
        yield f"  what each key alone explains of the order of candidates: {shares}"
    yield from (f"  {text}" for text in found.stated())
    if found.price is None:
        yield f"  {UNCHARGED}"


# How much each key alone matters.
PARTS = 3  # of a range
SPARE = 2  # candidates more than there are groups


def importance(vary: Vary, candidates: "pd.DataFrame", goal: str) -> "pd.DataFrame":
    """Columns key, share, groups, candidates, largest first; share nan where too few differ."""
    rows = []
    known = candidates[candidates["seeds"] > 0] if len(candidates) else candidates
    for key, one in vary.items() if len(known) else ():
        group = _groups(one, known[key])
        share = explained(known[goal].to_numpy(float), group)
        groups = len(set(group.tolist()))
        rows.append({"key": key, "share": share, "groups": groups, "candidates": len(known)})
    table = pd.DataFrame(rows, columns=["key", "share", "groups", "candidates"])
    return table.sort_values("share", ascending=False, ignore_index=True)


def explained(needed: "NDArray[np.float64]", group: "NDArray[np.int64]") -> float:
    """Epsilon squared of ranks of `needed` (n,) between groups (n,); nan where undefined."""
    ranked = np.asarray(pd.Series(needed).rank().to_numpy(float))
    groups = [ranked[group == one] for one in np.unique(group)]
    n, k = len(ranked), len(groups)
    whole = float(((ranked - ranked.mean()) ** 2).sum())
    if k < 2 or n < k + SPARE or whole == 0.0:
        return float("nan")
    within = sum(float(((one - one.mean()) ** 2).sum()) for one in groups)
    return max(0.0, 1.0 - (within / (n - k)) / (whole / (n - 1)))


def _cell(value: Any) -> Any:
    """A value as a table holds it."""
    return setting_text(value) if isinstance(value, Mapping | list | tuple) else value


def _groups(one: Any, column: "pd.Series[Any]") -> "NDArray[np.int64]":
    if isinstance(one, Range):
        numbers = np.array([float(str(value).split()[0]) for value in column])
        low, high = one.low, one.high
        if one.kind == "log_uniform":
            numbers, low, high = np.log(numbers), np.log(low), np.log(high)
        part = PARTS * (numbers - low) / (high - low)
        return np.asarray(np.clip(part.astype(np.int64), 0, PARTS - 1))
    return np.asarray(pd.factorize(np.array([str(_cell(one)) for one in column], object))[0])


def tuned(
    planned: Planned, cache: RunCache, candidates: Sequence[Candidate], complete: bool,
    price: Price | None,
) -> Tuned:  # fmt: skip
    """The result of a search whose runs are in the cache."""
    tune, level = planned.tune, planned.study.compare.level
    seeds = {one.number: seeds_of(planned, one) for one in [*candidates, planned.base]}
    best = [one for one in candidates if one.status in (BEST, FRONT)]
    if len(tune.least) > 1:
        best.sort(key=lambda one: float(median(cache.table([one], tune.seeds)[0, 0])))
    table = candidates_table(cache, candidates, seeds, best[0] if best else None, level)
    goals = tune.least
    return Tuned(
        planned.study.name, cache.path, complete, tune.target, goals, level, table,
        _runs(planned, cache, candidates, seeds), _fresh(planned, cache, best, level),
        importance(tune.vary, table, goals[0]), cache.counts, cache.asked, planned.size, tune.seeds,
        tuple(best), tuple(as_played(planned, one) for one in best), price, planned.asked.epsilon,
    )  # fmt: skip


def as_played(planned: Planned, one: Candidate) -> Scenario:
    """The candidate's scenario; charged, the run that was played of it, with its seed and end.

    Any other run of it would be one more release.
    """
    assert one.scenario is not None
    if planned.tune.charge is None:
        return one.scenario
    (seed,) = seeds_of(planned, one)
    return until(one.scenario, latest(planned.tune)).model_copy(update={"seed": seed})


def seeds_of(planned: Planned, one: Candidate) -> tuple[int, ...]:
    """The seeds that a candidate meets: all the same, unless the best one's release is charged."""
    if planned.tune.charge is not None:
        return (planned.tune.seeds[0] + max(one.number, 0),)
    return planned.tune.seeds


def candidates_table(
    cache: RunCache, candidates: Sequence[Candidate], seeds: Mapping[int, tuple[int, ...]],
    best: Candidate | None, level: float,
) -> "pd.DataFrame":  # fmt: skip
    """The table `candidates` of Tuned."""
    rows = []
    for one in candidates:
        seen = tuple(cache.played(one, seeds[one.number]))
        status = OPEN if one.status == RACING else one.status
        values = {key: _cell(value) for key, value in one.values.items()}
        row = {"candidate": one.number, "label": one.label, **values, "status": status,
               "seeds": len(seen), "decided": one.at}  # fmt: skip
        needed = cache.table([one], seen)[:, 0] if seen else np.zeros((len(cache.tune.least), 0))
        for kind, numbers in zip(cache.tune.least, needed, strict=True):
            row |= {f"{kind}{end}": x for end, x in _estimate(numbers, level).items()}
            row |= {
                f"{kind} ratio{end}": x
                for end, x in _ratio(cache, one, best, seen, kind, level).items()
            }
        rows.append({**row, "reason": one.reason})
    return pd.DataFrame(rows)


def _estimate(numbers: Array, level: float) -> dict[str, float]:
    return _columns(median_estimate(numbers, level))


def _columns(found: Estimate) -> dict[str, float]:
    return {"": found.value, " low": found.low, " high": found.high}


def _ratio(
    cache: RunCache, one: Candidate, best: Candidate | None, seen: tuple[int, ...], kind: str,
    level: float,
) -> dict[str, float]:  # fmt: skip
    """The median ratio to the best over the seeds of both, and its interval."""
    nothing = {"": np.nan, " low": np.nan, " high": np.nan}
    if best is None or cache.tune.charge is not None or not seen:
        return nothing
    place = cache.tune.least.index(kind)
    mine, other = (cache.table([who], seen)[place, 0] for who in (one, best))
    found = paired(mine, other, ratio=True, rising=False, level=level).estimate
    return _columns(found) if found.n else nothing


def _runs(
    planned: Planned, cache: RunCache, candidates: Sequence[Candidate],
    seeds: Mapping[int, tuple[int, ...]],
) -> "pd.DataFrame":  # fmt: skip
    """One row per run that was played, as in a study."""
    cases = []
    again = planned.tune.fresh_seeds
    for one in [*candidates, planned.base]:
        own = (*seeds[one.number], *again)
        seen = tuple(dict.fromkeys(cache.played(one, own)))
        if seen and one.scenario is not None:
            cases.append(one.case(seen))
    keys = {place: key for place, key in cache.keys.items() if key in cache.results}
    return runs_table(cases, keys, cache.results, cache.goal)


def _fresh(
    planned: Planned, cache: RunCache, best: Sequence[Candidate], level: float
) -> "pd.DataFrame":
    """Medians on tuned and fresh seeds of the best and the base, and the ratio to the base."""
    rows = []
    again = planned.tune.fresh_seeds
    for one in [*best, planned.base]:
        seen = tuple(cache.played(one, again))
        if not seen:
            continue
        both = tuple(seed for seed in seen if cache.result(planned.base, seed) is not None)
        for place, kind in enumerate(planned.tune.least):
            numbers = cache.table([one], seen)[place, 0]
            found = {f"fresh{end}": x for end, x in _estimate(numbers, level).items()}
            own = tuple(cache.played(one, planned.tune.seeds))
            tuned_on = cache.table([one], own)[place, 0] if own else np.zeros(0)
            mine, other = (cache.table([who], both)[place, 0] for who in (one, planned.base))
            ratio = paired(mine, other, ratio=True, rising=False, level=level)
            rows.append({
                "candidate": one.number, "label": one.label or "base", "kind": kind,
                "tuned": _estimate(tuned_on, level)[""], "seeds": len(seen), **found,
                "to base": ratio.estimate.value, "to base low": ratio.estimate.low,
                "to base high": ratio.estimate.high, "better": ratio.wins, "worse": ratio.losses,
            })  # fmt: skip
    return pd.DataFrame(rows)


BEST_FILE = "best.yaml"


def tune(
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
) -> Tuned:
    """Look for the values of keys that meet a target with least, and play the best once more.

    source: a study file with the section `tune`, or the same as a dict; out: directory, where runs
    are stored under the hash of their resolved scenario, so that the same call goes on where it
    was and ends alike (default: nothing is stored); overrides: keys of the base scenario; workers,
    dask, memory, share, trackers: as in `desim.study`; progress is told how many runs of how many
    of a batch are done, and what they are for.

    The same file gives the same candidates, races and tables with any workers. Tuning is not
    charged to anybody's privacy unless `tune.charge` says how. Ctrl-C ends it early with what is
    there. InputError with nothing played for what is wrong with the file, a value or the
    directory; RunError where tables cannot be stored or the scheduler is gone.
    """
    path = named(out)
    plan = planned(source, overrides, path)
    check(workers, dask, memory)
    group = Group(trackers, dask)
    complete, cost = True, None
    error: RunError | None = None
    with contextlib.ExitStack() as stack:
        before = about(plan.study, plan.folder, {})
        token = stack.enter_context(claimed(path, before)) if path else ""
        play = stack.enter_context(players(workers, dask, memory))
        stack.enter_context(
            group.begun(plan.study.name, before["study"], [plan.base], plan.tune.vary)
        )
        tell = stack.enter_context(seen(plan.study.name, progress, runs=True))
        cache = RunCache(plan.tune, plan.asked, play, path, token, share, tell, group)
        search = Search(plan.study, plan.folder, plan.sampler, cache)
        try:
            if plan.tune.charge is not None:
                cost = _charged(plan, search)
            else:
                search.run()
                search.play_fresh(plan.base)
        except KeyboardInterrupt:
            complete = False
        except RunError as gone:
            complete, error = False, gone
        found = tuned(plan, cache, search.candidates, complete, cost)
        if path is not None:
            _store(path, plan, cache, found)
    if error is not None:
        raise error
    return found


def _store(path: Path, plan: Planned, cache: RunCache, found: Tuned) -> None:
    """Store what was found in the directory, and the best scenario where the search is over."""
    write_about(path, about(plan.study, plan.folder, cache.keys))
    write_tables(path, found.tables)
    if found.best and found.complete:
        with output(path / BEST_FILE) as partial:
            partial.write_text(found.yaml(), "utf-8")
    elif found.complete:  # what an earlier search had found is not what this one found
        (path / BEST_FILE).unlink(missing_ok=True)


def _charged(plan: Planned, search: Search) -> Price | None:
    """Play as many runs as the law says, each with its own candidate and seed; what that costs."""
    charge, cache = plan.tune.charge, search.cache
    assert charge is not None
    number = number_of_runs(charge, plan.tune)
    batch = [search.candidate(values) for values in search.sampler.ask(number)] if number else []
    able = [one for one in batch if one.status != INVALID]
    first = plan.tune.seeds[0]
    cache.play([Wanted(one, first + one.number) for one in able], "runs whose best is released")
    for one in able:
        one.at = 1
        one.status = LEVEL
        if broken := cache.broken(one, first + one.number):
            one.status, one.reason = MISSED, ", ".join(broken)
    met = [one for one in able if one.status == LEVEL]
    if met:
        min(met, key=lambda one: float(cache.needed(one, first + one.number)[0])).status = BEST
    return price_of(plan, cache, able)


def price_of(plan: Planned, cache: RunCache, able: list[Candidate]) -> Price | None:
    """The price, from the stored runs or, of a tuner that stores none, from runs played anew.

    None without a run, or where one failed of which nothing is stored.
    """
    from desim.runs.recording import played

    charge, first = plan.tune.charge, plan.tune.seeds[0]
    assert charge is not None
    runs = []
    for one in able:
        seed = first + one.number
        key = cache.keys[one.number, seed]
        stored = None if cache.path is None else finished(cache.path.resolve() / RUNS / key)
        try:
            runs.append(stored or played(as_played(plan, one)))
        except RunError as failed:
            if not isinstance(failed.run, Run):
                return None
            runs.append(failed.run)
    if not runs:
        return None
    found = price(runs, charge, plan.study.compare.epsilon.stated, plan.possible)
    return replace(found, runs=len(able))
