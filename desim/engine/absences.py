"""Agents that leave again and again before they are done: known beforehand, or told after a while.

A computation that its agent's absence ends is begun anew. Where no presence is long enough, or
hardly any, whoever waits for the agent waits for ever.
"""

import numpy as np

from desim.conditions.churn import Churn
from desim.engine.patience import at
from desim.engine.world import Settings, World

ROUNDING = 1.0 + 1e-9  # a presence is the difference of two times
MANY = 100  # attempts at one computation after which it is told that they fail
TURNS = 100_000  # of an agent between two computations, of which a run without stop.time has enough
MOST = 1e8  # turns of an agent in a run
LEAVE = "give more speed (compute.speed), longer presences (churn)"


class Absences:
    """What an agent's turns up and down make of its computations."""

    def __init__(self, world: World, agent: int, churn: Churn) -> None:
        self.world, self.agent = world, agent
        self.longest = float(churn.longest[agent])
        self.attempts = self.turns = self.idle = 0
        self.reported = 0.0  # s of the computation that cannot be done

    def asked(self) -> None:
        """The agent is asked for another computation."""
        self.attempts = 0

    def begun(self, begin: float, seconds: float, work: float, round_: int) -> None:
        """A computation of `work` gradients begins at `begin` s that takes so many s.

        RunError if it is waited for and can never be done.
        """
        if self.longest * ROUNDING < seconds < np.inf and self.reported != seconds:
            self.reported, text = seconds, never(self.agent, seconds, work, self.longest)
            if endless(self.world, self.agent):
                raise at(begin, f"{text} (round {round_})")
            self.world.caution(text)
        self.attempts += 1
        if self.attempts == MANY:
            text = f"agent {self.agent} has begun a computation of {seconds:.4g} s in round"
            text = f"{text} {round_} {MANY} times and was away each time before its end"
            self.world.caution(f"{text}; at {begin:.6g} s it is still waited for: {LEAVE}")

    def finished(self) -> None:
        """A computation is done."""
        self.attempts = self.idle = 0

    def turned(self, time: float) -> None:
        """The agent leaves or comes back at `time` s; RunError if that would go on for ever."""
        self.turns, self.idle = self.turns + 1, self.idle + 1
        horizon = self.world.patience.horizon
        if horizon == np.inf:
            if self.idle >= TURNS:
                text = f"left or came back {self.idle} times without finishing a computation"
                raise at(time, f"agent {self.agent} has {text} until {time:.6g} s; {LEAVE}")
        elif self.turns % TURNS == 0 and time * MOST < self.turns * horizon:
            text = f"left or came back {self.turns} times until {time:.6g} s, of {horizon:g} s"
            raise at(time, f"agent {self.agent} has {text}; give longer times (churn)")


def never(agent: int, seconds: float, work: float, longest: float) -> str:
    """Why an agent is never done with `work` gradients, which take it at least so many seconds."""
    text = f"agent {agent} can never finish: {work:g} gradients take it {seconds:.4g} s"
    pace = f" at {work / seconds:.4g} /s" if seconds > 0.0 and work == work else ""
    return f"{text}{pace}, but it is up for {longest:.4g} s at most; {LEAVE}"


def endless(world: World, agent: int) -> bool:
    """Whether the run has no end as this agent will never be done, beside others known to be so."""
    world.stuck.add(agent)
    return world.patience.horizon == np.inf and needed(world.settings, len(world.stuck))


def needed(settings: Settings, stuck: int) -> bool:
    """Whether nothing goes on, or no number of rounds is reached, without so many agents."""
    policy = settings.policy
    if settings.graph is not None or policy.kind == "all":
        return stuck > 0
    return policy.kind != "deadline" and settings.problem.agents - stuck < policy.value
