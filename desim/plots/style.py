"""How figures look: colours, type, labels, units; and how they are made and written."""

from pathlib import Path
from typing import Any, cast

from matplotlib.axes import Axes as Axes
from matplotlib.figure import Figure

from desim.errors import InputError, refusal

# Okabe and Ito (2008): distinguishable with every kind of colour vision; yellow is too light here.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")
STYLE: Any = {
    "figure.figsize": (5.0, 3.1),
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.2,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
LABELS = {
    "error": r"error  $\sum_i \; \|x_i - x^\star\|^2 \,/\, \|x^\star\|^2$",
    "accuracy": "test accuracy",
    "consensus": r"consensus  $\sum_i \|x_i - \bar{x}\|^2 \,/\, N$",
    "gradient": r"gradient norm  $\|\nabla F\|$",
    "risk_difference": "risk difference",
    "positive_rate": "positive decisions",
    "positive_rate_protected": "positive decisions, protected group",
    "positive_rate_others": "positive decisions, others",
    "accuracy_protected": "test accuracy, protected group",
    "accuracy_others": "test accuracy, others",
}
NAMES = {
    "time": "virtual time",
    "round": "round",
    "bytes": "data delivered",
    "epsilon": r"$\varepsilon$ of the agent that spends most",
}
LOGARITHMIC = frozenset({"error", "consensus", "gradient"})
SPANS = ((1e-3, "µs", 1e6), (1.0, "ms", 1e3), (600.0, "s", 1.0), (3 * 3600.0, "min", 1 / 60))
SIZES = ((1e3, "B", 1.0), (1e6, "kB", 1e-3), (1e9, "MB", 1e-6), (1e12, "GB", 1e-9))


def save(axes: Axes, path: Path) -> None:
    """Write the figure of `axes` to `path`; InputError for an unknown suffix or a bad place."""
    figure = cast(Figure, axes.figure)
    formats = figure.canvas.get_supported_filetypes()
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in formats:
        raise InputError(f"{path}: {refusal(suffix, ', '.join(sorted(formats)), formats)}")
    try:
        figure.savefig(path, metadata={"Date": None} if suffix in ("svg", "pdf") else None)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def new_axes(interactive: bool) -> Axes:
    """Axes of a figure that no global state holds, unless a notebook or window shall show it."""
    if not interactive:
        return Figure().subplots()
    from matplotlib import pyplot

    return pyplot.subplots()[1]


def unit_of(x: str, last: float) -> tuple[str, float]:
    """The unit in which values up to `last` (s, rounds, bytes) read best, and the factor to it."""
    if x in ("round", "epsilon"):
        return "", 1.0
    scales = SPANS if x == "time" else SIZES
    largest = ("h", 1 / 3600) if x == "time" else ("TB", 1e-12)
    return next(((unit, factor) for end, unit, factor in scales if last < end), largest)
