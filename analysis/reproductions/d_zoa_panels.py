"""Figures 4 to 7 of D-ZOA: learning curves and trade-offs, with lasso (4, 5) and ridge (6, 7).

Above, errors over the rounds; below, after the last one, against what the paper counts and against
an epsilon that holds. Where J is large D-ZOA is played on fewer data sets; the table says on which.
python -m analysis.reproductions d_zoa_fig4_5 d_zoa_fig6_7 [--sets N]
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from analysis.reproductions import page
from analysis.reproductions.d_zoa_setting import AGENTS, D_ZOA, DELTA, EXACT, ROUNDS
from analysis.reproductions.d_zoa_study import BOTH, HONEST, SHOWN, Row, names, study
from analysis.reproductions.page import Script, chosen
from desim.interface.plots import COLOURS, Axes

LOOKS = {
    name: (COLOURS[number], marker)
    for number, (name, marker) in enumerate(
        {D_ZOA: "o", "DPSG": "s", "DP-ADMM": "^", "PVP": "v", "DVP": "D"}.items()
    )
} | {EXACT: ("#777777", "")}
ERROR = r"$\sum_k \|w_k - w^\star\|^2 \,/\, \|w^\star\|^2$"


def draw(rows: Sequence[Row]) -> Axes:
    """Learning curves, errors against the paper's epsilon and delta, and against one that holds."""
    panels = Figure(figsize=(7.2, 5.4)).subplots(2, 3, sharey=True)
    for axes, level in zip(panels[0], SHOWN, strict=False):
        _curves(axes, rows, level.epsilon)
    _against(panels[1][0], rows, "total", [{"delta": delta} for delta in BOTH])
    _against(panels[1][1], rows, "delta", [{"epsilon": one.epsilon} for one in SHOWN])
    _holds(panels[1][2], rows)
    for axes in panels.flat:
        axes.set_yscale("log")
        axes.axhline(AGENTS, color="#999999", lw=0.8, zorder=1, label="a model of zeros")
        axes.set_ylim(0.4 * min(row["error"] for row in rows if row["part"] != "fact"), 120.0)
    for axes in panels[:, 0]:
        axes.set_ylabel(ERROR)
    _legend(panels[0][2], panels[0][0])
    return cast(Axes, panels[0][0])


def _curves(axes: Axes, rows: Sequence[Row], epsilon: float) -> None:
    for name in names(rows, "trade-off"):
        colour = LOOKS[name][0]
        mine = [r for r in chosen(rows, method=name, epsilon=epsilon, delta=DELTA)]
        mine = sorted((r for r in mine if r["part"] != "holds"), key=lambda r: r["round"])
        x, y, e = _columns(mine, "round", "error", "standard_error")
        axes.fill_between(
            x, np.maximum(y - 2 * e, 0.1 * y), y + 2 * e, color=colour, alpha=0.15, lw=0
        )
        axes.plot(x, y, "--" if name == EXACT else "-", color=colour, label=name, lw=1.2)
    axes.set_title(rf"$\varepsilon = {epsilon:g}$ a round, $\delta = 10^{{-6}}$", fontsize=9)
    axes.set_xlabel("round")
    axes.set_xlim(0, ROUNDS)


def _against(axes: Axes, rows: Sequence[Row], key: str, lines: Sequence[dict[str, float]]) -> None:
    """The last errors against `key`; what else is fixed has a dash of its own."""
    for name in names(rows, "trade-off"):
        if name == EXACT:
            continue
        colour, marker = LOOKS[name]
        for line, dash in zip(lines, ("-", ":"), strict=False):
            mine = sorted(chosen(rows, part="trade-off", method=name, **line), key=lambda r: r[key])
            x, y, e = _columns(mine, key, "error", "standard_error")
            axes.errorbar(
                x,
                y,
                _bars(y, e),
                fmt=marker + dash,
                color=colour,
                markersize=3.2,
                lw=1.1,
                elinewidth=0.8,
            )
    given, letter = next(iter(lines[0])), {"delta": r"\delta", "epsilon": r"\varepsilon"}
    texts = [_power(line[given]) for line in lines]
    for text, dash in zip(texts, ("-", ":"), strict=True):
        axes.plot([], [], dash, color="black", lw=1.1, label=rf"${letter[given]} = {text}$")
    axes.legend(loc="upper right", fontsize=7.5, ncols=2)
    if key == "delta":
        axes.set_xscale("log")
        axes.set_xlabel(r"$\delta$")
    else:
        axes.set_xlabel(r"$\bar{\varepsilon}$ by the paper's (25)")
    axes.set_title("as the paper counts", fontsize=9)


def _power(value: float) -> str:
    exponent = round(np.log10(value))
    return f"10^{{{exponent}}}" if np.isclose(value, 10.0**exponent) else f"{value:g}"


def _holds(axes: Axes, rows: Sequence[Row]) -> None:
    for name in names(rows, "holds"):
        colour, marker = LOOKS[name]
        x, y, e = _columns(
            chosen(rows, part="holds", method=name), "epsilon", "error", "standard_error"
        )
        axes.errorbar(
            x,
            y,
            _bars(y, e),
            fmt=marker + "-",
            color=colour,
            markersize=3.2,
            lw=1.1,
            elinewidth=0.8,
        )
    axes.set_xscale("log")
    axes.set_xlabel(r"$\varepsilon$ that holds, $\delta = 10^{-6}$")
    axes.set_title("clipped, noise added to all", fontsize=9)


def _legend(empty: Axes, full: Axes) -> None:
    handles, labels = full.get_legend_handles_labels()
    places = dict(zip(labels, handles, strict=True))
    order = [name for name in (*LOOKS, "a model of zeros") if name in places]
    empty.axis("off")
    for line in empty.lines:
        line.set_visible(False)
    empty.legend([places[name] for name in order], order, loc="center left", fontsize=8.5)


def _bars(y: Any, e: Any) -> Any:
    """Two standard errors either way, downwards nine tenths of the value at most."""
    return np.array([np.minimum(2.0 * e, 0.9 * y), 2.0 * e])


def _columns(rows: Sequence[Row], *keys: str) -> list[Any]:
    return [np.array([row[key] for row in rows], float) for key in keys]


def markdown(rows: Sequence[Row]) -> str:
    """The last errors both ways."""
    return f"{_paper_table(rows)}\n\n{_honest_table(rows)}"


def _paper_table(rows: Sequence[Row]) -> str:
    head = ["method", "parameters at ε = 0.15"]
    head += [f"ε = {one.epsilon:g} (all rounds: {one.total:.3g})" for one in SHOWN]
    lines = []
    for name in names(rows, "trade-off"):
        mine = [
            chosen(rows, part="trade-off", method=name, epsilon=one.epsilon, delta=DELTA)[0]
            for one in SHOWN
        ]
        lines.append(
            (name, mine[0]["parameters"], *(f"{_value(one)} ({one['sets']})" for one in mine))
        )
    return f"**The paper's way**, δ = 1e-6 (in brackets: data sets).\n\n{page.table(head, lines)}"


def _value(row: Row) -> str:
    if not row["error"] < 1e6:
        return "diverges"
    return f"{row['error']:.2g} ± {row['standard_error']:.0g}"


def _honest_table(rows: Sequence[Row]) -> str:
    lines = []
    for name in names(rows, "holds"):
        mine = {row["epsilon"]: row for row in chosen(rows, part="holds", method=name)}
        lines.append((name, mine[HONEST[-1]]["parameters"], *(_value(mine[e]) for e in HONEST)))
    head = ("method", f"parameters at ε = {HONEST[-1]:g}", *(f"ε = {e:g}" for e in HONEST))
    told = f"**An ε that holds**, all messages, δ = 1e-6; a model of zeros has the error {AGENTS}."
    return f"{told}\n\n{page.table(head, lines)}"


FIGURES = [
    Script("d_zoa_fig4_5", partial(study, regularizer="lasso"), markdown, draw),
    Script("d_zoa_fig6_7", partial(study, regularizer="ridge"), markdown, draw),
]
