"""`run.plot`: the figures of one run, each a call that returns matplotlib's axes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from desim.plots.course import Logged
from desim.plots.curves import plot
from desim.plots.lanes import timeline
from desim.plots.links import network
from desim.plots.occupation import staleness, utilisation
from desim.plots.spending import epsilon


class Figures:
    """Figures of a run. Called, it is `curve`.

    Every figure takes `out`, a file whose suffix says which format; in a notebook the figure shows
    itself without it. InputError where the log does not keep what a figure needs, with the reason.
    """

    def __init__(self, run: Logged) -> None:
        self._run = run

    def __call__(
        self, x: str = "time", metric: str | None = None, out: str | Path | None = None
    ) -> Axes:
        """A metric against time, round, bytes or epsilon; see `desim.plots.plot`."""
        return plot([self._run], x=x, metric=metric, out=out)

    curve = __call__

    def timeline(
        self,
        rounds: tuple[int, int] | None = None,
        agents: Sequence[int] | None = None,
        out: str | Path | None = None,
    ) -> Axes:
        """Who computes, sends, waits; see `desim.plots.timeline`."""
        return timeline(self._run, rounds, agents, out)

    def network(self, out: str | Path | None = None) -> Axes:
        """Who sends to whom, how fast; see `desim.plots.network`."""
        return network(self._run, out)

    def staleness(self, out: str | Path | None = None) -> Axes:
        """How old what is used is, in rounds; see `desim.plots.staleness`."""
        return staleness([self._run], out)

    def utilisation(self, out: str | Path | None = None) -> Axes:
        """Shares of time in which agents compute; see `desim.plots.utilisation`."""
        return utilisation(self._run, out)

    def epsilon(self, out: str | Path | None = None) -> Axes:
        """What each agent has spent over time; see `desim.plots.epsilon`."""
        return epsilon(self._run, out)
