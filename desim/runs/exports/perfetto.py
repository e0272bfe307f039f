"""A run as a timeline, and as a trace of Perfetto for ui.perfetto.dev, in virtual nanoseconds.

One process per agent with rows work, messages and arrivals; flows from messages to arrivals;
counters for metrics and epsilon. Slices that overlap are put into tracks of one name: on one track
they would have to be nested.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from desim.agent_names import NETWORK, agent_named, called
from desim.errors import DesimError, InputError, require
from desim.runs.directory import output
from desim.runs.reading.waits import CLOSERS, NOBODY, waits
from desim.runs.run import Run

# The timeline: who computes, waits, is away, and what is on its way to whom.

MAX_EVENTS = 200_000  # events that one trace shows
WORK = {"compute": "compute", "abort": "aborted"}
POINTS = ("retire", "deadline")


@dataclass(frozen=True)
class Slice:
    """Something that lasts from `begin` to `end` s, in one of the rows of agent `who`.

    sends, lands: numbers of the message that leaves with it, or arrives; 0 for none.
    """

    who: int
    row: str
    begin: float
    end: float
    name: str
    notes: dict[str, int] = field(default_factory=dict)
    sends: int = 0
    lands: int = 0


def window(
    events: pd.DataFrame, rounds: tuple[int, int] | None, agents: int | None
) -> tuple[pd.DataFrame, list[str]]:
    """The events that are shown, and what is to be said of those that are not.

    Without rounds and agents: whole rounds from the first on, and agents from the first on where
    one round is too much. InputError where nothing is left.
    """
    if rounds is not None:
        events = events[events["round"].between(*rounds) | (events["round"] == 0)]
        if not (events["round"] > 0).any():
            raise InputError(f"rounds: found {rounds[0]}-{rounds[1]}; no event is of these rounds")
    if agents is not None:
        events = _first(events, agents)
    if len(events) <= MAX_EVENTS:
        return events, []
    counts = events["round"].value_counts().sort_index().cumsum()
    fit = counts[counts <= MAX_EVENTS]
    first, last = int(max(counts.index[0], 1)), int(counts.index[-1])
    until = int(fit.index[-1]) if len(fit) else 0
    if until >= first:
        text = f"shown: rounds {first} to {until}, of {last}; --rounds FIRST-LAST shows others"
        return events[events["round"] <= until], [text]
    shown = events[events["round"] <= first]
    number = max(1, int(MAX_EVENTS * (int(shown["agent"].max()) + 1) / len(shown)))
    while len(part := _first(shown, number)) > MAX_EVENTS and number > 1:
        number = number * 2 // 3
    text = f"shown: round {first} of {last}, agents 0 to {number - 1}; the others are left out"
    return part, [text]


def _first(events: pd.DataFrame, agents: int) -> pd.DataFrame:
    """Events of the first agents and the coordinator among themselves."""
    return events[(events["agent"] < agents) & (events["peer"] < agents)]


def slices(events: pd.DataFrame, end: float) -> Iterator[Slice]:
    """All that is to be shown up to `end` s, in no order."""
    done = events[events["kind"].isin(list(WORK))]
    for row in _rows(done):
        notes = {"round": int(row.round)}
        yield Slice(row.agent, "work", row.time - row.seconds, row.time, WORK[row.kind], notes)
    for row in _rows(waits(events)):
        whom = CLOSERS[row.closer] if row.closer < -1 else called(row.closer)
        name = "wait" if row.closer == NOBODY else f"wait for {whom}"
        notes = {"round": int(row.round)}
        yield Slice(row.agent, "work", row.time - row.waited, row.time, name, notes)
    yield from _absences(events, end)
    yield from _messages(events, end)
    for row in _rows(events[events["kind"].isin(POINTS)]):
        yield Slice(row.agent, "work", row.time, row.time, row.kind, {"round": int(row.round)})


def _rows(table: pd.DataFrame) -> Iterator[Any]:
    return iter(table.itertuples())


def _absences(events: pd.DataFrame, end: float) -> Iterator[Slice]:
    since: dict[int, float] = {}
    for row in _rows(events[events["kind"].isin(("down", "up"))]):
        if row.kind == "down":
            since[row.agent] = row.time
        elif row.agent in since:
            yield Slice(row.agent, "work", since.pop(row.agent), row.time, "away")
    for agent, begin in since.items():
        yield Slice(agent, "work", begin, end, "away")


def _messages(events: pd.DataFrame, end: float) -> Iterator[Slice]:
    """A slice at the sender until a message arrives, and a point where it does.

    An arrival belongs to the send row of its attempt; of several in a round, what left first to the
    first.
    """
    sent = events[events["kind"] == "send"].rename(columns={"agent": "source", "peer": "target"})
    came = events[events["kind"].isin(("deliver", "lost"))]
    came = came.rename(columns={"peer": "source", "agent": "target"})
    came = came.iloc[np.argsort((came["time"] - came["seconds"]).to_numpy(), kind="stable")]
    key = ["source", "target", "round", "value"]
    sent, came = (part.assign(nth=part.groupby(key).cumcount()) for part in (sent, came))
    ends = came[[*key, "nth", "time", "kind"]]
    pairs = sent.merge(ends, on=[*key, "nth"], how="left", suffixes=("", "_end"))
    for number, row in enumerate(_rows(pairs), 1):
        yield from _message(number, row, end)


def _message(number: int, row: Any, end: float) -> Iterator[Slice]:
    notes = {"round": int(row.round), "bytes": int(row.bytes)}
    notes |= {"attempt": int(row.value)} if row.value > 0 else {}
    notes |= {"release": int(row.release)} if row.release >= 0 else {}
    name, arrived = f"to {called(row.target)}", row.kind_end == "deliver"
    if not arrived:
        name += ", lost" if row.kind_end == "lost" else ", on its way at the end"
    until = row.time_end if row.time_end == row.time_end else max(end, row.time)
    sends = number if arrived else 0
    yield Slice(row.source, "messages", row.time, until, name, notes, sends=sends)
    if arrived:
        name = f"from {called(row.source)}"
        yield Slice(row.target, "arrivals", until, until, name, notes, lands=number)


# The trace.

NANO = 1e9
LONGEST = 9.0e9  # s: more nanoseconds do not fit into 63 bits
SEQUENCE = 1
ROWS = ("work", "messages", "arrivals")
ENDINGS = (".pftrace", ".perfetto-trace", ".trace", ".pb")
SAMPLES = 20_000  # of one counter


def write_trace(
    run: Run, path: Path, rounds: tuple[int, int] | None = None, agents: int | None = None
) -> list[str]:
    """Write the trace; return what is to be said of what it leaves out."""
    require("export to perfetto", "perfetto", "perfetto")
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    events, cuts = window(run.events, rounds, agents)
    last = float(run.manifest.get("time", events["time"].max() if len(events) else 0.0))
    until = float(events["time"].max()) if cuts or rounds is not None else last
    if last > LONGEST:
        raise InputError(f"export: {last:g} s of virtual time; allowed: at most {LONGEST:g} s")
    with output(path, ENDINGS) as partial, partial.open("wb") as file:
        trace = Trace(StreamingTraceProtoBuilder(file), run.manifest)
        trace.show(list(slices(events, until)))
        for name, times, values in counters(run, until):
            lost = values[~np.isfinite(values)]  # Perfetto draws finite values only
            if len(lost):
                what = "infinite" if np.isinf(lost).all() else "not finite"
                many = "all its" if len(lost) == len(values) else f"{len(lost)} of {len(values)}"
                cuts.append(f"not shown: {name}: {many} values are {what}")
            trace.count(name, times, values)
    left = {"messages": "computations", "rounds": "computations and messages"}.get(run.level)
    if left:
        cuts.append(f"not shown: {left}, which the log leaves out (log: {run.level})")
    return cuts


def counters(run: Run, until: float) -> Iterator[tuple[str, Any, Any]]:
    """Names, times s (n,) and values (n,) of the network's metrics, and of the largest epsilon."""
    rows = run.metrics[(run.metrics["agent"] == NETWORK) & (run.metrics["time"] <= until)]
    for name, part in rows.groupby("metric", observed=True, sort=False):
        yield str(name), *_thinned(part["time"].to_numpy(), part["value"].to_numpy())
    try:
        if run.scenario.privacy is None:
            return
        spent = run.epsilon()
    except DesimError:
        return
    spent = spent[spent["time"] <= until]
    most = np.maximum.accumulate(spent["epsilon"].to_numpy(float))
    terms = ", ".join(str(spent.attrs[one]) for one in ("view", "relation", "method"))
    label = f"epsilon, largest ({terms}, delta {spent.attrs['delta']:g})"
    if len(most):
        yield label, *_thinned(spent["time"].to_numpy(), most)


def _thinned(times: Any, values: Any) -> tuple[Any, Any]:
    """At most SAMPLES of them, evenly over the rows, the last one always."""
    step = max(1, -(-len(times) // SAMPLES))
    keep = np.unique(np.append(np.arange(0, len(times), step), len(times) - 1))
    return times[keep], values[keep]


class Trace:
    """Packets of one trace, written one by one; tracks are numbered as they come."""

    def __init__(self, builder: Any, manifest: Mapping[str, Any]) -> None:
        self.builder, self.manifest = builder, manifest
        self.tracks = 0

    def show(self, shown: Sequence[Slice]) -> None:
        """Tracks of everybody, and what happens in them."""
        rows: dict[tuple[int, str], list[Slice]] = {}
        for one in shown:
            rows.setdefault((one.who, one.row), []).append(one)
        for who in sorted({who for who, _ in rows}):
            name = called(who) if who == NETWORK else agent_named(self.manifest, who)
            packet = self._descriptor(name)
            process = packet.track_descriptor
            process.process.pid, process.process.process_name = who + 2, name
            process.child_ordering = 3  # EXPLICIT
            self.builder.write_packet(packet)
            for place, row in enumerate(ROWS):
                for lane in lanes(rows.get((who, row), [])):
                    packet = self._descriptor(row)
                    packet.track_descriptor.parent_uuid = process.uuid
                    packet.track_descriptor.sibling_order_rank = place
                    self.builder.write_packet(packet)
                    track = int(packet.track_descriptor.uuid)
                    packets = [packet for one in lane for packet in self._slice(track, one)]
                    for packet in sorted(packets, key=lambda packet: packet.timestamp):
                        self.builder.write_packet(packet)

    def count(self, name: str, times: Any, values: Any) -> None:
        """A counter."""
        packet = self._descriptor(name)
        packet.track_descriptor.counter.SetInParent()
        self.builder.write_packet(packet)
        track = packet.track_descriptor.uuid
        for time, value in zip(times.tolist(), values.tolist(), strict=True):
            if np.isfinite(value):
                point = self._event(time, track, 4)
                point.track_event.double_counter_value = value
                self.builder.write_packet(point)

    def _descriptor(self, name: str) -> Any:
        self.tracks += 1
        packet = self.builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.track_descriptor.uuid, packet.track_descriptor.name = self.tracks, name
        return packet

    def _event(self, time: float, track: int, kind: int) -> Any:
        packet = self.builder.create_packet()
        packet.timestamp = nanoseconds(time)
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.track_event.type, packet.track_event.track_uuid = kind, track
        return packet

    def _slice(self, track: int, one: Slice) -> Iterator[Any]:
        """Its beginning and its end, or a point."""
        packet = self._event(one.begin, track, 1 if _lasts(one) else 3)
        event = packet.track_event
        event.name = one.name
        event.categories.append(one.row)
        for name, value in one.notes.items():
            note = event.debug_annotations.add()
            note.name, note.int_value = name, value
        if one.sends:
            event.flow_ids.append(one.sends)
        if one.lands:
            event.terminating_flow_ids.append(one.lands)
        yield packet
        if _lasts(one):
            yield self._event(one.end, track, 2)


def nanoseconds(time: float) -> int:
    """Virtual s as whole ns."""
    return max(round(time * NANO), 0)


def _lasts(one: Slice) -> bool:
    return nanoseconds(one.end) > nanoseconds(one.begin)


def lanes(row: Sequence[Slice]) -> list[list[Slice]]:
    """The slices of one row in as few lanes as keep them from overlapping, in order of time.

    What takes no time, to the nanosecond, overlaps nothing: it is in the first lane.
    """
    found: list[list[Slice]] = []
    free: list[tuple[int, int]] = []  # (when a lane is free ns, its number)
    for one in sorted((one for one in row if _lasts(one)), key=lambda one: (one.begin, one.end)):
        if free and free[0][0] <= nanoseconds(one.begin):
            number = heapq.heappop(free)[1]
        else:
            number = len(found)
            found.append([])
        found[number].append(one)
        heapq.heappush(free, (nanoseconds(one.end), number))
    points = [one for one in row if not _lasts(one)]
    if points:
        found[:1] = [[*(found[0] if found else ()), *points]]
    return found
