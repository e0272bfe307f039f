"""Whom each collection or barrier waited for, and which calls had no answer in time."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from desim.agent_names import NETWORK, agents, numbers, sites
from desim.arrays import Int
from desim.columns import Columns, Pieces, Words, joined, pieces_of, rows_of
from desim.numerics.later import pd
from desim.runs.reading.traffic import longer

if TYPE_CHECKING:
    import pandas as pd

    from desim.runs.run import Run


DEADLINE = -2
NOBODY = -3
RETURN = -4
CLOSERS = {
    DEADLINE: "the deadline", NOBODY: "nobody", NETWORK: "the coordinator", RETURN: "its return",
}  # fmt: skip
CAUSES = ["aggregate", "deadline", "deliver", "up"]
COLUMNS = ["time", "kind", "agent", "peer", "round", "seconds"]


def waits(events: "Pieces | pd.DataFrame") -> "pd.DataFrame":
    """Columns time s, round, agent (-1: the coordinator), waited s and closer of every wait.

    closer: the sender of the arrival at the instant at which it closed, of a neighbour one of that
    round; DEADLINE where a deadline did, NOBODY where none was awaited or the agent's own work came
    last, RETURN where who waited was away, and could have gone on before it was back. events: the
    table, or its columns COLUMNS as pieces.
    """
    found = [(closed(log), closers(log)) for log in instants(pieces_of(events))]
    names = {"time": "time", "round": "round", "agent": "agent", "waited": "seconds"}
    table = {
        name: np.concatenate([rows[column] for rows, _ in found]) for name, column in names.items()
    }
    return pd.DataFrame(table | {"closer": np.concatenate([closer for _, closer in found])})


def closed(log: Columns) -> Columns:
    """The rows of a log in which a wait closes."""
    return rows_of(log, log["kind"].equal("aggregate"))


def instants(pieces: Pieces) -> Iterator[Columns]:
    """The rows of CAUSES in pieces that end between two instants, at least one."""
    pending: list[Columns] = []  # rows of the last instant so far
    since = np.inf  # that instant, s
    for number, log in enumerate(pieces):
        codes = np.full(len(log["kind"].codes), -1, np.int8)
        for code, word in enumerate(CAUSES):
            codes[log["kind"].equal(word)] = code
        own = rows_of({**log, "kind": Words(codes, CAUSES)}, codes >= 0)
        time, last = own["time"], number + 1 == len(pieces)
        if not len(time) and not last:
            continue
        over = len(time) if last else int(np.searchsorted(time, time[-1]))
        if last or since < time[-1] or over:
            yield joined([*pending, rows_of(own, slice(over))])
            pending, since = [], np.inf
        if not last:
            pending.append(rows_of(own, slice(over, None)))
            since = float(time[-1])


def closers(log: Columns) -> NDArray[np.int64]:
    """Who closed each collection or barrier (n,), in the order of the log; see `waits`.

    log: columns time, kind, agent, peer, round and seconds.
    """
    time, kind, agent = log["time"], log["kind"], log["agent"]
    # A neighbour may be ahead or behind; a coordinator's collection takes replies of any round.
    turn = np.where(agent < 0, 0, log["round"])
    closed, cut, arrived = (
        np.flatnonzero(kind.equal(word)) for word in ("aggregate", "deadline", "deliver")
    )
    arrived = arrived[np.isin(time[arrived], time[closed])]
    rows = np.concatenate([cut, arrived, closed])
    who = np.concatenate([np.full(len(cut), DEADLINE), log["peer"][arrived]])
    # Of one instant the causes, then what they close.
    order = np.lexsort((time[rows], turn[rows], agent[rows]))
    is_cause = order < len(who)
    last = np.maximum.accumulate(np.where(is_cause, np.arange(len(order)), -1))
    cause = order[np.maximum(last, 0)]
    here, there = rows[order], rows[cause]
    same = (last >= 0) & (time[here] == time[there]) & (agent[here] == agent[there])
    same &= turn[here] == turn[there]
    found = np.full(len(rows), NOBODY)
    found[order[same]] = np.append(who, NOBODY)[cause[same]]
    closer = found[len(who) :]
    # On a graph no row says that a limit is over: what lasted, and no message ended, a limit did.
    over = (closer == NOBODY) & (agent[closed] >= 0) & (log["seconds"][closed] > 0.0)
    if over.any():
        ends_of = zip(agent[arrived].tolist(), time[arrived].tolist(), strict=True)
        back = kind.equal("up")
        returns = zip(agent[back].tolist(), time[back].tolist(), strict=True)
        came = dict.fromkeys(returns, RETURN)
        came |= zip(ends_of, log["peer"][arrived].tolist(), strict=True)  # of whatever round
        ends = closed[over]
        own = zip(agent[ends].tolist(), time[ends].tolist(), strict=True)
        closer[over] = [came.get(one, DEADLINE) for one in own]
    return closer


# Calls that were not answered, and messages that did not come, in time; who is never heard.

RARELY = 0.25  # of its calls: an agent that is heard less often is named
CALLED = ["kind", "agent", "peer", "round"]


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
        for name in ("calls", "answers", "_pending", "_round"):
            setattr(self, name, longer(getattr(self, name), agent))
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

    def sentence(self, sites: Sequence[str] = ()) -> str:
        """Which agents, or sites, were never heard, and which rarely; "" where there are none."""

        def never(who: Int) -> str:
            low, high = int(self.calls[who].min()), int(self.calls[who].max())
            calls = f"{low} calls" if low == high else f"{low} to {high} calls"
            return f"none of {calls} was answered in time"

        return _seldom(self.calls, self.answers, sites, never, "calls were answered in time")


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
        never = "no message came while anybody waited for it"
        return _seldom(self.sent, self.used, sites, lambda who: never, "messages came in time")


def _seldom(
    asked: Int, used: Int, sites: Sequence[str], never: Callable[[Int], str], rarely: str
) -> str:
    """Of how often something was asked of agents and used (agents,): who never was, who rarely."""
    of = asked > 1  # one may be under way when the run ends
    none, few = (of & (used == 0)), (of & (used > 0) & (used < RARELY * asked))
    parts = []
    if len(who := np.flatnonzero(none)):
        parts.append(f"{agents(who, sites)}: {never(who)}")
    if len(who := np.flatnonzero(few)):
        share = (used[who] / asked[who]).max()
        parts.append(f"{agents(who, sites)}: at most {share:.0%} of their {rarely}")
    return "; ".join(parts)


def listening(run: "Run") -> Unanswered | Untimely | None:
    """What counts a run's unanswered calls, or late messages; None where nobody waits by name.

    Who waits for all hears all, and who goes on with each reply, or so many, misses nobody.
    """
    policy = run.written.get("policy", "all")
    if not isinstance(policy, Mapping) or {"each", "buffer"} & set(policy):
        return None
    if "edges" in run.manifest:  # each of which misses its own agents
        return None
    if run.written.get("network", {}).get("topology", "star") != "star":
        return Untimely()
    return Unanswered(carried=policy.get("late") == "carry")


def unheard(run: "Run") -> str:
    """The agents whose replies never, or rarely, came in time; "" where all were heard."""
    counting = listening(run)
    if counting is None or run.level == "rounds":
        return ""
    for log in run.store.pieces("events", CALLED):
        deque(counting.at_collections(log), maxlen=0)
    return counting.sentence(sites(run.manifest))


def missing(run: "Run", pieces: Pieces) -> list[tuple[float, str]]:
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
