"""The tables of what came out: where every run ended, and how long each took to a target."""

from collections.abc import Mapping, Sequence

import numpy as np

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
SPENT = ("time", "round", "bytes", "epsilon")
RULE = (
    "Targets are those at which the scenarios stop; where none does, the strictest that every run "
    "meets and, with several runs, that half of them meet. Spent: until the target first held."
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
    return NOTHING if one.account is None else number(one.account.worst)


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
    return {what: np.nan if a is None else float(a[first]) for what, a in arrays.items()}


def time_to_targets(found: Sequence[Reading], targets: Sequence[Target]) -> list[Table]:
    """For each target what every run had spent when it met it, and the medians over seeds."""
    return [_time_to(found, target) for target in targets]


def _time_to(found: Sequence[Reading], target: Target) -> Table:
    name, value = target
    spent = [reached(one, target) for one in found]
    rows = [[one.label, *_cells(row)] for one, row in zip(found, spent, strict=True)]
    longest = max((row["time"] for row in spent if np.isfinite(row["time"])), default=0.0)
    bars = [[("busy", row["time"] / longest if longest > 0.0 else 0.0)] if
            np.isfinite(row["time"]) else [] for row in spent]  # fmt: skip
    seeds = list(_over_seeds(found, spent))
    sign = "at least" if name in RISING else "at most"
    note = (
        "Median over runs that differ in nothing but the seed, with its 95 % bootstrap interval; "
        "a run that never met the target counts as infinite." if seeds else ""
    )  # fmt: skip
    return Table(
        f"{name} {sign} {metric_value(name, value)}",
        ["run", *HEADS],
        rows + seeds,
        note,
        marked=frozenset(range(len(rows), len(rows) + len(seeds))),
        bars=[*bars, *([] for _ in seeds)],
        bar_head="time",
    )


def _cells(row: Mapping[str, float]) -> list[str]:
    if np.isinf(row["time"]):
        return ["not reached", NOTHING, NOTHING, NOTHING]
    if np.isnan(row["time"]):
        return ["not recorded", NOTHING, NOTHING, NOTHING]
    told = [seconds(row["time"]), count(row["round"]), size(row["bytes"])]
    return [*told, number(row["epsilon"])]


def _over_seeds(found: Sequence[Reading], spent: Sequence[Mapping[str, float]]) -> list[list[str]]:
    series: dict[str, list[int]] = {}
    for place, one in enumerate(found):
        series.setdefault(one.series, []).append(place)
    rows = []
    for name, places in series.items():
        if len(places) > 1:
            values = {what: np.array([spent[n][what] for n in places]) for what in SPENT}
            cells = [_interval(values[what], told) for what, told in zip(SPENT, WORDS, strict=True)]
            rows.append([f"{name}: median of {len(places)} seeds", *cells])
    return rows


WORDS = (seconds, number, size, number)


def _interval(values: np.ndarray, told: object) -> str:
    if np.isnan(values).any():
        return NOTHING
    made: Estimate = median_estimate(values)
    assert callable(told)
    return f"{told(made.value)} ({told(made.low)} to {told(made.high)})"
