"""What every agent did with its time."""

import numpy as np

from desim.arrays import Array, Int
from desim.columns import Columns, Pieces, Words, pieces_of, rows_of
from desim.numerics.later import pd
from desim.runs.reading.sums import Sums, longer

SPENT = ["time", "kind", "agent", "peer", "round", "seconds"]
WORK = ("compute", "abort", "send")
ENDS = ("compute", "abort", "down")  # after one of these nothing is computed until a new call


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

    seconds: by kind of WORK, what has ended; last: time s of the last event.
    """

    def __init__(self) -> None:
        self.seconds = {kind: Sums() for kind in WORK}
        self.last = 0.0
        self._times = {kind: Sums() for kind in ("down", "up")}
        self._number = {kind: Sums(int) for kind in self._times}
        self._count = 0
        self._under_way = _UnderWay()

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

    Of a coordinator's agent: its last call has come, and no computation of that round has ended. On
    a graph: its last wait is over, others are further, and no computation has ended since.
    """

    def __init__(self) -> None:
        self._row = 0  # of the piece's first event, from 1
        self._called = _Latest()
        self._came, self._ended, self._waited = _Latest(), _Latest(), _Latest()

    def add(self, log: Columns) -> None:
        kind, agent = log["kind"], log["agent"]
        own = agent >= 0
        ended = np.zeros(len(agent), bool)
        for word in ENDS:
            ended |= kind.equal(word)
        came = kind.equal("deliver") & (log["peer"] < 0)
        for latest, where in (
            (self._called, kind.equal("activate")), (self._came, came), (self._ended, ended),
            (self._waited, kind.equal("aggregate")),
        ):  # fmt: skip
            latest.add(rows_of(log, where & own), 1 + self._row + np.flatnonzero(where & own))
        self._row += len(agent)

    def begun(self, who: Int) -> Array:
        """When (n,) s each began what was not done at the end; inf: nothing."""
        ended = self._ended
        if self._called.row.any():
            came = self._came
            on = (came.at("row", who) > ended.at("row", who)) & (
                came.at("round", who) == self._called.at("round", who)
            ) & (came.at("round", who) > ended.at("round", who))  # fmt: skip
            return np.where(on, came.at("time", who), np.inf)
        done = self._waited.at("round", who)
        on = (self._waited.at("row", who) >= ended.at("row", who)) & (done < done.max(initial=0))
        return np.where(on, self._waited.at("time", who), np.inf)


class _Latest:
    """Row, round and time s of the latest event of a kind by agent; 0 where there was none."""

    def __init__(self) -> None:
        self.row, self.round = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.time = np.zeros(0)

    def add(self, rows: Columns, numbers: Int) -> None:
        who = rows["agent"]
        for name, values in (("row", numbers), ("round", rows["round"]), ("time", rows["time"])):
            grown = longer(getattr(self, name), who)
            grown[who] = values  # of one agent the last one stays
            setattr(self, name, grown)

    def at(self, name: str, who: Int) -> Array:
        """What is known (n,) of agents who (n,)."""
        return np.asarray(longer(getattr(self, name), who)[who])
