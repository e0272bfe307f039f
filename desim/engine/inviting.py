"""Whom `hub.invite` names: a draw of the round, or a choice that follows from what was seen."""

from typing import Any

import numpy as np

from desim.arrays import Int
from desim.engine.loss_reports import LossReports, reports_of
from desim.engine.world import World
from desim.memory import Tree, fill, recall
from desim.network.conditions.choosing import Chooser, Seen
from desim.network.timeline.phases import is_up

SEEN = "heard picks loss"


class Inviting:
    """Invitations of one play; the chooser, where there is one, is asked once a round."""

    def __init__(self, world: World) -> None:
        settings = world.settings
        self.world, agents = world, settings.problem.agents
        given = settings.participation
        self.chooser = given if isinstance(given, Chooser) else None
        self.reports: LossReports | None = reports_of(world)
        self.asked = 0  # the latest round of an invitation
        self.chosen: Int = np.empty(0, np.int64)
        if self.chooser is not None:
            nothing = np.zeros((2, agents), np.int64)
            self.seen = Seen(
                np.zeros(agents), nothing[0], nothing[1], np.full(agents, np.nan),
                settings.problem.rows, self.chooser.start(),
            )  # fmt: skip
            self.calendar = None if settings.churn is None else settings.churn.calendar
            if self.calendar is not None:  # with a memory of its own
                fresh = np.zeros_like(self.calendar.memory)
                self.calendar = self.calendar._replace(memory=fresh)

    def invited(self, hub: Any) -> Int:
        """Agents (n,), ascending, that take part in the round and owe no reply."""
        drawing = self.world.settings.participation
        if not isinstance(drawing, Chooser):
            return self._free(hub, drawing.draw(hub.round))
        assert self.chooser is not None
        if self.asked != hub.round:
            free = self._up(hub.now, self._free(hub, np.arange(hub.agents)))
            self.seen.took = hub.calls.took
            self.chosen = np.sort(self.chooser.chosen(hub.round, free, self.seen))
            self.seen.picks[self.chosen] += 1
            self.asked = hub.round
        return self._free(hub, self.chosen)

    def _free(self, hub: Any, who: Int) -> Int:
        """Those of agents who (n,) that have not retired and owe nothing."""
        settings, filter_ = self.world.settings, self.world.filter
        if filter_ is not None:
            who = who[~filter_.retired[who]]
        if settings.policy.late == "discard":  # what is not collected is void, nobody owes a reply
            return who
        pending = hub.calls.pending
        return who[pending[who] == 0] if pending.any() else who

    def _up(self, now: float, who: Int) -> Int:
        """Those of agents who (n,) that are up now; all, where nobody is or nobody asks."""
        assert self.chooser is not None
        if not self.chooser.available or self.calendar is None:
            return who
        up = np.array([is_up(self.calendar, i, now)[0] for i in who.tolist()], bool)
        return who[up] if up.any() else who

    def taken(self, hub: Any, who: Int, rounds: Int, exchange: Int) -> None:
        """Replies of agents who (n,) to calls of rounds (n,) are in: note what they say."""
        if self.chooser is None:
            return
        self.seen.heard[who] = hub.round
        if self.reports is not None:
            self.seen.loss[who] = self.reports.said(who, rounds, exchange)
        self.seen.took = hub.calls.took
        self.chooser.learnt(hub.round, who, self.seen)

    def remembered(self) -> Tree | None:
        """What a checkpoint needs, None for nothing."""
        if self.chooser is None:
            return None
        seen = {name: getattr(self.seen, name) for name in SEEN.split()}
        own = {f"own {name}": array for name, array in self.seen.own.items()}
        return seen | own | {"asked": self.asked, "chosen": self.chosen}

    def recall(self, tree: Tree | None) -> None:
        """Go on from a checkpoint."""
        if self.chooser is None or tree is None:
            return
        recall(self, tree, "asked")
        recall(self.seen, tree, SEEN)
        for name, array in self.seen.own.items():
            fill(array, tree[f"own {name}"])
        self.chosen = np.asarray(tree["chosen"], np.int64)
