"""Figures of runs, fit to be printed; only this package (and reports) imports matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack, overload

from matplotlib.figure import Figure

from desim.errors import InputError
from desim.experiments.studies.folder import groups_of
from desim.interface.plots import curves
from desim.interface.plots.activity import clocks as clocks
from desim.interface.plots.activity import staleness as staleness
from desim.interface.plots.activity import timeline as timeline
from desim.interface.plots.activity import utilisation as utilisation
from desim.interface.plots.curves import epsilon as epsilon
from desim.interface.plots.curves import tradeoff as tradeoff
from desim.interface.plots.drawable import Band
from desim.interface.plots.drawable import shared_metric as shared_metric
from desim.interface.plots.front import front as front
from desim.interface.plots.learnt import distance as distance
from desim.interface.plots.learnt import learnt as learnt
from desim.interface.plots.learnt import pairs as pairs
from desim.interface.plots.network_map import network as network
from desim.interface.plots.of_clients import clients as clients
from desim.interface.plots.of_clients import served as served
from desim.interface.plots.profiles import bars as bars
from desim.interface.plots.profiles import ecdf as ecdf
from desim.interface.plots.profiles import profile as profile
from desim.interface.plots.ranking import ranking as ranking
from desim.interface.plots.style import COLOURS as COLOURS
from desim.interface.plots.style import STYLE as STYLE
from desim.interface.plots.style import Axes as Axes
from desim.interface.plots.style import Look, panels, within
from desim.interface.plots.style import new_axes as new_axes
from desim.interface.plots.style import save as save
from desim.runs.run import Given


@overload
def plot(
    runs: Given, x: str = "time", metric: str | None = None, out: str | Path | None = None,
    *, band: Band | None = None, labels: Sequence[str] | None = None, **asked: Unpack[Look],
) -> Axes: ...  # fmt: skip


@overload
def plot(
    runs: Given, x: tuple[str, ...], metric: str | None = None, out: str | Path | None = None,
    *, band: Band | None = None, labels: Sequence[str] | None = None, **asked: Unpack[Look],
) -> Figure: ...  # fmt: skip


def plot(
    runs: Given,
    x: str | tuple[str, ...] = "time",
    metric: str | None = None,
    out: str | Path | None = None,
    *,
    band: Band | None = None,
    labels: Sequence[str] | None = None,
    **asked: Unpack[Look],
) -> Axes | Figure:
    """Plot one metric of the whole network and return the axes; see `desim.interface.plots.curves`.

    runs: what that takes, one run, or directories of runs and studies in place of the runs. x: of
    several, as in ("time", "bytes", "epsilon"), there are axes side by side, of a figure that is
    returned.
    """
    groups = groups_of(runs)
    if isinstance(x, str):
        return curves.plot(groups, x, metric, out, band=band, labels=labels, **asked)
    if not x or {"title", "size"} & asked.keys():
        text = "found no x, or a title or size; allowed: one x or more, and then neither"
        raise InputError(f"plot: {text}")
    with panels(len(x), out) as figure:
        for name, place in zip(x, figure.axes, strict=True):
            with within(place):
                curves.plot(groups, name, metric, band=band, labels=labels, **asked)
            if place is not figure.axes[0]:
                place.set_ylabel("")
                if (words := place.get_legend()) is not None:
                    words.remove()
    return figure
