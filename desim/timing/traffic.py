"""What the links carried, and how old what was used was."""

import numpy as np
from numpy.typing import NDArray

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


def staleness(
    events: pd.DataFrame, void: bool = False, free: bool = False, anew: bool = False
) -> pd.DataFrame:
    """How old what is used is: columns time s, agent, round, peer, heard, staleness, age s.

    One row for every neighbour at each closing of an agent's wait, and for every reply in a
    collection (agent -1): heard is the round in which its newest message was sent, staleness
    round - heard, age the seconds since that message left (a reply: since the agent was called).
    The newest is the one that left last, whatever has come after it. Peers that were not heard yet
    are left out. void: replies to older calls are not used; free: agents hear messages of later
    rounds than their own, too; anew: they hear those of their own round alone.
    """
    closed = events.loc[events["kind"] == "aggregate", ["time", "agent", "round"]]
    came = events[events["kind"] == "deliver"]
    hub = _replies(closed[closed["agent"] < 0], came[came["agent"] < 0], events, void)
    between = came[(came["agent"] >= 0) & (came["peer"] >= 0)]
    peers = _newest(closed[closed["agent"] >= 0], between, free)
    peers = peers[peers["heard"] == peers["round"]] if anew else peers
    found = pd.concat([part for part in (hub, peers) if len(part)] or [hub], ignore_index=True)
    found["staleness"] = found["round"] - found["heard"]
    columns = ["time", "agent", "round", "peer", "heard", "staleness", "age"]
    return found[columns].sort_values(["time", "agent", "peer"], ignore_index=True)


def _replies(
    closed: pd.DataFrame, came: pd.DataFrame, events: pd.DataFrame, void: bool
) -> pd.DataFrame:
    """Each reply with the first collection that closed when it was there."""
    rows = came[["time", "peer", "round"]].rename(columns={"round": "heard"})
    calls = events.loc[events["kind"] == "activate", ["time", "agent", "round"]]
    calls = calls.set_axis(["time", "peer", "heard"], axis=1).assign(called=calls["time"])
    # An agent is called anew at the instant at which its reply ends a collection of the same round.
    who = ["peer", "heard"]
    rows = pd.merge_asof(rows, calls, on="time", by=who, allow_exact_matches=False)
    rows["called"] = rows["called"].fillna(rows["time"])
    ends = closed.assign(closed=closed["time"])
    found = pd.merge_asof(rows, ends, on="time", direction="forward").dropna(subset="closed")
    found = found.astype({"agent": "int64", "round": "int64"})
    found = found[found["heard"] == found["round"]] if void else found
    found["age"] = found["closed"] - found["called"]
    return found.assign(time=found["closed"])[["time", "agent", "round", "peer", "heard", "age"]]


def _newest(closed: pd.DataFrame, came: pd.DataFrame, free: bool) -> pd.DataFrame:
    """Each closing of an agent's wait with the newest message of each of its neighbours.

    Messages are numbered by link and by when they left. Of those that are here the newest has the
    highest number; where that is of too late a round, an earlier one that is here.
    """
    link = ["agent", "peer"]
    sent = came[[*link, "time", "round"]].assign(left=came["time"] - came["seconds"])
    sent = sent.sort_values([*link, "round", "left"], kind="stable", ignore_index=True)
    sent = sent.rename(columns={"time": "arrived", "round": "heard"}).assign(number=sent.index)
    first = sent.groupby(link).agg(first=("number", "min")).reset_index()
    here = sent.sort_values("arrived", kind="stable")
    here = here.assign(number=here.groupby(link)["number"].cummax())[[*link, "arrived", "number"]]
    wanted = closed.merge(first, on="agent").sort_values("time", kind="stable")
    wanted = pd.merge_asof(wanted, here, left_on="time", right_on="arrived", by=link)
    wanted = wanted.dropna(subset="number").astype({"number": "int64"})
    wanted["number"] = _usable(wanted, sent, free)
    wanted = wanted[wanted["number"] >= wanted["first"]]
    found = wanted.drop(columns="arrived").join(sent[["heard", "left"]], on="number")
    found["age"] = found["time"] - found["left"]
    return found[["time", "agent", "round", "peer", "heard", "age"]]


def _usable(wanted: pd.DataFrame, sent: pd.DataFrame, free: bool) -> NDArray[np.int64]:
    """The numbers (wanted,) of the newest that are here and may be used; below first for none."""
    time, round_, first, number = (
        wanted[name].to_numpy() for name in ("time", "round", "first", "number")
    )
    arrived, heard = sent["arrived"].to_numpy(), sent["heard"].to_numpy()
    number = number.copy()
    back = np.flatnonzero((heard[number] > round_) & (not free))
    while len(back):
        number[back] -= 1
        back = back[number[back] >= first[back]]
        now = number[back]
        back = back[(heard[now] > round_[back]) | (arrived[now] > time[back])]
    return number
