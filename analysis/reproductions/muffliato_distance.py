"""Muffliato: privacy loss by distance, as published and exactly, of one noise and of fresh ones.

Figures of Cyffers et al. 2022 (arXiv 2206.05091) and of Bellet et al. 2025 (arXiv 2510.17480) in
kind. Loss is mu^2, which is Renyi's divergence of order 2; a release has 1.
python -m analysis.reproductions muffliato_distance [--sets N]
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import desim
from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import SCENARIOS, MonteCarlo, mean_and_error, reported
from desim.arrays import Array
from desim.interface.plots import COLOURS
from desim.scenario.build import build

NAME = "muffliato_distance"
SETS = 10
ROUNDS = 10
FRESH, ONE = "fresh noise", "one noise"
NOISES: Mapping[str, Mapping[str, Any]] = {
    FRESH: {"algorithm.gossip": 1, "stop.rounds": ROUNDS},
    ONE: {"algorithm.gossip": ROUNDS, "stop.rounds": 1},
}
FAMILIES = nx.convert_node_labels_to_integers(nx.florentine_families_graph())
GRAPHS: Mapping[str, tuple[int, Any]] = {
    "ring": (24, "ring"),
    "grid": (49, {"grid": [7, 7]}),
    "random graph": (100, {"erdos_renyi": 0.06}),
    "Florentine families": (15, {"edges": [list(one) for one in FAMILIES.edges]}),
}
ACCOUNTS = {"exact": "exact", "later": "later account", "published": "published account"}
NONE = 1e-6  # of a release: less is told by nothing
SAME = 1e-6  # relative difference that is none
Row = dict[str, Any]


def added(W: Array, v: int, noise: str, power: int) -> Array:
    """The paper's loss (agents,) towards v, each message's own added up, at most the local one.

    sum_t sum_{w ~ v} (W^t)_uw^power / |(W^t)_w|^2, for each noise. power 2: as the authors' program
    has it; 1: the later version.
    """
    total, mixed = np.zeros(len(W)), np.eye(len(W))
    heard = np.flatnonzero(W[v])
    heard = heard[heard != v]
    for t in range(ROUNDS):
        told = (mixed[:, heard] ** power / (mixed[heard] ** 2).sum(1)).sum(1)
        total += told * (ROUNDS - t if noise == FRESH else 1)
        mixed = mixed @ W
    return np.minimum(total, ROUNDS if noise == FRESH else 1)


def losses(graph: str, noise: str, seed: int) -> Array:
    """Distance, and loss by each of ACCOUNTS, (4, pairs): of all agents towards agent 0."""
    agents, topology = GRAPHS[graph]
    asked = {"seed": seed, "problem.agents": agents, "network.topology": topology}
    scenario = desim.load(SCENARIOS / "muffliato.yaml", {**asked, **NOISES[noise]})
    W = np.asarray(build(scenario).method.averages.W)
    found = desim.run(scenario).pairwise(observers=[0])
    assert found.attrs["method"] == "pairwise"
    of = found["agent"].to_numpy()
    rows = found["distance"], found["mu"] ** 2, added(W, 0, noise, 1)[of], added(W, 0, noise, 2)[of]
    return np.array(rows, float)


def study(_: MonteCarlo, sets: int) -> list[Row]:
    """A row for each graph, noise and distance; only `random graph` differs from seed to seed."""
    rows: list[Row] = []
    for graph in GRAPHS:
        seeds = reported(sets if graph == "random graph" else 1)
        for noise in NOISES:
            rows += rows_of(graph, noise, [losses(graph, noise, seed) for seed in seeds])
    return rows


def rows_of(graph: str, noise: str, found: Sequence[Array]) -> Iterator[Row]:
    """By distance: means and ranges, pairs above the accounts, and what claims are judged by."""
    for hops in range(1, int(min(one[0].max() for one in found)) + 1):
        here = [one[1:, one[0] == hops] for one in found]
        near = [one[1:, one[0] == 1] for one in found]
        every = np.concatenate(here, axis=1)
        if every[0].max() < NONE:
            continue
        row: Row = {"graph": graph, "noise": noise, "hops": hops, "pairs": every.shape[1]}
        for name, values in zip(ACCOUNTS, every, strict=True):
            row[name] = float(values.mean())
        row["least"], row["most"] = float(every[0].min()), float(every[0].max())
        for name, values in zip(("later", "published"), every[1:], strict=True):
            row[f"above_{name}"] = int(np.sum(every[0] > values * (1.0 + SAME)))
            row[f"worst_{name}"] = float(np.max(every[0] / values))
        fell = [
            np.log10(far[0].mean() / one[0].mean()) for far, one in zip(here, near, strict=True)
        ]
        tighter = [np.log10(one[0].mean() / one[1].mean()) for one in here]
        for name, logarithms in (("fell", fell), ("tighter", tighter)):
            row[name], row[f"{name}_se"] = mean_and_error(np.array(logarithms))
        yield {**row, "sets": len(found)}


def course(rows: Sequence[Row], graph: str, noise: str) -> list[Row]:
    """The rows of a graph and noise, near ones first."""
    return sorted(page.chosen(rows, graph=graph, noise=noise), key=lambda row: row["hops"])


def falling(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Whether loss falls with distance: at every step, or surely in the mean of random graphs."""
    for noise in NOISES:
        for graph in GRAPHS:
            mine = course(rows, graph, noise)
            last, means = mine[-1], np.array([row["exact"] for row in mine])
            stuck = int(np.sum(means[1:] >= means[:-1] * (1.0 - SAME)))
            ours = f"{10.0 ** last['fell']:.2g} of a neighbour's, {last['hops']} links away"
            told = f"differs: not at {stuck} of {len(means) - 1} steps" if stuck else "agrees"
            if last["sets"] > 1:
                ours += f" (logarithm {last['fell']:.2f} ± {last['fell_se']:.2f})"
                told = verdicts.below(last["fell"], last["fell_se"], last["sets"])
            yield f"{noise}, {graph}: falls with distance", ours, told


def bounding(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Whether the paper's accounts are bounds, of each noise: one pair above refutes them."""
    for noise in NOISES:
        for name in ("published", "later"):
            mine = page.chosen(rows, noise=noise)
            above, pairs = (sum(row[key] for row in mine) for key in (f"above_{name}", "pairs"))
            worst = max(row[f"worst_{name}"] for row in mine)
            ours = f"{above} of {pairs} pairs above it, at most {worst:.3g} times"
            told = "differs: no bound" if above else "agrees: no pair above"
            yield f"{noise}: the {name} account is a bound", ours, told


def tightening(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Whether the joint law of fresh noise says less than the later formula, at each distance."""
    for graph in GRAPHS:
        mine = course(rows, graph, FRESH)
        ends = " and ".join(
            f"{10.0 ** -row['tighter']:.3g} times at {row['hops']}" for row in (mine[0], mine[-1])
        )
        told = "agrees" if all(row["tighter"] < 0.0 for row in mine) else "differs"
        if mine[0]["sets"] > 1:
            least = min(mine, key=lambda row: -row["tighter"] / row["tighter_se"])
            told = verdicts.below(least["tighter"], least["tighter_se"], least["sets"])
        yield f"{FRESH}, {graph}: the matrix account is tighter", f"{ends} links", told


def markdown(rows: Sequence[Row]) -> str:
    """Verdicts, and the losses that they rest on."""
    head = ("noise", "graph", "links", "pairs", "exactly", "least to most", "later", "published")
    lines = []
    for row in rows:
        ends = f"{row['least']:.2g} to {row['most']:.2g}"
        numbers = (f"{row[name]:.3g}" for name in ("later", "published"))
        about = str(row["noise"]), str(row["graph"]), f"{row['hops']}", f"{row['pairs']}"
        lines.append((*about, f"{row['exact']:.3g}", ends, *numbers))
    said = [*falling(rows), *bounding(rows), *tightening(rows)]
    return f"{page.table(('claimed', 'ours', 'verdict'), said)}\n\n{page.table(head, lines)}"


def draw(rows: Sequence[Row]) -> Axes:
    """Losses against distance: a column for each graph, a row for each noise."""
    panels = Figure(figsize=(9.6, 4.6)).subplots(2, len(GRAPHS), sharex="col", sharey=True)
    for line, noise in zip(panels, NOISES, strict=True):
        for axes, graph in zip(line, GRAPHS, strict=True):
            panel(axes, course(rows, graph, noise), ROUNDS if noise == FRESH else 1)
        line[0].set_ylabel(f"{noise}\n" + r"loss $\mu^2$")
    for axes, graph in zip(panels[0], GRAPHS, strict=True):
        axes.set_title(f"{graph}, {GRAPHS[graph][0]} agents", fontsize=9.5)
    for axes in panels[1]:
        axes.set_xlabel("links away")
    words, names = panels[0, 0].get_legend_handles_labels()
    cast(Figure, panels[0, 0].figure).legend(words, names, loc="outside upper center", ncols=4)
    return cast(Axes, panels[0, 0])


def panel(axes: Axes, mine: Sequence[Row], local: float) -> None:
    """Means by each account, the range of the exact ones, and what is released."""
    hops = [row["hops"] for row in mine]
    axes.axhline(local, color="black", linewidth=1.0, linestyle=":", label="all that is released")
    for place, (name, words) in enumerate(ACCOUNTS.items()):
        values = [row[name] for row in mine]
        axes.semilogy(
            hops, values, ("o-", "s--", "^-.")[place], color=COLOURS[place], label=words,
            markersize=3.5, zorder=3 - place,
        )  # fmt: skip
    ends = ([row[key] for row in mine] for key in ("least", "most"))
    axes.fill_between(hops, *ends, color=COLOURS[0], alpha=0.2, linewidth=0.0)
    axes.set_ylim(1e-8, 30.0)
    axes.set_xticks(range(1, hops[-1] + 1, 2 if hops[-1] > 6 else 1))
