"""Two clocks: what agents did in reality and in the simulation, one over the other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from desim.errors import InputError
from desim.interface.plots.activity import (
    BUSY,
    COLUMNS,
    Spans,
    bars_of,
    fill_bars,
    mark_cuts,
    spans,
    united,
    window_of,
)
from desim.interface.plots.style import (
    COLOURS,
    STATES,
    Framed,
    framed,
    legend,
    spelled_time,
    unit_of,
)
from desim.runs.played import Played
from desim.runs.reading.critical import messages
from desim.runs.reading.series import numbered

PAIRS = 12  # agents that are shown, the farthest apart of more
TOP, GAP = 0.42, 0.03  # of a lane: its upper and lower half, and what is between them
STRIP = 0.1  # where messages are, at each half's foot
RIGHT = 0.01  # of the figure's width: between the lanes and what stands beside them
PARTED = COLOURS[1]
NOTHING = 1e-9  # s: no clock is so fine


def clocks(
    real: Played,
    simulated: Played,
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
        axes.set_yticks(range(len(shown)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(shown) - 0.45, -0.55)
        few = f" (the {len(who)} farthest apart of {every})" if len(who) < every else ""
        axes.set_ylabel(f"agent{few}")
        axes.set_xlabel(f"time ({unit})")
        axes.grid(visible=False)
        mark_cuts(axes, window, max(ends), factor)
        _explain(axes, list(present))
    return axes


def _chosen(logs: list[pd.DataFrame], wanted: Sequence[int] | None) -> tuple[list[int], int]:
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


def _apart(logs: list[pd.DataFrame]) -> dict[int, float]:
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
    axes: Axes, log: pd.DataFrame, end: float, who: list[int], window: tuple[float, float],
    factor: float, side: int,
) -> list[str]:  # fmt: skip
    """One run in its halves of the lanes; return which states there are."""
    top, foot = ((-TOP, -GAP), (GAP, TOP))[side]
    last = min(end, window[1])
    whole = np.array([[window[0], max(window[0], last)]])
    fill_bars(axes, [bars_of(whole, lane, top, foot) for lane in range(len(who))], "waits", factor)
    found = {
        state: _of(some, who).within(*window)
        for state, some in spans(log[list(COLUMNS)], end).items()
    }
    found["message on its way"] = united([found["message on its way"]])
    for state, some in found.items():
        begin = foot - STRIP if state == "message on its way" else top
        bars = [bars_of(some.of(one), lane, begin, foot) for lane, one in enumerate(who)]
        fill_bars(axes, bars, state, factor)
    return [state for state, some in found.items() if len(some.begin)]


def _of(some: Spans, who: list[int]) -> Spans:
    own = np.isin(some.agent, who)
    return Spans(some.agent[own], some.begin[own], some.end[own])


def _join(
    axes: Axes, logs: list[pd.DataFrame], who: list[int], window: tuple[float, float],
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
            axes.annotate(
                _late(late), (1.0 + RIGHT, lane), xycoords=axes.get_yaxis_transform(), va="center",
                fontsize=8, color=PARTED if abs(late) > NOTHING else "black", annotation_clip=False,
            )  # fmt: skip
    axes.add_collection(
        LineCollection(lines, colors=PARTED, linewidths=1.0, zorder=4), autolim=False
    )


def _ends(log: pd.DataFrame, sent: pd.DataFrame, who: int) -> "pd.Series[float]":
    """When each wait of a node closed s, by round; of an agent of a coordinator its replies."""
    closed = log[(log["kind"] == "aggregate") & (log["agent"] == who)]
    if len(closed):
        return closed.groupby("round")["time"].max()
    return sent[(sent["sender"] == who)].groupby("round")["time"].max()


def _late(seconds: float) -> str:
    if abs(seconds) <= NOTHING:
        return "0"
    return ("+" if seconds > 0.0 else "-") + spelled_time(abs(seconds))


def _explain(axes: Axes, states: list[str]) -> None:
    """The legend: the states, and what the line is."""
    for state in [*states, "waits"]:
        axes.plot([], [], linestyle="", marker="s", markersize=7, color=STATES[state], label=state)
    text = "the same instant, above real, below simulated; right: error at the end"
    axes.plot([], [], color=PARTED, linewidth=1.0, label=text)
    legend(axes)
