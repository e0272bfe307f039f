"""`desim.plot`: curves of runs and studies, which may be named by their directories."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from desim.experiments.studies.folder import groups_of
from desim.interface.plots.curves import plot as drawn
from desim.runs.played import Given

if TYPE_CHECKING:
    from desim.interface.plots.drawable import Band
    from desim.interface.plots.style import Axes, Look


def plot(
    runs: Given,
    x: str = "time",
    metric: str | None = None,
    out: str | Path | None = None,
    *,
    band: "Band | None" = None,
    labels: Sequence[str] | None = None,
    **asked: "Unpack[Look]",
) -> "Axes":
    """Plot one metric of the whole network and return the axes; see `desim.interface.plots.plot`.

    runs: what that takes, one run, or directories of runs and studies in place of the runs.
    """
    return drawn(groups_of(runs), x, metric, out, band=band, labels=labels, **asked)
