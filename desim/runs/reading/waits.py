"""Whom each collection or barrier waited for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from desim.columns import Columns, Pieces, Words, joined, pieces_of, rows_of
from desim.numerics.later import pd

if TYPE_CHECKING:
    import pandas as pd

DEADLINE = -2
NOBODY = -3
CAUSES = ["aggregate", "deadline", "deliver"]
COLUMNS = ["time", "kind", "agent", "peer", "round", "seconds"]


def waits(events: "Pieces | pd.DataFrame") -> "pd.DataFrame":
    """Columns time s, round, agent (-1: the coordinator), waited s and closer of every wait.

    closer: the sender of the arrival at the instant at which it closed, of a neighbour one of that
    round; DEADLINE where a deadline did, NOBODY where none was awaited or the agent's own work came
    last. events: the table, or its columns COLUMNS as pieces.
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
        own = _causes(log)
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


def _causes(log: Columns) -> Columns:
    """The rows of CAUSES, with codes of their own."""
    kind: Words = log["kind"]
    codes = np.full(len(kind.codes), -1, np.int8)
    for code, word in enumerate(CAUSES):
        codes[kind.equal(word)] = code
    return rows_of({**log, "kind": Words(codes, CAUSES)}, codes >= 0)


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
        came = dict(zip(ends_of, log["peer"][arrived].tolist(), strict=True))  # of whatever round
        ends = closed[over]
        own = zip(agent[ends].tolist(), time[ends].tolist(), strict=True)
        closer[over] = [came.get(one, DEADLINE) for one in own]
    return closer
