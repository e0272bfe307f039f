"""The tables of what came out: where every run ended, and how long each took to a target."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from desim.amounts import epsilon
from desim.fairness import RISING
from desim.reports.charts import metrics, terms
from desim.reports.reading import Curve, Reading
from desim.reports.wording import (
    NOTHING,
    Table,
    by_text,
    count,
    metric_value,
    number,
    seconds,
    size,
)
from desim.studies.statistics import Estimate, median_estimate

Target = tuple[str, float]
Bar: TypeAlias = Sequence[tuple[str, float]]
SPENT = ("time", "round", "bytes", "epsilon")
RULE = (
    "Targets are those at which the scenarios stop; where none does, the strictest that every run "
    "meets and, with several runs, that half of them meet. Spent: until the target first held."
)
LISTED = 12  # runs up to which each has a row beside the medians over seeds
SEEDS = (
    "Median over runs that differ in nothing but the seed, with its 95 % interval, which needs 6 "
    "seeds (pale: to its end); a run that never met the target counts as later than all others."
)
TARGETS = 3  # metrics with targets of their own where no scenario states one
TRIVIAL = frozenset({"consensus", "risk_difference"})  # met by a model that nobody has trained
HEADS = ("virtual time", "rounds", "delivered", "epsilon")


def headline(found: Sequence[Reading]) -> Table:
    """One row for each run: how it ended, and what it had spent and reached by then."""
    names = metrics(found)
    heads = ["run", "status", "method", "agents", "time", "rounds", "delivered", *names, "epsilon"]
    rows = [[*_ended(one), *_last(one, names), _epsilon(one)] for one in found]
    note = "Metrics are the last that were measured. Delivered: bytes of messages that arrived. "
    stated = [(one.label, terms(one)) for one in found if one.account is not None]
    about = [
        what if len(runs) == len(found) else f"{', '.join(runs)}: {what}"
        for what, runs in by_text(stated).items()
    ]
    if about:
        note += f"Epsilon is that of the agent that spends most: {'; '.join(about)}."
    return Table("Where each run ended", heads, rows, note)


def _ended(one: Reading) -> list[str]:
    run, written = one.run, one.written
    rows, arrived = (
        one.stored("rows", list),
        (one.stored("counts", dict) or {}).get("deliver_bytes"),
    )
    if arrived is None and one.delivered is not None:
        arrived = float(one.delivered.totals[-1]) if len(one.delivered.totals) else 0.0
    return [
        one.label, run.status, str(written.get("algorithm", {}).get("name", NOTHING)),
        NOTHING if rows is None else count(len(rows)), seconds(one.ended),
        count(one.stored("rounds", int)), size(arrived),
    ]  # fmt: skip


def _last(one: Reading, names: Sequence[str]) -> list[str]:
    curves = [(name, one.curves.get(name)) for name in names]
    return [
        NOTHING if curve is None else metric_value(name, float(curve.value[-1]))
        for name, curve in curves
    ]


def _epsilon(one: Reading) -> str:
    return NOTHING if one.account is None else epsilon(one.account.worst, one.account.flags)


def default_targets(found: Sequence[Reading]) -> list[Target]:
    """What the scenarios stop at; else, of each metric, the strictest target that all runs meet.

    With several runs also the strictest that half of them meet.
    """
    stated = {
        (name, float(value))
        for one in found
        for name, value in (one.written.get("stop", {}).get("metric") or {}).items()
    }
    names = [name for name in metrics(found) if name not in TRIVIAL][:TARGETS]
    return sorted(stated) or [pair for name in names for pair in _met(found, name)]


def _met(found: Sequence[Reading], name: str) -> list[Target]:
    sign = -1.0 if name in RISING else 1.0
    curves = [one.curves[name] for one in found if name in one.curves]
    best = sorted(
        float(np.nanmin(sign * curve.value)) for curve in curves if np.isfinite(curve.value).any()
    )
    chosen = [best[(len(best) - 1) // 2], best[-1]] if best else []
    return list(dict.fromkeys((name, sign * _laxer(value)) for value in chosen))


def _laxer(value: float) -> float:
    """The next number of three digits that is not below `value`."""
    if value == 0.0:
        return 0.0
    step = 10.0 ** (np.floor(np.log10(abs(value))) - 2)
    return float(f"{np.ceil(round(value / step, 6)) * step:.3g}")


def reached(one: Reading, target: Target) -> dict[str, float]:
    """What had been spent when the target was first met; inf if never, nan where unknown.

    A metric that was to be observed, but that the run did not live to see, has never met it.
    """
    name, value = target
    curve: Curve | None = one.curves.get(name)
    if curve is None:
        asked = one.written.get("observe", {}).get("metrics", [])
        return dict.fromkeys(SPENT, np.inf if name in asked else np.nan)
    with np.errstate(invalid="ignore"):
        met = curve.value >= value if name in RISING else curve.value <= value
    if not met.any():
        return dict.fromkeys(SPENT, np.inf)
    first = int(np.argmax(met))
    arrays = {what: getattr(curve, what) for what in SPENT}
    found = {what: np.nan if a is None else float(a[first]) for what, a in arrays.items()}
    return found | {"epsilon": one.spent_by(found["time"])}


def time_to_targets(found: Sequence[Reading], targets: Sequence[Target]) -> list[Table]:
    """For each target what every run had spent when it met it, and the medians over seeds."""
    return [_time_to(found, target) for target in targets]


def _time_to(found: Sequence[Reading], target: Target) -> Table:
    name, value = target
    spent = [reached(one, target) for one in found]
    longest = max((row["time"] for row in spent if np.isfinite(row["time"])), default=0.0)
    seeds = list(_over_seeds(found, spent, longest))
    alone = [*zip(found, spent, strict=True)]
    if seeds and len(found) > LISTED:
        many = Counter(one.series for one in found)
        alone = [(one, row) for one, row in alone if many[one.series] == 1]
    rows = [
        *seeds,
        *(([one.label, *_cells(one, row)], _bar(row["time"], longest)) for one, row in alone),
    ]
    sign = "at least" if name in RISING else "at most"
    return Table(
        f"{name} {sign} {metric_value(name, value)}",
        ["run", *HEADS],
        [cells for cells, _ in rows],
        SEEDS if seeds else "",
        marked=frozenset(range(len(seeds)) if alone else ()),
        bars=[parts for _, parts in rows],
        bar_head="time",
    )


def _bar(time: float, longest: float, latest: float = 0.0) -> Bar:
    """The time's share of the longest, and pale from there to the latest that it may be."""
    if not np.isfinite(time) or longest <= 0.0:
        return []
    share = time / longest
    return [("busy", share), ("reach", max(0.0, min(1.0, latest / longest) - share))]


def _cells(one: Reading, row: Mapping[str, float]) -> list[str]:
    if np.isinf(row["time"]):
        return ["never"] * 4
    if np.isnan(row["time"]):
        return ["not recorded", NOTHING, NOTHING, NOTHING]
    told = [seconds(row["time"]), count(row["round"]), size(row["bytes"])]
    flags = one.account.flags if one.account is not None else ()
    return [*told, NOTHING if np.isnan(row["epsilon"]) else epsilon(row["epsilon"], flags)]


def _over_seeds(
    found: Sequence[Reading], spent: Sequence[Mapping[str, float]], longest: float
) -> Iterator[tuple[list[str], Bar]]:
    """Cells and bar of each series of several seeds."""
    series: dict[str, list[Mapping[str, float]]] = {}
    for one, row in zip(found, spent, strict=True):
        series.setdefault(one.series, []).append(row)
    for name, rows in series.items():
        if len(rows) > 1:
            made = [median_estimate(np.array([row[what] for row in rows])) for what in SPENT]
            met = np.isfinite(made[0].value)
            ends = ["infinite" if met and what == "epsilon" else "never" for what in SPENT]
            cells = [_interval(*three) for three in zip(made, WORDS, ends, strict=True)]
            bar = _bar(made[0].value, longest, float(np.nan_to_num(made[0].high)))
            yield [f"{name}: median of {len(rows)} seeds", *cells], bar


WORDS: tuple[Callable[[float], str], ...] = (seconds, number, size, number)


def _interval(made: Estimate, told: Callable[[float], str], endless: str) -> str:
    """A median with its interval, where that is known and more than a point; endless: inf."""
    if np.isnan(made.value):
        return NOTHING
    value, low, high = (
        endless if np.isinf(one) else told(one) for one in (made.value, made.low, made.high)
    )
    point = low == high or np.isnan(made.low)
    return value if point else f"{value} ({low} to {high})"
