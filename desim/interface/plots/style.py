"""How figures look: colours, fonts, labels, units, and what a caller may ask for; their files."""

import math
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast
from unicodedata import combining, east_asian_width

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes as Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from desim.amounts import best_unit
from desim.arrays import Array
from desim.errors import InputError, refusal
from desim.runs.directory import output

# Metrics wherever they are shown: which one comes first, which are shares, which fall.


ORDER = (
    "accuracy", "error", "loss", "gradient", "consensus", "risk_difference", "positive_rate",
)  # fmt: skip
LOGARITHMIC = frozenset({"error", "consensus", "gradient"})  # fall towards zero
AXIS_END = 1e100  # values that an axis holds are less
WORDS = {  # metrics whose names are no words
    "accuracy": "test accuracy",
    "loss": "loss, summed over agents",
    "risk_difference": "risk difference",
    "positive_rate": "positive decisions",
    "positive_rate_protected": "positive decisions, protected group",
    "positive_rate_others": "positive decisions, others",
    "accuracy_protected": "test accuracy, protected group",
    "accuracy_others": "test accuracy, others",
    "client_accuracy": "accuracy of clients, mean",
    "client_accuracy_weighted": "accuracy of clients, mean by rows",
    "client_accuracy_worst_decile": "accuracy of the worst tenth of clients",
    "client_accuracy_min": "accuracy of the worst client",
    "client_accuracy_spread": "spread of clients' accuracies",
    "client_loss": "loss of clients, mean",
}


def ranked(recorded: Sequence[Collection[str]]) -> list[str]:
    """Every metric of some runs, each given by what it recorded: the order in which to show them.

    Those that most runs have come first, of these accuracy, then ORDER, then the alphabet.
    """
    have = Counter(str(name) for names in recorded for name in set(names))
    place = {name: number for number, name in enumerate(ORDER)}
    return sorted(have, key=lambda name: (-have[name], place.get(name, len(place)), name))


def on_axis(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values (n,), nan for those that no axis holds: there the run has diverged."""
    return np.where(np.abs(value) < AXIS_END, value, np.nan)


def is_share(metric: str) -> bool:
    """Whether values of the metric are shares, to be read in percent."""
    return metric.startswith(("accuracy", "client_accuracy", "positive_rate", "risk"))


def worded(metric: str, value: float, digits: int = 4) -> str:
    """A value of a metric, shares in percent."""
    return f"{100 * value:.{digits}g} %" if is_share(metric) else f"{value:.{digits}g}"


# Words: how wide they are, cut to what fits, and the fonts that have their letters.
LONGEST = 48  # letters of a word, and of a label that is cut
WHOLE = 160  # letters of a label of shorter words, which can be wrapped
CUTS = (0.5, 0.0, 1.0, 0.25, 0.75)  # what share of a cut label stands before the ellipsis
WIDE = (  # families that have the letters of Chinese, Japanese and Korean
    "Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "Droid Sans Fallback", "IPAexGothic", "Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo",
    "Yu Gothic", "Microsoft YaHei", "Malgun Gothic",
)  # fmt: skip


def width(text: str) -> int:
    """How many letters wide a text is: those of East Asia are as wide as two."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def plain(name: str) -> str:
    """A name as matplotlib takes it for nothing else: neither a formula nor a hidden label."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def wrapped(text: str, columns: int) -> str:
    """The text in lines at most so many letters wide."""
    whole = text.replace(" %", "\1%")  # a number and its percent sign stay on one line
    spaced = "".join(one + "\0" * (width(one) - 1) for one in whole)  # as long as it is wide
    return textwrap.fill(spaced, max(columns, 1)).replace("\0", "").replace("\1", " ")


def fitted(labels: Sequence[str]) -> list[str]:
    """Labels whose words are at most LONGEST wide, those that were unlike still unlike.

    What is cut is the middle; where that made two alike, another part; else they are numbered.
    """
    for share in CUTS:
        found = [_cut(label, LONGEST, share) for label in labels]
        if len(set(found)) == len(set(labels)):
            return found
    numbers = {label: f" #{number}" for number, label in enumerate(dict.fromkeys(labels), 1)}
    return [
        label if _fits(label) else _cut(label, LONGEST - len(end), 0.5) + end
        for label, end in ((label, numbers[label]) for label in labels)
    ]


def _cut(label: str, most: int, share: float) -> str:
    if _fits(label):
        return label
    before = int(share * (most - 1))
    head = _taken(label, lambda text: width(text) <= before)
    rest = most - 1 - width(head)
    tail = _taken(label[::-1], lambda text: width(text) <= rest)[::-1]
    return f"{head}…{tail}"


def _fits(label: str) -> bool:
    return width(label) <= WHOLE and max(map(width, label.split()), default=0) <= LONGEST


def _taken(text: str, fits: Callable[[str], bool]) -> str:
    """The longest beginning that fits."""
    end = 0
    while end < len(text) and fits(text[: end + 1]):
        end += 1
    return text[:end]


@cache
def families() -> list[str]:
    """The font families of figures: the usual one, then those of WIDE that are installed."""
    return ["sans-serif", *(name for name in WIDE if name in font_manager.get_font_names())]


# Colours of Okabe and Ito (2008), for every kind of colour vision; yellow is too light here.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")
INK = "#444444"
SPARE = 4  # lines of a legend that a figure has room for
LEFT = 0.6  # inches of a figure to the left of its axes, nearly always
LINE = 0.19  # inches that each further line of a legend takes
STATES = {  # what somebody does, and its colour
    "computes": COLOURS[0],
    "interrupted": COLOURS[4],
    "message on its way": COLOURS[5],
    "waits": "#E4E4E4",
    "away": "#6E6E6E",
}
STYLE: Any = {
    "figure.figsize": (5.0, 3.1),
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.7,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.2,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "desim",
    "pdf.fonttype": 42,
}
LABELS = {
    **WORDS,
    "error": r"error  $\sum_i \; \|x_i - x^\star\|^2 \,/\, \|x^\star\|^2$",
    "consensus": r"consensus  $\sum_i \|x_i - \bar{x}\|^2 \,/\, N$",
    "gradient": r"gradient norm  $\|\nabla F\|$",
}
NAMES = {
    "time": "virtual time",
    "round": "round",
    "bytes": "data delivered",
    "joules": "energy of all devices",
    "epsilon": r"$\varepsilon$ of the agent that spends most",
}


_place: ContextVar[Axes | None] = ContextVar("_place", default=None)


@contextmanager
def panels(number: int, out: str | Path | None) -> Iterator[Figure]:
    """A figure of so many axes side by side, written to `out` when all went well."""
    wide, high = STYLE["figure.figsize"]
    chosen: Any = {"figure.figsize": (0.75 * wide * number, high), "font.family": families()}
    with matplotlib.rc_context({**STYLE, **chosen}):
        figure = Figure()
        figure.subplots(1, number, sharey=True)
        yield figure
        if out is not None:
            save(figure.axes[0], Path(out))


@contextmanager
def within(axes: Axes) -> Iterator[None]:
    """What is drawn meanwhile is drawn on these axes, and has no figure of its own."""
    token = _place.set(axes)
    try:
        yield
    finally:
        _place.reset(token)


@contextmanager
def drawing(out: str | Path | None, size: tuple[float, float] | None = None) -> Iterator[Axes]:
    """Axes in the house's style, `size` inches wide and high; written to `out` when all went well.

    Without `out` the figure belongs to pyplot, and shows itself in a notebook.
    """
    if (place := _place.get()) is not None:
        yield place
        return
    chosen: Any = {"figure.figsize": size or STYLE["figure.figsize"], "font.family": families()}
    with matplotlib.rc_context({**STYLE, **chosen}):
        axes = new_axes(interactive=out is None)
        try:
            yield axes
        except BaseException:
            if out is None:  # a notebook would show it half drawn
                from matplotlib import pyplot

                pyplot.close(cast(Figure, axes.figure))
            raise
        if out is not None:
            save(axes, Path(out))


def save(axes: Axes, path: Path) -> None:
    """Write the figure of `axes` to `path`; InputError for an unknown suffix or a bad place."""
    figure = cast(Figure, axes.figure)
    formats = figure.canvas.get_supported_filetypes()
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in formats and not path.is_dir():
        raise InputError(f"{path}: {refusal(suffix, ', '.join(sorted(formats)), formats)}")
    undated = {"Date": None} if suffix in ("svg", "pdf") else None
    with output(path, [f".{one}" for one in sorted(formats)]) as partial, warnings.catch_warnings():
        for noise in ("constrained_layout not applied", "Glyph .* missing"):
            warnings.filterwarnings("ignore", noise)
        figure.savefig(partial, format=suffix, metadata=undated)


def new_axes(interactive: bool) -> Axes:
    """Axes of a figure that no global state holds, unless a notebook or window shall show it."""
    if not interactive:
        return Figure().subplots()
    from matplotlib import pyplot

    return pyplot.subplots()[1]


def unit_of(x: str, last: float) -> tuple[str, float]:
    """The unit in which values up to `last` (s, rounds, B, J) read best, and the factor to it."""
    if x in ("round", "epsilon"):
        return "", 1.0
    return best_unit(last, {"time": "s", "joules": "J"}.get(x, "B"))


def look(number: int) -> tuple[str, str]:
    """Colour and dashes of the curve of this number; 28 of them can be told apart."""
    colours = len(COLOURS)
    return COLOURS[number % colours], DASHES[number // colours % len(DASHES)]


def name_rows(axes: Axes, names: Sequence[str], top: float = -0.55) -> None:
    """A name at each row, the first one on top; no marks, and no lines across."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 1 - top, top)
    axes.grid(visible=False, axis="y")


def twin_of(axes: Axes, where: Array, value: Array) -> Line2D | None:
    """The line that is drawn already through the same points (n,); None where there is none."""
    for line in axes.lines:
        x, y = (np.asarray(one, float) for one in line.get_data())
        if np.array_equal(x, where) and np.array_equal(y, value, equal_nan=True):
            return line
    return None


def legend(axes: Axes, title: str | None = None) -> None:
    """A legend above the axes, in as many columns as its words leave room for; long ones wrap."""
    handles, labels = axes.get_legend_handles_labels()
    figure = cast(Figure, axes.figure)
    wide = figure.get_figwidth()
    labels = [wrapped(label, int(10.5 * wide)) for label in labels]
    longest = max(width(line) for label in labels for line in label.split("\n")) + 5
    columns = int(np.clip(14.5 * wide // longest, 1, min(len(labels), 4)))
    while columns > 1:
        tried = axes.legend(handles, labels, ncols=columns)
        if tried.get_window_extent().width <= (wide - LEFT) * figure.dpi:
            break
        columns -= 1
    lines = sum(label.count("\n") + 1 for label in labels) / columns
    figure.set_figheight(figure.get_figheight() + LINE * max(lines - SPARE, 0.0))
    words = axes.legend(
        handles, labels, title=title, alignment="left", ncols=columns, loc="lower left",
        bbox_to_anchor=(-0.02, 1.0), title_fontsize=8.5,
    )  # fmt: skip
    words.get_title().set_color(INK)


def grade() -> ListedColormap:
    """Colours of continuous values, dark for large ones: for all colour vision, and in grey."""
    return ListedColormap(matplotlib.colormaps["cividis_r"](np.linspace(0.1, 1.0, 256)))


def patches(axes: Axes, states: Sequence[str], tick: str | None = None) -> None:
    """A legend of STATES above the axes, and of the black ticks, where there are any."""
    handles: list[Artist] = [Patch(color=STATES[state]) for state in states]
    labels = list(states)
    if tick is not None:
        ticks = Line2D([], [], color="black", linestyle="", marker="|", markersize=8)
        handles, labels = [*handles, ticks], [*labels, tick]
    axes.legend(
        handles, labels, ncols=5, loc="lower left", bbox_to_anchor=(-0.02, 1.0), handlelength=1.0,
        handletextpad=0.5, columnspacing=1.1,
    )  # fmt: skip


def scale(axes: Axes, metric: str, values: Array) -> None:
    """The ordinate: logarithmic for metrics that fall towards zero, percent for accuracy."""
    positive = values[np.isfinite(values) & (values > 0.0)]
    if metric in LOGARITHMIC and positive.size and positive.max() > 5.0 * positive.min():
        axes.set_yscale("log", nonpositive="mask")
    if is_share(metric):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g} %"))
    axes.set_ylabel(LABELS.get(metric, metric))


def shown(metric: str, value: float) -> str:
    """A value of a metric with its name, as in accuracy 93 %."""
    return f"{metric} {worded(metric, value)}"


def spelled_time(seconds: float) -> str:
    """A time with the unit in which it reads best."""
    unit, factor = unit_of("time", seconds)
    return f"{seconds * factor:.3g} {unit}"


# What a caller may ask for: title, size, limits and scale of the ordinate.
MIN_INCHES, MAX_INCHES = 1.0, 60.0
WIDE_RANGE = 150.0  # how far apart the ends of an ordinate are on which powers of ten are enough
Limits = tuple[float | None, float | None]


class Framed(TypedDict, total=False):
    """title: above the figure; size: width and height in inches."""

    title: str | None
    size: tuple[float, float] | None


class Look(Framed, total=False):
    """Of figures with curves, too: ylim, ends of the ordinate (None: as it comes); log: its scale.

    Shares are 0 to 1 in `ylim`, though the axis says percent.
    """

    ylim: Limits | None
    log: bool | None


@contextmanager
def framed(
    out: str | Path | None, usual: tuple[float, float] | None = None, **frame: Unpack[Framed]
) -> Iterator[Axes]:
    """Axes of a figure `usual` inches in size, or of the size asked for, with its title."""
    size, title = frame.get("size"), frame.get("title")
    unknown = sorted(set(frame) - set(Framed.__annotations__))
    if unknown:
        raise InputError(f"{unknown[0]}: found with a figure that has none; allowed: title, size")
    with drawing(out, _checked(size) if size else usual) as axes:
        yield axes
        figure = cast(Figure, axes.figure)
        if title:
            lines = wrapped(title, int(11.0 * figure.get_figwidth()))
            figure.suptitle(plain(lines), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        if size:
            figure.set_size_inches(*size)


@contextmanager
def scaled(out: str | Path | None, **look: Unpack[Look]) -> Iterator[Axes]:
    """Axes as `framed` makes them, whose ordinate is scaled and cut as was asked for."""
    ylim, log = look.get("ylim"), look.get("log")
    _check_limits(ylim, log)
    with framed(out, title=look.get("title"), size=look.get("size")) as axes:
        yield axes
        if log and not axes.dataLim.y1 > 0.0:
            raise InputError("log: found no value above 0; allowed: on an axis of positive values")
        formatter = axes.yaxis.get_major_formatter()
        if log is not None:
            axes.set_yscale("log", nonpositive="mask") if log else axes.set_yscale("linear")
        if ylim is not None:
            axes.set_ylim(*ylim)
        if axes.get_yscale() == "log":
            mark_decades(axes.yaxis, formatter if isinstance(formatter, FuncFormatter) else None)


def mark_decades(axis: XAxis | YAxis, formatter: FuncFormatter | None) -> None:
    """Marks of a logarithmic axis: of few decades more of each, and as plain numbers."""
    low, high = axis.get_view_interval()
    if high < WIDE_RANGE * low:
        few = high < 5.0 * low
        steps = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0) if few else (1.0, 2.0, 5.0)
        formatter = formatter or FuncFormatter(lambda value, _: f"{value:g}")
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_minor_locator(NullLocator())
    if formatter is not None:
        axis.set_major_formatter(formatter)


def _check_limits(ylim: Limits | None, log: bool | None) -> None:
    if ylim is None:
        return
    low, high = ylim
    known = [one for one in (low, high) if one is not None]
    wrong = not known or not all(map(math.isfinite, known))
    if wrong or (low is not None and high is not None and low >= high):
        raise InputError(f"ylim: {refusal(ylim, 'two numbers, the first below the second')}")
    if log and min(known) <= 0.0:
        raise InputError(f"ylim: {refusal(ylim, 'numbers above 0, as the scale is logarithmic')}")


def _checked(size: tuple[float, float]) -> tuple[float, float]:
    if len(size) != 2 or not all(MIN_INCHES <= one <= MAX_INCHES for one in size):
        allowed = f"width and height in inches, {MIN_INCHES:g} to {MAX_INCHES:g}"
        raise InputError(f"size: {refusal(size, allowed)}")
    return float(size[0]), float(size[1])
