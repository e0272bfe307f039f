"""`run.plot`: the figures of one run, each a call that returns matplotlib's axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from matplotlib.axes import Axes

from desim.interface.plots.activity import staleness, timeline, utilisation
from desim.interface.plots.curves import epsilon, plot
from desim.interface.plots.learnt import distance, learnt, pairs
from desim.interface.plots.network_map import network
from desim.interface.plots.of_clients import clients, served
from desim.interface.plots.style import Framed, Look

if TYPE_CHECKING:
    from desim.runs.run import Run


class Figures:
    """Figures of a run. Called, it is `curve`.

    Every figure takes `out`, a file whose suffix says which format; in a notebook the figure shows
    itself without it; and title and size (inches), those of curves also ylim and log. InputError
    where the log does not keep what a figure needs, with the reason.
    """

    def __init__(self, run: "Run") -> None:
        self._run = run

    def __call__(
        self,
        x: str = "time",
        metric: str | None = None,
        out: str | Path | None = None,
        *,
        label: str | None = None,
        **asked: Unpack[Look],
    ) -> Axes:
        """A metric against time, round, bytes, joules or epsilon; see `interface.plots.plot`."""
        labels = None if label is None else [label]
        return plot([self._run], x=x, metric=metric, out=out, labels=labels, **asked)

    curve = __call__

    def timeline(
        self,
        rounds: tuple[int, int] | None = None,
        agents: Sequence[int] | None = None,
        out: str | Path | None = None,
        **asked: Unpack[Framed],
    ) -> Axes:
        """Who computes, sends, waits; see `desim.interface.plots.timeline`."""
        return timeline(self._run, rounds, agents, out, **asked)

    def network(self, out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
        """Who sends to whom, how fast; see `desim.interface.plots.network`."""
        return network(self._run, out, **asked)

    def staleness(self, out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
        """How old what is used is, in rounds; see `desim.interface.plots.staleness`."""
        return staleness([self._run], out, **asked)

    def utilisation(self, out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
        """Shares of time in which agents compute; see `desim.interface.plots.utilisation`."""
        return utilisation(self._run, out, **asked)

    def clients(self, out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
        """Clients' accuracies over time, in a band; see `desim.interface.plots.clients`."""
        return clients([self._run], out, **asked)

    def served(
        self, against: str = "agent", out: str | Path | None = None, **asked: Unpack[Framed]
    ) -> Axes:
        """Which clients are served badly; see `desim.interface.plots.served`."""
        return served(self._run, against, out, **asked)

    def epsilon(self, out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
        """What each agent has spent over time; see `desim.interface.plots.epsilon`."""
        return epsilon(self._run, out, **asked)

    def pairs(self, out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
        """What each agent has learnt of each other one; see `desim.interface.plots.pairs`."""
        return pairs(self._run, out, **asked)

    def distance(self, out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
        """What is learnt so many links away; see `desim.interface.plots.distance`."""
        return distance(self._run, out, **asked)

    def learnt(self, out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
        """What agents have learnt of others by when; see `desim.interface.plots.learnt`."""
        return learnt(self._run, out, **asked)
