"""What the links carried, how old what was used was, and what every agent did with its time.

Floating-point sums depend on the order in which they are formed. Here every key's values are added
one after another, wherever a piece of a table ends.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.columns import Columns, Pieces, Words, pieces_of, rows_of
from desim.numerics.later import pd

if TYPE_CHECKING:
    from desim.runs.run import Run

# Sums by key over a table that is read piece by piece: the bits are those of one reading.


class Keys:
    """Whole numbers that are found one after another, each with a place from 0 on."""

    def __init__(self) -> None:
        self._sorted, self._places = np.empty(0, np.int64), np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._sorted)

    def of(self, keys: Int) -> Int:
        """The places (n,) of keys (n,); new ones get the next."""
        found, back = np.unique(keys, return_inverse=True)
        new = found[~np.isin(found, self._sorted, assume_unique=True)]
        if len(new):
            at, places = np.searchsorted(self._sorted, new), len(self) + np.arange(len(new))
            self._sorted = np.insert(self._sorted, at, new)
            self._places = np.insert(self._places, at, places)
        return np.asarray(self._places[np.searchsorted(self._sorted, found)][back])

    @property
    def sorted(self) -> tuple[Int, Int]:
        """All keys in order, and their places."""
        return self._sorted, self._places


class Sums:
    """Sums (keys,) of numbers by the places of their keys, as a loop over the rows adds them."""

    def __init__(self, kind: type = float) -> None:
        self.values: NDArray[Any] = np.zeros(0, kind)

    def add(self, places: Int, values: NDArray[Any] | int) -> None:
        """Add values (n,) at places (n,)."""
        self.values = longer(self.values, places)
        np.add.at(self.values, places, values)

    def at(self, places: Int) -> NDArray[Any]:
        """The sums (n,) of places (n,); 0 of those of which nothing was added."""
        return longer(self.values, places)[places]


def longer(values: NDArray[Any], places: Int) -> NDArray[Any]:
    """The values, with zeros after them as far as the places reach."""
    lacking = int(places.max(initial=-1)) + 1 - len(values)
    if lacking <= 0:
        return values
    room = max(lacking, len(values) // 2)
    return np.concatenate([values, np.zeros(room, values.dtype)])


# What the links carried, and how old it was when it was used.

CARRIED = ["kind", "agent", "peer", "bytes", "seconds", "value"]
ARRIVED = ["time", "kind", "bytes"]
NEGATIVE = 1 << 16  # ends are not below its negative: the coordinator is -1
LOWER = (1 << 32) - 1  # the bits of the second end


def links(events: "Pieces | pd.DataFrame") -> "pd.DataFrame":
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
            ends = [rows[end].astype(np.int64) + NEGATIVE for end in (source, target)]
            link = keys.of(ends[0] << 32 | ends[1])  # in the order of its ends
            count[what].add(link, 1)
            if word == "send":
                count["resent"].add(link[rows["value"] > 0.0], 1)
            if what in size:
                size[what].add(link, rows["bytes"])
                (time if word == "send" else way).add(link, rows["seconds"])
    pairs, places = keys.sorted
    used = count["sent"].at(places) > 0
    pairs, places = pairs[used], places[used]
    table = {
        end: (numbers - NEGATIVE).astype(np.asarray(pieces[0][column]).dtype)
        for end, numbers, column in (
            ("source", pairs >> 32, "agent"), ("target", pairs & LOWER, "peer"),
        )
    }  # fmt: skip
    table |= {name: one.at(places) for name, one in count.items()}
    table |= {"bytes": size["sent"].at(places), "delivered_bytes": size["delivered"].at(places)}
    with np.errstate(invalid="ignore"):
        mean = way.at(places) / table["delivered"]
    return pd.DataFrame(table | {"sending": time.at(places), "on_the_way": mean})


def delivered_by(run: "Run", times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes (n,) that have arrived by each of times (n,) s, which are in order."""
    run.require("bytes", "deliver")
    found = np.zeros(len(times) + 1)  # by the first of these times, or never
    for log in run.store.pieces("events", ARRIVED):
        came = rows_of(log, log["kind"].equal("deliver"))
        np.add.at(found, np.searchsorted(times, came["time"]), came["bytes"])
    return np.cumsum(found[:-1])


def hearing(scenario: Any) -> dict[str, bool]:
    """What `staleness` has to be told of a scenario: void, free and anew."""
    policy, late = scenario.policy, scenario.policy.late or scenario.late
    void = policy.kind not in ("all", "each", "buffer") and late == "discard"
    anew = scenario.network.topology.per_round
    return {"void": void, "free": scenario.hears_later, "anew": anew}


def staleness(
    events: "pd.DataFrame", void: bool = False, free: bool = False, anew: bool = False
) -> "pd.DataFrame":
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


def staleness_in_tree(events: "pd.DataFrame", edges: int, void: bool) -> "pd.DataFrame":
    """The same of a tree: of every reply in a collection of an edge, or of the cloud.

    edges: the first one's id; void: whether replies of clients to older calls are not used. Rounds
    are those of who collects; an edge is called when its call begins to leave.
    """
    closed = events.loc[events["kind"] == "aggregate", ["time", "agent", "round"]]
    came, sent = events[events["kind"] == "deliver"], events[events["kind"] == "send"]
    above = (sent["agent"] < 0) | (sent["agent"] > sent["peer"])
    down = sent[(sent["value"] == 0.0) & (sent["peer"] >= edges) & above]
    calls = down.assign(kind="activate", agent=down["peer"])
    calls = pd.concat([events[events["kind"] == "activate"], calls]).sort_values("time")
    parts = []
    for own in closed["agent"].unique():
        below = came[(came["agent"] == own) & _is_below(came["peer"], own)]
        ends, clients = closed[closed["agent"] == own], bool((below["peer"] < edges).any())
        parts.append(_replies(ends, below, calls, void and clients))
    found = pd.concat(parts, ignore_index=True) if parts else _replies(closed, came, calls, void)
    found["staleness"] = found["round"] - found["heard"]
    columns = ["time", "agent", "round", "peer", "heard", "staleness", "age"]
    return found[columns].sort_values(["time", "agent", "peer"], ignore_index=True)


def _is_below(peer: "pd.Series[int]", own: int) -> "pd.Series[bool]":
    """Which of those that a coordinator of a tree hears (n,) are below it: ids grow upwards."""
    return (peer >= 0) & ((peer < own) | (own < 0))


def participation(used: "pd.DataFrame", agents: int) -> "pd.DataFrame":
    """Columns agent, contributions, gap of what coordinators have used, a table of `staleness`."""
    rounds = used.loc[used["agent"] < 0, ["peer", "round"]]
    if (used["agent"] >= agents).any():  # a tree, where edges hear agents
        rounds = used.loc[used["peer"] < agents, ["peer", "round"]]
    rounds = rounds.drop_duplicates().sort_values("round")
    gap = rounds.groupby("peer")["round"].diff().groupby(rounds["peer"]).min()
    number = rounds["peer"].value_counts().reindex(range(agents), fill_value=0)
    found = pd.DataFrame({"agent": range(agents), "contributions": number.to_numpy()})
    return found.assign(gap=gap.reindex(range(agents)).to_numpy())


def _replies(
    closed: "pd.DataFrame", came: "pd.DataFrame", events: "pd.DataFrame", void: bool
) -> "pd.DataFrame":
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


def _newest(closed: "pd.DataFrame", came: "pd.DataFrame", free: bool) -> "pd.DataFrame":
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


def _usable(wanted: "pd.DataFrame", sent: "pd.DataFrame", free: bool) -> NDArray[np.int64]:
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


# What every agent did with its time.

SPENT = ["time", "kind", "agent", "peer", "round", "seconds"]
WORK = ("compute", "abort", "send")


def utilisation(events: "Pieces | pd.DataFrame", end: float | None = None) -> "pd.DataFrame":
    """Columns agent, computing, aborted, away, idle, sending in s, and utilisation, up to `end` s.

    computing: what was computed to its end, or was under way when the run ended; aborted: what an
    absence or a newer call interrupted; away: down; idle: the rest; sending: how long its messages
    took to leave, whatever it did meanwhile; utilisation: computing / end. end: by default the last
    event's time; events: the table, or its columns SPENT as pieces.
    """
    seen = Occupation()
    for log in pieces_of(events):
        seen.add(log)
    end = seen.last if end is None else end
    total = {kind: one.at(seen.agents) for kind, one in seen.seconds.items()}
    computing, away = total["compute"] + seen.cut(end), seen.away(end)
    table = pd.DataFrame({"computing": computing, "aborted": total["abort"], "away": away})
    table["idle"] = (end - table.sum(axis=1)).clip(lower=0.0)
    table["sending"] = total["send"]
    table["utilisation"] = table["computing"] / end if end > 0.0 else 0.0
    table.insert(0, "agent", seen.agents)
    return table


class Occupation:
    """Seconds of every agent by what it did, in one reading of a log, piece by piece.

    seconds: by kind of WORK, what has ended; last: time s of the last event. rounds: that agents of
    a graph go on to; None: as many as the furthest has done.
    """

    def __init__(self, rounds: float | None = None) -> None:
        self.seconds = {kind: Sums() for kind in WORK}
        self.last = 0.0
        self._times = {kind: Sums() for kind in ("down", "up")}
        self._number = {kind: Sums(int) for kind in self._times}
        self._count = 0
        self._under_way = _UnderWay(rounds)

    def add(self, log: Columns) -> None:
        """Add a piece: its columns SPENT."""
        kinds: Words = log["kind"]
        self._count = max(self._count, 1 + int(log["agent"].max(initial=-1)))
        self.last = max(self.last, float(log["time"].max(initial=0.0)))
        for kind in (*WORK, *self._times):
            rows = rows_of(log, kinds.equal(kind) & (log["agent"] >= 0))
            who = rows["agent"]
            if kind in WORK:
                self.seconds[kind].add(who, rows["seconds"])
            else:
                self._times[kind].add(who, rows["time"])
                self._number[kind].add(who, 1)
        self._under_way.add(log)

    @property
    def agents(self) -> Int:
        """The agents (agents,), by number."""
        return np.arange(self._count)

    def away(self, end: float) -> Array:
        """Seconds (agents,) for which each was down, until `end` s."""
        gone = self._number["down"].at(self.agents)
        still = gone - self._number["up"].at(self.agents)
        up, down = (self._times[kind].at(self.agents) for kind in ("up", "down"))
        return np.where(gone > 0, up + still * end - down, 0.0)

    def cut(self, end: float) -> Array:
        """Seconds (agents,) of the computation that each had begun when the run ended at `end`."""
        begun = self.begun
        return np.where(np.isfinite(begun), np.maximum(end - begun, 0.0), 0.0)

    @property
    def begun(self) -> Array:
        """When, s, each (agents,) began what it was computing at the end; inf: it was not."""
        return self._under_way.begun(self.agents)


class _UnderWay:
    """The last events of each agent that tell whether it computes.

    Of a coordinator's agent: the latest of its calls that has come is not done, whatever newer one
    is on its way; messages that are no calls count for nothing. On a graph: its last wait is over,
    rounds are left, and no computation has ended since. Nobody computes while it is down; what an
    absence has cut off, or kept waiting, begins when it is back.
    """

    def __init__(self, rounds: float | None) -> None:
        self._rounds = rounds
        self._row = 0  # of the piece's first event, from 1
        self._open = np.zeros(0, np.int64)  # calls that may not be done yet, by agent and round
        # Row, round and time s of the latest event by agent; 0 where there was none.
        self._latest = {
            what: {
                "row": np.zeros(0, np.int64),
                "round": np.zeros(0, np.int64),
                "time": np.zeros(0),
            }
            for what in ("called", "came", "ended", "waited", "down", "up")
        }

    def add(self, log: Columns) -> None:
        kind, agent = log["kind"], log["agent"]
        call = agent.astype(np.int64) << 32 | log["round"]
        self._open = np.append(self._open, call[kind.equal("activate")])
        came = kind.equal("deliver") & np.isin(call, self._open)
        rows = 1 + self._row + np.arange(len(agent))
        for what, where in (
            ("called", kind.equal("activate")), ("came", came), ("ended", kind.equal("compute")),
            ("waited", kind.equal("aggregate")), ("down", kind.equal("down")),
            ("up", kind.equal("up")),
        ):  # fmt: skip
            where = where & (agent >= 0)
            who, latest = agent[where], self._latest[what]
            for name, values in (("row", rows), ("round", log["round"]), ("time", log["time"])):
                latest[name] = longer(latest[name], who)
                latest[name][who] = values[where]  # of one agent the last one stays
        done = longer(self._latest["ended"]["round"], self._open >> 32)
        self._open = self._open[(self._open & LOWER) >= done[self._open >> 32]]
        self._row += len(agent)

    def begun(self, who: Int) -> Array:
        """When (n,) s each began what was not done at the end; inf: nothing."""
        called, came, ended, waited, down, up = (
            {name: longer(values, who)[who] for name, values in latest.items()}
            for latest in self._latest.values()
        )
        there = down["row"] <= up["row"]
        if self._latest["called"]["row"].any():
            again = (came["row"] > called["row"]) & (called["row"] > ended["row"])  # in one round
            on = (came["round"] > ended["round"]) | again
            since = np.maximum(np.maximum(came["time"], ended["time"]), up["time"])
            return np.where(on & there, since, np.inf)
        done = waited["round"]
        last = done.max(initial=0) if self._rounds is None else self._rounds
        on = (waited["row"] >= ended["row"]) & (done < last)
        return np.where(on & there, np.maximum(waited["time"], up["time"]), np.inf)
