"""A metric against virtual seconds: what is measured of a run, and the figure of medians."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.interface.plots import COLOURS, STYLE, save
from desim.network.timeline.record import Kind

POINTS = 121  # of a curve


class Tables:
    """A sink that keeps the network's metric and when how much was sent."""

    def __init__(self) -> None:
        self._values: list[Array] = []
        self._sent: list[Array] = []

    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Take rows of a table."""
        if name == "metrics":
            whole = np.asarray(columns["agent"]) < 0
            rows = np.array([np.asarray(columns["time"]), np.asarray(columns["value"])], float)
            self._values.append(rows[:, whole])
        elif name == "events":
            sends = np.asarray(columns["kind"].codes) == Kind.SEND
            rows = np.array([np.asarray(columns["time"]), np.asarray(columns["bytes"])], float)
            self._sent.append(rows[:, sends])

    @property
    def curve(self) -> Array:
        """Time s and value (2, n) of the metric."""
        return np.concatenate(self._values, axis=1)

    @property
    def sent(self) -> Array:
        """Time s and bytes (2, n) of the messages."""
        return np.concatenate(self._sent, axis=1)


def passage(made: Simulation, target: float, seconds: float, rises: bool = False) -> Array:
    """When the metric is first at `target`, s, and the kB sent by then; then the metric's curve.

    (2 + POINTS,): inf where it never comes so far. rises: it does so from below. The curve is of
    the values that held up to `seconds` s: nan after the run's end, inf after it has diverged.
    """
    tables = Tables()
    played = made.play(tables)
    time, value = tables.curve
    there = np.flatnonzero(value >= target if rises else value <= target)
    instants = np.linspace(0.0, seconds, POINTS)
    curve = value[np.maximum(np.searchsorted(time, instants, side="right") - 1, 0)]
    curve[instants > played.time] = np.nan if played.status == "done" else np.inf
    if not len(there):
        return np.concatenate([[np.inf, np.inf], curve])
    first = time[there[0]]
    sent, size = tables.sent
    return np.concatenate([[first, size[sent <= first].sum() / 1e3], curve])


class Panel(NamedTuple):
    """A panel: its title, how many s it shows, and for each label values (sets, 2 + POINTS)."""

    title: str
    seconds: float
    lines: Mapping[str, Array]


def draw(panels: Sequence[Panel], path: Path, name: str, floor: float | None = None) -> None:
    """Write the figure: medians over data sets, bands from the lower to the upper quartile.

    name: of the metric; floor: where a logarithmic axis ends, None for a linear one.
    """
    with matplotlib.rc_context({**STYLE, "font.size": 9.0}):
        figure = Figure(figsize=(3.2 * len(panels), 2.9))
        columns = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(columns, panels, strict=True):
            instants = np.linspace(0.0, panel.seconds, POINTS)
            for colour, (label, values) in zip(COLOURS, panel.lines.items(), strict=False):
                low, median, high = np.quantile(values[:, 2:], (0.25, 0.5, 0.75), axis=0)
                axes.fill_between(instants, low, high, color=colour, alpha=0.2, linewidth=0)
                axes.plot(instants, median, color=colour, label=label)
            if floor is not None:
                axes.set_yscale("log")
                axes.set_ylim(floor, None)
            axes.set_title(panel.title)
            axes.set_xlabel("virtual seconds")
        columns[0].set_ylabel(name)
        columns[-1].legend()
        save(columns[0], path)
