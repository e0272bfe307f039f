"""The network map: who sends to whom, and how long messages are on their way.

A star is drawn as a target: the further from the coordinator, the longer a call and its reply are
on their way. Graphs are drawn with their links coloured, trees around their cloud; of very many
links, how they are spread.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from desim.agent_names import listed, sites
from desim.arrays import Array
from desim.errors import InputError
from desim.interface.plots.style import COLOURS, INK, Framed, framed, grade, plain, unit_of, wrapped
from desim.numerics.later import pd, sparse

if TYPE_CHECKING:
    from desim.runs.run import Run

STEPS = 300
AGENTS = 200
LINKS = 2000
LIKE = 0.8  # links whose times differ by less look alike
POINTS = 400  # of a distribution function, its ends among them
NAMED = 60  # agents up to which each is named


def network(run: "Run", out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
    """Draw the links that were used, with the mean time on the way of what arrived; return axes.

    Of more than AGENTS agents or LINKS links it is drawn how many are how long. out: a file;
    asked: title, size (inches). InputError where the log left messages out, or none arrived.
    """
    links = run.links()
    links = links[links["delivered"] > 0]
    if links.empty:
        raise InputError(f"network: no message arrived in run {run.name}")
    hub = (links[["source", "target"]] < 0).any(axis=1)
    n = int(links[["source", "target"]].to_numpy().max()) + 1
    if n > AGENTS or len(links) > LINKS:
        return _distribution(links, hub, isinstance(run.manifest.get("edges"), int), out, asked)
    places = (
        plain(wrapped(listed(names), 60)) if (names := sites(run.manifest)) and n <= NAMED else ""
    )
    if isinstance(first := run.manifest.get("edges"), int):
        return _tree(links, n, first, out, asked, places)
    if hub.all():
        return _target(links, n, out, asked, places)
    return _graph(links[~hub], n, out, asked, places)


def _distribution(
    links: "pd.DataFrame", hub: "pd.Series[bool]", tree: bool, out: str | Path | None, asked: Framed
) -> Axes:
    """The share of links that are no slower than so much; tree: most are of edges."""
    unit, factor = unit_of("time", float(links["on_the_way"].max()))
    down, up = links["source"] < 0, links["target"] < 0
    top, rest = ("cloud", "below its edges") if tree else ("coordinator", "between agents")
    parts = {f"from the {top}": down, f"to the {top}": up, rest: ~hub}
    with framed(out, **asked) as axes:
        for number, (label, rows) in enumerate(parts.items()):
            if rows.any():
                text = f"{label}: {int(rows.sum())} links"
                known = np.sort(links.loc[rows, "on_the_way"].to_numpy(float)) * factor
                n = len(known)
                share = np.arange(1, n + 1) / n
                some = np.unique(np.linspace(0, n - 1, min(POINTS, n)).astype(int))
                axes.plot(known[some], 100.0 * share[some], color=COLOURS[number], label=text)
        times = links["on_the_way"].to_numpy(float) * factor
        if times.min() > 0.0 and times.max() > 30.0 * times.min():
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:g}"))
        axes.set_ylim(0.0, 100.0)
        axes.set_ylabel("links at most so slow (%)")
        axes.set_xlabel(f"mean time of a message on its way ({unit})")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)
    return axes


def _target(
    links: "pd.DataFrame", n: int, out: str | Path | None, asked: Framed, places: str
) -> Axes:
    """A star: each agent as far from the coordinator as a call and its reply are on their way."""
    down = links[links["source"] < 0].set_index("target")["on_the_way"]
    up = links[links["target"] < 0].set_index("source")["on_the_way"]
    both = down.reindex(range(n)).fillna(0.0) + up.reindex(range(n)).fillna(0.0)
    unit, factor = unit_of("time", float(both.max()))
    radius = both.to_numpy(float) * factor
    angle = 0.5 * np.pi - 2.0 * np.pi * np.arange(n) / n
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    with framed(out, (4.2, 4.2), **asked) as axes:
        _rings(axes, np.stack([x, y], axis=1), unit)
        spokes = np.stack([np.zeros((n, 2)), np.stack([x, y], axis=1)], axis=1)
        axes.add_collection(LineCollection(list(spokes), colors="#BBBBBB", linewidths=0.7))
        axes.plot(0.0, 0.0, marker="s", color="black", markersize=8, linestyle="", zorder=4)
        _vertices(axes, x, y)
        _bare(axes, places)
        axes.set_title("coordinator in the middle; mean time of a call and its reply on their way",
                       fontsize=8, color=INK)  # fmt: skip
    return axes


def _rings(axes: Axes, places: Array, unit: str) -> None:
    """Circles of equal time around the coordinator, their times where agents (n, 2) leave room."""
    largest = float(np.hypot(*places.T).max())
    marks = [one for one in MaxNLocator(4).tick_values(0.0, largest) if 0.0 < one < 1.2 * largest]
    around = np.linspace(0.0, 2.0 * np.pi, 181)
    turns = np.pi / len(places) * np.arange(1, 2 * len(places), 2)
    spots = np.multiply.outer(turns, np.ones(len(marks)))
    at = np.stack([np.sin(spots) * marks, np.cos(spots) * marks], axis=2)
    far = np.linalg.norm(at[:, :, None] - places, axis=3).min(axis=(1, 2)) if marks else turns
    turn = float(turns[int(np.argmax(far))])
    for mark in marks:
        axes.plot(
            mark * np.cos(around), mark * np.sin(around), color="#DDDDDD", linewidth=0.8, zorder=0
        )
        axes.text(
            mark * np.sin(turn), mark * np.cos(turn), f"{mark:g} {unit}", zorder=1, ha="center",
            va="center", fontsize=7.5, color=INK, backgroundcolor="white",
        )  # fmt: skip


def _graph(
    links: "pd.DataFrame", n: int, out: str | Path | None, asked: Framed, places: str
) -> Axes:
    """A graph: links coloured by the time on the way, both directions together."""
    ends, times, unit = _both_ways(links)
    full = len(ends) == n * (n - 1) // 2 and times.min() > 0.0
    place = spread(
        ends, np.maximum(times, 0.25 * np.median(times)) if full else 0.0 * times + 1.0, n
    )
    with framed(out, (4.8, 4.2), **asked) as axes:
        order = np.argsort(times)[:: -1 if full else 1]
        _coloured(axes, place[ends[order]], times[order], unit)
        _vertices(axes, place[:, 0], place[:, 1])
        _bare(axes, places)
    return axes


def _both_ways(links: "pd.DataFrame") -> tuple[NDArray[np.int64], Array, str]:
    """Ends (m, 2), ascending, of pairs that talk, mean times (m,) in a unit, and that unit."""
    ends = np.sort(links[["source", "target"]].to_numpy(np.int64), axis=1)
    pairs = pd.DataFrame({"a": ends[:, 0], "b": ends[:, 1], "time": links["on_the_way"].to_numpy()})
    pairs = pairs.groupby(["a", "b"])[["time"]].mean().reset_index()
    unit, factor = unit_of("time", float(pairs["time"].max()))
    return pairs[["a", "b"]].to_numpy(np.int64), pairs["time"].to_numpy(float) * factor, unit


def _coloured(axes: Axes, segments: Array, times: Array, unit: str) -> None:
    """Lines (m, 2, 2) in the colours of times (m,), and what these mean."""
    lines = LineCollection(
        list(segments), array=times, cmap=grade(), alpha=0.9,
        linewidths=float(np.clip(60.0 / len(segments), 0.4, 1.8)), zorder=1,
    )  # fmt: skip
    if times.min() > LIKE * times.max():  # colours must not make much of nothing
        lines.set_clim(0.0, float(times.max()))
    axes.add_collection(lines)
    bar = axes.figure.colorbar(lines, ax=axes, shrink=0.75, pad=0.02)
    bar.set_label(f"mean time of a message on its way ({unit})")
    bar.outline.set_visible(False)


def _tree(
    links: "pd.DataFrame", n: int, first: int, out: str | Path | None, asked: Framed, places: str
) -> Axes:
    """A tree: the cloud in the middle, edges and their clients on rings around it.

    first: id of the first edge; who is above another node has the larger id, the cloud the last.
    """
    ends, times, unit = _both_ways(links.replace({"source": {-1: n}, "target": {-1: n}}))
    place = around(ends, n)
    with framed(out, (4.8, 4.2), **asked) as axes:
        _coloured(axes, place[ends], times, unit)
        drawn = np.unique(ends[:, 0])
        below, edges = drawn[drawn < first], drawn[drawn >= first]
        _vertices(axes, place[below, 0], place[below, 1], below.tolist())
        names = [f"e{k - first}" for k in edges.tolist()]
        _vertices(axes, place[edges, 0], place[edges, 1], names, "s")
        axes.plot(*place[n], marker="s", color="black", markersize=8, linestyle="", zorder=4)
        _bare(axes, places)
        title = "cloud in the middle, edges around it (squares), clients outside"
        axes.set_title(title, fontsize=8, color=INK)
    return axes


def around(ends: NDArray[np.int64], n: int) -> Array:
    """Places (n + 1, 2) of a tree's nodes with root n: clients in turn, who is above amid its own.

    ends (m, 2): a node and who is above it, which has the larger number. NaN for nodes without.
    """
    ways: dict[int, tuple[int, ...]] = {n: (n,)}
    for below, above in ends[np.argsort(-ends[:, 0], kind="stable")].tolist():
        if above in ways:
            ways[below] = (*ways[above], below)
    leaves = sorted({*ways.values()} - {way[:-1] for way in ways.values()})
    turns: dict[int, list[int]] = {}
    for turn, way in enumerate(leaves):
        for node in way:
            turns.setdefault(node, []).append(turn)
    place = np.full((n + 1, 2), np.nan)
    for node, own in turns.items():
        angle = 2.0 * np.pi * float(np.mean(own)) / len(leaves)
        place[node] = (len(ways[node]) - 1) * np.array([np.sin(angle), np.cos(angle)])
    return place


def _vertices(
    axes: Axes, x: Array, y: Array, names: Sequence[object] | None = None, marker: str = "o"
) -> None:
    """A dot for each agent, with its name, by default its number, where there is room."""
    few = len(x) <= NAMED
    axes.scatter(
        x, y, s=150 if few and len(x) <= 30 else 90 if few else 16, color="white" if few else INK,
        edgecolors=COLOURS[0] if few else "white", linewidths=1.1 if few else 0.4, zorder=3,
        marker=marker,
    )  # fmt: skip
    for agent in range(len(x) if few else 0):
        axes.annotate(
            str(agent if names is None else names[agent]), (x[agent], y[agent]), ha="center",
            va="center_baseline", zorder=4, fontsize=7.5 if len(x) <= 30 else 6,
        )  # fmt: skip


def _bare(axes: Axes, places: str) -> None:
    """Nothing but what is drawn, in true proportion; below it which agent is which site."""
    axes.set_aspect("equal")
    axes.margins(0.08)
    axes.autoscale_view()
    axes.grid(visible=False)
    axes.axis("off")
    if places:
        axes.text(0.5, -0.02, places, transform=axes.transAxes, ha="center", va="top", fontsize=8,
                  color=INK)  # fmt: skip


def spread(ends: NDArray[np.int64], lengths: Array, n: int) -> Array:
    """Places (n, 2) of vertices whose edges ends (m, 2) are to be `lengths` (m,) > 0 long.

    Vertices far from each other are as far as the shortest path between them is long, as well as a
    plane can do it: stress majorisation (Gansner, Koren, North 2004) from a circle on. The same
    graph is always drawn the same way.
    """
    angle = 2.0 * np.pi * np.arange(n) / n
    from scipy.sparse.csgraph import shortest_path

    graph = sparse.csr_array((lengths, (ends[:, 0], ends[:, 1])), shape=(n, n))
    wanted = shortest_path(graph, directed=False)
    apart = ~np.isfinite(wanted)
    wanted[apart] = 1.5 * wanted[~apart].max()
    weight = np.where(wanted > 0.0, wanted, np.inf) ** -2.0
    total = weight.sum(axis=1, keepdims=True)
    place = 0.5 * wanted.max() * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    for _ in range(STEPS):
        apart_by = place[:, None] - place[None]
        distance = np.sqrt((apart_by**2).sum(axis=2))
        np.fill_diagonal(distance, 1.0)
        pull = weight * wanted / np.maximum(distance, 1e-9 * wanted.max())
        moved = (pull.sum(axis=1, keepdims=True) * place - pull @ place) + weight @ place
        place = moved / total
        place = place - place.mean(axis=0)
    return np.asarray(place)
