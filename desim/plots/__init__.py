"""Figures of runs, fit to be printed; only this package (and reports) imports matplotlib."""

from desim.plots.clocks import clocks as clocks
from desim.plots.course import shared_metric as shared_metric
from desim.plots.curves import plot as plot
from desim.plots.front import front as front
from desim.plots.lanes import timeline as timeline
from desim.plots.links import network as network
from desim.plots.occupation import staleness as staleness
from desim.plots.occupation import utilisation as utilisation
from desim.plots.price import tradeoff as tradeoff
from desim.plots.profiles import ecdf as ecdf
from desim.plots.profiles import profile as profile
from desim.plots.ranking import ranking as ranking
from desim.plots.reaching import bars as bars
from desim.plots.spending import epsilon as epsilon
from desim.plots.style import COLOURS as COLOURS
from desim.plots.style import STYLE as STYLE
from desim.plots.style import Axes as Axes
from desim.plots.style import new_axes as new_axes
from desim.plots.style import save as save
