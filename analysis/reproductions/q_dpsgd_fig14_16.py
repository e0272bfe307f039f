"""Figures 14 to 16 of Ding's dissertation: Q-DPSGD, SDM and DSGD against seconds on images.

python -m analysis.reproductions q_dpsgd_fig14_16 [--sets N]; DESIM_DATA: folder of mnist.npz and
fashion_mnist_12k_4k.npz.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from analysis.reproductions import page
from analysis.reproductions.monte_carlo import MonteCarlo, mean_and_error, reported
from analysis.reproductions.q_dpsgd_study import INSTANTS, Curve, measure
from analysis.reproductions.q_dpsgd_words import verdicts
from desim.interface.plots import COLOURS, Axes

NAME, SETS = "q_dpsgd_fig14_16", 3
Q1, Q2, SDM, DSGD = "q-dpsgd-1", "q-dpsgd-2", "sdm-dsgd", "dsgd"
LABELS = {Q1: "Q-DPSGD-1", Q2: "Q-DPSGD-2", SDM: "SDM", DSGD: "DSGD"}
PLAIN = [(DSGD, np.inf, "none")]
PRINTED = [(Q1, 1.0, "paper"), (SDM, 1.0, "paper"), *PLAIN]
SOUND = [(Q1, 1.0, "rigorous"), (SDM, 1.0, "rigorous"), (DSGD, 1.0, "rigorous")]
WHOLE = [
    (Q2, 1.0, "paper"), (Q2, 1.5, "paper"), (Q2, 1.0, "rigorous"),  # the longest first
    *PRINTED, (Q1, 1.5, "paper"), (SDM, 1.5, "paper"), *SOUND, (Q1, np.inf, "none"),
    (DSGD, np.inf, "clipped"),
]  # fmt: skip
CURVES = [
    *(Curve("Fig. 14", *one) for one in WHOLE),
    *(Curve("Fig. 15", *one, data="fashion") for one in [*PRINTED, (Q1, 1.5, "paper")]),
    *(Curve("Fig. 16 left", *one, agents=20) for one in PRINTED),
    *(Curve("Fig. 16 right", *one, batch=50) for one in PRINTED),
]
PANELS = {
    "Fig. 14": ("paper", "MNIST, the paper's noise"),
    "Fig. 14 rigorous": ("rigorous", r"MNIST, $\varepsilon = 1$ that holds"),
    "Fig. 15": ("paper", "Fashion-MNIST for CIFAR-10"),
    "Fig. 16 left": ("paper", "MNIST, 20 agents"),
    "Fig. 16 right": ("paper", "MNIST, B = 50"),
}


def study(
    monte_carlo: MonteCarlo, sets: int, curves: Sequence[Curve] = CURVES
) -> list[dict[str, Any]]:
    """One row for each curve: what it is, its noise and epsilon, accuracy, and its losses.

    One set of q-dpsgd-2, the slowest to play, has to do: there is nothing to see in it.
    """
    found: dict[Curve, Any] = {}
    for slow, sets_of in ((True, 1), (False, sets)):
        cases = {one: one.case() for one in curves if (one.method == Q2) == slow}
        found |= monte_carlo.values(cases, reported(sets_of), measure)
    rows = []
    for one, values in ((one, found[one]) for one in curves):
        losses, (accuracy, epsilon, sigma) = values[:, :INSTANTS], values[:, INSTANTS:].T
        row = {
            "figure": one.figure, "method": one.method, "noise": one.noise, "epsilon": one.epsilon,
            "agents": one.agents, "batch": one.batch, "iterations": one.iterations,
            "sigma_K": sigma.mean(), "rigorous": epsilon.max(), "accuracy": accuracy.mean(),
            "seconds": one.horizon, "sets": len(values),
        }  # fmt: skip
        for k in range(INSTANTS):
            row[f"loss_{k}"] = losses[:, k].mean()
        error = mean_and_error(losses[:, -1])[1]
        rows.append({**row, "standard_error": error})
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the paper says and what is left of it; then every curve."""
    head = ("the paper", "ours", "verdict")
    told = page.table(head, verdicts(rows))
    lines = []
    for row in rows:
        iterations, sigma = f"{row['iterations']:.0f}", f"{row['sigma_K']:.3g}"
        claimed = "-" if np.isinf(row["epsilon"]) else f"{row['epsilon']:g}"
        holds = "infinite" if np.isinf(row["rigorous"]) else f"{row['rigorous']:.3g}"
        fixed = row["method"] == Q2 and row["noise"] == "rigorous"
        method = f"{LABELS[row['method']]}{', fixed' if fixed else ''}"
        lines.append(
            (
                str(row["figure"]), method, str(row["noise"]), claimed, holds, sigma, iterations,
                f"{row['loss_10']:.3f}", f"{row['loss_20']:.3f}", f"{row['standard_error']:.3f}",
                f"{row['accuracy']:.1%}", f"{row['sets']:.0f}",
            )
        )  # fmt: skip
    columns = (
        "figure", "method", "noise by", "epsilon asked for", "epsilon that holds", "sigma K",
        "iterations", "loss halfway", "loss at the end", "SE", "accuracy", "sets",
    )  # fmt: skip
    return f"{told}\n\n{page.table(columns, lines)}"


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Loss against seconds, one panel for each figure and one for what holds."""
    panels = Figure(figsize=(11.0, 2.6)).subplots(1, len(PANELS))
    for axes, (name, (noise, title)) in zip(panels, PANELS.items(), strict=True):
        _panel(axes, [row for row in rows if _shown(row, name.split(" rigor")[0], noise)])
        axes.set_title(title)
        axes.set_xlabel("virtual time (s)")
    panels[0].set_ylabel("cross-entropy")
    panels[0].legend(loc="lower left", fontsize=5.5)
    return cast(Axes, panels[0])


def _shown(row: Mapping[str, Any], figure: str, noise: str) -> bool:
    plain = row["noise"] == "none" and row["method"] == DSGD
    return bool(str(row["figure"]) == figure and (row["noise"] == noise or plain))


def _panel(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The curves; epsilon = 1.5 dashed, without noise dotted."""
    for row in rows:
        colour = COLOURS[list(LABELS).index(row["method"])]
        dash = ":" if row["noise"] == "none" else "--" if row["epsilon"] > 1.0 else "-"
        told = "no noise" if row["noise"] == "none" else rf"$\varepsilon$ = {row['epsilon']:g}"
        time = np.linspace(0.0, row["seconds"], INSTANTS)
        loss = [row[f"loss_{k}"] for k in range(INSTANTS)]
        label = f"{LABELS[row['method']]}, {told}"
        axes.plot(time, loss, dash, color=colour, linewidth=1.2, label=label)
