"""Figures of runs, fit to be printed; only this package (and reports) imports matplotlib."""

from desim.plots.course import shared_metric as shared_metric
from desim.plots.curves import plot as plot
from desim.plots.style import COLOURS as COLOURS
from desim.plots.style import STYLE as STYLE
from desim.plots.style import Axes as Axes
from desim.plots.style import new_axes as new_axes
from desim.plots.style import save as save
