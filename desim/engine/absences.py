"""Agents that leave again and again before they are done: known beforehand, or told after a while.

A computation that its agent's absence ends is begun anew. Where no presence is long enough, or
hardly any, whoever waits for the agent waits for ever.
"""

from heapq import heappop

import numpy as np

from desim.engine import presences
from desim.engine.patience import at
from desim.engine.presences import ROUNDING, hurried, never, often, restless
from desim.engine.settings import Settings
from desim.engine.world import World
from desim.network.conditions.devices import Churn
from desim.network.timeline.computations import ENDLESS, NEVER


class Absences:
    """What an agent's turns up and down make of its computations, as they happen."""

    def __init__(self, world: World, agent: int, churn: Churn) -> None:
        self.world, self.agent = world, agent
        self.longest = float(churn.longest[agent])
        self.attempts = self.idle = 0
        self.turns, self.since = 0, 0.0
        self.reported = 0.0  # s of the computation that cannot be done

    def asked(self, time: float) -> None:
        """The agent is asked for another computation at `time` s."""
        self.attempts, self.idle, self.since = 0, 0, time

    def begun(self, begin: float, seconds: float, work: float, round_: int) -> None:
        """A computation of `work` gradients begins at `begin` s that takes so many s.

        RunError if it is waited for and can never be done.
        """
        if self.longest * ROUNDING < seconds < np.inf and self.reported != seconds:
            self.reported = seconds
            hopeless(self.world, self.agent, begin, seconds, work, round_)
        self.attempts += 1
        if self.attempts == presences.MANY:
            self.world.caution(often(self.agent, begin, seconds, round_))

    def turned(self, time: float, computing: bool) -> None:
        """The agent leaves or comes back at `time` s; RunError if that would go on for ever."""
        computing = computing and time > self.since
        self.turns, self.idle = self.turns + 1, self.idle + computing
        horizon = self.world.patience.horizon
        if horizon == np.inf:
            if computing and self.idle % presences.TURNS == 0:
                raise at(time, restless(self.agent, time, self.idle))
        elif self.turns % presences.TURNS == 0 and time * presences.MOST < self.turns * horizon:
            raise at(time, hurried(self.agent, time, self.turns, horizon))


def hopeless(
    world: World, agent: int, begin: float, seconds: float, work: float, round_: int
) -> None:
    """Tell of a computation that no presence is as long as; RunError if it is waited for."""
    assert world.settings.churn is not None
    text = never(agent, seconds, work, float(world.settings.churn.longest[agent]))
    if endless(world, agent):
        raise at(begin, f"{text} (round {round_})")
    world.caution(text)


def endless(world: World, agent: int) -> bool:
    """Whether the run has no end as this agent will never be done, beside others known to be so."""
    world.stuck.add(agent)
    return world.patience.horizon == np.inf and needed(world.settings, len(world.stuck))


def needed(settings: Settings, stuck: int) -> bool:
    """Whether nothing goes on, or no number of rounds is reached, without so many agents."""
    policy = settings.policy
    if settings.graph is not None or policy.kind == "all":
        return stuck > 0
    if policy.limited:
        return settings.problem.agents - stuck < policy.at_least
    return settings.problem.agents - stuck < policy.value


def tell(world: World, time: float) -> None:
    """Tell what is to be told of absences by `time` s; RunError if the run would never end."""
    notes = [] if world.presences is None else world.presences.notes
    while notes and notes[0][0] <= time:
        now, agent, round_, seconds, work, what, turns = heappop(notes)
        if what == NEVER:
            hopeless(world, agent, now, seconds, work, round_)
        elif what == ENDLESS:
            raise at(now, restless(agent, now, int(turns)))
        else:
            world.caution(often(agent, now, seconds, round_))
