"""What a caller may ask of a figure's look: title, size, limits and scale of the ordinate."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, Unpack, cast

from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from desim.errors import InputError, refusal
from desim.interface.plots.lettering import plain, wrapped
from desim.interface.plots.style import drawing

SMALLEST, LARGEST = 1.0, 60.0  # inches
WIDE = 150.0  # how far apart the ends of an ordinate are on which powers of ten are enough
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
    if high < WIDE * low:
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
    if len(size) != 2 or not all(SMALLEST <= one <= LARGEST for one in size):
        allowed = f"width and height in inches, {SMALLEST:g} to {LARGEST:g}"
        raise InputError(f"size: {refusal(size, allowed)}")
    return float(size[0]), float(size[1])
