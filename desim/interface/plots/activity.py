"""Timelines: who computes, whose messages are on their way, who waits, who is away.

Up to LANES agents have a lane each; of more the figure shows how many do what.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from desim.agent_names import numbered
from desim.arrays import Array
from desim.columns import columns_of
from desim.errors import InputError, refusal
from desim.interface.plots.drawable import grouped, named
from desim.interface.plots.style import (
    COLOURS,
    DASHES,
    STATES,
    Framed,
    framed,
    legend,
    look,
    name_rows,
    patches,
    spelled_time,
    unit_of,
)
from desim.numerics.later import pd
from desim.runs.reading.critical import messages
from desim.runs.reading.traffic import Occupation

if TYPE_CHECKING:
    from desim.runs.run import Run

# Spans: from when until when agents compute, have messages on their way, or are away.
COLUMNS = ("time", "kind", "agent", "peer", "round", "seconds")
KINDS = {"computes": "compute", "interrupted": "abort", "message on its way": "deliver"}


@dataclass(frozen=True)
class Spans:
    """Somebody's (n,) spans of one state, from begin to end (n,) s; agent -1: the coordinator."""

    agent: NDArray[np.int64]
    begin: Array
    end: Array

    def of(self, agent: int) -> Array:
        """The spans (m, 2) of one agent."""
        own = self.agent == agent
        return np.stack([self.begin[own], self.end[own]], axis=1)

    def among(self, who: Sequence[int]) -> "Spans":
        """The spans of some agents."""
        own = np.isin(self.agent, who)
        return Spans(self.agent[own], self.begin[own], self.end[own])

    def within(self, begin: float, end: float) -> "Spans":
        """What of the spans lies between two times s."""
        some = (self.end > begin) & (self.begin < end)
        low, high = np.maximum(self.begin[some], begin), np.minimum(self.end[some], end)
        return Spans(self.agent[some], low, high)


def spans(events: "pd.DataFrame", end: float) -> dict[str, Spans]:
    """The spans of each state; a message on its way is its sender's, as long as it was under way.

    events: its COLUMNS; end s: of the run, until when those stay away who never come back.
    """
    found = {}
    for state, kind in KINDS.items():
        rows = events[events["kind"] == kind]
        who = rows["peer" if kind == "deliver" else "agent"].to_numpy(np.int64)
        time = rows["time"].to_numpy(float)
        found[state] = Spans(who, time - rows["seconds"].to_numpy(float), time)
    seen = Occupation()
    seen.add(columns_of(events))
    on, done = np.flatnonzero(np.isfinite(seen.begun)), found["computes"]  # under way at the end
    parts = ((done.agent, on), (done.begin, seen.begun[on]), (done.end, np.full(len(on), end)))
    found["computes"] = Spans(*map(np.concatenate, parts))
    rows = events[events["kind"].isin(["down", "up"])]
    back = rows.groupby("agent")["time"].shift(-1).fillna(end)
    down = (rows["kind"] == "down").to_numpy()
    who = rows["agent"].to_numpy(np.int64)[down]
    found["away"] = Spans(who, rows["time"].to_numpy(float)[down], back.to_numpy(float)[down])
    return found


def united(parts: Sequence[Spans]) -> Spans:
    """Spans (m,) that do not overlap, each agent's own in turn, and cover what the parts cover."""
    agent = np.concatenate([part.agent for part in parts])
    begin = np.concatenate([part.begin for part in parts])
    end = np.concatenate([part.end for part in parts])
    order = np.lexsort((begin, agent))
    agent, begin = agent[order], begin[order]
    until = pd.Series(end[order]).groupby(agent).cummax().to_numpy()
    if not len(agent):
        return Spans(agent, begin, until)
    first = np.ones(len(agent), bool)
    first[1:] = (agent[1:] != agent[:-1]) | (begin[1:] > until[:-1])
    last = np.append(first[1:], True)
    return Spans(agent[first], begin[first], until[last])


def occupied(some: Spans, edges: Array) -> Array:
    """How many spans there are at a time: the mean of each bin (n,) between n + 1 edges s."""
    total = _elapsed(some.begin, edges) - _elapsed(some.end, edges)
    return np.asarray(np.diff(total) / np.diff(edges))


def _elapsed(since: Array, at: Array) -> Array:
    """The sum of at - since over all that lie before, for each time at (n,) s."""
    since = np.sort(since)
    sums = np.concatenate([[0.0], np.cumsum(since)])
    before = np.searchsorted(since, at)
    return np.asarray(before * at - sums[before])


# The figure, in lanes or as a crowd.
LANES = 24
BUSY = 24  # computations in a lane of the window that is shown if none is named
MAX_SPANS = 8000  # spans in all lanes together
BINS = 240
HALF = 0.36  # of a lane's height
CUT = 0.035  # of the time shown: how wide the mark of a cut is
STRIP = 0.14  # where messages are, at the lane's foot


def timeline(
    run: "Run",
    rounds: tuple[int, int] | None = None,
    agents: Sequence[int] | None = None,
    out: str | Path | None = None,
    **asked: Unpack[Framed],
) -> Axes:
    """Draw what agents did, in virtual time, and return the axes.

    rounds: first and last, default as many as can be read; agents: which, default all; out: a file;
    asked: title, size (inches). Where it shows a part of the run, its ends are marked as cut.
    Of more than LANES agents, or MAX_SPANS spans in a window that was asked for, their number in
    each state is drawn, averaged over 1/240 of the time shown: all of it if no rounds are named.
    InputError where the log left computations or messages out, or for rounds or agents that the
    run has not.
    """
    run.require("timeline", "compute", "deliver")
    events = run.store.table("events", list(COLUMNS))
    if events.empty:
        raise InputError(f"timeline: run {run.name} has no events: it ended before anything began")
    end = max(float(run.manifest.get("time") or 0.0), float(events["time"].max()))
    n = int(events[["agent", "peer"]].to_numpy().max()) + 1
    who = list(range(n) if agents is None else agents)
    for agent in who:
        if agent not in range(n):
            raise InputError(f"agents: {refusal(agent, f'0 to {n - 1}')}")
    who, lanes = [int(agent) for agent in who], len(who) <= LANES
    window = window_of(events, rounds, len(who) if lanes else None, end)
    found = {state: some.among([-1, *who]) for state, some in spans(events, end).items()}
    states = {state: some.within(*window) for state, some in found.items()}
    states["message on its way"] = united([states["message on its way"]])
    lanes = lanes and sum(len(some.begin) for some in states.values()) <= MAX_SPANS
    unit, factor = unit_of("time", window[1])
    height = 1.15 + 0.17 * (len(who) + 1) if lanes else 3.1
    with framed(out, (6.4 if lanes else 5.0, height), **asked) as axes:
        if lanes:
            hub = -1 in events["agent"].unique() and agents is None
            shown = ([-1] if hub else []) + who
            _draw_lanes(axes, events, states, shown, window, factor)
            names = ["coordinator" if one < 0 else numbered(run.manifest, one) for one in shown]
            name_rows(axes, names, -0.5)
        else:
            _draw_crowd(axes, events, states, who, window, factor)
        axes.set_xlabel(f"virtual time ({unit})")
        mark_cuts(axes, window, end, factor)
    return axes


def mark_cuts(axes: Axes, window: tuple[float, float], end: float, factor: float) -> None:
    """The limits of the abscissa; beyond an end of the window that is none of the run, a strip."""
    low, high = window[0] * factor, window[1] * factor
    wide = CUT * (high - low)
    cuts = [(low - wide, low, "cut: begins before")] if window[0] > 0.0 else []
    rest = f"cut: goes on to {spelled_time(end)}"
    cuts += [(high, high + wide, rest)] if window[1] < end else []
    for left, right, text in cuts:
        axes.axvspan(left, right, facecolor="white", edgecolor=COLOURS[1], hatch="//////",
                     linewidth=0.0, zorder=5)  # fmt: skip
        axes.axvline(low if right == low else high, color=COLOURS[1], linewidth=1.4, zorder=6)
        axes.text(
            0.5 * (left + right), 0.5, text, transform=axes.get_xaxis_transform(), rotation=90,
            ha="center", va="center", fontsize=8, color=COLOURS[1], zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    axes.set_xlim(cuts[0][0] if window[0] > 0.0 else low, cuts[-1][1] if window[1] < end else high)
    if cuts:
        axes.set_xlabel(f"{axes.get_xlabel()}, from {spelled_time(window[0])} to "
                        f"{spelled_time(window[1])} of {spelled_time(end)}")  # fmt: skip


def window_of(
    events: "pd.DataFrame", rounds: tuple[int, int] | None, lanes: int | None, end: float
) -> tuple[float, float]:
    """The times s that are shown."""
    if rounds is not None:
        first, last = rounds
        rows = events[events["round"].between(first, last)]
        if first > last or rows.empty:
            allowed = f"first-last, of rounds up to {int(events['round'].max())}"
            raise InputError(f"rounds: {refusal(f'{first}-{last}', allowed)}")
        lasted = rows["kind"].isin(KINDS.values())
        begins = rows["time"] - rows["seconds"].where(lasted, 0.0)
        return float(max(begins.min(), 0.0)), float(rows["time"].max())
    done = events.loc[events["kind"] == "compute", "time"].to_numpy()
    if lanes is None or len(done) <= BUSY * lanes:
        return 0.0, end or 1.0
    return 0.0, float(done[BUSY * lanes])


def _draw_lanes(
    axes: Axes, events: "pd.DataFrame", states: dict[str, Spans], who: list[int],
    window: tuple[float, float], factor: float,
) -> None:  # fmt: skip
    """A lane for each: what it does, a strip for its messages, a tick where its wait closes."""
    retired = events[events["kind"] == "retire"].groupby("agent")["time"].min()
    closed = events[(events["kind"] == "aggregate") & events["time"].between(*window)]
    ends = np.array([min(retired.get(agent, np.inf), window[1]) for agent in who])
    bars = [bars_of(np.array([[window[0], max(window[0], one)]]), n) for n, one in enumerate(ends)]
    fill_bars(axes, bars, "waits", factor)
    for state, some in states.items():
        strip = state == "message on its way"
        foot = HALF - STRIP if strip else -HALF
        bars = [bars_of(some.of(agent), lane, foot) for lane, agent in enumerate(who)]
        fill_bars(axes, bars, state, factor)
    for lane, agent in enumerate(who):
        times = closed.loc[closed["agent"] == agent, "time"].to_numpy()
        axes.vlines(times * factor, lane - HALF, lane + HALF, color="black", linewidth=0.8)
    axes.set_ylabel("agent")
    axes.grid(visible=False)
    present = [state for state, some in states.items() if len(some.begin)]
    patches(axes, [*present, "waits"], "a wait closes" if len(closed) else None)


def bars_of(times: Array, lane: int, top: float = -HALF, foot: float = HALF) -> Array:
    """Corners (n, 4, 2) of bars from begin to end s, times (n, 2), in a lane from top to foot."""
    begin, end = times[:, 0], times[:, 1]
    high, low = np.full(len(times), lane + top), np.full(len(times), lane + foot)
    corners = [(begin, high), (end, high), (end, low), (begin, low)]
    return np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)


def fill_bars(axes: Axes, bars: list[Array], state: str, factor: float) -> None:
    """Fill bars, those of each lane, in the colour of a state."""
    corners = np.concatenate(bars) * [factor, 1.0]
    axes.add_collection(
        PolyCollection(list(corners), facecolors=STATES[state], linewidths=0.0), autolim=False
    )


def _draw_crowd(
    axes: Axes, events: "pd.DataFrame", states: dict[str, Spans], who: list[int],
    window: tuple[float, float], factor: float,
) -> None:  # fmt: skip
    """How many are in each state: one that computes counts as computing, whatever it sends."""
    edges = np.linspace(*window, BINS + 1)
    some = {state: one.among(who) for state, one in states.items()}  # not the coordinator
    gone = events.loc[(events["kind"] == "retire") & events["agent"].isin(who), "time"]
    left = gone.to_numpy(float)
    out = Spans(np.arange(len(left)), left, np.full(len(left), window[1])).within(*window)
    levels = [np.zeros(BINS)]
    levels += [occupied(united(list(some.values())[: n + 1]), edges) for n in range(len(some))]
    away = levels[-1] - levels[-2]
    bounds = [*levels[:-1], len(who) - occupied(out, edges) - away, len(who) - occupied(out, edges)]
    names = [*list(some)[:-1], "waits", "away"]
    present = [name for name in names if name == "waits" or len(some[name].begin)]
    for name, low, high in zip(names, bounds, bounds[1:], strict=False):
        if name in present:
            low, high = np.append(low, low[-1]), np.append(high, high[-1])
            axes.fill_between(
                edges * factor, low, high, step="post", color=STATES[name], linewidth=0
            )
    axes.set_ylim(0, len(who))
    axes.set_ylabel("agents")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    patches(axes, present, None)


# Two clocks: what agents did in reality and in the simulation, one over the other.
PAIRS = 12  # agents that are shown, the farthest apart of more
TOP, GAP = 0.42, 0.03  # of a lane: its upper and lower half, and what is between them
HALF_STRIP = 0.1  # where messages are, at each half's foot
RIGHT = 0.01  # of the figure's width: between the lanes and what stands beside them
PARTED = COLOURS[1]
NOTHING = 1e-9  # s: no clock is so fine


def clocks(
    real: "Run",
    simulated: "Run",
    rounds: tuple[int, int] | None = None,
    agents: Sequence[int] | None = None,
    out: str | Path | None = None,
    **asked: Unpack[Framed],
) -> Axes:
    """Draw each agent twice, above as it was and below as it was simulated; return the axes.

    rounds: first and last, default as many as can be read; agents: which, default all, and of more
    than 12 those whose messages and computations are farthest off; out: a file; asked: title, size.
    A line leads from where a wait closed in reality to where it closed in the simulation; beside
    each agent stands by how much its last wait or arrival in what is shown is late (+) or early.
    """
    for run in (real, simulated):
        run.require("clocks", "compute", "deliver")
    logs = [run.store.table("events") for run in (real, simulated)]
    if any(log.empty for log in logs):
        raise InputError("clocks: a run has no events: it ended before anything began")
    ends = [float(log["time"].max()) for log in logs]
    who, every = _chosen(logs, agents)
    pairs = zip(logs, ends, strict=True)
    windows = [window_of(log, rounds, min(len(who), BUSY), end) for log, end in pairs]
    window = min(one[0] for one in windows), max(one[1] for one in windows)
    hub = [-1] if agents is None and all((log["agent"] < 0).any() for log in logs) else []
    shown = [*hub, *who]
    unit, factor = unit_of("time", window[1])
    with framed(out, (6.6, 1.35 + 0.3 * len(shown)), **asked) as axes:
        present: dict[str, None] = {}
        for side, (log, end) in enumerate(zip(logs, ends, strict=True)):
            present |= dict.fromkeys(_draw_side(axes, log, end, shown, window, factor, side))
        _join(axes, logs, shown, window, factor)
        names = ["coordinator" if one < 0 else numbered(real.manifest, one) for one in shown]
        name_rows(axes, names)
        few = f" (the {len(who)} farthest apart of {every})" if len(who) < every else ""
        axes.set_ylabel(f"agent{few}")
        axes.set_xlabel(f"time ({unit})")
        axes.grid(visible=False)
        mark_cuts(axes, window, max(ends), factor)
        for state in [*present, "waits"]:
            axes.plot(
                [], [], linestyle="", marker="s", markersize=7, color=STATES[state], label=state
            )
        text = "the same instant, above real, below simulated; right: error at the end"
        axes.plot([], [], color=PARTED, linewidth=1.0, label=text)
        legend(axes)
    return axes


def _chosen(logs: "list[pd.DataFrame]", wanted: Sequence[int] | None) -> tuple[list[int], int]:
    """The agents that are shown, in order, and how many there are."""
    both = set(logs[0]["agent"].unique()) & set(logs[1]["agent"].unique())
    known = sorted(int(one) for one in both if one >= 0)
    if wanted is not None:
        for agent in wanted:
            if agent not in known:
                raise InputError(f"agents: found {agent}; allowed: those of both runs")
        return [int(one) for one in wanted], len(wanted)
    if len(known) <= PAIRS:
        return known, len(known)
    apart = _apart(logs)
    worst = sorted(known, key=lambda one: -apart.get(one, 0.0))[:PAIRS]
    return sorted(worst), len(known)


def _apart(logs: "list[pd.DataFrame]") -> dict[int, float]:
    """By how much s the computations and messages of each agent are off, in all."""
    total: dict[int, float] = {}
    for kind, owner in (("compute", "agent"), ("deliver", "peer")):
        keys = ["agent", "peer", "round"]
        sums = [
            log[log["kind"] == kind].groupby(keys)["seconds"].sum() for log in logs
        ]  # several of a round together
        error = (sums[1] - sums[0]).abs().dropna().groupby(level=owner).sum()
        for who, seconds in error.items():
            total[int(str(who))] = total.get(int(str(who)), 0.0) + float(seconds)
    return total


def _draw_side(
    axes: Axes, log: "pd.DataFrame", end: float, who: list[int], window: tuple[float, float],
    factor: float, side: int,
) -> list[str]:  # fmt: skip
    """One run in its halves of the lanes; return which states there are."""
    top, foot = ((-TOP, -GAP), (GAP, TOP))[side]
    last = min(end, window[1])
    whole = np.array([[window[0], max(window[0], last)]])
    fill_bars(axes, [bars_of(whole, lane, top, foot) for lane in range(len(who))], "waits", factor)
    found = {
        state: some.among(who).within(*window)
        for state, some in spans(log[list(COLUMNS)], end).items()
    }
    found["message on its way"] = united([found["message on its way"]])
    for state, some in found.items():
        begin = foot - HALF_STRIP if state == "message on its way" else top
        bars = [bars_of(some.of(one), lane, begin, foot) for lane, one in enumerate(who)]
        fill_bars(axes, bars, state, factor)
    return [state for state, some in found.items() if len(some.begin)]


def _join(
    axes: Axes, logs: "list[pd.DataFrame]", who: list[int], window: tuple[float, float],
    factor: float,
) -> None:  # fmt: skip
    """A line from each closed wait to the same in the simulation, and how late each agent is."""
    lines = []
    sent = [messages(log) for log in logs]
    for lane, one in enumerate(who):
        ends = [_ends(log, some, one) for log, some in zip(logs, sent, strict=True)]
        both = ends[0].index.intersection(ends[1].index)
        first, second = (some.loc[both].to_numpy(float) for some in ends)
        inside = (first >= window[0]) & (first <= window[1]) & (second <= window[1])
        for begin, end in zip(first[inside] * factor, second[inside] * factor, strict=True):
            above, below = (begin, lane - TOP), (begin, lane - GAP)
            lines.append([above, below, (end, lane + GAP), (end, lane + TOP)])
        if inside.any():
            late = float(second[inside][-1] - first[inside][-1])
            text = ("+" if late > 0.0 else "-") + spelled_time(abs(late))
            axes.annotate(
                text if abs(late) > NOTHING else "0", (1.0 + RIGHT, lane), va="center", fontsize=8,
                xycoords=axes.get_yaxis_transform(), annotation_clip=False,
                color=PARTED if abs(late) > NOTHING else "black",
            )  # fmt: skip
    axes.add_collection(
        LineCollection(lines, colors=PARTED, linewidths=1.0, zorder=4), autolim=False
    )


def _ends(log: "pd.DataFrame", sent: "pd.DataFrame", who: int) -> "pd.Series[float]":
    """When each wait of a node closed s, by round; of an agent of a coordinator its replies."""
    closed = log[(log["kind"] == "aggregate") & (log["agent"] == who)]
    if len(closed):
        return closed.groupby("round")["time"].max()
    return sent[(sent["sender"] == who)].groupby("round")["time"].max()


# How busy each agent was, and how stale what was used was.


Ints = NDArray[Any]
BARS = 80
FEWEST = 4  # rounds that an axis is long at least
RANKS = 400  # bars of agents without names
NAMED = 40  # agents up to which each has a bar with its name
PARTS = {"computing": "computes", "aborted": "interrupted", "idle": "waits", "away": "away"}


def utilisation(run: "Run", out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
    """Draw what share of the run's time each agent computed, waited and was away; return the axes.

    More than NAMED agents are sorted, the busiest first, and of
    more than RANKS neighbours in that order are averaged. Computations that were interrupted are
    apart. out: a file; asked: title, size (inches). InputError where the log left computations or
    messages out.
    """
    table = run.utilisation()
    if table.empty or not float(run.manifest.get("time", 0.0)) > 0.0:
        raise InputError(f"utilisation: no virtual time has passed in run {run.name}")
    seconds = table[list(PARTS)].to_numpy(float)
    share = 100.0 * seconds / seconds.sum(axis=1, keepdims=True)
    n = len(table)
    named = n <= NAMED
    if not named:
        share = share[np.argsort(-share[:, 0], kind="stable")]
        share = np.array([part.mean(axis=0) for part in np.array_split(share, min(n, RANKS))])
    present = [number for number in range(len(PARTS)) if share[:, number].any()]
    states = list(PARTS.values())
    ends = np.cumsum(share, axis=1)
    usual = (5.0, float(np.clip(0.9 + 0.16 * n, 1.8, 6.5)) if named else 3.1)
    with framed(out, usual, **asked) as axes:
        for number in present:
            low, colour = ends[:, number] - share[:, number], STATES[states[number]]
            if named:
                axes.barh(np.arange(n), share[:, number], 0.72, left=low, color=colour)
            else:
                rank = np.linspace(0.0, n, len(share) + 1)
                low, high = np.append(low, low[-1]), np.append(ends[:, number], ends[-1, number])
                axes.fill_between(rank, low, high, step="post", color=colour, linewidth=0)
        part, who = (axes.xaxis, axes.yaxis) if named else (axes.yaxis, axes.xaxis)
        part.set_major_formatter(PercentFormatter(decimals=0, symbol=" %"))
        part.set_label_text("share of the run's time")
        who.grid(visible=False)
        if named:
            axes.set_xlim(0.0, 100.0)
            name_rows(axes, [numbered(run.manifest, agent) for agent in range(n)], -0.5)
            axes.set_ylabel("agent")
        else:
            axes.set_ylim(0.0, 100.0)
            axes.set_xlim(0, n)
            axes.set_xlabel("agents, the busiest first")
        patches(axes, [states[number] for number in present])
    return axes


def staleness(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]",
    out: str | Path | None = None,
    *,
    labels: Sequence[str] | None = None,
    **asked: Unpack[Framed],
) -> Axes:
    """Draw which share of what was used was so many rounds old, for each run; return the axes.

    Runs that differ in their seeds only are counted together. A reply counts in the collection
    that used it, a neighbour's message at every wait that closed with it as the newest. out: a
    file; labels: of the runs, in order; asked: title, size (inches). InputError where the log left
    out what tells it, or nothing was used.
    """
    ages = {
        named(group): np.concatenate(
            [run.staleness()["staleness"].to_numpy(int) for run in group.runs]
        )
        for group in grouped(runs, labels)
    }
    empty = [label for label, rows in ages.items() if not len(rows)]
    if empty:
        raise InputError(f"staleness: nothing was used in run {empty[0]}")
    with framed(out, **asked) as axes:
        if len(ages) == 1:
            _draw_shares(axes, *ages.items())
        else:
            _draw_distributions(axes, ages)
        last = max(int(rows.max()) for rows in ages.values())
        first = min(int(rows.min()) for rows in ages.values())
        axes.set_xlim(first - 0.6, max(last, first + FEWEST) + 0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlabel("staleness: rounds between what was used and now")
        axes.set_ylim(0.0, None if len(ages) == 1 and last > first else 104.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.6g} %"))
        axes.grid(visible=False, axis="x")
        legend(axes)
    return axes


def _draw_shares(axes: Axes, labelled: tuple[str, Ints]) -> None:
    """Bars of one run, each of one round where there are not too many."""
    label, ages = labelled
    width = 1 + int(ages.max() - ages.min()) // BARS
    first = int(ages.min())
    share = 100.0 * np.bincount((ages - first) // width) / len(ages)
    at = first + width * np.arange(len(share)) + 0.5 * (width - 1)
    axes.bar(at, share, 0.8 * width, color=COLOURS[0], label=_mean(label, ages))
    per = "" if width == 1 else f" ({width} rounds together)"
    axes.set_ylabel(f"share of what was used{per}")


def _draw_distributions(axes: Axes, ages: Mapping[str, Ints]) -> None:
    """For each run the share that was at most so old."""
    first = min(int(rows.min()) for rows in ages.values())
    last = max(int(rows.max()) for rows in ages.values())
    for number, (label, rows) in enumerate(ages.items()):
        own = int(rows.min())
        share = np.cumsum(np.bincount(rows - own)) / len(rows)
        at = np.concatenate([[own], own + np.arange(len(share)), [max(last, first + FEWEST) + 0.6]])
        height = 100.0 * np.concatenate([[0.0], share, [1.0]])
        axes.step(
            at, height, where="post", label=_mean(label, rows), color=look(number)[0],
            linestyle=DASHES[number % len(DASHES)],
        )  # fmt: skip
    axes.set_ylabel("share that was at most so old")


def _mean(label: str, ages: Ints) -> str:
    """What the ages come to in a word or a number."""
    return f"{label}: mean {ages.mean():.2g}" if ages.any() else f"{label}: all fresh"
