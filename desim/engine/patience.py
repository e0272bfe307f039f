"""Runs that would never come to their end, because time hardly passes: told, not played for ever.

Only a number of rounds ends such a run; where one is given, nothing here is asked. What is judged
is virtual, so that all engines fail in the same round, at the same time.
"""

import numpy as np

from desim.arrays import Array, Int
from desim.errors import RunError

STANDSTILL = 50_000  # rounds between two looks at a clock, which has to move meanwhile
ROUNDS = 1e10  # more than any machine plays until stop.time
SILENCE = 100_000  # collections, or waits of an agent, in a row without a message
ABSENCES = 10  # times as many where agents may be away for long
GIVE = "give stop.rounds, or longer durations (network.link, compute, policy)"


class Patience:
    """What is known of how time passes; rounds: inf, or nothing is judged; horizon s, or inf."""

    def __init__(self, agents: int, rounds: float, horizon: float, away: bool = False) -> None:
        self.ends, self.horizon = rounds < np.inf, horizon
        self.silence = SILENCE * (ABSENCES if away else 1)
        self.looked = np.zeros(agents)  # clock s of each agent, or the coordinator's, at a look
        self.unheard = np.zeros(agents, np.int64)  # waits in a row without a message

    def left(self, round_: int, unheard: int) -> float:
        """How many more rounds may pass before the next judgement; unheard: as in `heard`."""
        if self.ends:
            return np.inf
        return min(STANDSTILL - round_ % STANDSTILL, max(1, self.silence - unheard))

    def judged(self, round_: int, time: Array, who: Int) -> RunError | None:
        """Why the run would never end, now that agents who (n,) did a round at time (n,) s."""
        if self.ends or round_ == 0 or round_ % STANDSTILL:
            return None
        still = time <= self.looked[who]
        self.looked[who] = time
        slow = time * ROUNDS < round_ * self.horizon if self.horizon < np.inf else still
        bad = np.flatnonzero(still | slow)
        if not len(bad):
            return None
        first = bad[np.lexsort((who[bad], time[bad]))[0]]
        now = float(time[first])
        if still[first]:
            text = "rounds take no time and stop.rounds is not given; give it, or durations"
            text = f"{text} (network.link, compute.speed), or more participation"
            return at(now, f"time stands still at {now:.6g} s: {text}")
        needed = round_ * self.horizon / now
        text = f"{round_} rounds took {now:.3g} s, so that stop.time {self.horizon:g} s would take"
        return at(now, f"time hardly passes: {text} {needed:.1g} rounds; {GIVE}")

    def require_reply(self, unheard: int, now: float) -> None:
        """RunError if so many collections in a row were without a reply until `now` s."""
        if not self.ends and unheard >= self.silence:
            raise at(now, f"{unheard} collections in a row closed without a reply, {_until(now)}")

    def waited(self, who: Int, fresh: Array, time: Array) -> RunError | None:
        """Why the run would never end, agents who (n,) having heard fresh (n,) news at time s."""
        if self.ends:
            return None
        self.unheard[who] = np.where(fresh > 0, 0, self.unheard[who] + 1)
        if self.unheard[who].max() < self.silence:
            return None
        deaf = np.flatnonzero(self.unheard[who] >= self.silence)
        one = deaf[np.lexsort((who[deaf], time[deaf]))[0]]
        agent, now = int(who[one]), float(time[one])
        text = f"agent {agent} did not hear from a neighbour {self.silence} times in a row"
        return at(now, f"{text}, {_until(now)}")


def at(time: float, text: str) -> RunError:
    """An error that ends a run at `time` s."""
    error = RunError(text)
    error.time = time
    return error


def _until(now: float) -> str:
    return f"the last at {now:.6g} s: time is spent on waits that are too short; {GIVE}"


def earlier(one: RunError | None, other: RunError | None) -> RunError | None:
    """The error that comes first, of those there are."""
    if one is None or other is None:
        return one or other
    return other if other.time < one.time else one
