"""Epsilon over time: what each agent has spent."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from desim.errors import InputError
from desim.plots.course import Logged, terms
from desim.plots.style import COLOURS, INK, drawing, legend, unit_of

Array = NDArray[np.float64]
LINES = 40  # agents up to which each has a line
POINTS = 400


def epsilon(run: Logged, out: str | Path | None = None) -> Axes:
    """Draw what each agent has spent by each time, in the scenario's terms, and return the axes.

    The line on top is the agent that spends most, the dashed one the median agent; more than LINES
    agents are a band from the least to the most. Where the scenario has a budget, it is drawn.
    out: a file. InputError for an epsilon that is infinite, with the reason.
    """
    about = terms({run.name: run})
    spent = run.epsilon()
    if spent.empty:
        raise InputError(f"epsilon: run {run.name} has released nothing that costs any")
    end = max(float(run.manifest.get("time") or 0.0), float(spent["time"].max() or 0.0)) or 1.0
    unit, factor = unit_of("time", end)
    curves = _curves(spent, end)
    at = np.linspace(0.0, end, POINTS)
    rows = np.array([_held(time, value, at) for time, value in curves.values()])
    with drawing(out) as axes:
        if len(rows) > LINES:
            low, high = rows.min(axis=0), rows.max(axis=0)
            axes.fill_between(
                at * factor, low, high, step="post", color=COLOURS[0], alpha=0.2, linewidth=0,
                label=f"{len(rows)} agents",
            )  # fmt: skip
        elif len(rows):
            _draw_agents(axes, curves, factor)
        if len(rows) > 1:
            median = np.median(rows, axis=0)
            axes.step(at * factor, median, where="post", color="black", linestyle="--",
                      label="median agent", zorder=4)  # fmt: skip
        _draw_budget(axes, run, float(rows.max()) if len(rows) else 0.0)
        axes.set_xlim(0.0, end * factor)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel(f"virtual time ({unit})\n{about}")
        axes.set_ylabel(r"$\varepsilon$ spent so far")
        if axes.get_legend_handles_labels()[1]:
            legend(axes)
    return axes


def _curves(spent: pd.DataFrame, end: float) -> dict[int, tuple[Array, Array]]:
    """Times s and epsilons (m,) of each agent, from nothing at 0 s to the end of the run."""
    curves = {}
    for agent, rows in spent.groupby("agent"):
        time, value = rows["time"].to_numpy(float), rows["epsilon"].to_numpy(float)
        last = value[-1:] if len(value) else [0.0]
        curves[int(str(agent))] = (
            np.concatenate([[0.0], time, [end]]), np.concatenate([[0.0], value, last]),
        )  # fmt: skip
    return curves


def _held(time: Array, value: Array, at: Array) -> Array:
    """What holds at the times (n,), of values that hold until the next."""
    return np.asarray(value[np.searchsorted(time, at, side="right") - 1])


def _draw_agents(axes: Axes, curves: dict[int, tuple[Array, Array]], factor: float) -> None:
    """A line for each agent; the one that spends most is named."""
    most = max(curves, key=lambda agent: curves[agent][1][-1])
    alone = len(curves) == 1
    for agent, (time, value) in curves.items():
        if len(time) > POINTS:
            at = np.linspace(0.0, time[-1], POINTS)
            time, value = at, _held(time, value, at)
        named = agent == most
        label = f"agent {agent}" if alone else f"agent {agent}, who spends most" if named else None
        axes.step(
            time * factor, value, where="post", label=label, zorder=3 if named else 2,
            color=COLOURS[1] if named else COLOURS[0], linewidth=1.5 if named else 0.8,
            alpha=1.0 if named else 0.6,
        )  # fmt: skip


def _draw_budget(axes: Axes, run: Logged, most: float) -> None:
    """The line that no agent crosses, if the scenario draws one: an eavesdropper's epsilon."""
    budget = run.budget
    if budget is not None:
        far = "" if budget < 3.0 * most else " (not in the figure)"
        if not far:
            axes.axhline(budget, color=INK, linestyle=":", linewidth=1.2)
        axes.plot([], [], color=INK, linestyle=":", label=f"budget {budget:g}, eavesdropper{far}")
