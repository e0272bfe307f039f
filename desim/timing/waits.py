"""Whom each collection or barrier waited for."""

import numpy as np

from desim.later import pd

DEADLINE = -2
NOBODY = -3


def waits(events: pd.DataFrame) -> pd.DataFrame:
    """Columns time s, round, agent (-1: the coordinator), waited s and closer of every wait.

    closer: the sender of the arrival at the instant at which it closed; DEADLINE where a deadline
    did, NOBODY where none was awaited or the agent's own work came last.
    """
    rows = events[events["kind"] == "aggregate"]
    closed = rows[["time", "round", "agent"]].assign(waited=rows["seconds"])
    return closed.reset_index(drop=True).assign(closer=closers(events).to_numpy())


def closers(events: pd.DataFrame) -> "pd.Series[int]":
    """Who closed each collection or barrier, in the order of the log; see `waits`."""
    closed = events.loc[events["kind"] == "aggregate", ["agent", "time"]]
    instants = events[events["time"].isin(closed["time"])]
    arrived = instants.loc[instants["kind"] == "deliver", ["agent", "time", "peer"]]
    cut = instants.loc[instants["kind"] == "deadline", ["agent", "time"]].assign(peer=DEADLINE)
    causes = pd.concat([cut, arrived]).drop_duplicates(["agent", "time"], keep="last")
    found = closed.merge(causes, on=["agent", "time"], how="left")["peer"]
    return found.fillna(NOBODY).astype(np.int64)
