"""Whom each collection or barrier waited for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.columns import columns_of

if TYPE_CHECKING:
    import pandas as pd

DEADLINE = -2
NOBODY = -3


def waits(events: "pd.DataFrame") -> "pd.DataFrame":
    """Columns time s, round, agent (-1: the coordinator), waited s and closer of every wait.

    closer: the sender of the arrival at the instant at which it closed, of a neighbour one of that
    round; DEADLINE where a deadline did, NOBODY where none was awaited or the agent's own work came
    last.
    """
    rows = events[events["kind"] == "aggregate"]
    closed = rows[["time", "round", "agent"]].assign(waited=rows["seconds"])
    return closed.reset_index(drop=True).assign(closer=closers(events))


def closers(events: "Mapping[str, Any] | pd.DataFrame") -> NDArray[np.int64]:
    """Who closed each collection or barrier (n,), in the order of the log; see `waits`.

    events: columns time, kind, agent, peer and round, arrays or a data frame.
    """
    log = columns_of(events)
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
    return found[len(who) :]
