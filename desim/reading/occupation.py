"""What every agent did with its time."""

import numpy as np

from desim.columns import Pieces, Words, pieces_of, rows_of
from desim.compiling.later import pd
from desim.reading.sums import Sums

SPENT = ["time", "kind", "agent", "seconds"]
WORK = ("compute", "abort", "send")


def utilisation(events: "Pieces | pd.DataFrame", end: float | None = None) -> "pd.DataFrame":
    """Columns agent, computing, aborted, away, idle, sending in s, and utilisation, up to `end` s.

    computing: what was computed to its end; aborted: what an absence or a newer call interrupted;
    away: down; idle: the rest; sending: how long its messages took to leave, whatever it did
    meanwhile; utilisation: computing / end. What the end of the run cut is idle. end: by default
    the last event's time; events: the table, or its columns SPENT as pieces.
    """
    seconds = {kind: Sums() for kind in WORK}
    times = {kind: Sums() for kind in ("down", "up")}
    number = {kind: Sums(int) for kind in times}
    agents, last = 0, 0.0
    for log in pieces_of(events):
        kinds: Words = log["kind"]
        agents = max(agents, 1 + int(log["agent"].max(initial=-1)))
        last = max(last, float(log["time"].max(initial=0.0)))
        for kind in (*WORK, *times):
            rows = rows_of(log, kinds.equal(kind) & (log["agent"] >= 0))
            who = rows["agent"]
            if kind in WORK:
                seconds[kind].add(who, rows["seconds"])
            else:
                times[kind].add(who, rows["time"])
                number[kind].add(who, 1)
    end, everybody = last if end is None else end, np.arange(agents)
    total = {kind: one.at(everybody) for kind, one in seconds.items()}
    gone = number["down"].at(everybody)
    still = gone - number["up"].at(everybody)
    away = times["up"].at(everybody) + still * end - times["down"].at(everybody)
    away = np.where(gone > 0, away, 0.0)
    table = pd.DataFrame({"computing": total["compute"], "aborted": total["abort"], "away": away})
    table["idle"] = (end - table.sum(axis=1)).clip(lower=0.0)
    table["sending"] = total["send"]
    table["utilisation"] = table["computing"] / end if end > 0.0 else 0.0
    table.insert(0, "agent", everybody)
    return table
