"""Who is trusted: one problem and one total noise, four trusts, in accuracy, seconds, MB, epsilon.

python -m analysis.studies.four_trusts [--sets N] [--processes N]

The four take the same steps: a mean of clipped gradients, with noise of the same deviation on that
mean. With local trust and among peers each phone adds its own, so that the sum has as much as a
coordinator adds, or as the shares of a secure sum are together. A set draws data, links, speeds,
absences and noise.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import desim
from analysis.studies.numbers import SCENARIOS, options, publish
from analysis.studies.standings import columns
from desim.interface.plots import COLOURS, STYLE, save

NAME, SETS = "four_trusts", 10
FILE = SCENARIOS / "four-trusts.yaml"
AGENTS, MULTIPLIER = 60, 8.4
OWN = {"unit": "agent", "noise": {"sigma": MULTIPLIER / sqrt(AGENTS)}, "delta": 1e-5}
SECURE = {"protocol": "secagg+", "neighbours": 12, "threshold": 6}
TRUSTS: dict[str, dict[str, Any]] = {
    "coordinator": {},
    "secure sum": {"privacy.trust": "secure-sum", "privacy.secure": SECURE},
    "nobody": {
        "algorithm": {"name": "fedbuff", "clip": 1.0, "local": {"epochs": 1, "step": 1.0}},
        "privacy": OWN,
    },
    "peers": {
        "algorithm": {"name": "dsgd", "alpha": 1.0},
        "network.topology": {"regular": 4},
        "policy": {"deadline": "2 s"},
        "privacy": OWN,
    },
}
FAR = 4  # links, from which on a peer is far away


def scenario(trust: str, seed: int) -> Any:
    """The scenario with this trust."""
    return desim.load(FILE, {**TRUSTS[trust], "seed": seed})


def curve(run: desim.Run) -> Any:
    """Time s, MB sent by then, and accuracy (3, n) of a run."""
    whole = run.metrics[run.metrics["agent"] < 0]
    time = whole["time"].to_numpy()
    sends = run.events[run.events["bytes"] > 0]
    sent, size = sends["time"].to_numpy(), np.cumsum(sends["bytes"].to_numpy()) / 1e6
    place = np.searchsorted(sent, time, side="right")
    return np.array([time, np.append(0.0, size)[place], whole["value"].to_numpy()])


def learnt(run: desim.Run, trust: str) -> dict[str, float]:
    """Epsilon of a whole phone, by who looks: at its own messages, at models, or from far away."""
    if trust == "peers":
        pairs = run.pairwise()
        near, far = pairs["distance"] == 1, pairs["distance"] >= FAR
        whole = {"receiver": near, "others": ~near, "far": far}
        return {name: float(pairs["epsilon"][rows].median()) for name, rows in whole.items()}
    views = {"receiver": "coordinator", "others": "final-model", "far": "final-model"}
    return {name: run.account(view=view).worst for name, view in views.items()}


def played(trust: str, seed: int) -> tuple[Any, dict[str, float]]:
    """Curve and epsilons of one run."""
    run = desim.run(scenario(trust, seed))
    return curve(run), learnt(run, trust)


Found = Mapping[str, Sequence[tuple[Any, dict[str, float]]]]


def rows(found: Found) -> Iterable[dict[str, Any]]:
    """One row for each trust: medians over sets with their intervals."""
    for trust, sets in found.items():
        ends = np.array([one[:, -1] for one, _ in sets])
        numbers: dict[str, Any] = {}
        for name, column in (("seconds", 0), ("MB", 1), ("accuracy", 2)):
            numbers |= columns(name, ends[:, column])
        for name in ("receiver", "others", "far"):
            numbers[name] = float(np.median([epsilons[name] for _, epsilons in sets]))
        yield {"trust": trust, **numbers, "sets": len(sets)}


TOP = 1000.0  # where infinite is drawn
LOOKING = {"receiver": ("o", "who receives its messages"), "others": ("s", "all others"),
           "far": ("^", "who is far")}  # fmt: skip


def draw(curves: Mapping[str, Any], table: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the figure: accuracy over seconds and MB of one set, epsilon by who looks."""
    with matplotlib.rc_context({**STYLE, "font.size": 9.0}):
        figure = Figure(figsize=(9.6, 3.2), layout="constrained")
        first, second, third = figure.subplots(1, 3)
        for place, (colour, row) in enumerate(zip(COLOURS, table, strict=False)):
            time, size, accuracy = curves[row["trust"]]
            first.plot(time, accuracy, color=colour, label=row["trust"])
            second.plot(size, accuracy, color=colour)
            for k, (name, (mark, label)) in enumerate(LOOKING.items()):
                epsilon = min(float(row[name]), TOP)
                shown = {"color": colour, "label": None if place else label}
                third.plot([epsilon], [place + 0.2 * (k - 1)], mark, markersize=5.0, **shown)
        for axes, label in ((first, "virtual seconds"), (second, "MB sent")):
            axes.set_xscale("symlog", linthresh=1.0)
            axes.set_xlabel(label)
            axes.set_xlim(0.0, None)
        first.set_ylabel("accuracy")
        first.legend()
        third.set_yticks(range(len(table)), [row["trust"] for row in table])
        third.set_ylim(3.5, -1.9)
        third.set_xscale("log")
        third.set_xlim(2.0, 2.0 * TOP)
        third.set_xticks([3, 10, 30, 100, TOP], ["3", "10", "30", "100", "infinite"])
        third.minorticks_off()
        third.set_xlabel("epsilon of a phone")
        legend = third.legend(loc="upper left", handletextpad=0.3)
        for handle in legend.legend_handles:
            handle.set_color("0.4")
        save(first, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, draw and write."""
    asked = options(__doc__, arguments, SETS)
    seeds = range(1, 1 + asked.sets)
    with ProcessPoolExecutor(asked.processes) as pool:
        found = {trust: list(pool.map(partial(played, trust), seeds)) for trust in TRUSTS}
    table = list(rows(found))
    curves = {trust: sets[0][0] for trust, sets in found.items()}
    publish(asked, NAME, table, {}, partial(draw, curves, table))


if __name__ == "__main__":
    main()
