"""What moves in a run, as arrays over virtual time: messages, work, waits, and how busy all are.

A log is read piece by piece, of a run that plays only what is new. Of a long one every k-th message
is taken, or, of a run that plays, its latest rows; how busy agents are is summed over all rows.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from desim.agent_names import NETWORK
from desim.arrays import Array, Int
from desim.columns import Columns, Pieces, rows_of
from desim.runs.reading.traffic import Occupation, longer
from desim.runs.reading.waits import Unanswered, listening, waits
from desim.runs.run import Run

COLUMNS = ["time", "kind", "agent", "peer", "round", "seconds", "value"]
COMPUTES, INTERRUPTED, AWAY = range(3)  # states of a span
MAX_ROWS = 300_000  # of a log, up to which every message and computation is taken
LATEST = 80_000  # rows of a run that plays
CELLS = 400_000  # agents times bins
MIN_BINS, MAX_BINS = 20, 600
END = 2**32 - 2  # the tick at which a log ends; what goes on then lasts for one more
OF_BOTH = {"row": np.int64, "begin": float, "end": float}
MESSAGES = {**OF_BOTH, "source": np.int64, "target": np.int64, "lost": bool}
SPANS = {**OF_BOTH, "agent": np.int64, "state": np.int64}


@dataclass(frozen=True)
class Messages:
    """Messages (n,) by when they left: begin and end s, from whom to whom, -1 the coordinator."""

    begin: Array
    end: Array
    source: Int
    target: Int
    lost: NDArray[np.bool_]


@dataclass(frozen=True)
class Spans:
    """What agents (n,) did, by agent and begin s: COMPUTES, INTERRUPTED or AWAY, until end s.

    What goes on when a growing log ends has the end inf.
    """

    agent: Int
    begin: Array
    end: Array
    state: Int


@dataclass(frozen=True)
class Waits:
    """Waits (n,) by when they began: who waited, and who closed them, as `run.waits()` has it."""

    begin: Array
    end: Array
    agent: Int
    closer: Int


@dataclass(frozen=True)
class Moves:
    """All that moves until `end` s.

    every: 1, or the k of which each k-th message is taken, and no span and few waits; since s:
    before it nothing is taken; rows: of the log; rounds (r,): when s the last wait of each was over
    so far, of which all have closed those of the first `done`; crowd
    (2, bins): agents that compute, messages on their way, on average over `bin` s each; busy
    (agents, bins): which share of a bin each agent computes, where spans are not taken; links
    (m, 2): who has sent to whom; sent: messages that have neither arrived nor been lost; hub:
    whether there is a coordinator; awaited (w, 2): who waits for whom at the end, as whoever was
    called and not heard since, and can still be used; closers: see `_closers`.
    """

    end: float
    every: int
    since: float
    rows: int
    messages: Messages
    spans: Spans
    waits: Waits
    rounds: Array
    done: int
    crowd: Array
    bin: float
    busy: Array
    links: Int
    sent: int
    hub: bool
    awaited: Int
    closers: pd.DataFrame


class Occupied:
    """How long, in each of equal bins from 0 s on, spans of `rows` kinds last together.

    width s: of a bin, doubled whenever spans go on after the last one.
    """

    def __init__(self, rows: int, end: float) -> None:
        self.bins = 2 * (int(np.clip(CELLS // max(rows, 1), MIN_BINS, MAX_BINS)) // 2)
        self.width = (end or 1.0) / self.bins
        self._part = np.zeros((rows, self.bins))  # s of a bin after a begin, less those after ends
        self._whole = np.zeros((rows, self.bins))  # spans that have begun in it, less those ended

    def add(self, row: Int, begin: Array, end: Array) -> None:
        """Add spans (n,) of kinds row (n,) from begin to end (n,) s."""
        while float(end.max(initial=0.0)) > self.width * self.bins * (1.0 + 1e-9):
            self._double()
        for sign, when in ((1.0, begin), (-1.0, end)):
            place = np.clip((when / self.width).astype(np.int64), 0, self.bins - 1)
            cell = row * self.bins + place
            rest, many = (place + 1) * self.width - when, self._part.size
            self._part += sign * np.bincount(cell, rest, many).reshape(self._part.shape)
            self._whole += sign * np.bincount(cell, minlength=many).reshape(self._part.shape)

    def _double(self) -> None:
        """Bins twice as wide: of what has begun in a first half all the second one is after it."""
        early, late = self._whole[:, ::2], self._whole[:, 1::2]
        part = self._part[:, ::2] + self.width * early + self._part[:, 1::2]
        half = self.bins // 2
        for sums, values in ((self._part, part), (self._whole, early + late)):
            sums[:, :half], sums[:, half:] = values, 0.0
        self.width *= 2.0

    def mean(self, end: float) -> Array:
        """How many spans (rows, bins) there are at a time, on average, in the bins before `end`."""
        before = np.cumsum(self._whole, axis=1) - self._whole
        used = min(self.bins, max(1, ceil(end / self.width * (1.0 - 1e-9))))
        return np.maximum(self._part / self.width + before, 0.0)[:, :used]


class Reading:
    """A log of so many agents, of which `moves` reads what it has not yet.

    plays: it may grow, and the latest rows are of interest; rounds: after which agents of a graph
    compute no more.
    """

    def __init__(self, agents: int, plays: bool = False, rounds: float = np.inf) -> None:
        self.agents, self.plays, self._last_round = agents, plays, rounds
        self._begin(Pieces([0], lambda _: {}), 0.0)

    def _begin(self, log: Pieces, end: float) -> None:
        """Forget what was read, if anything was; read log from its start."""
        agents, rows = self.agents, int(log.first[-1])
        self.every = 1 if self.plays or rows <= MAX_ROWS else ceil(rows / MAX_ROWS)
        self._first = log.first[:1]  # of the pieces that were read
        self._messages, self._spans = [_none(MESSAGES)], [_none(SPANS)]
        self._arrivals = 0  # so far, of which each `every`-th is taken
        self._sent = 0
        self._again: dict[tuple[int, ...], float] = {}  # when s attempts after the first left
        self._links: Any = np.zeros(0, np.int64)  # source + 1 and target + 1, in one number
        self._rounds, self._turns = np.zeros(0), np.zeros(agents)  # that each agent has closed
        self._hub = False
        self._crowd, self._busy = Occupied(2, end), Occupied(agents if self.every > 1 else 0, end)
        self._occupation = Occupation(self._last_round)
        self._called, self._heard, self._caller = (np.zeros(agents, np.int64) for _ in range(3))
        self._closed = 0
        self._down: dict[int, float] = {}

    def moves(self, run: Run) -> Moves:
        """What moves in the run; what its log leaves out is not there."""
        log = run.store.pieces("events", COLUMNS)
        ended = run.manifest.get("time")
        last = last_time(log)
        end = float(ended) if ended is not None and last <= ended < np.inf else last
        known = len(self._first)
        if known == 1 or not np.array_equal(self._first, log.first[:known]):
            self._begin(log, end)
        for number in range(len(self._first) - 1, len(log)):
            self._add(log[number], int(log.first[number]))
        self._first = log.first.copy()
        return self._found(log, end, run)

    def _add(self, log: Columns, first: int) -> None:
        """Add a piece, whose first row has that number in the log."""
        kind, agent = log["kind"], log["agent"]
        self._hub = self._hub or bool((agent < 0).any())
        self._occupation.add(log)
        self._calls(log, first)
        self._travels(log, first)
        for state, word in ((COMPUTES, "compute"), (INTERRUPTED, "abort")):
            rows = np.flatnonzero(kind.equal(word) & (agent >= 0))
            some = rows_of(log, rows)
            begin = some["time"] - some["seconds"]
            self._crowd.add(np.zeros(len(rows), np.int64), begin, some["time"])
            if self.every > 1:
                own = some["agent"] < self.agents
                self._busy.add(some["agent"][own], begin[own], some["time"][own])
            self._span(first + rows, some["agent"], begin, some["time"], state)
        for row in np.flatnonzero(kind.equal("down") | kind.equal("up")).tolist():
            who, time = int(agent[row]), float(log["time"][row])
            if kind.equal("down")[row]:
                self._down[who] = time
            elif who in self._down:
                self._span([first + row], [who], [self._down.pop(who)], [time], AWAY)
        self._over(log)

    def _span(self, row: Any, agent: Any, begin: Any, end: Any, state: int) -> None:
        if self.every == 1:
            columns = {"row": row, "agent": agent, "begin": begin, "end": end}
            arrays = {name: np.asarray(values, SPANS[name]) for name, values in columns.items()}
            self._spans.append({**arrays, "state": np.full(len(row), state)})

    def _calls(self, log: Columns, first: int) -> None:
        """Note who was called last, and heard last by whom calls it: numbers of rows, from 1."""
        kind, agent, peer = log["kind"], log["agent"].astype(np.int64), log["peer"].astype(np.int64)
        for name in ("_called", "_heard", "_caller"):
            setattr(self, name, longer(getattr(self, name), np.append(agent, peer)))
        rows = first + 1 + np.arange(len(agent))
        called, came = kind.equal("activate") & (agent >= 0), kind.equal("deliver")
        down = came & (agent >= 0) & ((peer < 0) | (peer >= self.agents) & (peer > agent))
        self._caller[agent[down]] = peer[down] + 1
        called |= down & (agent >= self.agents)  # an edge, whom no row but its message calls
        self._called[agent[called]] = rows[called]
        heard = came & (peer >= 0) & ((agent < 0) | (agent >= self.agents) & (agent > peer))
        self._heard[peer[heard]] = rows[heard]
        closed = kind.equal("aggregate") & (agent < 0)
        self._closed = int(rows[closed].max(initial=self._closed))

    def _travels(self, log: Columns, first: int) -> None:
        """Take messages that have come or been lost, and count those that are on their way."""
        kind = log["kind"]
        sent, lost = kind.equal("send"), kind.equal("lost")
        over = kind.equal("deliver") | lost
        self._sent += int(sent.sum()) - int(over.sum())
        for row in np.flatnonzero(sent & (log["value"] > 0.0)).tolist():
            self._again[_attempt(log, row, "agent", "peer")] = float(log["time"][row])
        rows = np.flatnonzero(over)
        some = rows_of({name: log[name] for name in COLUMNS}, rows)
        begin = some["time"] - some["seconds"]
        for place in np.flatnonzero(~lost[rows] & (some["value"] > 0.0)).tolist():
            key = _attempt(some, place, "peer", "agent")
            begin[place] = self._again.pop(key, begin[place])
        self._crowd.add(np.ones(len(rows), np.int64), begin, some["time"])
        pairs = (some["peer"].astype(np.int64) + 1) << 32 | (some["agent"] + 1)
        self._links = pd.unique(np.concatenate([self._links, pd.unique(pairs)]))
        keep = (self._arrivals + np.arange(len(rows))) % self.every == 0
        self._arrivals += len(rows)
        self._messages.append({
            "row": first + rows[keep], "begin": begin[keep], "end": some["time"][keep],
            "source": some["peer"][keep], "target": some["agent"][keep], "lost": lost[rows][keep],
        })  # fmt: skip

    def _over(self, log: Columns) -> None:
        """Note when rounds were over: the coordinator's, or everybody's on a graph."""
        closed = log["kind"].equal("aggregate")
        rows = np.flatnonzero(closed & (log["agent"] < 0) if self._hub else closed)
        turn, time = log["round"][rows].astype(np.int64), log["time"][rows]
        more = int(turn.max(initial=0)) - len(self._rounds)
        self._rounds = np.append(self._rounds, np.zeros(max(more, 0)))
        np.maximum.at(self._rounds, turn[turn > 0] - 1, time[turn > 0])
        who, known = log["agent"], log["agent"] < self.agents
        if not self._hub:
            np.maximum.at(self._turns, who[rows][known[rows]], turn[known[rows]])
            self._turns[who[log["kind"].equal("retire") & known]] = np.inf  # waits for nobody

    def _done(self) -> int:
        """How many rounds the coordinator, or every agent that is left, has closed."""
        rounds = len(self._rounds)
        return rounds if self._hub else int(self._turns.min(initial=rounds))

    def _found(self, log: Pieces, end: float, run: Run) -> Moves:
        """What was read of a log until `end` s."""
        rows = int(log.first[-1])
        taken = max(rows - LATEST, 0) if self.plays else 0  # the first row that is taken
        piece = int(np.searchsorted(log.first, taken, side="right")) - 1 if taken else 0
        since = float(log[piece]["time"][taken - int(log.first[piece])]) if taken else 0.0
        for parts in (self._messages, self._spans):
            parts[1:] = [part for part in parts[1:] if (part["row"] >= taken).any()]
        whole = Pieces(np.diff(log.first)[piece:].tolist(), lambda k: log[piece + k])
        table = waits(whole) if run.level != "rounds" else _NO_WAITS
        on, since_when = self._under_way()
        now = np.full(len(on), end)
        under_way = {"row": now * 0 + rows, "agent": on, "begin": since_when,
                     "end": now + np.inf if self.plays else now,
                     "state": np.where(np.isin(on, [*self._down]), AWAY, COMPUTES)}  # fmt: skip
        crowd = deepcopy(self._crowd)
        some = under_way["state"] == COMPUTES
        crowd.add(np.zeros(int(some.sum()), np.int64), since_when[some], now[some])
        spans = [*self._spans, *([under_way] if self.every == 1 else ())]
        links = np.stack([self._links >> 32, self._links & 0xFFFFFFFF], axis=1) - 1
        return Moves(
            end, self.every, since, rows, Messages(**_latest(self._messages, taken, "begin")),
            Spans(**_latest(spans, taken, "begin", "agent")), _open(table, since),
            np.maximum.accumulate(self._rounds), self._done(), crowd.mean(end), crowd.width,
            np.minimum(self._busy.mean(end), 1.0), links, self._sent, self._hub,
            self._awaited(run), _closers(table),
        )  # fmt: skip

    def _awaited(self, run: Run) -> Int:
        """Pairs (w, 2) of who waits at the end and who was called and not heard."""
        heard, policy = self._heard, run.written.get("policy")
        discards = isinstance(policy, Mapping) and policy.get("late") != "carry"
        if discards and isinstance(listening(run), Unanswered):  # of late replies
            heard = np.maximum(heard, self._closed)
        late = np.flatnonzero(self._called > heard)
        return np.stack([self._caller[late] - 1, late], axis=1)

    def _under_way(self) -> tuple[Int, Array]:
        """Agents (n,) that compute or are away at the end, and since when s."""
        begun = self._occupation.begun
        on = np.flatnonzero(np.isfinite(begun))
        on = on[~np.isin(on, [*self._down])]
        away = np.array([*self._down], np.int64)
        since = np.array([*self._down.values()], float)
        return np.concatenate([on, away]), np.concatenate([begun[on], since])


_NO_WAITS = pd.DataFrame({name: [] for name in ("time", "round", "agent", "waited", "closer")})


def last_time(log: Pieces) -> float:
    """When s the last event of a log was."""
    times = log[len(log) - 1]["time"]
    return float(times[-1]) if len(times) else 0.0


def _none(kinds: Mapping[str, Any]) -> Columns:
    """Columns of these kinds without rows."""
    return {name: np.zeros(0, kind) for name, kind in kinds.items()}


def _attempt(log: Columns, row: int, source: str, target: str) -> tuple[int, ...]:
    """What a repeated message and its arrival have in common."""
    return tuple(int(log[name][row]) for name in (source, target, "round", "value"))


def _open(table: pd.DataFrame, since: float) -> Waits:
    """Waits that last and end after `since` s; the coordinator's where these are too many."""
    table = table[(table["waited"] > 0.0) & (table["time"] >= since)]
    if len(table) > MAX_ROWS:
        table = table[table["agent"] == NETWORK]
    table = table[: len(table) if len(table) <= MAX_ROWS else 0]
    end = table["time"].to_numpy(float)
    begin = end - table["waited"].to_numpy(float)
    order = np.argsort(begin, kind="stable")
    who, closer = (table[name].to_numpy(np.int64)[order] for name in ("agent", "closer"))
    return Waits(begin[order], end[order], who, closer)


def _latest(parts: list[Columns], taken: int, *names: str) -> Columns:
    """Rows of parts from that number on, by the last of the names, then by those before it."""
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    chosen = rows_of(whole, np.lexsort([whole[name] for name in names]))
    return rows_of(chosen, chosen.pop("row") >= taken)


def _closers(table: pd.DataFrame) -> pd.DataFrame:
    """Columns size and sum s of the waits that each closer ended, those first that took most."""
    found = table.groupby("closer")["waited"].agg(["size", "sum"])
    return found.sort_values(["sum", "size"], ascending=False, kind="stable")


def ticks(times: Array, end: float) -> NDArray[np.uint32]:
    """Times (n,) s as shares of `end`, in whole parts of it, END of them; what is inf is later."""
    share = np.clip(times / end if end > 0.0 else times * 0.0, 0.0, 1.0)
    return np.asarray(np.where(np.isinf(times), END + 1, np.rint(share * END)), np.uint32)
