"""Epsilon over time: what each agent has spent."""

from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from desim.errors import InputError
from desim.interface.plots.drawable import terms
from desim.interface.plots.style import COLOURS, INK, Look, legend, plain, scaled, unit_of
from desim.privacy.accounting.risk import Risk
from desim.runs.played import Played
from desim.runs.reading.series import Meter, agent_named

Curves = dict[int, Meter]  # by agent
LINES = 40  # agents up to which each has a line
POINTS = 400
APART = 0.045  # of the ordinate: words closer than that would cover each other


def epsilon(run: Played, out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
    """Draw what each agent has spent by each time, in the scenario's terms, and return the axes.

    The line on top is the agent that spends most, the dashed one the median agent; agents who spent
    the same at the same times are one line, and beside where lines end stands how many agents end
    there. More than LINES agents are a band from the least to the most. Where the scenario has a
    budget, it is drawn. out: a file; asked: title, size (inches), ylim, log. InputError for an
    epsilon that is infinite, with the reason.
    """
    about = terms({run.name: run})
    spent = run.epsilon()
    if spent.empty:
        raise InputError(f"epsilon: run {run.name} has released nothing that costs any")
    end = max(float(run.manifest.get("time") or 0.0), float(spent["time"].max() or 0.0)) or 1.0
    unit, factor = unit_of("time", end)
    curves = _curves(spent, end)
    at = np.linspace(0.0, end, POINTS)
    rows = np.array([one.by(at) for one in curves.values()])
    with scaled(out, **asked) as axes:
        if len(rows) > LINES:
            low, high = rows.min(axis=0), rows.max(axis=0)
            axes.fill_between(
                at * factor, low, high, step="post", color=COLOURS[0], alpha=0.2, linewidth=0,
                label=f"{len(rows)} agents, from the least to the most",
            )  # fmt: skip
        else:
            _draw_agents(axes, curves, factor, run)
        if len(_alike(curves)) > 1:
            median = np.median(rows, axis=0)
            axes.step(at * factor, median, where="post", color="black", linestyle="--",
                      linewidth=1.1, label="median agent", zorder=4)  # fmt: skip
        _draw_budget(axes, run, float(rows.max()))
        axes.set_xlim(0.0, end * factor)
        axes.set_ylim(bottom=0.0)
        _count_ends(axes, [one.totals[-1] for one in curves.values()])
        axes.set_xlabel(f"virtual time ({unit})\n{about}{_meant(spent.attrs.get('risk'))}")
        axes.set_ylabel(r"$\varepsilon$ spent so far")
        legend(axes)
    return axes


def _meant(risk: Risk | None) -> str:
    """A line on what the largest epsilon at the end means, where that is known."""
    if risk is None:
        return ""
    bound = "" if risk.exact else "≤ "
    return f"\nattacker's advantage at the end: {bound}{risk.advantage:.3g}"


def _alike(curves: Curves) -> list[list[int]]:
    """The agents whose curves are the same, together."""
    found: dict[tuple[bytes, bytes], list[int]] = {}
    for agent, one in curves.items():
        found.setdefault((one.times.tobytes(), one.totals.tobytes()), []).append(agent)
    return list(found.values())


def _count_ends(axes: Axes, ends: list[float]) -> None:
    """Beside the axes how many agents end at each epsilon, those too near to tell together."""
    if len(ends) < 2:
        return
    apart = APART * (axes.get_ylim()[1] - axes.get_ylim()[0])
    heaps: list[list[float]] = []
    for one in sorted(ends):
        if heaps and one - heaps[-1][0] < apart:
            heaps[-1].append(one)
        else:
            heaps.append([one])
    for heap in heaps:
        axes.annotate(
            f"{len(heap)} agent{'s' * (len(heap) > 1)}", (1.0, float(np.mean(heap))), (4, 0),
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
            fontsize=7.5, color=INK, annotation_clip=True,
        )  # fmt: skip


def _curves(spent: pd.DataFrame, end: float) -> Curves:
    """Times s and epsilons (m,) of each agent, from nothing at 0 s to the end of the run."""
    curves = {}
    for agent, rows in spent.groupby("agent"):
        time, value = rows["time"].to_numpy(float), rows["epsilon"].to_numpy(float)
        last = value[-1:] if len(value) else [0.0]
        curves[int(str(agent))] = Meter(
            np.concatenate([[0.0], time, [end]]), np.concatenate([[0.0], value, last])
        )
    return curves


def _draw_agents(axes: Axes, curves: Curves, factor: float, run: Played) -> None:
    """A line for all agents whose curves are the same; who spends most is named."""
    most = max(one.totals[-1] for one in curves.values())
    first = next(agents for agents in _alike(curves) if curves[agents[0]].totals[-1] == most)
    for agents in _alike(curves):
        time, value = curves[agents[0]].times, curves[agents[0]].totals
        if len(time) > POINTS:
            time = np.linspace(0.0, time[-1], POINTS)
            value = curves[agents[0]].by(time)
        named = agents is first or agents == first
        axes.step(
            time * factor, value, where="post", zorder=3 if named else 2,
            label=_top_line(agents, curves, run) if named else None,
            color=COLOURS[1] if named else COLOURS[0], linewidth=1.6 if named else 0.8,
            alpha=1.0 if named else 0.6,
        )  # fmt: skip


def _top_line(agents: list[int], curves: Curves, run: Played) -> str:
    """Whose the line on top is."""
    name = plain(agent_named(run.manifest, agents[0]))
    if len(agents) == len(curves):
        return name if len(agents) == 1 else f"all {len(agents)} agents alike"
    if len(agents) == 1:
        return f"{name}, who spends most"
    return f"{len(agents)} agents alike, who spend most"


def _draw_budget(axes: Axes, run: Played, most: float) -> None:
    """The line that no agent crosses, if the scenario draws one: an eavesdropper's epsilon."""
    budget = run.budget
    if budget is not None:
        far = "" if budget < 3.0 * most else " (not in the figure)"
        if not far:
            axes.axhline(budget, color=INK, linestyle=":", linewidth=1.2)
        axes.plot([], [], color=INK, linestyle=":", label=f"budget {budget:g}, eavesdropper{far}")
