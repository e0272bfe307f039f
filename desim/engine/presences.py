"""Agents that come and go: their turns in the log, and what these make of computations.

Turns follow from the calendar alone, so that the log has them whatever the engine. What absences
end is known to compiled calls when they are made, and told when its time has come; it is begun
anew. Where no presence is long enough, or hardly any, whoever waits for the agent waits for ever.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.engine.settings import Settings
from desim.errors import at
from desim.log.event_log import EventLog
from desim.memory import Tree, fill
from desim.network.timeline.computations import (
    ENDLESS,
    NEVER,
    TRACED,
    Attendance,
    Calendar,
    is_up,
    write_aborts,
    write_turns,
)

if TYPE_CHECKING:
    from desim.network.conditions.devices import Churn

ROUNDING = 1.0 + 1e-9  # a presence is the difference of two times
MANY = 100  # attempts at one computation after which it is told that they fail
TURNS = 100_000  # of an agent during one computation, of which a run without stop.time has enough
MAX_TURNS = 1e8  # turns of an agent in a run
LEAVE = "give more speed (compute.speed), longer presences (churn)"
ROOM = 1 << 12  # rows, or noted computations, at a time
NOTES = 32  # of one computation at most


class Presences:
    """The turns of a run's agents, written up to a time; and computations that were begun again."""

    def __init__(self, churn: "Churn", log: EventLog, horizon: float) -> None:
        self.log, agents = log, len(churn.calendar.starts)
        pace = MAX_TURNS / horizon if horizon > 0.0 else np.inf  # 0 without a horizon
        self._limits = np.array([horizon, TURNS, pace, MANY, ROUNDING])
        self._told = _own(churn.calendar)  # questions about the past
        self._turns = np.stack([np.zeros(agents, np.int64), np.ones(agents, np.int64)])
        self._following = np.zeros(agents)
        room = max(ROOM, agents)
        self.attendance = Attendance(
            _own(churn.calendar), self._limits, np.ascontiguousarray(churn.longest),
            np.empty((room, 2), np.int64), np.empty((room, 2)), np.zeros(1, np.int64),
        )  # fmt: skip
        self._again = self.attendance._replace(calendar=_own(churn.calendar))
        self.notes: list[tuple[float, int, int, float, float, int, float]] = []  # a heap, not told

    def until(self, time: float) -> None:
        """Write all turns before `time` s; RunError if an agent turns so often that none ends."""
        first, agents = 0, len(self._following)
        while first < agents and time > 0.0:
            self.log.reserve(ROOM)
            place = first, self._told, self._limits, self._turns, self._following, time
            first, often = write_turns(*place, self.log.flat)
            if often:
                now, turns = float(self._following[first]), int(self._turns[0, first])
                raise at(now, hurried(first, now, turns, float(self._limits[0])))

    def lost(self, speeds: Any) -> None:
        """Write the attempts that absences ended, of the calls made since this was last asked."""
        entries, n = self.attendance, int(self.attendance.n[0])
        notes, again = np.empty((NOTES if n else 0, 4)), tuple(self._again)
        for k in range(n):
            (agent, round_), (asked, work) = entries.ints[k].tolist(), entries.floats[k].tolist()
            state = np.array([asked, 0.0, 0.0, -1.0, 0.0])
            self.log.reserve(ROOM)
            while not write_aborts(k, state, tuple(speeds), again, notes, self.log.flat):
                self.log.reserve(ROOM)
            for what, time, seconds, turns in notes[: int(state[4])].tolist():
                heappush(self.notes, (time, agent, round_, seconds, work, int(what), turns))
        entries.n[0] = 0

    def gone(self, agent: int, asked: float) -> float:
        """Since when s an agent is down that never comes back; inf if it does, after `asked` s."""
        time, since, calendar = asked, np.inf, self._again.calendar
        for_ever = calendar.kind != TRACED or calendar.loops
        while time < np.inf and not for_ever:
            here, until = is_up(calendar, agent, time)
            since = np.inf if here else min(since, time)
            time = until
        return since

    def tell(self, world: Any, time: float) -> None:
        """Tell what is to be told by `time` s; RunError if the run would never end."""
        notes = self.notes
        while notes and notes[0][0] <= time:
            now, agent, round_, seconds, work, what, turns = heappop(notes)
            if what == NEVER:
                hopeless(world, agent, now, seconds, work, round_)
            elif what == ENDLESS:
                raise at(now, restless(agent, now, int(turns)))
            else:
                world.caution(often(agent, now, seconds, round_))

    def go_on(self, horizon: float) -> bool:
        """Whether anybody still leaves or comes back after the horizon, s."""
        self.until(float(np.nextafter(horizon, np.inf)))
        return bool((self._following < np.inf).any())

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        notes = np.array(self.notes).reshape(-1, 7)
        return {"turns": self._turns, "following": self._following, "notes": notes}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        fill(self._turns, tree["turns"])
        fill(self._following, tree["following"])
        rows = tree["notes"].tolist()
        self.notes = [(t, int(i), int(k), s, w, int(what), n) for t, i, k, s, w, what, n in rows]


def _own(calendar: Calendar) -> Calendar:
    """The same with a memory of its own, which goes on from the latest question."""
    return calendar._replace(memory=np.zeros_like(calendar.memory))


def often(agent: int, begin: float, seconds: float, round_: int) -> str:
    """That an agent is still not done after many attempts, the latest at `begin` s."""
    text = f"agent {agent} has begun a computation of {seconds:.4g} s in round {round_} {MANY}"
    text = f"{text} times and was away each time before its end; at {begin:.6g} s it is"
    return f"{text} still waited for: {LEAVE}"


def restless(agent: int, time: float, turns: int) -> str:
    """That a computation is not done after so many turns."""
    text = f"left or came back {turns} times without finishing a computation"
    return f"agent {agent} has {text} until {time:.6g} s; {LEAVE}"


def hurried(agent: int, time: float, turns: int, horizon: float) -> str:
    """That an agent turns more often than any machine plays until the horizon."""
    text = f"left or came back {turns} times until {time:.6g} s, of {horizon:g} s"
    return f"agent {agent} has {text}; give longer times (churn)"


def never(agent: int, seconds: float, work: float, longest: float) -> str:
    """Why an agent is never done with `work` gradients, which take it at least so many seconds."""
    text = f"agent {agent} can never finish: {work:g} gradients take it {seconds:.4g} s"
    pace = f" at {work / seconds:.4g} /s" if seconds > 0.0 and work == work else ""
    return f"{text}{pace}, but it is up for {longest:.4g} s at most; {LEAVE}"


# What turns make of computations as they happen, where these are single events.


class Absences:
    """What an agent's turns up and down make of its computations, as they happen."""

    def __init__(self, world: Any, agent: int, churn: "Churn") -> None:
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
        if self.attempts == MANY:
            self.world.caution(often(self.agent, begin, seconds, round_))

    @property
    def endless(self) -> bool:
        """Whether the run has no end where this agent is never done."""
        return endless(self.world, self.agent)

    def turned(self, time: float, computing: bool) -> None:
        """The agent leaves or comes back at `time` s; RunError if that would go on for ever."""
        computing = computing and time > self.since
        self.turns, self.idle = self.turns + 1, self.idle + computing
        horizon = self.world.patience.horizon
        if horizon == np.inf:
            if computing and self.idle % TURNS == 0:
                raise at(time, restless(self.agent, time, self.idle))
        elif self.turns % TURNS == 0 and time * MAX_TURNS < self.turns * horizon:
            raise at(time, hurried(self.agent, time, self.turns, horizon))


def hopeless(
    world: Any, agent: int, begin: float, seconds: float, work: float, round_: int
) -> None:
    """Tell of a computation that no presence is as long as; RunError if it is waited for."""
    assert world.settings.churn is not None
    text = never(agent, seconds, work, float(world.settings.churn.longest[agent]))
    if endless(world, agent):
        raise at(begin, f"{text} (round {round_})")
    world.caution(text)


def endless(world: Any, agent: int) -> bool:
    """Whether the run has no end as this agent will never be done, beside others known to be so."""
    world.stuck.add(agent)
    return world.patience.horizon == np.inf and needed(world.settings, len(world.stuck))


def needed(settings: Settings, stuck: int) -> bool:
    """Whether nothing goes on, or no number of rounds is reached, without so many agents."""
    agents = settings.problem.agents
    least = settings.policy.least(agents) if settings.graph is None else agents
    return agents - stuck < least
