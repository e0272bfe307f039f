"""Figures of runs, fit to be printed; only this package (and reports) imports matplotlib."""

from desim.interface.plots.activity import timeline as timeline
from desim.interface.plots.clocks import clocks as clocks
from desim.interface.plots.curves import plot as plot
from desim.interface.plots.drawable import shared_metric as shared_metric
from desim.interface.plots.epsilon_course import epsilon as epsilon
from desim.interface.plots.front import front as front
from desim.interface.plots.network_map import network as network
from desim.interface.plots.occupation import staleness as staleness
from desim.interface.plots.occupation import utilisation as utilisation
from desim.interface.plots.price import tradeoff as tradeoff
from desim.interface.plots.profiles import bars as bars
from desim.interface.plots.profiles import ecdf as ecdf
from desim.interface.plots.profiles import profile as profile
from desim.interface.plots.ranking import ranking as ranking
from desim.interface.plots.style import COLOURS as COLOURS
from desim.interface.plots.style import STYLE as STYLE
from desim.interface.plots.style import Axes as Axes
from desim.interface.plots.style import new_axes as new_axes
from desim.interface.plots.style import save as save
