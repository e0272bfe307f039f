"""What the links carried, and how old what was used was."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.columns import Columns, Pieces, Words, gathered, pieces_of, rows_of
from desim.numerics.later import pd
from desim.runs.reading.sums import Keys, Sums

CARRIED = ["kind", "agent", "peer", "bytes", "seconds", "value"]
ARRIVED = ["time", "kind", "bytes"]
NEGATIVE = 1 << 16  # ends are not below its negative: the coordinator is -1
LOWER = (1 << 32) - 1  # the bits of the second end


def links(events: "Pieces | pd.DataFrame") -> pd.DataFrame:
    """One row for each link used: columns source, target, sent, resent, delivered, lost, bytes.

    bytes: sent; delivered_bytes: arrived; sending s: how long they took to leave, in all;
    on_the_way: mean s from the first attempt to the arrival, of what arrived. events: the table, or
    its columns CARRIED as pieces.
    """
    keys, pieces = Keys(), pieces_of(events)
    count = {name: Sums(int) for name in ("sent", "resent", "delivered", "lost")}
    size = {"sent": Sums(int), "delivered": Sums(int)}
    time, way = Sums(), Sums()
    for log in pieces:
        kind: Words = log["kind"]
        for word, what in (("send", "sent"), ("deliver", "delivered"), ("lost", "lost")):
            rows = rows_of(log, kind.equal(word))
            source, target = ("agent", "peer") if word == "send" else ("peer", "agent")
            link = keys.of(_pair(rows[source], rows[target]))
            count[what].add(link, 1)
            if word == "send":
                count["resent"].add(link[rows["value"] > 0.0], 1)
            if what in size:
                size[what].add(link, rows["bytes"])
                (time if word == "send" else way).add(link, rows["seconds"])
    pairs, places = keys.sorted
    used = count["sent"].at(places) > 0
    pairs, places = pairs[used], places[used]
    ends = {"source": (pairs >> 32) - NEGATIVE, "target": (pairs & LOWER) - NEGATIVE}
    kinds = [np.asarray(pieces[0][name]).dtype for name in ("agent", "peer")]
    table = {end: one.astype(kind) for (end, one), kind in zip(ends.items(), kinds, strict=True)}
    table |= {name: one.at(places) for name, one in count.items()}
    table |= {"bytes": size["sent"].at(places), "delivered_bytes": size["delivered"].at(places)}
    with np.errstate(invalid="ignore"):
        mean = way.at(places) / table["delivered"]
    return pd.DataFrame(table | {"sending": time.at(places), "on_the_way": mean})


def delivered(events: Pieces) -> Columns:
    """Columns time s and bytes of every message that arrived; events: columns ARRIVED."""
    came = gathered(events, lambda log: log["kind"].equal("deliver"))
    return {name: came[name] for name in ("time", "bytes")}


def delivered_by(events: Pieces, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes (n,) that have arrived by each of times (n,) s, which are in order."""
    found = np.zeros(len(times) + 1)  # by the first of these times, or never
    for log in events:
        came = rows_of(log, log["kind"].equal("deliver"))
        np.add.at(found, np.searchsorted(times, came["time"]), came["bytes"])
    return np.cumsum(found[:-1])


def _pair(source: NDArray[np.integer[Any]], target: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """A link as one number, in the order of its ends."""
    return (source.astype(np.int64) + NEGATIVE) << 32 | (target.astype(np.int64) + NEGATIVE)


def hearing(scenario: Any) -> dict[str, bool]:
    """What `staleness` has to be told of a scenario: void, free and anew."""
    policy, late = scenario.policy, scenario.policy.late or scenario.late
    void = policy.kind not in ("all", "each", "buffer") and late == "discard"
    anew = scenario.network.topology.per_round
    return {"void": void, "free": scenario.hears_later, "anew": anew}


def staleness(
    events: pd.DataFrame, void: bool = False, free: bool = False, anew: bool = False
) -> pd.DataFrame:
    """How old what is used is: columns time s, agent, round, peer, heard, staleness, age s.

    One row for every neighbour at each closing of an agent's wait, and for every reply in a
    collection (agent -1): heard is the round in which its newest message was sent, staleness
    round - heard, age the seconds since it was first sent (a reply: since its agent was called).
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
