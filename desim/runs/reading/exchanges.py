"""Every message, computation and round of a run, a row each, so that runs can be laid side by side.

A message is told by its ends and its number among those of one round, a computation by its agent.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from desim.numerics.later import pd

if TYPE_CHECKING:
    import pandas as pd

LINK = ["sender", "receiver"]
NEAR = 1e-6  # of the time: what rounding leaves of end - seconds


def messages(events: "pd.DataFrame") -> "pd.DataFrame":
    """Messages that arrived: sender, receiver, round, nth, bytes, begin, seconds, time, sending.

    nth: number among those of one link and round, by when they were sent; begin s: when it was sent
    first; seconds: until it arrived, at time s; sending: how long the first attempt took to leave,
    nan where that is not logged; attempts: how often it was sent; idle: s since this link's message
    before had arrived (negative: since before it had), inf for the first.
    """
    came = events[events["kind"] == "deliver"]
    table = pd.DataFrame(
        {
            "sender": came["peer"].to_numpy(np.int64),
            "receiver": came["agent"].to_numpy(np.int64),
            "round": came["round"].to_numpy(np.int64),
            "bytes": came["bytes"].to_numpy(np.int64),
            "begin": came["time"].to_numpy(float) - came["seconds"].to_numpy(float),
            "seconds": came["seconds"].to_numpy(float),
            "time": came["time"].to_numpy(float),
            "attempts": came["value"].to_numpy(float) + 1.0,
        }
    )
    table = table.sort_values("begin", kind="stable").reset_index(drop=True)
    table["nth"] = table.groupby([*LINK, "round"]).cumcount()
    table["idle"] = (table["begin"] - table.groupby(LINK)["time"].shift()).fillna(np.inf)
    table["sending"] = _sending(events, table)
    return table


def _sending(events: "pd.DataFrame", table: "pd.DataFrame") -> "pd.Series":
    """How long s the first attempt of each message of the table took to leave."""
    left = events[(events["kind"] == "send") & (events["value"] == 0.0)]
    if left.empty or table.empty:
        return pd.Series(np.nan, table.index)
    sent = pd.DataFrame(
        {
            "sender": left["agent"].to_numpy(np.int64),
            "receiver": left["peer"].to_numpy(np.int64),
            "round": left["round"].to_numpy(np.int64),
            "begin": left["time"].to_numpy(float),
            "sending": left["seconds"].to_numpy(float),
        }
    ).sort_values("begin", kind="stable")
    slack: Any = NEAR * max(1.0, float(table["time"].max()))
    found = pd.merge_asof(
        table[[*LINK, "round", "begin"]], sent, on="begin", by=[*LINK, "round"],
        direction="nearest", tolerance=slack,
    )  # fmt: skip
    return found["sending"].set_axis(table.index)


def computations(events: "pd.DataFrame") -> "pd.DataFrame":
    """Computations that were finished: agent, round, nth, begin s, seconds, time s."""
    done = events[events["kind"] == "compute"]
    table = pd.DataFrame(
        {
            "agent": done["agent"].to_numpy(np.int64),
            "round": done["round"].to_numpy(np.int64),
            "begin": done["time"].to_numpy(float) - done["seconds"].to_numpy(float),
            "seconds": done["seconds"].to_numpy(float),
            "time": done["time"].to_numpy(float),
        }
    )
    table = table.sort_values("time", kind="stable").reset_index(drop=True)
    table["nth"] = table.groupby(["agent", "round"]).cumcount()
    return table


def rounds(events: "pd.DataFrame") -> "pd.DataFrame":
    """Rounds in order: round, begin s, seconds, time s, closing.

    A round ends with the coordinator's collection; on a graph, when the last agent has finished it.
    closing: who that is, -1 the coordinator.
    """
    ends = events[events["kind"] == "aggregate"]
    if ends.empty:
        ends = events[events["kind"] == "compute"]
    hub = ends[ends["agent"] < 0]
    ends = ends if hub.empty else hub
    last = ends.sort_values("time", kind="stable").groupby("round").tail(1).sort_values("round")
    time = last["time"].to_numpy(float)
    begin = np.concatenate([[0.0], time[:-1]]) if len(time) else time
    return pd.DataFrame(
        {
            "round": last["round"].to_numpy(np.int64),
            "begin": begin,
            "seconds": time - begin,
            "time": time,
            "closing": last["agent"].to_numpy(np.int64),
        }
    )
