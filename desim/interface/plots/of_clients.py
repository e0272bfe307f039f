"""Clients on their own test rows: a band over time, and who is served badly."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from desim.agent_names import agent_named, numbered
from desim.arrays import Array, Int
from desim.columns import gathered
from desim.errors import InputError, chosen
from desim.interface.plots.drawable import band, grouped, named, thinned
from desim.interface.plots.style import (
    COLOURS,
    INK,
    STYLE,
    Framed,
    Look,
    framed,
    legend,
    look,
    name_rows,
    plain,
    scale,
    scaled,
    unit_of,
    worded,
    wrapped,
)
from desim.runs.reading.series import Series

if TYPE_CHECKING:
    from desim.runs.run import Run

AGAINST = ("agent", "rows", "computing", "messages", "contributions")
WORDS = {
    "rows": "training rows",
    "computing": "mean time of a completed computation",
    "messages": "mean time of a delivered message on its way",
    "contributions": "collections that have its replies",
}
OWN = "own test accuracy"
NAMED = 40  # clients up to which each has a bar with its name
NAME_HEIGHT = 0.11  # inches that a name needs
AROUND = 0.9  # inches of legend and abscissa
TOLD = 5  # of the worst, that are named beside their points
WIDE_RANGE = 30.0  # how far apart abscissae are that get a logarithmic axis
ENDS = "worst_decile", "mean", "best_decile"
BAND = "mean over clients, from their worst to their best tenth"


# The band of clients over time.


class Spread(NamedTuple):
    """Of clients over time s (n,): the mean over the worst tenth, all, and the best tenth (n,)."""

    time: Array
    low: Array
    middle: Array
    high: Array


def clients(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]",
    out: str | Path | None = None,
    *,
    labels: Sequence[str] | None = None,
    **asked: Unpack[Look],
) -> Axes:
    """Draw the mean accuracy of clients on their own test rows over time, in a band; return axes.

    The band is from the mean over the tenth of clients with the lowest accuracies to that over the
    tenth with the highest. Of runs that differ in their seeds only each of the three lines is the
    median. out: a file; labels: of the bands, in order; asked: title, size (inches), ylim, log.
    InputError where clients' accuracies were not measured.
    """
    found = [(named(one), len(one.runs), _spread(one)) for one in grouped(runs, labels)]
    last = max(float(one.time[-1]) for _, _, one in found)
    unit, factor = unit_of("time", last)
    with scaled(out, **asked) as axes:
        for number, (label, seeds, one) in enumerate(found):
            colour, dashes = look(number)
            text = f"{label}: median of {seeds} seeds" if seeds > 1 else label
            at = one.time * factor
            axes.plot(
                at, one.middle, color=colour, linestyle=dashes, drawstyle="steps-post",
                label=text, zorder=3 + number,
            )  # fmt: skip
            for end in (one.low, one.high):
                axes.plot(at, end, color=colour, linewidth=0.6, drawstyle="steps-post", alpha=0.7)
            axes.fill_between(
                at, one.low, one.high, step="post", color=colour, alpha=0.15, linewidth=0
            )
        axes.set_xlim(0.0, last * factor * 1.02 or 1.0)
        axes.set_xlabel(f"virtual time ({unit})")
        ends = np.concatenate([end for _, _, one in found for end in (one.low, one.high)])
        scale(axes, "client_accuracy", ends)
        axes.set_ylabel(OWN)
        wide = (asked.get("size") or STYLE["figure.figsize"])[0]
        legend(axes, wrapped(BAND, int(13.0 * wide)))
    return axes


def _spread(group: Series) -> Spread:
    """The band of a run, or the median of those of several seeds."""
    tables = [run.fairness() for run in group.runs]
    times = [one["time"].to_numpy(float) for one in tables]
    lines = {name: [one[name].to_numpy(float) for one in tables] for name in ENDS}
    if len(tables) == 1:
        at = times[0]
        low, middle, high = (thinned(at, lines[name][0]) for name in ENDS)
        every = np.unique(np.concatenate([low[0], middle[0], high[0]]))
        rows = np.searchsorted(at, every)
        return Spread(every, *(lines[name][0][rows] for name in ENDS))
    medians = [band([*zip(times, lines[name], strict=True)], True, "none") for name in ENDS]
    return Spread(medians[0][0], *(middle for _, _, middle, _ in medians))


# Who is served badly, when clients were last measured.


class Ends(NamedTuple):
    """Clients (n,), their accuracies, and whom the worst tenth are, the worst first."""

    who: Int
    accuracy: Array
    worst: Int

    @property
    def bad(self) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
        """Whether a client is one of these (n,)."""
        return np.isin(self.who, self.worst)


def served(
    run: "Run", against: str = "agent", out: str | Path | None = None, **asked: Unpack[Framed]
) -> Axes:
    """Draw each client's accuracy on its own test rows when last measured; return the axes.

    against: agent, a bar for each, the worst first, a staircase of more than NAMED or where their
    names have no room; or a point for each, against its training rows, the mean time of its
    computations that were completed, that of its messages that were delivered, or how many
    collections have its replies. The tenth of clients with the lowest
    accuracies has another colour. out: a file; asked: title, size (inches). InputError where these
    were not measured, or the log left out what tells the abscissa.
    """
    chosen("against", against, AGAINST)
    if run.fairness().empty:
        raise InputError(f"served: nothing was measured in run {run.name}")
    table = run.clients()
    last = table[table["time"] == table["time"].max()]
    last = last[last["round"] == last["round"].max()]
    accuracy = last["accuracy"].to_numpy(float)
    order = np.argsort(accuracy, kind="stable")
    who = last["agent"].to_numpy(np.int64)
    ends = Ends(who, accuracy, who[order[: -(-len(who) // 10)]])
    if against != "agent":
        return _points(run, ends, against, out, asked)
    place, size = (who[order], accuracy[order]), asked.get("size")
    room = np.inf if size is None else (size[1] - AROUND) / NAME_HEIGHT
    draw = _bars if len(who) <= min(NAMED, room) else _stairs
    return draw(run, Ends(*place, ends.worst), out, asked)


def _bars(run: "Run", ends: Ends, out: str | Path | None, asked: Framed) -> Axes:
    """A bar for each client."""
    n = len(ends.who)
    usual = 5.0, float(np.clip(AROUND + 0.16 * n, 1.8, 6.5))
    with framed(out, usual, **asked) as axes:
        colours = np.where(ends.bad, COLOURS[1], COLOURS[0])
        axes.barh(np.arange(n), ends.accuracy, 0.72, color=colours)
        name_rows(axes, [plain(numbered(run.manifest, int(one))) for one in ends.who], -0.5)
        axes.set_ylabel("client")
        axes.axvline(ends.accuracy.mean(), color=INK, linewidth=0.9, linestyle="--")
        axes.set_xlim(0.0, 1.0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g} %"))
        axes.set_xlabel(OWN)
        _explain(axes, ends)
    return axes


def _stairs(run: "Run", ends: Ends, out: str | Path | None, asked: Framed) -> Axes:
    """Clients in order, of so many that they have no names."""
    n, bad = len(ends.who), len(ends.worst)
    with framed(out, **asked) as axes:
        rank = np.arange(n + 1)
        value = np.append(ends.accuracy, ends.accuracy[-1])
        for part, colour in ((slice(0, bad + 1), COLOURS[1]), (slice(bad, n + 1), COLOURS[0])):
            axes.fill_between(rank[part], value[part], step="post", color=colour, linewidth=0)
        axes.axhline(ends.accuracy.mean(), color=INK, linewidth=0.9, linestyle="--")
        axes.set_xlim(0, n)
        axes.set_ylim(0.0, 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("clients, the worst first")
        _share_ordinate(axes)
        _explain(axes, ends)
    return axes


def _points(
    run: "Run", ends: Ends, against: str, out: str | Path | None, asked: Framed
) -> Axes:  # fmt: skip
    """A point for each client, the worst of them named."""
    value, unit = _abscissa(run, against, ends.who)
    known = np.isfinite(value)
    with framed(out, **asked) as axes:
        for bad, colour in ((False, COLOURS[0]), (True, COLOURS[1])):
            some = known & (ends.bad == bad)
            axes.scatter(
                value[some], ends.accuracy[some], s=22, color=colour, alpha=0.8, linewidths=0,
                zorder=3 + bad,
            )  # fmt: skip
        if value[known].min() > 0.0 and value[known].max() > WIDE_RANGE * value[known].min():
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda one, _: f"{one:g}"))
        axes.axhline(ends.accuracy.mean(), color=INK, linewidth=0.9, linestyle="--")
        axes.margins(0.06, 0.08)
        left = int((~known).sum())
        lacking = f"\n{left} client{'s' * (left > 1)} without any left out" if left else ""
        axes.set_xlabel(WORDS[against] + (f" ({unit})" if unit else "") + lacking)
        for row in np.flatnonzero(ends.bad & known) if len(ends.worst) <= TOLD else ():
            agent = ends.who[row]
            axes.annotate(
                plain(agent_named(run.manifest, int(agent))), (value[row], ends.accuracy[row]),
                (5, -3), textcoords="offset points", fontsize=7.5, color=INK,
            )  # fmt: skip
        _share_ordinate(axes)
        _explain(axes, ends)
    return axes


def _share_ordinate(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g} %"))
    axes.set_ylabel(OWN)


def _explain(axes: Axes, ends: Ends) -> None:
    """What colours and the line stand for."""
    worst = float(ends.accuracy[ends.bad].mean())
    mean = float(ends.accuracy.mean())
    parts = (
        (COLOURS[1], "s", f"worst tenth: {worded('accuracy', worst, 3)}"),
        (COLOURS[0], "s", "other clients"),
    )
    for colour, mark, text in parts:
        axes.plot([], [], color=colour, marker=mark, linestyle="", label=text)
    axes.plot([], [], color=INK, linewidth=0.9, linestyle="--",
              label=f"mean of all: {worded('accuracy', mean, 3)}")  # fmt: skip
    legend(axes)


def _abscissa(run: "Run", against: str, who: Int) -> tuple[Array, str]:
    """What clients who (n,) are drawn against (n,), and its unit; nan where it is not known."""
    if against == "rows":
        return np.array(run.manifest["rows"], float)[who], ""
    if against == "contributions":
        if run.scenario.kind != "coordinator":
            text = "against: found contributions with a graph, where nobody collects replies"
            raise InputError(f"{text}; allowed: {', '.join(AGAINST[:-1])}")
        return run.participation()["contributions"].to_numpy(float)[who], ""
    value = _computing(run, who) if against == "computing" else _messages(run, who)
    if not np.isfinite(value).any():
        raise InputError(f"served: {WORDS[against]} is known of no client of run {run.name}")
    unit, factor = unit_of("time", float(np.nanmax(value)))
    return value * factor, unit


def _computing(run: "Run", who: Int) -> Array:
    run.require("served", "compute")
    pieces = run.store.pieces("events", ["kind", "agent", "seconds"])
    log = gathered(pieces, lambda one: one["kind"].equal("compute") & (one["agent"] >= 0))
    return _means(log["agent"], log["seconds"], np.ones(len(log["agent"])), who)


def _messages(run: "Run", who: Int) -> Array:
    links = run.links()
    parts = [
        links[[end, "delivered", "on_the_way"]].to_numpy(float) for end in ("source", "target")
    ]
    table = np.concatenate(parts)
    table = table[(table[:, 0] >= 0) & (table[:, 1] > 0)]
    return _means(table[:, 0].astype(np.int64), table[:, 2], table[:, 1], who)


def _means(agent: Int, value: Array, weight: Array, who: Int) -> Array:
    """Means of values (m,), so weighted, of the agents (m,) that are `who` (n,)."""
    size = int(who.max()) + 1
    with np.errstate(invalid="ignore"):
        means = np.bincount(agent, value * weight, size) / np.bincount(agent, weight, size)
    return np.asarray(means[who])
