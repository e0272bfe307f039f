"""Edges that leave and come back: when they act, and their rows of the log.

An edge that is away neither calls nor answers, and forgets nothing. What comes for it waits until
it is back; a collection that closes meanwhile closes then, with all that has come by then. Nobody
below or above is told: clients go on with what they were asked for.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from re import sub
from typing import Any

import numpy as np

from desim.engine.presences import TURNS, Presences
from desim.engine.world import World
from desim.errors import Deadlock, RunError, at
from desim.log.event_log import EventLog
from desim.network.conditions.devices import Churn
from desim.network.conditions.hierarchy import Tier
from desim.network.timeline.computations import Calendar, is_up


def edges_named(text: str, shift: int) -> str:
    """The same, where what is called agent k is edge k + shift."""
    return sub(r"agent (\d+)", lambda one: f"edge {int(one[1]) + shift}", text)


class Attending:
    """One edge's presence: it acts when it is up.

    calendar: asked for the edge's id; name: as words have it; horizon s: of the run.
    """

    def __init__(self, calendar: Calendar, own: int, name: str, horizon: float) -> None:
        self.calendar = calendar._replace(memory=np.zeros_like(calendar.memory))
        self.id, self.name, self.horizon = own, name, horizon

    def back(self, time: float) -> float:
        """The first time s from `time` s on at which the edge is up; inf where it never is.

        RunError where its presences are nothing beside so late a time.
        """
        asked = time
        for _ in range(TURNS + self.calendar.samples.shape[1]):  # a trace may repeat a state
            if time == np.inf:
                return np.inf
            here, until = is_up(self.calendar, self.id, time)
            if here:
                return asked if time == asked else float(time)
            time = until
        text = f"{self.name} has left and is not back after {TURNS} turns, at {time:.6g} s"
        raise at(time, f"{text}; give longer presences (network.levels' churn)")

    def acting(self, time: float) -> float:
        """When, s, the edge does what it would do at `time` s; Deadlock if it never does.

        What lies after the end of the run is not judged.
        """
        back = self.back(time) if time <= self.horizon else time
        if back == np.inf:
            raise self.gone(time)
        return back

    def gone(self, time: float) -> Deadlock:
        """Why nobody hears from the edge that is needed at `time` s."""
        text = f"{self.name} is needed at {time:.6g} s, but has left and never comes back; "
        text += "network.levels' churn.trace ends so: use end: loop, or a policy of what is above "
        error = Deadlock(f"nobody can go on: {text}it that has a deadline")
        error.time = time
        return error


class WhenThere:
    """A policy whose collections close when their coordinator is there, with what has come."""

    def __init__(self, policy: Any, acting: Callable[[float], float]) -> None:
        self.policy, self.acting = policy, acting

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["policy"], name)

    def close(self, *wait: Any) -> float:
        """The closing time s of a collection, as `Policy.close` has it."""
        time = float(self.policy.close(*wait))
        return time if time == np.inf else self.acting(time)


def when_there(world: World, attending: Attending | None) -> World:
    """The same world, in which collections close when their edge is there; None: it always is."""
    if attending is None:
        return world
    seen, policy = copy(world), WhenThere(world.settings.policy, attending.acting)
    seen.settings = replace(world.settings, policy=policy)  # type: ignore[arg-type]
    return seen


class Turns(Presences):
    """Who of a tier's edges leaves and comes back, in the log."""

    def __init__(self, tier: Tier, agents: int, log: EventLog, horizon: float) -> None:
        assert tier.calendar is not None
        super().__init__(Churn(tier.calendar), log, horizon)
        self._following[: tier.first] = np.inf  # ids of those below
        self.agents = agents

    def until(self, time: float) -> None:
        """Write all turns before `time` s; RunError if an edge turns so often that none ends."""
        try:
            super().until(time)
        except RunError as error:
            raise at(error.time, edges_named(str(error), -self.agents)) from None
