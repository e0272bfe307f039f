"""Whom `hub.invite` names by what was seen, and what replies say of losses.

Where losses choose, a reply carries one number more. Its row is written beside the reply's, whoever
is taken: it is infinite without noise, else that of a Gaussian on a mean of cut losses.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.signals import Feature
from desim.engine.world import World
from desim.memory import Tree, fill, recall
from desim.network.conditions.choosing import Chooser, Losses, Seen
from desim.network.timeline.computations import is_up
from desim.network.timeline.record import BESIDE, UPLINK, Kind, release_id
from desim.privacy.ledger.ledger import Mechanism, Terms, View, plain
from desim.problem.problem import mean_losses

if TYPE_CHECKING:
    from desim.privacy.ledger.budget import Filter

# Reports of losses, where the coordinator chooses by them: a release of its own each.

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
        none: Any = np.zeros(len(time))
        self.world.log.each(
            Kind.RELEASE, UPLINK, ints[:, 0], ints[:, ROUND], np.inf, time, none, none,
            ints[:, RELEASE],
        )  # fmt: skip


def price_of(filter_: "Filter", terms: Terms) -> Array:
    """Price (3, agents) of one report, which has no kind: all Gaussian, or infinite."""
    everybody = np.arange(len(terms.scale))
    price = filter_.price(everybody, terms, everybody)
    price[2] = 0.0
    return price


# Invitations that follow from what was seen.

SEEN = "heard picks loss"


class Choosing(Feature):
    """The chooser of one play, which is asked once a round; price (3, agents): of a reply's losses.

    price: None where replies say nothing of losses.
    """

    name = "inviting"

    def __init__(self, world: World) -> None:
        settings = world.settings
        chooser, agents = settings.participation, settings.problem.agents
        assert isinstance(chooser, Chooser)
        self.chooser = chooser
        self.reports = None if chooser.losses is None else LossReports(world, chooser.losses)
        self.price = None if self.reports is None else self.reports.price
        self.beside = 0 if self.reports is None else BITS
        self.asked = 0  # the latest round of an invitation
        self.chosen: Int = np.empty(0, np.int64)
        self.latest = np.full(agents, -chooser.separation)  # round of an invitation, or a reply
        nothing = np.zeros((2, agents), np.int64)
        self.seen = Seen(
            np.zeros(agents), nothing[0], nothing[1], np.full(agents, np.nan),
            settings.problem.rows, chooser.start(),
        )  # fmt: skip
        self.calendar = None if settings.churn is None else settings.churn.calendar
        if self.calendar is not None:  # with a memory of its own
            fresh = np.zeros_like(self.calendar.memory)
            self.calendar = self.calendar._replace(memory=fresh)

    def invited(self, hub: Any, who: Int) -> Int:
        """Whoever is chosen in this round and is among agents who (n,), which are free."""
        if self.asked != hub.round:
            self.seen.took = hub.calls.took
            rested = who[hub.round - self.latest[who] >= self.chooser.separation]
            free = self._up(hub.now, rested)
            self.chosen = np.sort(self.chooser.chosen(hub.round, free, self.seen))
            self.seen.picks[self.chosen] += 1
            self.latest[self.chosen] = hub.round
            self.asked = hub.round
            return self.chosen
        return self.chosen[np.isin(self.chosen, who)]

    def _up(self, now: float, who: Int) -> Int:
        """Those of agents who (n,) that are up now; all, where nobody is or nobody asks."""
        if not self.chooser.available or self.calendar is None:
            return who
        up = np.array([is_up(self.calendar, i, now)[0] for i in who.tolist()], bool)
        return who[up] if up.any() else who

    def charged(self, first: int) -> None:
        """Write what replies say of losses beside the ledger's rows of replies."""
        if self.reports is not None:
            self.reports.charge(first)

    def taken(self, hub: Any, who: Int, rounds: Int, exchange: Int) -> None:
        """Note what replies of agents who (n,) to calls of rounds (n,) say."""
        self.seen.heard[who] = self.latest[who] = hub.round  # which may be late
        if self.reports is not None:
            self.seen.loss[who] = self.reports.said(who, rounds, exchange)
        self.seen.took = hub.calls.took
        self.chooser.learnt(hub.round, who, self.seen)

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        seen = {name: getattr(self.seen, name) for name in SEEN.split()}
        own = {f"own {name}": array for name, array in self.seen.own.items()}
        apart = {"latest": self.latest} if self.chooser.separation > 1 else {}
        return seen | own | apart | {"asked": self.asked, "chosen": self.chosen}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, "asked")
        recall(self.seen, tree, SEEN)
        if self.chooser.separation > 1:
            recall(self, tree, "latest")
        for name, array in self.seen.own.items():
            fill(array, tree[f"own {name}"])
        self.chosen = np.asarray(tree["chosen"], np.int64)
