"""What every agent did with its time."""

from desim.later import pd


def utilisation(events: "pd.DataFrame", end: float) -> "pd.DataFrame":
    """Columns agent, computing, aborted, away, idle, sending in s, and utilisation, up to `end` s.

    computing: what was computed to its end; aborted: what an absence or a newer call interrupted;
    away: down; idle: the rest; sending: how long its messages took to leave, whatever it did
    meanwhile; utilisation: computing / end. What the end of the run cut is idle.
    """
    agents = pd.RangeIndex(int(events["agent"].max()) + 1 if len(events) else 0, name="agent")

    def total(kind: str) -> "pd.Series[float]":
        rows = events[events["kind"] == kind]
        return rows.groupby("agent")["seconds"].sum().reindex(agents, fill_value=0.0)

    table = pd.DataFrame({"computing": total("compute"), "aborted": total("abort")})
    table["away"] = _away(events, end).reindex(agents, fill_value=0.0)
    table["idle"] = (end - table.sum(axis=1)).clip(lower=0.0)
    table["sending"] = total("send")
    table["utilisation"] = table["computing"] / end if end > 0.0 else 0.0
    return table.reset_index()


def _away(events: "pd.DataFrame", end: float) -> "pd.Series[float]":
    """Seconds (agents,) between going down and coming up, or the end."""
    down, up = (events[events["kind"] == kind] for kind in ("down", "up"))
    gone = down.groupby("agent")["time"].agg(["sum", "size"])
    back = up.groupby("agent")["time"].agg(["sum", "size"]).reindex(gone.index, fill_value=0.0)
    still = gone["size"] - back["size"]
    found: pd.Series[float] = back["sum"] + still * end - gone["sum"]
    return found
