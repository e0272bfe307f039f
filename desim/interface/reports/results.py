"""The tables of a report about results: where runs ended, times to targets, and privacy."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from desim.agent_names import agent_named, called
from desim.amounts import amount, epsilon
from desim.deployments.fidelity.clock_errors import ClockErrors, deployed, errors_of_clocks
from desim.experiments.studies.statistics import Estimate, median_estimate
from desim.interface.reports.page import drawn, metrics, terms
from desim.interface.reports.readable import (
    NOTHING,
    Curve,
    Reading,
    by_text,
    count,
    metric_value,
    number,
    seconds,
    share,
    size,
)
from desim.problem.fairness import RISING
from desim.problem.targets import best, first_met, improved
from desim.runs.reading.waits import CLOSERS
from desim.tabulated import Table, each_once

if TYPE_CHECKING:
    from desim.runs.privacy import Statement

# Runs that differ in nothing but the seed, as one row: medians of what they show.


def together(
    some: Sequence[Reading], rows: Sequence[Sequence[str]], names: Sequence[str]
) -> list[str]:
    """One row of the runs: how many ended how, and medians of time, bytes, metrics and epsilon.

    rows: how the report words each run by itself: run, status, method, agents, and so on. Runs that
    failed where others are done are in no median.
    """
    ends, seeds = Counter(row[1] for row in rows), len(some)
    some = [one for one in some if not one.lost]
    alike = [" / ".join(dict.fromkeys(row[column] for row in rows)) for column in (2, 3)]
    rounds = [one.stored("rounds", int) for one in some]
    spent = [one.account for one in some]
    flags = [flag for account in spent if account is not None for flag in account.flags]
    worst = [np.nan if account is None else account.worst for account in spent]
    private = _median(worst)
    return [
        f"{some[0].series}: {seeds} seeds", ", ".join(f"{n} {end}" for end, n in ends.items()),
        *alike, seconds(_median([one.ended for one in some])),
        number(_median([np.nan if one is None else one for one in rounds])),
        size(_median([one.arrived for one in some])), *(_final(some, name) for name in names),
        NOTHING if np.isnan(private) else epsilon(private, flags),
    ]  # fmt: skip


def _median(values: Sequence[float]) -> float:
    """The median of those that are known; nan of none."""
    known = np.array(values, float)
    return median_estimate(known[~np.isnan(known)]).value


def _final(some: Sequence[Reading], name: str) -> str:
    """The median of a metric's last values; one that diverged counts as the worst."""
    worst = -np.inf if name in RISING else np.inf
    last = [float(one.curves[name].value[-1]) for one in some if name in one.curves]
    middle = _median([worst if np.isnan(one) else one for one in last])
    return "diverged" if np.isinf(middle) else metric_value(name, middle)


# The tables, with the runs one by one and their medians.
Target = tuple[str, float]
Bar: TypeAlias = Sequence[tuple[str, float]]
SPENT = ("time", "round", "bytes", "epsilon")
RULE = (
    "Targets are those of the study, or at which the scenarios stop; where there are none, of each "
    "metric that ended better than it began, the strictest that every run meets and, with several "
    "runs, that half of them meet. Spent: until the target first held."
)
MEDIANS = "Medians of runs that differ in nothing but the seed, without those that failed."
SEEDS = (
    "Median over runs that differ in nothing but the seed, with its 95 % interval, which needs 6 "
    "seeds (pale: to its end); a run that never met the target, or failed before it did, counts as "
    "later than all others."
)
TARGETS = 3  # metrics with targets of their own where no scenario states one
TRIVIAL = frozenset(
    {"consensus", "risk_difference", "client_accuracy_spread"}
)  # met by a model that nobody has trained
HEADS = ("virtual time", "rounds", "delivered", "epsilon")


def headline(found: Sequence[Reading]) -> Table:
    """How each run ended, and what it had spent and reached by then; of seeds their medians."""
    names = metrics(found)
    heads = ["run", "status", "method", "agents", "time", "rounds", "delivered", *names, "epsilon"]
    rows = [_ended(one, names) for one in found]
    if powered := any(one.joules == one.joules for one in found):
        heads.append("joules")
        rows = [[*row, amount(one.joules, "J")] for row, one in zip(rows, found, strict=True)]
    note = "Metrics are the last that were measured. Delivered: bytes of messages that arrived. "
    note += "Loss is a sum over agents. " if "loss" in names else ""
    stated = [(one.label, terms(one)) for one in found if one.account is not None]
    about = [
        what if len(runs) == len(found) else f"{', '.join(runs)}: {what}"
        for what, runs in by_text(stated).items()
    ]
    if about:
        note += f"Epsilon is that of the agent that spends most: {'; '.join(about)}."
    series: dict[str, list[int]] = {}
    for place, one in enumerate(found):
        series.setdefault(one.series, []).append(place)
    whole = Table("Where each run ended", heads, rows, [note])
    if len(series) == len(found):
        return whole
    medians = [
        rows[places[0]] if len(places) == 1
        else [
            *together([found[place] for place in places], [rows[place] for place in places], names),
            *([amount(_median([found[k].joules for k in places]), "J")] if powered else []),
        ]
        for places in series.values()
    ]  # fmt: skip
    each = Table(f"Each of the {len(found)} runs", heads, rows)
    return Table("Where the runs ended", heads, medians, [f"{MEDIANS} {note}"], more=[each])


def _ended(one: Reading, names: Sequence[str]) -> list[str]:
    run, rows, account = one.run, one.stored("rows", list), one.account
    curves = [(name, one.curves.get(name)) for name in names]
    last = [
        NOTHING if curve is None else metric_value(name, float(curve.value[-1]))
        for name, curve in curves
    ]
    return [
        one.label, run.status, str(one.written.get("algorithm", {}).get("name", NOTHING)),
        NOTHING if rows is None else count(len(rows)), seconds(one.ended),
        count(one.stored("rounds", int)), size(one.arrived), *last,
        NOTHING if account is None else epsilon(account.worst, account.flags),
    ]  # fmt: skip


def default_targets(found: Sequence[Reading]) -> list[Target]:
    """What the scenarios stop at; else, of each metric, the strictest target that all runs meet.

    With several runs also the strictest that half of them meet. None holds when a run begins.
    """
    stated = {
        (name, float(value))
        for one in found
        for name, value in (one.written.get("stop", {}).get("metric") or {}).items()
    }
    names = [name for name in metrics(found) if name not in TRIVIAL]
    proposed = [pairs for name in names if (pairs := _met(found, name))][:TARGETS]
    return sorted(stated) or [pair for pairs in proposed for pair in pairs]


def _met(found: Sequence[Reading], name: str) -> list[Target]:
    """Targets of one metric, the easiest last; none where fewer than half of the runs improved."""
    rising = name in RISING
    sign = -1.0 if rising else 1.0
    curves = [one.curves[name].value for one in found if name in one.curves]
    ends = [sign * goal for value in curves if (goal := improved(value, rising)) is not None]
    if not ends or 2 * len(ends) < len(curves):
        return []
    ranks = sorted([*ends, *[np.inf] * (len(curves) - len(ends))])
    chosen = [_laxer(one) for one in (ranks[(len(curves) - 1) // 2], ranks[-1]) if one < np.inf]
    begun = min((sign * value[0] for value in curves if np.isfinite(value[0])), default=np.inf)
    return list(dict.fromkeys((name, sign * one) for one in chosen if one < begun))


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
    first = first_met(name, curve.value, value)
    if first < 0:
        return dict.fromkeys(SPENT, np.inf)
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
    many = Counter(one.series for one in found)
    each = [
        (one, ([one.label, *_cells(one, row, name)], _bar(row["time"], longest)))
        for one, row in zip(found, spent, strict=True)
    ]
    rows = [*seeds, *(row for one, row in each if many[one.series] == 1)]
    sign = "at least" if name in RISING else "at most"
    caption = f"{name} {sign} {metric_value(name, value)}"
    folded = [row for one, row in each if many[one.series] > 1]
    more = [_bars(f"Each of {len(folded)} seeds: {caption}", folded)] if folded else []
    return _bars(caption, rows, SEEDS if seeds else "", more)


def _bars(
    caption: str, rows: Sequence[tuple[list[str], Bar]], note: str = "", more: Sequence[Table] = ()
) -> Table:
    """A table of what was spent, a bar for the time in each row."""
    cells, bars = [cells for cells, _ in rows], [parts for _, parts in rows]
    return Table(caption, ["run", *HEADS], cells, [note], bars=bars, bar_head="time", more=more)


def _bar(time: float, longest: float, latest: float = 0.0) -> Bar:
    """The time's share of the longest, and pale from there to the latest that it may be."""
    if not np.isfinite(time) or longest <= 0.0:
        return []
    share = time / longest
    return [("busy", share), ("reach", max(0.0, min(1.0, latest / longest) - share))]


def _cells(one: Reading, row: Mapping[str, float], name: str) -> list[str]:
    if np.isinf(row["time"]):
        near = best(one.curves[name].value, name in RISING) if name in one.curves else np.nan
        how = "never" if np.isnan(near) else f"never, at best {metric_value(name, near)}"
        return [how, *["never"] * 3]
    if np.isnan(row["time"]):
        return ["not recorded", NOTHING, NOTHING, NOTHING]
    cells = [seconds(row["time"]), count(row["round"]), size(row["bytes"])]
    flags = one.account.flags if one.account is not None else ()
    return [*cells, NOTHING if np.isnan(row["epsilon"]) else epsilon(row["epsilon"], flags)]


def _over_seeds(
    found: Sequence[Reading], spent: Sequence[Mapping[str, float]], longest: float
) -> Iterator[tuple[list[str], Bar]]:
    """Cells and bar of each series of several seeds."""
    series: dict[str, list[Mapping[str, float]]] = {}
    for one, row in zip(found, spent, strict=True):
        series.setdefault(one.series, []).append(row)
    for name, rows in series.items():
        if len(rows) > 1:
            spans = [median_estimate(np.array([row[what] for row in rows])) for what in SPENT]
            met = np.isfinite(spans[0].value)
            ends = ["infinite" if met and what == "epsilon" else "never" for what in SPENT]
            cells = [_interval(*three) for three in zip(spans, WORDS, ends, strict=True)]
            bar = _bar(spans[0].value, longest, float(np.nan_to_num(spans[0].high)))
            yield [f"{name}: median of {len(rows)} seeds", *cells], bar


WORDS: tuple[Callable[[float], str], ...] = (seconds, number, size, number)


def _interval(found: Estimate, word: Callable[[float], str], endless: str) -> str:
    """A median with its interval, where that is known and more than a point; endless: inf."""
    if np.isnan(found.value):
        return NOTHING
    value, low, high = (
        endless if np.isinf(one) else word(one) for one in (found.value, found.low, found.high)
    )
    point = low == high or np.isnan(found.low)
    return value if point else f"{value} ({low} to {high})"


# Privacy: every epsilon with its terms, and the paper's beside it.
Fact = tuple[str, str]
PRIVACY_HEADS = (
    "run", "view", "relation", "delta", "paper's epsilon", "rigorous epsilon", "median agent",
    "method",
)  # fmt: skip
FOLDED = ("assumes", "caveat")
NOTE = (
    "Rigorous: an upper bound over the whole run, of the agent that spends most. Paper: its "
    "theorem as printed, whether or not it holds. Advantage, below: the largest true less false "
    "positive rate of the best attack on a record of that agent, with unit agent on all of them; "
    "≤ where it is an upper bound."
)


@dataclass(frozen=True)
class Privacy:
    """table: a row for each run and view; facts: what all runs share; own: (run, its facts).

    folded: of what all share, what each number rests on: assumptions and caveats.
    """

    table: Table | None
    facts: Sequence[Fact]
    folded: Sequence[Fact]
    own: Sequence[tuple[str, Sequence[Fact]]]


def privacy(found: Sequence[Reading]) -> Privacy:
    """The privacy of the runs, or why nothing can be said of one."""
    said = [(one, *_said(one)) for one in found]
    rows = [row for _, some, _ in said for row in some]
    facts = [list(dict.fromkeys(some)) for _, _, some in said]
    shared = [fact for fact in facts[0] if all(fact in some for some in facts)]
    own = [
        (one.label, [fact for fact in some if fact not in shared])
        for one, some in zip(found, facts, strict=True)
    ]
    table = Table("Epsilon by view", PRIVACY_HEADS, rows, [NOTE]) if rows else None
    plain = [fact for fact in shared if fact[0] not in FOLDED]
    rest = [fact for fact in shared if fact[0] in FOLDED]
    return Privacy(table, plain, rest, [(label, some) for label, some in own if some])


def epsilon_terms(found: Sequence[Reading]) -> dict[str, list[str]]:
    """What the epsilons over time are about, or why there is no curve, with the runs of each."""
    texts = []
    for one in found:
        text = (
            terms(one) if one.account else "no releases of private data, or none that can be read"
        )
        if one.account is not None and one.spent is None:
            endless = [flag for flag in one.account.flags if flag.startswith("infinite")]
            text = f"{'; '.join(endless)} ({text})"
        texts.append((one.label, text))
    return by_text(texts)


def _said(one: Reading) -> tuple[list[list[str]], list[Fact]]:
    """Rows of the table and facts of one run."""
    if one.released is None:
        return [], [("unknown", "the releases cannot be read")]
    if not one.released:
        return [], [("releases", "none was recorded")]
    from desim.runs.privacy import statement

    stated = one.tried("privacy", lambda: statement(one.run))
    if stated is None:
        return [], [("unknown", "see the warnings")]
    return [[one.label, *_private(row, stated)] for _, row in stated.table.iterrows()], [
        *_facts(stated)
    ]


def _private(row: Any, stated: "Statement") -> Iterator[str]:
    paper, claim = float(row["paper epsilon"]), stated.claim
    said = NOTHING if np.isnan(paper) else number(paper)
    if claim is not None and not np.isnan(paper) and not claim.bound.covers(str(row["view"])):
        said += " (of another view)"
    yield from (str(row["view"]), str(row["relation"]), f"{row['delta']:g}", said)
    yield from (
        epsilon(row["rigorous epsilon"], row["flags"]),
        number(row["median epsilon"]),
        str(row["method"]),
    )


def _facts(stated: "Statement") -> Iterator[Fact]:
    table = stated.table
    risks = []
    for view, risk in zip(table["view"], table["risk"], strict=True):
        bound = "" if risk.exact else "≤ "
        risks.append((view, [f"advantage {bound}{number(risk.advantage)}; {risk.words}"]))
    yield from (("risk", text) for text in each_once(risks))
    yield from stated.paper()
    if stated.accountant:
        for _, row in stated.table.iterrows():
            own = f"epsilon {number(row['own epsilon'])} by plug-in {stated.accountant}"
            yield "accountant", f"{row['view']}: {own}, its own number"
    yield from sorted(stated.notes(), key=lambda fact: fact[0] in FOLDED)


# Tables of who computed, waited and sent, and how far a simulated clock is from a real one.


ROWS = 10  # of a list of the largest
AGENTS = 24  # with a bar each; more are shown in so many groups
CLOSED = (
    "The arrival that came last closed the wait, and all its time is counted to that sender. "
    "Nobody: the waiter's own work came last."
)
WHAT = (("computing", "busy"), ("aborted", "lost"), ("away", "away"), ("idle", "idle"))


def waiting(one: Reading) -> Table | None:
    """Who closed the waits, those first in whose waits most time passed; None where unknown."""
    waits = one.tried("who waited for whom", one.run.waits)
    if waits is None or waits.empty:
        return None
    closed = waits.groupby("closer")["waited"].agg(["size", "sum"])
    closed = closed.sort_values(["sum", "size"], ascending=False, kind="stable")
    whole, passed = len(waits), float(closed["sum"].sum())
    rows, bars = [], []
    for who, (times, lost) in zip(closed.index[:ROWS], closed.to_numpy(float), strict=False):
        part = lost / passed if passed > 0.0 else 0.0
        name = CLOSERS.get(int(who), agent_named(one.run.manifest, int(who)))
        rows.append([name, count(times), share(times / whole), seconds(lost), share(part)])
        bars.append([("busy", part)])
    more = f" {len(closed) - ROWS} more are not listed." if len(closed) > ROWS else ""
    return Table(
        "Whom everybody waited for",
        ["closed by", "waits", "of all waits", "waited", "of all waiting"],
        rows,
        [f"{CLOSED}{more}"],
        bars=bars,
        bar_head="waiting",
    )


def occupation(one: Reading) -> Table | None:
    """What the agents did with their time; many of them in groups of like utilisation."""
    table = one.tried("utilisation", one.run.utilisation)
    end = one.ended
    if table is None or table.empty or end <= 0.0:
        return None
    grouped = len(table) > AGENTS
    parts = {agent_named(one.run.manifest, n): table.iloc[[n]] for n in range(len(table))}
    if grouped:  # from the busiest to the idlest
        order = table.sort_values("utilisation", ascending=False, kind="stable")
        pieces = np.array_split(np.arange(len(order)), AGENTS)
        parts = {f"{piece[0] + 1} to {piece[-1] + 1}": order.iloc[piece] for piece in pieces}
    rows, bars = [], []
    for name, part in parts.items():
        means = {what: float(part[what].mean()) / end for what, _ in WHAT}
        sending = seconds(float(part["sending"].mean()))
        rows.append([name, *(share(means[what]) for what, _ in WHAT), sending])
        bars.append([(style, means[what]) for what, style in WHAT])
    heads = ["agents" if grouped else "agent", *(what for what, _ in WHAT), "sending"]
    notes = [f"Shares of the {seconds(end)} that the run took. Sending overlaps with the rest."]
    heads, rows, never = _without_zeros(heads, rows, ("aborted", "away"))
    if never:
        notes.append(f"Never: {', '.join(never)}.")
    if grouped:
        notes.append(f"{len(table)} agents, sorted by utilisation, in {len(parts)} groups; means.")
    return Table("What the agents did", heads, rows, notes, bars=bars, bar_head="share of the time")


def _without_zeros(
    heads: list[str], rows: list[list[str]], columns: Sequence[str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """The table without those of the columns that are 0 in every row, and their names."""
    zero = [name for name in columns if all(row[heads.index(name)] in ("0", "0 %") for row in rows)]
    places = [place for place, name in enumerate(heads) if name not in zero]
    return [heads[k] for k in places], [[row[k] for k in places] for row in rows], zero


def traffic(one: Reading) -> Table | None:
    """What the busiest links carried, and all together."""
    table = one.tried("traffic", one.run.links)
    if table is None or table.empty:
        return None
    table = table.sort_values("bytes", ascending=False, kind="stable")
    heads = ["from", "to", "sent", "resent", "lost", "bytes sent", "on the way, mean"]
    counts = ("sent", "resent", "lost")
    arrived = table["delivered"].to_numpy(float)
    mean = np.average(table["on_the_way"].fillna(0.0), weights=arrived) if arrived.sum() else np.nan
    rows = [
        [
            called(int(row["source"])), called(int(row["target"])),
            *(count(row[name]) for name in counts), size(row["bytes"]), seconds(row["on_the_way"]),
        ]
        for _, row in table.head(ROWS).iterrows()
    ]  # fmt: skip
    totals = [count(table[name].sum()) for name in counts]
    rows.append(["all", "all", *totals, size(float(table["bytes"].sum())), seconds(float(mean))])
    heads, rows, never = _without_zeros(heads, rows, ("resent", "lost"))
    none = f" None was {' or '.join(never)}." if never else ""
    more = ""
    if len(table) > ROWS:
        cut = table["bytes"].iloc[ROWS - 1] == table["bytes"].iloc[ROWS]
        others = ", of which others carried as much as the last" if cut else ""
        more = f" {ROWS} of {len(table)} links, the busiest first{others}."
    note = f"On the way: from leaving to arriving, of what arrived.{none}{more}"
    return Table("What the links carried", heads, rows, [note], marked=frozenset({len(rows) - 1}))


# A deployed run beside those that simulate it: errors of the clock, and both timelines.
SIMULATIONS = 4  # simulations that are held against the real run


@dataclass(frozen=True)
class ClockPart:
    """One simulation against the real run: tables, and a figure as a data URL, "" without one."""

    label: str
    tables: Sequence[Table]
    figure: str
    about: str


@dataclass(frozen=True)
class Clocks:
    """The real run's label, what was held against it, and notes on what was not."""

    real: str
    parts: Sequence[ClockPart]
    notes: Sequence[str]


def clocks(found: Sequence[Reading], targets: Sequence[Target]) -> Clocks | None:
    """What a page says of the clock; None where there is not one deployed run beside others."""
    real = [one for one in found if deployed(one.run)]
    if len(real) != 1 or len(found) < 2:
        return None
    others = [one for one in found if one is not real[0]]
    asked: dict[str, list[float]] = {}
    for name, value in targets:
        if all(name in one.curves for one in found):
            asked.setdefault(name, []).append(value)
    runs = [one.run for one in (*real, *others[:SIMULATIONS])]
    compared = real[0].tried("the clock", lambda: errors_of_clocks(runs, asked, False))
    if compared is None:
        return None
    labels = {id(one.run): one for one in others}
    parts = [_part(labels[id(one.simulated)], one) for one in compared[0]]
    notes = [*map(_sentence, compared[1])]
    if len(others) > SIMULATIONS:
        notes.append(f"Of {len(others)} other runs the first {SIMULATIONS} are held against it.")
    return Clocks(real[0].label, parts, notes)


def _part(one: Reading, errors: ClockErrors) -> ClockPart:
    tables = [
        replace(table, title=_sentence(table.title, ""), notes=[*map(_sentence, table.notes)])
        for table in errors.tables
    ]
    about = (
        f"Timelines of each agent: above as it was, below as {one.label} simulates it; lines join "
        "the same instants of both."
    )
    figure = one.tried("both timelines", lambda: drawn(errors.plot)) or ""
    return ClockPart(one.label, tables, figure, about)


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:] + end
