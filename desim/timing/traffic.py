"""What the links carried, and how old what was used was."""

from desim.later import pd


def links(events: pd.DataFrame) -> pd.DataFrame:
    """One row for each link used: columns source, target, sent, resent, delivered, lost, bytes.

    bytes: sent; delivered_bytes: arrived; sending s: how long they took to leave, in all;
    on_the_way: mean s from leaving to arrival of what arrived.
    """
    ends = {"agent": "source", "peer": "target"}
    back = {"peer": "source", "agent": "target"}
    sent = events[events["kind"] == "send"].rename(columns=ends)
    came, lost = (events[events["kind"] == k].rename(columns=back) for k in ("deliver", "lost"))
    link = ["source", "target"]
    table = sent.groupby(link).agg(sent=("bytes", "size"), bytes=("bytes", "sum"))
    table["sending"] = sent.groupby(link)["seconds"].sum()
    table["resent"] = sent[sent["value"] > 0.0].groupby(link).size()
    table["delivered"] = came.groupby(link).size()
    table["delivered_bytes"] = came.groupby(link)["bytes"].sum()
    table["on_the_way"] = came.groupby(link)["seconds"].mean()
    table["lost"] = lost.groupby(link).size()
    counts = ["resent", "delivered", "delivered_bytes", "lost"]
    table[counts] = table[counts].fillna(0).astype("int64")
    order = ["sent", "resent", "delivered", "lost", "bytes", "delivered_bytes", "sending"]
    return table[[*order, "on_the_way"]].reset_index()


def staleness(events: pd.DataFrame, void: bool = False, free: bool = False) -> pd.DataFrame:
    """How old what is used is: columns time s, agent, round, peer, heard, staleness, age s.

    One row for every neighbour at each closing of an agent's wait, and for every reply in a
    collection (agent -1): heard is the round in which its newest message was sent, staleness
    round - heard, age the seconds since it left (a reply: since the agent was called). Peers that
    were not heard yet are left out. void: replies to older calls are not used; free: agents hear
    messages of later rounds than their own, too.
    """
    closed = events.loc[events["kind"] == "aggregate", ["time", "agent", "round"]]
    came = events[events["kind"] == "deliver"]
    hub = _replies(closed[closed["agent"] < 0], came[came["agent"] < 0], events, void)
    between = came[(came["agent"] >= 0) & (came["peer"] >= 0)]
    peers = _newest(closed[closed["agent"] >= 0], between, free)
    found = pd.concat([part for part in (hub, peers) if len(part)] or [hub], ignore_index=True)
    found["staleness"] = found["round"] - found["heard"]
    columns = ["time", "agent", "round", "peer", "heard", "staleness", "age"]
    return found[columns].sort_values(["time", "agent", "peer"], ignore_index=True)


def _replies(
    closed: pd.DataFrame, came: pd.DataFrame, events: pd.DataFrame, void: bool
) -> pd.DataFrame:
    """Each reply with the first collection that closed when it was there."""
    rows = came[["time", "peer", "round"]].rename(columns={"round": "heard"})
    ends = closed.assign(closed=closed["time"])
    found = pd.merge_asof(rows, ends, on="time", direction="forward").dropna(subset="closed")
    found = found.astype({"agent": "int64", "round": "int64"})
    found = found[found["heard"] == found["round"]] if void else found
    calls = events.loc[events["kind"] == "activate", ["time", "agent", "round"]]
    calls = calls.set_axis(["called", "peer", "heard"], axis=1).drop_duplicates(["peer", "heard"])
    found = found.merge(calls, on=["peer", "heard"], how="left")
    found["age"] = found["closed"] - found["called"]
    return found.assign(time=found["closed"])[["time", "agent", "round", "peer", "heard", "age"]]


def _newest(closed: pd.DataFrame, came: pd.DataFrame, free: bool) -> pd.DataFrame:
    """Each closing of an agent's wait with the newest message of each of its neighbours."""
    pairs = came[["agent", "peer"]].drop_duplicates()
    wanted = closed.merge(pairs, on="agent").sort_values("time", kind="stable")
    rows = came[["time", "agent", "peer", "round", "seconds"]]
    rows = rows.rename(columns={"round": "heard", "time": "arrived"})
    by = ["agent", "peer"]
    newest = rows.assign(heard=rows.groupby(by)["heard"].cummax())
    found = pd.merge_asof(wanted, newest, left_on="time", right_on="arrived", by=by)
    if not free:
        found = _not_ahead(found.drop(columns=["arrived", "seconds"]), rows)
    else:
        found = found.dropna(subset="heard")
    found["age"] = found["time"] - found["arrived"] + found["seconds"]
    return found.astype({"heard": "int64"})[["time", "agent", "round", "peer", "heard", "age"]]


def _not_ahead(wanted: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The newest message of a round up to the hearer's own that had arrived, for each wanted."""
    wanted = wanted.assign(heard=wanted[["heard", "round"]].min(axis=1).fillna(0.0))
    done = []
    while len(wanted := wanted[wanted["heard"] > 0.0]):
        found = wanted.merge(rows, on=["agent", "peer", "heard"], how="left")
        here = (found["arrived"] <= found["time"]).to_numpy()
        done.append(found[here])
        wanted = found.loc[~here, wanted.columns]
        wanted = wanted.assign(heard=wanted["heard"] - 1.0)
    columns = [*wanted.columns, "arrived", "seconds"]
    return pd.concat(done) if done else wanted.reindex(columns=columns)
