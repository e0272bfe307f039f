"""What agents have learnt of each other: who of whom, how far away, and when.

Epsilons are those of `Run.pairwise`, in the scenario's terms. One that is 0 and one that is
infinite are on no scale: they have a mark of their own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from desim.arrays import Array
from desim.errors import InputError
from desim.interface.plots.style import (
    COLOURS,
    INK,
    Framed,
    Look,
    framed,
    grade,
    legend,
    look,
    mark_decades,
    scaled,
    twin_of,
    unit_of,
    wrapped,
)
from desim.numerics.later import pd

if TYPE_CHECKING:
    from desim.runs.run import Run

WRITTEN = 8  # agents up to which each epsilon is written into its field
MARKED = 4.2  # numbers of agents that an inch has room for
DECADES = 1e-3  # the least epsilon over the largest that has a colour of its own
SPREAD = 20.0  # the largest epsilon over the least from which on a scale is logarithmic
ITSELF, ENDLESS = "#E4E4E4", COLOURS[1]
SAME = 1e-6  # relative difference that nobody sees
LINES = 6  # pairs whose course is drawn
SIZE = (5.0, 4.3)  # inches
WIDE = 5.0  # inches of the other figures
LEARNT = r"$\varepsilon$ of what is learnt"


def pairs(run: "Run", out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
    """Draw the epsilon of each agent (row) towards each observer (column); return the axes.

    out: a file; asked: title, size (inches). InputErrors as of `Run.pairwise`.
    """
    found = _found(run, "pairs")
    field = field_of(found)
    n = len(field)
    shown = np.where(np.isfinite(field) & (field > 0.0), field, np.nan)
    size = asked.get("size") or SIZE
    with framed(out, SIZE, **asked) as axes:
        for name, colour, where in (
            ("itself", ITSELF, np.eye(n, dtype=bool)), ("0", "white", field == 0.0),
            ("infinite", ENDLESS, np.isinf(field)),
        ):  # fmt: skip
            axes.imshow(np.where(where[..., None], to_rgba(colour), 0.0))
            if where.any():
                axes.plot([], [], "s", color=colour, markeredgecolor="#999999", label=name)
        if (known := shown[np.isfinite(shown)]).size:
            _colour(axes, shown, scale_of(known))
        if n <= WRITTEN:
            _write(axes, shown, scale_of(known), 8.0 * min(1.0, size[0] / SIZE[0]))
        _number(axes, n, min(size))
        axes.set_xlabel("\n".join(["observer", *_about(found, size[0])]))
        axes.set_ylabel("agent")
        legend(axes)
    return axes


def field_of(found: "pd.DataFrame") -> Array:
    """Epsilons (agents, observers) of a table of `Run.pairwise`; nan of an agent by itself."""
    n = int(found[["agent", "observer"]].to_numpy().max()) + 1
    field = np.full((n, n), np.nan)
    field[found["agent"], found["observer"]] = found["epsilon"]
    return field


def scale_of(known: Array) -> Normalize:
    """The scale of epsilons (n,) > 0: logarithmic where they are of unlike sizes."""
    most = float(known.max(initial=0.0))
    if _spread(known):
        return LogNorm(max(float(known.min()), DECADES * most), most)
    return Normalize(0.0, most)


def tint(scale: Normalize, value: float) -> str:
    """The colour of an epsilon > 0, as #rrggbb."""
    return str(to_hex(grade()(scale(value))))


def _colour(axes: Axes, shown: Array, scale: Normalize) -> None:
    """Fields of known epsilons, and beside them what colours mean."""
    picture = axes.imshow(shown, cmap=grade(), norm=scale)
    low = float(np.nanmin(shown)) < float(scale.vmin or 0.0)
    bar = cast(Figure, axes.figure).colorbar(
        picture, cax=axes.inset_axes((1.05, 0.05, 0.05, 0.9)), extend="min" if low else "neither"
    )
    bar.set_label(LEARNT)
    bar.outline.set_visible(False)
    if isinstance(scale, LogNorm):
        mark_decades(bar.ax.yaxis, FuncFormatter(lambda value, _: f"{value:g}"))
        bar.ax.yaxis.set_minor_locator(NullLocator())


def _write(axes: Axes, shown: Array, scale: Normalize, letters: float) -> None:
    """Each epsilon into its field."""
    for (row, column), value in np.ndenumerate(shown):
        if np.isfinite(value):
            axes.text(
                column, row, f"{value:.3g}", ha="center", va="center", fontsize=letters,
                color="black" if scale(value) < 0.5 else "white",
            )  # fmt: skip


def _number(axes: Axes, n: int, inches: float) -> None:
    """Numbers of agents on both axes, of many only some; a frame, and no lines across."""
    for axis in (axes.xaxis, axes.yaxis):
        few = FixedLocator(range(n)), MaxNLocator(int(MARKED * inches / 2), integer=True)
        axis.set_major_locator(few[n > MARKED * inches])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set(visible=True, color="#999999")


def distance(run: "Run", out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
    """Draw the epsilons of pairs against how many links lie between them; return the axes.

    The line is the median pair, the bars reach from the least to the most; dashed is what the agent
    that spends most has released in all. out: a file; asked: title, size (inches), ylim, log.
    InputError for a graph that changes, or none, and as of `Run.pairwise`.
    """
    found = _found(run, "distance")
    if (found["distance"] < 0).any():
        text = "as the graph changes or is none, nobody knows how many links lie between agents"
        raise InputError(f"distance: {text}; allowed: --kind pairs, --kind learnt")
    away, value = found["distance"].to_numpy(), found["epsilon"].to_numpy(float)
    known = np.isfinite(value) & (value > 0.0)
    with scaled(out, **asked) as axes:
        rows = found[known].groupby("distance")["epsilon"]
        low, middle, high = rows.min(), rows.median(), rows.max()
        if (high > low * (1.0 + SAME)).any():
            axes.vlines(middle.index, low, high, color=COLOURS[0], linewidth=5.0, alpha=0.3,
                        label="from the least to the most pair")  # fmt: skip
        if known.any():
            axes.plot(
                middle.index, middle, "o-", color=COLOURS[0], markersize=4, label="median pair"
            )
        _local(axes, found)
        if _spread(value[known]):
            axes.set_yscale("log", nonpositive="mask")
        else:
            axes.set_ylim(bottom=0.0)
        _beyond(axes, away[value == 0.0], away[np.isinf(value)])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(float(away.min()) - 0.5, float(away.max()) + 0.5)
        wide = (asked.get("size") or (WIDE, 0.0))[0]
        axes.set_xlabel("\n".join(["links from agent to observer", *_about(found, wide)]))
        axes.set_ylabel(LEARNT)
        legend(axes)
    return axes


def learnt(run: "Run", out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
    """Draw over time what has been learnt: of each distance the largest pair; return the axes.

    Where nobody knows distances, the largest of all pairs. Dashed is what the agent that spends
    most has released in all. out: a file; asked: title, size (inches), ylim, log. InputErrors as of
    `Run.pairwise`.
    """
    every = _found(run, "learnt").sort_values(["epsilon", "mu"], ascending=False, kind="stable")
    first = every.groupby("distance", sort=False).head(
        1 if (every["distance"] >= 0).all() else LINES
    )
    first = first.sort_values("distance", kind="stable")[:LINES]
    who = sorted(set(first["observer"]))
    found = run.pairwise(observers=who, over_time=True)
    end = max(float(run.manifest.get("time") or 0.0), float(found["time"].max())) or 1.0
    unit, factor = unit_of("time", end)
    with scaled(out, **asked) as axes:
        endless: list[float] = []
        for number, (agent, observer, away) in enumerate(
            zip(first["agent"], first["observer"], first["distance"], strict=True)
        ):
            rows = found[(found["agent"] == agent) & (found["observer"] == observer)]
            time = np.concatenate([[0.0], rows["time"], [end]]) * factor
            value = np.concatenate([[0.0], rows["epsilon"], rows["epsilon"][-1:]])
            endless += time[np.isinf(value)][:1].tolist()
            links = f", {away} link{'s' * (away > 1)}" * (away > 0)
            colour, dashes = look(number)
            value = np.where(np.isfinite(value), value, np.nan)
            alike = " (the same)" * (twin_of(axes, time, value) is not None)
            axes.step(
                time, value, where="post", color=colour, linestyle=dashes, zorder=3,
                label=f"of {agent} by {observer}{links}{alike}",
            )  # fmt: skip
        _local(axes, first)
        axes.set_xlim(0.0, end * factor)
        axes.set_ylim(bottom=0.0)
        _beyond(axes, [], endless)
        wide = (asked.get("size") or (WIDE, 0.0))[0]
        axes.set_xlabel("\n".join([f"virtual time ({unit})", *_about(every, wide)]))
        axes.set_ylabel(LEARNT)
        legend(axes)
    return axes


def _found(run: "Run", kind: str) -> "pd.DataFrame":
    """The pairs; InputError where there are none."""
    table = run.pairwise()
    if table.empty:
        raise InputError(f"{kind}: run {run.name} has one agent; allowed: runs of several")
    return table


def _local(axes: Axes, found: "pd.DataFrame") -> None:
    """What the agent has released in all that has released most."""
    if np.isfinite(most := float(found["local"].max())) and most > 0.0:
        axes.axhline(most, color=INK, linestyle="--", linewidth=1.1, label="all that is released")


def _spread(values: Array) -> bool:
    return bool(values.size) and float(values.max()) > SPREAD * float(values.min())


def _beyond(axes: Axes, zero: Sequence[Any] | Array, endless: Sequence[Any] | Array) -> None:
    """Marks at the lower edge where an epsilon is 0, at the upper one where it is infinite."""
    for where, edge, mark, colour, name in (
        (zero, 0.0, "v", INK, "0"), (endless, 1.0, "^", ENDLESS, "infinite"),
    ):  # fmt: skip
        if len(where):
            at = np.unique(where)
            axes.plot(
                at, np.full(len(at), edge), linestyle="", marker=mark, color=colour, markersize=5,
                transform=axes.get_xaxis_transform(), clip_on=False, label=name, zorder=4,
            )  # fmt: skip


def _about(found: "pd.DataFrame", wide: float) -> list[str]:
    """What the epsilons are about, in lines that fit; why they are all that was released."""
    about = found.attrs
    text = f"{about['relation']}; {about['method']}"
    if "reason" in about:
        text += f", as {about['reason']}"
    return wrapped(f"$\\delta$ = {about['delta']:g}; {text}", int(11.0 * wide)).split("\n")
