"""Calls that were not answered, and messages that did not come, in time; who is never heard."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Int
from desim.columns import Columns, Pieces
from desim.runs.played import Played
from desim.runs.reading.sites import beside
from desim.runs.reading.sums import longer

RARELY = 0.25  # of its calls: an agent that is heard less often is named
CALLED = ["kind", "agent", "peer", "round"]
NAMED = 8  # agents that a sentence names


class Unanswered:
    """What a coordinator called and heard, in one reading of a log, piece by piece.

    carried: a late reply is used all the same. calls, answers (agents,): how often each agent was
    called, and how many of its replies were used.
    """

    def __init__(self, carried: bool) -> None:
        self._carried = carried
        self.calls, self.answers = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pending, self._round = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def at_collections(self, log: Columns) -> Iterator[Int]:
        """Of each collection that closes in a piece, the agents whose replies were missing."""
        kind, agent, turn = log["kind"], log["agent"], log["round"]
        called = kind.equal("activate")
        heard = kind.equal("deliver") & (agent < 0)
        closed = np.flatnonzero(kind.equal("aggregate") & (agent < 0))
        self._grow(agent)
        begin = 0
        for end in [*closed.tolist(), len(agent)]:
            part = slice(begin, end)
            new = called[part]
            who = agent[part][new]
            self._pending[who] = 1
            self._round[who] = turn[part][new]
            np.add.at(self.calls, who, 1)
            came = heard[part]
            who, of = log["peer"][part][came], turn[part][came]
            used = (self._pending[who] == 1) & (self._round[who] == of)
            np.add.at(self.answers, who[used], 1)
            self._pending[who[used]] = 0
            begin = end
            if end < len(agent):
                yield np.flatnonzero(self._pending)
                if not self._carried:
                    self._pending[:] = 0

    def _grow(self, agent: Int) -> None:
        names = "calls", "answers", "_pending", "_round"
        for name in names:
            setattr(self, name, longer(getattr(self, name), agent))

    def sentence(self, sites: Sequence[str] = ()) -> str:
        """Which agents, or sites, were never heard, and which rarely; "" where there are none."""
        of = self.calls > 1  # one call may be under way when the run ends
        never = np.flatnonzero(of & (self.answers == 0))
        rarely = np.flatnonzero(of & (self.answers > 0) & (self.answers < RARELY * self.calls))
        parts = []
        if len(never):
            parts.append(
                f"{agents(never, sites)}: none of {_times(self.calls[never])} was answered in time"
            )
        if len(rarely):
            share = self.answers[rarely] / self.calls[rarely]
            high = f"at most {share.max():.0%} of their calls"
            parts.append(f"{agents(rarely, sites)}: {high} were answered in time")
        return "; ".join(parts)


class Untimely:
    """Messages on a graph that came when the wait they were for was over, read piece by piece.

    sent, used (agents,): how many of each agent's messages came, and how many of these in time.
    """

    def __init__(self) -> None:
        self.sent, self.used = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._closed = np.zeros(0, np.int64)  # the round of each agent's latest wait that is over

    def at_collections(self, log: Columns) -> Iterator[Int]:
        """Count a piece; no wait of a graph is a collection."""
        kind, agent = log["kind"], log["agent"]
        between = kind.equal("deliver") & (agent >= 0) & (log["peer"] >= 0)
        over = kind.equal("aggregate") & (agent >= 0)
        for name in ("sent", "used", "_closed"):
            setattr(self, name, longer(getattr(self, name), np.append(agent, log["peer"])))
        rows = np.flatnonzero(between | over)
        rows = rows[np.argsort(agent[rows], kind="stable")]
        who, turn, is_over = agent[rows].astype(np.int64), log["round"][rows], over[rows]
        step = 2 + int(max(turn.max(initial=0), self._closed.max(initial=0)))
        last = np.maximum.accumulate(who * step + np.where(is_over, turn, self._closed[who]))
        last -= who * step
        np.add.at(self.sent, log["peer"][rows[~is_over]], 1)
        np.add.at(self.used, log["peer"][rows[~is_over & (turn > last)]], 1)
        np.maximum.at(self._closed, who, last)
        yield from ()

    def sentence(self, sites: Sequence[str] = ()) -> str:
        """Which agents, or sites, never came in time, and which rarely; "" for none."""
        of = self.sent > 1
        never = np.flatnonzero(of & (self.used == 0))
        rarely = np.flatnonzero(of & (self.used > 0) & (self.used < RARELY * self.sent))
        parts = []
        if len(never):
            parts.append(f"{agents(never, sites)}: no message came while anybody waited for it")
        if len(rarely):
            share = (self.used[rarely] / self.sent[rarely]).max()
            few = f"at most {share:.0%} of their messages"
            parts.append(f"{agents(rarely, sites)}: {few} came in time")
        return "; ".join(parts)


def _times(calls: NDArray[np.int64]) -> str:
    low, high = int(calls.min()), int(calls.max())
    return f"{low} calls" if low == high else f"{low} to {high} calls"


def agents(who: Int, sites: Sequence[str] = ()) -> str:
    """Agents by number: agent 1; agents 1, 3 and 5; of more than NAMED the first ones.

    sites: their names, in the order of the agents, where agents are sites.
    """
    return f"agent{'s' if len(who) > 1 else ''} {numbers(who, sites)}"


def numbers(who: Int, sites: Sequence[str] = ()) -> str:
    """The same without the word."""
    words = [beside(int(one), sites) for one in who[:NAMED]]
    words += [f"{len(who) - NAMED} more"] if len(who) > NAMED else []
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def listening(run: Played) -> Unanswered | Untimely | None:
    """What counts a run's unanswered calls, or late messages; None where nobody waits by name.

    Who waits for all hears all, and who goes on with each reply, or so many, misses nobody.
    """
    policy = run.written.get("policy", "all")
    if not isinstance(policy, Mapping) or {"each", "buffer"} & set(policy):
        return None
    if run.written.get("network", {}).get("topology", "star") != "star":
        return Untimely()
    return Unanswered(carried=_late(policy) == "carry")


def _late(policy: Mapping[str, Any]) -> str:
    return str(policy.get("late", "discard"))


def missing(run: Played, pieces: Pieces) -> list[tuple[float, str]]:
    """Of each of the coordinator's collections: when it closed, s, and whose replies were missing.

    pieces: columns time and CALLED of the log. [] where nobody can be missing.
    """
    counting = listening(run)
    if not isinstance(counting, Unanswered):
        return []
    found: list[tuple[float, str]] = []
    for log in pieces:
        times = log["time"][log["kind"].equal("aggregate") & (log["agent"] < 0)].tolist()
        found += zip(times, map(numbers, counting.at_collections(log)), strict=True)
    return found
