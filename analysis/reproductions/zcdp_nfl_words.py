"""What the zCDP-NFL paper says of its figures, what is left of it, and the numbers behind both."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import page
from analysis.reproductions.zcdp_nfl_methods import RIVALS, SHOWN, ZCDP
from analysis.reproductions.zcdp_nfl_study import WAYS, final
from analysis.reproductions.zcdp_nfl_tuning import NAME as TUNED

Row = Mapping[str, Any]
Saying = Callable[[Sequence[Row]], list[tuple[str, ...]]]
STRONG = 2.0  # times the error: "significantly"
WORDS = ("holds", "is weak", "does not show", "is reversed")


def beats(name: str, words: str, least: float = 1.0) -> Saying:
    """The statement that a rival's error is more than `least` times zCDP-NFL's, same epsilon."""

    def saying(rows: Sequence[Row]) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = []
        for way, told in WAYS.items():
            mine = final(rows, way, name)
            ratios = ", ".join(f"{row['ratio']:.3g}" for row in mine)
            lines.append((words, told, ratios, where(mine, least)))
        return lines

    return saying


def where(rows: Sequence[Row], least: float) -> str:
    """At which epsilons a ratio is surely above `least`, above 1, below 1, or neither."""
    groups: dict[str, list[str]] = {word: [] for word in WORDS}
    least_errors: dict[str, float] = {}
    for row in rows:
        low, high = row["ratio_low"], row["ratio_high"]
        word = WORDS[0 if low > least else 1 if low > 1.0 else 3 if high < 1.0 else 2]
        groups[word].append(f"{row['epsilon']:g}")
        many = _errors_from(row, least if word == WORDS[0] else 1.0)
        least_errors[word] = min(many, least_errors.get(word, np.inf))
    told = {word: epsilons for word, epsilons in groups.items() if epsilons}
    several = len(rows) > 1
    return "; ".join(
        word
        + (" at every ε" if several and len(told) == 1 else "")
        + (f" at ε = {', '.join(epsilons)}" if len(told) > 1 else "")
        + f" ({least_errors[word]:.1f} standard errors{' or more' if len(epsilons) > 1 else ''})"
        for word, epsilons in told.items()
    )


def _errors_from(row: Row, level: float) -> float:
    """Standard errors of a ratio's logarithm that lie between it and `level`."""
    low, high = np.log([row["ratio_low"], row["ratio_high"]])
    error = (high - low) / 4.0  # two of them either way
    middle = 0.5 * (low + high)
    return float(abs(middle - np.log(level)) / error) if error > 0.0 else np.inf


SUBGRADIENT = beats("zcdp-subgradient", "zCDP-NFL significantly outperforms zCDP-grad-NFL", STRONG)
EXACT = beats("p-admm", "zCDP-NFL slightly outperforms P-ADMM")
CLASSICAL = beats("dp-nfl", "zCDP is more accurate than (ε, δ)-DP at the same ε")
UNNAMED = beats("zcdp-subgradient", "not said: zCDP-grad-NFL is worse here, too")


def same_cost(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """How many times zCDP-NFL's error DP-NFL has where both cost the same by the exact account."""
    lines: list[tuple[str, ...]] = []
    for way, told in WAYS.items():
        leader = final(rows, way, ZCDP)
        known = np.log([row["exact"] for row in leader])
        level = np.log([row["error"] for row in leader])
        texts = [
            f"{row['error'] / np.exp(np.interp(at, known, level)):.2g} at {np.exp(at):.2g}"
            for row in final(rows, way, "dp-nfl")
            if known[0] <= (at := np.log(row["exact"])) <= known[-1]
        ]
        words = "the same, where both have the same exact ε"
        lines.append((words, told, ", ".join(texts), "not in the paper"))
    return lines


SAYINGS: dict[str, Sequence[Saying]] = {
    "zcdp_nfl_fig1": (SUBGRADIENT, CLASSICAL, same_cost),
    "zcdp_nfl_fig2": (SUBGRADIENT, CLASSICAL),
    "zcdp_nfl_fig3": (EXACT, UNNAMED, CLASSICAL, same_cost),
}


def markdown(rows: Sequence[Row], sayings: Sequence[Saying]) -> str:
    """Statements with verdicts, errors of every method, and parameters."""
    told = [line for saying in sayings for line in saying(rows)]
    epsilons = [f"{row['epsilon']:g}" for row in final(rows, "paper", ZCDP)]
    head = (
        "the paper says", "parameters", f"rival's error / zCDP-NFL's at ε = {', '.join(epsilons)}",
        "verdict",
    )  # fmt: skip
    parts = [page.table(head, told), *(_errors(rows, way) for way in WAYS), _parameters(rows)]
    return "\n\n".join(parts)


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _errors(rows: Sequence[Row], way: str) -> str:
    """Error and standard error by claimed epsilon; beside the exact epsilon of each account."""
    names = _methods(rows)
    columns = {name: final(rows, way, name) for name in names}
    lines = []
    for place, row in enumerate(columns[ZCDP]):
        cells = [columns[name][place] for name in names]
        lines.append(
            (
                f"{row['epsilon']:g}", f"{row['exact']:.3g}",
                f"{columns['dp-nfl'][place]['exact']:.3g}",
                *(f"{one['error']:.3g} ± {one['standard_error']:.1g}" for one in cells),
            )
        )  # fmt: skip
    head = (
        "ε, paper's account", "exact: zCDP", "exact: (ε, δ)-DP",
        *(RIVALS[name].label for name in names),
    )  # fmt: skip
    return f"**Error after 200 rounds, {WAYS[way]}.**\n\n{page.table(head, lines)}"


def _parameters(rows: Sequence[Row]) -> str:
    """What was played at the epsilon of the learning curves."""
    lines = [
        (RIVALS[name].label, *(_shown(rows, way, name)["parameters"] for way in WAYS))
        for name in _methods(rows)
    ]
    file = f"[{TUNED}.json](results/{TUNED}.json)"
    head = ("method", *WAYS.values())
    return f"**Parameters at ε = {SHOWN:g}**, read from {file}.\n\n{page.table(head, lines)}"


def _shown(rows: Sequence[Row], way: str, name: str) -> Row:
    return next(row for row in final(rows, way, name) if row["epsilon"] == SHOWN)
