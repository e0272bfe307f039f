"""What replies say of losses, where the coordinator chooses by them: a release of its own each.

A reply carries one number more. Its row is written beside the reply's, whoever is taken: it is
infinite without noise, else that of a Gaussian on a mean of cut losses.
"""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.world import World
from desim.network.conditions.choosing import Chooser, Losses
from desim.network.timeline.record import BESIDE, UPLINK, Kind, release_id
from desim.privacy.ledger.budget import Filter
from desim.privacy.ledger.ledger import Mechanism, Terms, View, plain
from desim.problem.row_losses import mean_losses

BITS = 64  # that a reply is longer
ROUND, RELEASE, MECHANISM, SEEN_BY = range(1, 5)  # columns of ledger rows


def terms_of(losses: Losses, rows: Int) -> Terms:
    """Terms (agents,) of what agents with rows (agents,) say of their losses.

    At a model that the agent was sent one row replaced moves the mean by clip^power / rows. Cut
    losses lie in a ball around clip/2, which the coordinator adds, so that one row removed, as in
    every mean here, moves it half as far.
    """
    if losses.clip is None or not losses.sigma:
        return plain(len(rows), View.COORDINATOR)
    sensitivity = losses.clip**losses.power / rows
    scale, all_ = np.full(len(rows), losses.sigma), np.full(len(rows), np.nan)
    return Terms(Mechanism.GAUSSIAN, View.COORDINATOR, sensitivity, scale, all_)


class LossReports:
    """The numbers that replies carry beside, in one play."""

    def __init__(self, world: World, losses: Losses) -> None:
        self.world, self.losses = world, losses
        self.terms = terms_of(losses, world.settings.problem.rows)
        self.price = np.zeros((3, world.settings.problem.agents))
        if world.filter is not None:
            self.price[:] = price_of(world.filter, self.terms)

    def said(self, who: Int, rounds: Int, exchange: Int) -> Array:
        """What replies of agents who (n,) to calls of rounds and exchanges (n,) say."""
        world, losses, problem = self.world, self.losses, self.world.settings.problem
        models = world.state["x"][who]
        value = mean_losses(problem, who, models, losses.power, losses.clip)[:, None]
        said = world.ledger.beside(who, rounds, exchange, value, self.terms)
        if world.signals.releasing:
            ids = release_id(problem.agents, who, rounds, exchange + BESIDE)
            said = world.signals.released(who, rounds, ids, value, said, self.terms, who)
        return np.asarray(said[:, 0])

    def charge(self, first: int) -> None:
        """Write a row beside each one that the ledger has from `first` on, those of replies."""
        world, rows = self.world, self.world.ledger.rows
        n = int(rows.n[0])
        if n == first:
            return
        world.ledger.reserve(n - first)
        rows = world.ledger.rows
        here, there = slice(first, n), slice(n, 2 * n - first)
        ints, floats = rows.ints, rows.floats
        ints[there], who = ints[here], ints[here, 0]
        ints[there, RELEASE] += BESIDE << 48
        mechanism, view, amounts = self.terms.compiled
        ints[there, MECHANISM], ints[there, SEEN_BY] = mechanism, view
        floats[there, 0], floats[there, 1:] = floats[here, 0], amounts[:, who].T
        rows.n[0] = 2 * n - first
        self._log(ints[there].copy(), floats[there, 0].copy())

    def _log(self, ints: Int, time: Array) -> None:
        """Log the releases of rows ints (n, 6) at time (n,) s."""
        none: Any = self.world.zeros(len(time))
        self.world.log.each(
            Kind.RELEASE, UPLINK, ints[:, 0], ints[:, ROUND], np.inf, time, none, none,
            ints[:, RELEASE],
        )  # fmt: skip


def reports_of(world: World) -> LossReports | None:
    """What replies carry beside in this play; None where nobody chooses by losses."""
    given = world.settings.participation
    if not isinstance(given, Chooser) or given.losses is None:
        return None
    return LossReports(world, given.losses)


def price_of(filter_: Filter, terms: Terms) -> Array:
    """Price (3, agents) of one report, which has no kind: all Gaussian, or infinite."""
    everybody = np.arange(len(terms.scale))
    price = filter_.price(everybody, terms, everybody)
    price[2] = 0.0
    return price
