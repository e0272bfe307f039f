"""What a run's devices took, in joules: an integral over what its log has, of any engine.

    idle        watts of a device times how long it was up
    computing   more watts times how long it computed, done or in vain
    sending     joules for each byte that left; of a message that is cut off, for its part
    receiving   joules for each byte that arrived, while it came in: as long as it took to leave
    radio       watts while any message left or came in
    tail        watts after the last of them, until the next one, at most for so many seconds

They add up: each is there as if nothing else were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.columns import Columns, Pieces, gathered, rows_of
from desim.errors import InputError, refusal
from desim.numerics.later import pd
from desim.runs.reading.traffic import Occupation

if TYPE_CHECKING:
    from desim.runs.run import Run
    from desim.scenario.watts import Power

DONE = ["time", "kind", "agent", "peer", "round", "bytes", "seconds", "value"]
WORK, MESSAGES, TURNS = ("compute", "abort"), ("send", "deliver"), ("down", "up")


class Spans(NamedTuple):
    """What goes on at agents who (n,), from begin to last (n,) s."""

    who: Int
    begin: Array
    last: Array


class Activity(NamedTuple):
    """What a log says of devices until a time: turns and messages by kind, and what takes power.

    work: computations, those that go on included; traffic: messages at either end, their bytes
    (n,), and which are sent and which received; radio and tail: when radios are on, and in tails.
    """

    spans: dict[str, Columns]
    work: Spans
    traffic: Spans
    bytes: Array
    sides: tuple[Mask, Mask]
    radio: Spans
    tail: Spans


def joined(parts: Sequence[Spans]) -> Spans:
    """All spans, one part after the other."""
    who, begin, last = (np.concatenate([one[k] for one in parts]) for k in range(3))
    return Spans(who, begin, last)


NONE = Spans(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def activity(pieces: Pieces, power: "Power", rounds: float, until: float) -> Activity:
    """See there; pieces, rounds and until: of `energy`."""
    seen, agents = Occupation(rounds), len(power.lasts)
    for piece in pieces:
        seen.add(piece)
    log = gathered(pieces, lambda one: _any(one, (*WORK, *MESSAGES, *TURNS)))
    spans = {kind: rows_of(log, log["kind"].equal(kind)) for kind in (*MESSAGES, *TURNS)}
    for kind in TURNS:  # edges of a tree, whose ids come after those of agents, leave too
        spans[kind] = rows_of(spans[kind], spans[kind]["agent"] < agents)
    work, traffic, size, on, tail = NONE, NONE, np.zeros(0), NONE, NONE
    if power.computes:
        done = rows_of(log, _any(log, WORK) & (log["agent"] >= 0))
        begun = np.full(agents, np.inf)
        begun[: len(seen.agents)] = seen.begun[:agents]
        more = np.flatnonzero(begun < until)
        ended = done["agent"].astype(np.int64), done["time"] - done["seconds"], done["time"]
        work = joined([Spans(*ended), Spans(more, begun[more], np.full(len(more), until))])
    sides = np.zeros(0, bool), np.zeros(0, bool)
    if power.sends:
        traffic, size = _carried(spans, power.shared)
        sides = _sides(spans, agents)
        both = sides[0] | sides[1]
        heard = Spans(traffic.who[both], traffic.begin[both], traffic.last[both])
        on, tail = _radio(heard, spans["down"], power.lasts, until)
    return Activity(spans, work, traffic, size, sides, on, tail)


def energy(pieces: Pieces, power: "Power", rounds: float, until: float) -> "pd.DataFrame":
    """Columns agent, cause, joules of what devices took until a time s of a run.

    pieces: the log, its columns DONE; rounds: those that the run is to have, or inf. A row for each
    agent and cause that has power, and with a coordinator's (agent -1) two of its own.
    """
    seen, agents = activity(pieces, power, rounds, until), len(power.lasts)
    found: dict[str, tuple[Array, Array]] = {}
    if power.computes:
        up = until - _away(seen.spans, agents, until)
        found["idle"] = up, power.rates["idle"]
        found["computing"] = _seconds(seen.work, agents, until), power.rates["computing"]
    if power.sends:
        part = _part(*seen.traffic[1:], until) * seen.bytes
        for cause, rows in zip(("sending", "receiving"), seen.sides, strict=True):
            amount = np.bincount(seen.traffic.who[rows], part[rows], agents).astype(float)
            found[cause] = amount, power.rates[cause]
        for cause, spans in (("radio", seen.radio), ("tail", seen.tail)):
            found[cause] = _seconds(spans, agents, until), power.rates[cause]
    joules = {cause: amount * rate for cause, (amount, rate) in found.items()}
    table = pd.DataFrame({
        "agent": np.repeat(np.arange(agents), len(joules)),
        "cause": [*joules] * agents,
        "joules": np.array([*joules.values()]).T.ravel(),
    })  # fmt: skip
    if power.coordinator is None:
        return table
    own = [until * power.coordinator[0], _taking_in(pieces, until) * power.coordinator[1]]
    first = pd.DataFrame({"agent": -1, "cause": ["idle", "computing"], "joules": own})
    return pd.concat([first, table], ignore_index=True)


def _any(log: Columns, kinds: tuple[str, ...]) -> Mask:
    """Which rows (n,) are of one of these kinds."""
    return np.asarray(np.logical_or.reduce([log["kind"].equal(kind) for kind in kinds]))


# Seconds up and computing.


def _away(spans: dict[str, Columns], agents: int, until: float) -> Array:
    """Seconds (agents,) for which each was down, until a time s."""
    turns = []
    for kind in TURNS:
        who, time = spans[kind]["agent"], np.minimum(spans[kind]["time"], until)
        turns.append((np.bincount(who, time, agents), np.bincount(who, minlength=agents)))
    (down, left), (up, back) = turns
    return np.where(left > 0, up + (left - back) * until - down, 0.0)


def _clipped(work: Columns, until: float) -> Array:
    """Seconds (n,) of each computation before a time s."""
    end, lasted = work["time"], work["seconds"]
    return np.asarray(np.where(end <= until, lasted, np.maximum(until - (end - lasted), 0.0)))


def _seconds(spans: Spans, agents: int, until: float) -> Array:
    """Seconds (agents,) of spans before a time s."""
    lasts = np.maximum(np.minimum(spans.last, until) - spans.begin, 0.0)
    return np.bincount(spans.who, lasts, agents).astype(float)


def _taking_in(pieces: Pieces, until: float) -> float:
    """Seconds for which the coordinator took replies in before a time s.

    Where it ever does, it is at it from when a collection with replies is closed until it calls
    agents again: the log has such work when it is done.
    """
    log = gathered(pieces, lambda one: _any(one, ("compute", "aggregate", "activate")))
    own = log["agent"] < 0
    work, closed = log["kind"].equal("compute") & own, log["kind"].equal("aggregate") & own
    closed &= log["value"] > 0.0
    taken, last = rows_of(log, work), np.flatnonzero(closed)[-1:]
    spent = float(_clipped(taken, until).sum())
    if not len(taken["time"]) or not len(last):
        return spent
    later = slice(int(last[0]), None)
    if (work | log["kind"].equal("activate"))[later].any():
        return spent
    return spent + max(until - float(log["time"][last[0]]), 0.0)


def coordinating(pieces: Pieces, end: float) -> tuple[Array, Array]:
    """Begin and last (n,) s of what a coordinator takes in before a time s, as `_taking_in`."""
    log = gathered(pieces, lambda one: _any(one, ("compute",)))
    taken = rows_of(log, log["agent"] < 0)
    last = np.minimum(taken["time"], end)
    begin = np.minimum(taken["time"] - taken["seconds"], end)
    rest = _taking_in(pieces, end) - float((last - begin).sum())
    return np.append(begin, end - max(rest, 0.0)), np.append(last, end)


# Messages: who sends or receives them, from when to when, and how many bytes.


def _sides(spans: dict[str, Columns], agents: int) -> tuple[Mask, Mask]:
    """Of sent messages, then of those that arrived: which an agent sends, and which it receives.

    Edges of a tree, whose ids come after those of agents, are left out.
    """
    sent, came = (
        (spans[kind]["agent"] >= 0) & (spans[kind]["agent"] < agents) for kind in MESSAGES
    )
    nobody = np.zeros(len(sent), bool), np.zeros(len(came), bool)
    return np.concatenate([sent, nobody[1]]), np.concatenate([nobody[0], came])


def _carried(spans: dict[str, Columns], shared: tuple[bool, bool]) -> tuple[Spans, Array]:
    """Of sent messages, then of those that arrived: spans, and their bytes (n,).

    What arrives comes in for as long as that attempt took to leave. Of one transmission that
    reaches several the log has the bytes once. shared: whether messages of agents, and those of a
    coordinator, share a line: what is on it is until it has arrived.
    """
    sent, came = spans["send"], spans["deliver"]
    names = ["agent", "peer", "time", "seconds", "bytes", "value"]
    out, into = (pd.DataFrame({name: one[name] for name in names}) for one in (sent, came))
    out["whole"] = out.groupby(["agent", "time"])["bytes"].transform("max")
    out.loc[out["agent"] < 0, "whole"] = out["bytes"]
    out = out.rename(columns={"agent": "peer", "peer": "agent", "seconds": "lasts"})
    out["number"] = out.index
    into["row"], into["left"] = into.index, into["time"] - into["seconds"]
    again = into["value"] > 0.0
    keys, parts = ["agent", "peer", "value"], []
    ways: tuple[tuple[Any, str, Literal["nearest", "backward"]], ...] = (
        (into[~again], "left", "nearest"), (into[again], "time", "backward"),
    )  # fmt: skip
    for some, on, way in ways:
        attempts = out[[*keys, "time", "lasts", "whole", "number"]].rename(columns={"time": on})
        parts.append(
            pd.merge_asof(some.sort_values(on, kind="stable"),
                          attempts.sort_values(on, kind="stable"), on=on, by=keys, direction=way)
        )  # fmt: skip
    found = pd.concat(parts).sort_values("row")
    lasts = found["lasts"].fillna(0.0).to_numpy(float)
    size = np.where(came["bytes"] > 0, came["bytes"], found["whole"].fillna(0.0))
    begin = np.array(sent["time"], float), came["time"] - lasts
    last = np.array(sent["time"] + sent["seconds"], float), np.array(came["time"], float)
    if any(shared):
        number = found["number"].to_numpy()
        _until_there(sent, came, shared, number, (begin, last))
    who = np.concatenate([sent["agent"], came["agent"]]).astype(np.int64)
    whole = np.concatenate([sent["bytes"], size]).astype(float)
    return Spans(who, np.concatenate(begin), np.concatenate(last)), whole


def _until_there(
    sent: Columns, came: Columns, shared: tuple[bool, bool], number: Array,
    spans: tuple[tuple[Array, Array], tuple[Array, Array]],
) -> None:  # fmt: skip
    """Change begin and last (sent (n,), came (m,)) s of messages that share a line.

    They go on from when they are handed over to when they have arrived, or for ever. number (m,):
    which of those sent each is, NaN for none.
    """
    (_, begin), (last, _) = spans
    known = np.isfinite(number)
    which = number[known].astype(np.int64)
    mine = sent["agent"] >= 0
    queued = np.where(mine, *shared)
    ends = np.full(len(last), np.inf)
    ends[which] = came["time"][known]
    last[queued] = ends[queued]
    late = np.where(came["peer"] >= 0, *shared)
    rows = np.flatnonzero(known)[late[known]]
    begin[rows] = np.minimum(begin[rows], sent["time"][number[rows].astype(np.int64)])


def _part(begin: Array, last: Array, until: float) -> Array:
    """Which share (n,) of what goes on from begin to last (n,) s has happened by a time s."""
    lasts = last - begin
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(lasts > 0.0, (until - begin) / lasts, begin <= until)
    return np.where(last <= until, 1.0, np.clip(share, 0.0, 1.0))


def _radio(messages: Spans, down: Columns, lasts: Array, until: float) -> tuple[Spans, Spans]:
    """When radios are on for messages, and in their tails of lasts (agents,) s, up to a time s.

    A tail ends with the next message, or when its agent leaves.
    """
    who, begin, last = messages
    on, tails = [NONE], [NONE]
    order = np.lexsort((begin, who))
    first = np.searchsorted(who[order], np.arange(len(lasts) + 1))
    for agent in range(len(lasts)):
        own = order[first[agent] : first[agent + 1]]
        if not len(own):
            continue
        start, reach = begin[own], np.maximum.accumulate(last[own])
        opens = np.flatnonzero(np.append(True, start[1:] > reach[:-1]))  # where a block begins
        ends = reach[np.append(opens[1:] - 1, len(own) - 1)]
        following = np.append(start[opens[1:]], np.inf)
        leaves = np.append(np.sort(down["time"][down["agent"] == agent]), np.inf)
        leaves = leaves[np.searchsorted(leaves, ends)]
        over = np.minimum(np.minimum(following, leaves), np.minimum(ends + lasts[agent], until))
        own = np.full(len(ends), agent)
        on.append(Spans(own, start[opens], np.minimum(ends, until)))
        tails.append(Spans(own, ends, np.maximum(over, ends)))
    return joined(on), joined(tails)


# Of a run.


def power_of(run: "Run") -> "Power | None":
    """What its devices take; None where its scenario does not say."""
    said = run.written
    if not any((said.get(section) or {}).get("power") for section in ("compute", "network")):
        return None
    from desim.runs.premises import real
    from desim.scenario.watts import power

    found = power(run.scenario, len(run.manifest["rows"]))
    if found is not None and real(run.manifest):  # its log has arrivals, and no time on the wire
        found = replace(found, shared=(True, True))
    return found


def power_known(run: "Run") -> bool:
    """Whether there are joules of it: its scenario has power, and its log what they take."""
    try:
        if (power := power_of(run)) is None:  # to ask what its log has would load the compiler
            return False
        run.require("energy", *_needed(power))
    except InputError:
        return False
    return True


def _needed(power: "Power") -> tuple[str, ...]:
    """Kinds of events without which nothing is known of it."""
    return (*(WORK[:1] if power.computes else ()), *(MESSAGES if power.sends else ()))


def readable(run: "Run", what: str = "energy") -> "tuple[Pieces, Power, float]":
    """The log of a run with power, that power, and the rounds that it is to have, for `what`.

    InputError where its scenario says no watts, or its log leaves out what takes them.
    """
    power = power_of(run)
    if power is None:
        text = f"{what}: run {run.name} says no watts"
        raise InputError(f"{text}; allowed: a scenario with compute.power or network.power")
    run.require(what, *_needed(power))
    rounds = (run.written.get("stop") or {}).get("rounds", np.inf)
    return run.store.pieces("events", DONE), power, float(rounds)


def end_of(run: "Run", log: Pieces) -> float:
    """When a run ended, s; of one that was killed, how far its log goes."""
    end = run.manifest.get("time")
    if end is None:
        end = max((float(one["time"].max(initial=0.0)) for one in log), default=0.0)
    return float(end)


def spent(run: "Run", until: "float | Mapping[str, float] | None" = None) -> "pd.DataFrame":
    """See `Run.energy`."""
    log, power, rounds = readable(run)
    end = end_of(run, log)
    last = _until(run, until, end)
    table = energy(log, power, rounds, min(last, end))
    return table if last <= end else table.assign(joules=np.inf)


def _until(run: "Run", until: "float | Mapping[str, float] | None", end: float) -> float:
    """The time s that is meant; inf for a target that was never met."""
    if until is None:
        return end
    if isinstance(until, Mapping):
        if len(until) != 1:
            raise InputError(f"until: {refusal(dict(until), 'one target, {metric: value}')}")
        return run.time_to(*next(iter(until.items())))
    number = isinstance(until, int | float | np.number) and not isinstance(until, bool)
    if not number or not (0.0 <= until <= end or until == np.inf):
        allowed = f"a time from 0 to {end:g} s, inf for never, or {{metric: value}}"
        raise InputError(f"until: {refusal(until, allowed)}")
    return float(until)
