"""How busy each agent was, and how stale what was used was."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from desim.agent_names import numbered
from desim.errors import InputError
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
)
from desim.runs.played import Played

Ints = NDArray[Any]
BARS = 80
FEWEST = 4  # rounds that an axis is long at least
RANKS = 400  # bars of agents without names
NAMED = 40  # agents up to which each has a bar with its name
PARTS = {"computing": "computes", "aborted": "interrupted", "idle": "waits", "away": "away"}


def utilisation(run: Played, out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
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
    runs: Sequence[Played] | Mapping[str, Sequence[Played]],
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
