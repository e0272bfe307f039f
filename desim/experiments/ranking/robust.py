"""`desim.robust`: in how many worlds an order of methods holds, as a result, a text and files."""

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from desim.amounts import best_unit, percent
from desim.arrays import Array
from desim.errors import InputError, chosen, finite, refusal
from desim.experiments.ranking.contenders import WORDS, Contender, aimed, entered
from desim.experiments.ranking.turning import Change, rivals, turned
from desim.experiments.ranking.worlds import (
    SEED,
    TRANSPORT,
    Choice,
    Law,
    Laws,
    Points,
    Race,
    Vary,
    World,
    first,
    indices,
    laws,
    order,
    orders,
    pairs,
    points,
    said,
    times,
)
from desim.experiments.studies.cases import cases
from desim.experiments.studies.folder import stored_runs
from desim.log.column_meanings import METRICS
from desim.numerics.cores import cores
from desim.runs.directory import STUDY, output
from desim.runs.reading.series import labels
from desim.runs.run import Run, open_run
from desim.scenario.load import load, read
from desim.scenario.noise_target import require_measured
from desim.scenario.scaled import moved
from desim.scenario.schema import Scenario
from desim.scenario.study_file import check_overrides, read_study
from desim.scenario.tree import named_file
from desim.tabulated import Table

# Who competes, each with a name, and for which target.
Source = Scenario | Run | str | Path | Mapping[str, Any]
SECTIONS = {  # that should be the same for all, and what an order compares where they are not
    "problem": "the order compares problems, too",
    "network": "the order compares networks, too",
    "compute": "the order compares devices, too",
    "seed": "methods meet different draws in one world",
}


def contestants(
    sources: Sequence[Source], overrides: Mapping[str, Any] | None = None
) -> dict[str, Scenario]:
    """All that compete, by names that tell them apart; InputError for fewer than two.

    A study stands for its cases, each with its first seed; overrides: of scenarios, as desim.load.
    """
    found: list[tuple[str, Scenario]] = []
    for source in sources:
        found += _read(source, overrides)
    for _, scenario in found:
        require_measured(scenario, "many worlds")
    if len(found) < 2:
        one = "one method" if found else "no method"
        raise InputError(f"robust: found {one}; allowed: at least two, whose order is in question")
    names = [one.algorithm.name for _, one in found]
    if len(set(names)) < len(names):
        runs: Any = [SimpleNamespace(scenario=one, name=one.name, directory="") for _, one in found]
        names = labels([[run] for run in runs])
    names = [label or name for (label, _), name in zip(found, names, strict=True)]
    apart = [f"{name} ({names[: n + 1].count(name)})" if names.count(name) > 1 else name
             for n, name in enumerate(names)]  # fmt: skip
    return dict(zip(apart, (one for _, one in found), strict=True))


def _read(source: Source, overrides: Mapping[str, Any] | None) -> Iterator[tuple[str, Scenario]]:
    if isinstance(source, Scenario | Run):
        yield "", source if isinstance(source, Scenario) else source.scenario
    elif isinstance(source, Mapping):
        yield "", load(source, overrides)
    elif (path := Path(source)).is_dir() and (path / STUDY).is_file():
        yield from ((label, runs[0].scenario) for label, runs in stored_runs(path).items())
    elif path.is_dir():
        yield "", open_run(path).scenario
    elif _is_study(path):
        study, folder = read_study(path)
        check_overrides(overrides or {}, (), "the study")
        study = study.model_copy(update={"set": {**study.set, **(overrides or {})}})
        for case in cases(study, folder):
            yield case.label, case.scenario.model_copy(update={"seed": case.seeds[0]})
    else:
        yield "", load(path, overrides)


def _is_study(path: Path) -> bool:
    for kind in ("study", "scenario"):
        with contextlib.suppress(InputError):
            file = named_file(path, kind)
            return "base" in (read(file).data or {})
    return False


def differences(found: Mapping[str, Scenario]) -> list[str]:
    """Warnings about what is not the same for all that compete."""
    label, first = next(iter(found.items()))
    warnings = []
    for section, why in SECTIONS.items():
        own = getattr(first, section)
        odd = [one for one, other in found.items() if getattr(other, section) != own]
        if odd:
            warnings.append(f"{section}: {label} and {odd[0]} differ, so that {why}")
    return warnings


def target_of(target: Mapping[str, float]) -> tuple[str, float]:
    """The one metric and its value; InputError for another number of them, or no such metric."""
    if len(target) != 1:
        count = f"{len(target)} metrics" if target else "none"
        raise InputError(f"target: found {count}; allowed: one, as in error=1e-3")
    ((metric, value),) = target.items()
    chosen("target", metric, METRICS)
    return metric, finite(f"target {metric}", value)


# The result, from at most so many worlds.
MAX_WORLDS = 1 << 20
RARE = ("behind", "overhead")  # inputs that few scenarios have
Progress = Callable[[str, int, int], None]


@dataclass(eq=False, repr=False)
class Robust:
    """How far an order of methods can be trusted.

    methods: names; target: metric and value; laws: of the inputs that were varied; order: in the
    scenario as it is. Tables: first (a row for each method), orders, pairs: shares of the worlds;
    indices: of the inputs, for the log ratio of the times of `rivals`, second over first; worlds:
    one row each, its factors and the methods' seconds, infinite where the target is not met.
    change: the smallest that turns the first place over, None where none was found; notes: what
    else is to be said.
    """

    methods: tuple[str, ...]
    target: tuple[str, float]
    laws: Mapping[str, Law | Choice]
    order: str
    rivals: tuple[str, str]
    first: pd.DataFrame
    orders: pd.DataFrame
    pairs: pd.DataFrame
    indices: pd.DataFrame
    worlds: pd.DataFrame
    change: Change | None
    seed: int
    notes: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of worlds in which the whole order is that of the scenario as it is."""
        found = self.orders.loc[self.orders["order"] == self.order, "share"]
        return float(found.iloc[0]) if len(found) else 0.0

    def __repr__(self) -> str:
        share = f"{self.share:.1%} of {len(self.worlds)} worlds"
        return f"<Robust {self.order}: in {share}>"

    def _repr_html_(self) -> str:
        return table(self).html()

    def text(self) -> str:
        """The table of the command line."""
        return table(self).text()


def robust(
    scenarios: Sequence[Source],
    target: Mapping[str, float],
    worlds: int = 1000,
    vary: Vary = None,
    seed: int = 0,
    workers: int | None = None,
    overrides: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Robust:
    """In how many worlds the order holds in which methods meet the target, and what turns it over.

    scenarios: files, names, loaded ones, runs, or studies, which stand for their cases; target:
    {"error": 1e-3}; worlds: how many, rounded up to a power of two; vary: laws of factors by input
    (see `ranking.worlds`), by default 0.5..2; seed: of the worlds; workers: processes,
    by default one a core, whose number changes no result; overrides: dotted keys of all scenarios;
    progress: told what is done, how much of it and of how much. InputError where there is nothing
    to compare, or no method meets the target.
    """
    _check(worlds, seed, workers)
    aim, drawn, tell = target_of(target), laws(vary), progress or (lambda what, done, total: None)
    found = contestants(scenarios, overrides)
    notes = differences(found)
    found = {label: aimed(one, aim) for label, one in found.items()}
    drawn = _that_matter(found, drawn, notes, said(vary))
    race = _entered(found, aim, drawn, tell)
    base = np.array(race.seconds(World({})))
    if not np.isfinite(base).any():
        metric, value = aim
        raise InputError(
            f"target {metric}: found {value:g}, which no method meets within its rounds and time; "
            "allowed: what one of them comes to"
        )
    notes += [
        f"{label}: {WORDS[one.way]} ({one.why})"
        for label, one in zip(found, race.contenders[None], strict=True)
        if one.way in ("play", "never")
    ]
    chosen = points(len(drawn), worlds, seed)
    every = _worlds(chosen, drawn)
    seconds = times(race, every, workers or cores(), lambda n, total: tell("worlds", n, total))
    return _found(tuple(found), aim, drawn, race, base, chosen, every, seconds, seed, notes, tell)


def _check(worlds: int, seed: int, workers: int | None) -> None:
    for name, value, least in (("worlds", worlds, 2), ("seed", seed, 0), ("workers", workers, 1)):
        if value is not None and (not isinstance(value, int) or value < least):
            raise InputError(f"{name}: {refusal(value, f'a whole number, at least {least}')}")
    if worlds > MAX_WORLDS:
        raise InputError(f"worlds: found {worlds}; allowed: at most {MAX_WORLDS}")


def _that_matter(
    found: Mapping[str, Scenario], drawn: Laws, notes: list[str], asked: Collection[str]
) -> Laws:
    """The laws of inputs that change something; notes: says which do not, of rare ones if asked."""
    some = {name for one in found.values() for name in moved(one)} | {SEED, TRANSPORT}
    why = "left out, no scenario has any that a factor would change"
    said_of = [name for name in drawn if name not in RARE or name in asked]
    notes += [f"{name}: {why}" for name in said_of if name not in some]
    left = {name: law for name, law in drawn.items() if name in some}
    if not left:
        raise InputError("vary: found no input that changes anything; allowed: at least one")
    return left


def _entered(
    found: Mapping[str, Scenario], aim: tuple[str, float], drawn: Laws, tell: Progress
) -> Race:
    """All methods trained, on every seed that worlds may draw, and on their own (None)."""
    law = drawn.get(SEED)
    seeds = [None, *law.values] if isinstance(law, Choice) else [None]
    race: dict[int | None, list[Contender]] = {seed: [] for seed in seeds}
    for n, (seed, own) in enumerate((seed, one) for seed in seeds for one in found.values()):
        tell("trained", n, len(seeds) * len(found))
        own = own if seed is None else own.model_copy(update={"seed": seed})
        race[seed].append(entered(own, aim))
    return Race(race)


def _worlds(chosen: Points, drawn: Laws) -> list[World]:
    columns = {name: law.of(chosen.rows[:, i]) for i, (name, law) in enumerate(drawn.items())}
    factors = [name for name in columns if name not in (SEED, TRANSPORT)]
    return [
        World(
            {name: float(columns[name][k]) for name in factors},
            columns[SEED][k] if SEED in columns else None,
            columns[TRANSPORT][k] if TRANSPORT in columns else None,
        )
        for k in range(len(chosen.rows))
    ]


def _found(
    names: tuple[str, ...], aim: tuple[str, float], drawn: Laws, race: Race, base: Array,
    chosen: Points, every: Sequence[World], seconds: Array, seed: int, notes: list[str],
    tell: Progress,
) -> Robust:  # fmt: skip
    shares = 2 * len(chosen.first)
    leader, rival = rivals(base)
    table = pd.DataFrame([{**one.factors, **one.chosen} for one in every[:shares]])
    table = table.assign(**{name: seconds[:shares, i] for i, name in enumerate(names)})
    values = seconds[:, rival], seconds[:, leader]
    sobol = pd.DataFrame()
    if np.isfinite(values).all() and rival != leader:
        sobol = indices(list(drawn), chosen, np.log(values[0] / values[1]), seed)
    else:
        never = int((~np.isfinite(seconds[:, [leader, rival]]).all(1)).sum())
        notes.append(
            f"no indices: {names[leader]} or {names[rival]} never meets the target in "
            f"{never} of {len(seconds)} worlds"
            if rival != leader
            else "no indices: all methods are level in the scenario as it is"
        )
    change = None
    if rival != leader:
        tell("smallest change", 0, 1)
        change = turned(names, drawn, race, base, every[:shares], seconds[:shares], seed)
        if change is None:
            notes.append("no change of the inputs was found that turns the first place over")
    return Robust(
        names, aim, drawn, order(names, base.tolist()), (names[leader], names[rival]),
        first(names, seconds[:shares], base), orders(names, seconds[:shares]),
        pairs(names, seconds[:shares], base), sobol, table, change, seed, notes,
    )  # fmt: skip


# The result as text: a table of the methods, and what stands behind it.
ORDERS = 4  # that are listed
MIDDLE = (0.1, 0.9)  # quantiles between which 80 % of the worlds are


def table(found: Any) -> Table:
    """A row for each method, by time in the scenario as it is."""
    metric, value = found.target
    title = f"{metric} {value:g} in {len(found.worlds)} worlds: {varied(found)}"
    head = ["method", "as it is", "80 % of worlds", "first in", "before the next in"]
    never = bool((found.first["never"] > 0.0).any())
    head += ["never in"] * never
    rows = []
    for place, row in enumerate(found.first.to_dict("records")):
        low, high = np.quantile(found.worlds[row["method"]], MIDDLE, method="inverted_cdf")
        middle = f"{seconds(low)} to {seconds(high)}" if low < np.inf else "never"
        cells = [str(row["method"]), seconds(row["seconds"]), middle]
        cells += [interval(row), _before(found, place)] + [percent(row["never"])] * never
        rows.append(cells)
    return Table(title, head, rows, ["", *_lines(found)])


def varied(found: Any) -> str:
    """The laws of the inputs, those with the same one together."""
    groups: dict[str, list[str]] = {}
    for name, law in found.laws.items():
        groups.setdefault(str(law), []).append(name)
    return "; ".join(f"{', '.join(names)} {law}" for law, names in groups.items())


def seconds(value: float) -> str:
    """A time in its unit: 43.1 ms."""
    if value == np.inf:
        return "never"
    unit, factor = best_unit(value, "s")
    return f"{value * factor:.3g} {unit}"


def interval(row: Any) -> str:
    """A share with its interval: 93.1 % (91.4 to 94.5)."""
    return f"{percent(row['share'])} ({100 * row['low']:.3g} to {100 * row['high']:.3g})"


def _before(found: Any, place: int) -> str:
    """How often a method is before the one that comes next in the scenario as it is."""
    names = found.first["method"].tolist()
    if place + 1 == len(names):
        return ""
    own = found.pairs[(found.pairs["before"] == names[place])]
    row = own[own["after"] == names[place + 1]].iloc[0]
    level = f", level in {percent(row['level'])}" if row["level"] > 0.0 else ""
    return f"{interval(row)}{level}"


def _lines(found: Any) -> Iterator[str]:
    same = found.orders["order"] == found.order
    share = interval(found.orders[same].iloc[0]) if same.any() else "0 %"
    yield f"this order in {share}: {found.order}"
    others = found.orders[~same]
    for row in others.head(ORDERS).to_dict("records"):
        yield f"  {percent(row['share'])}: {row['order']}"
    if len(others) > ORDERS:
        yield f"  and {len(others) - ORDERS} other orders"
    yield from _contributions(found)
    if found.change is not None:
        change = found.change
        first, then = map(seconds, reversed(change.seconds))
        taken = f"{first} and {then}" if first != then else f"both {first}"
        where = "" if change.within else ", beyond what was varied"
        yield f"smallest change found that turns the first place over{where}:"
        yield f"  {change} ({taken}); size {change.size:.3g} in logarithms"
    yield from (f"note: {text}" for text in found.notes)


def _contributions(found: Any) -> Iterator[str]:
    """Sobol' indices, the largest total first."""
    if not len(found.indices):
        return
    first, second = found.rivals
    yield f"what the lead of {first} over {second} depends on (Sobol' indices, first and total):"
    for row in found.indices.sort_values("total", ascending=False).to_dict("records"):
        own = f"{row['first']:.2f} ±{row['first_error']:.2f}"
        yield f"  {row['input']:9} {own}, {row['total']:.2f} ±{row['total_error']:.2f}"


# The result in files: all tables as JSON, the worlds as CSV.


def write(found: Any, path: Path) -> None:
    """Write `path`, .json or .csv; infinite numbers are null there, and inf here."""
    with output(path, [path.suffix.lower()]) as partial:
        if path.suffix.lower() == ".csv":
            found.worlds.to_csv(partial, index=False)
        else:
            partial.write_text(json.dumps(plain(found), indent=1, allow_nan=False) + "\n", "utf-8")


def plain(found: Any) -> dict[str, Any]:
    """All of it as numbers, texts, lists and mappings."""
    change = found.change
    return {
        "target": {found.target[0]: found.target[1]},
        "worlds": len(found.worlds),
        "seed": found.seed,
        "vary": {name: str(law) for name, law in found.laws.items()},
        "methods": list(found.methods),
        "order": found.order,
        "share": found.share,
        "rivals": list(found.rivals),
        **{
            name: [
                {str(key): _number(one) for key, one in row.items()}
                for row in getattr(found, name).to_dict("records")
            ]
            for name in ("first", "orders", "pairs", "indices")
        },
        "change": None if change is None else {
            "factors": dict(change.factors), "led": change.led, "by": change.by,
            "size": change.size, "within": change.within,
            "seconds": [_number(one) for one in change.seconds],
        },
        "notes": found.notes,
    }  # fmt: skip


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
