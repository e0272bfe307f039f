"""What a run's devices took, in joules: an integral over what its log has, of any engine.

    idle        watts of a device times how long it was up
    computing   more watts times how long it computed, done or in vain
    sending     joules for each byte that left; of a message that is cut off, for its part
    receiving   joules for each byte that arrived, while it came in: as long as it took to leave
    radio       watts while any message left or came in
    tail        watts after the last of them, until the next one, at most for so many seconds

They add up: each is there as if nothing else were.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

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


def energy(pieces: Pieces, power: "Power", rounds: float, until: float) -> "pd.DataFrame":
    """Columns agent, cause, joules of what devices took until a time s of a run.

    pieces: the log, its columns DONE; rounds: those that the run is to have, or inf. A row for each
    agent and cause that has power, and with a coordinator's (agent -1) two of its own.
    """
    seen, agents = Occupation(rounds), len(power.lasts)
    for piece in pieces:
        seen.add(piece)
    log = gathered(pieces, lambda one: _any(one, (*WORK, *MESSAGES, *TURNS)))
    spans = {kind: rows_of(log, log["kind"].equal(kind)) for kind in (*MESSAGES, *TURNS)}
    found: dict[str, tuple[Array, Array]] = {}
    if power.computes:
        work = rows_of(log, _any(log, WORK))
        begun = np.full(agents, np.inf)
        begun[: len(seen.agents)] = seen.begun[:agents]
        up = until - _away(spans, agents, until)
        found["idle"] = up, power.rates["idle"]
        busy = _computed(work, agents, until) + np.clip(until - begun, 0.0, None)
        found["computing"] = busy, power.rates["computing"]
    if power.sends:
        who, begin, last, size = _carried(spans)
        part, sides = _part(begin, last, until) * size, _sides(spans, agents)
        for cause, rows in zip(("sending", "receiving"), sides, strict=True):
            amount = np.bincount(who[rows], part[rows], agents).astype(float)
            found[cause] = amount, power.rates[cause]
        on = sides[0] | sides[1]
        radio, tail = _radio(who[on], begin[on], last[on], spans["down"], power.lasts, until)
        found |= {"radio": (radio, power.rates["radio"]), "tail": (tail, power.rates["tail"])}
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


def _computed(work: Columns, agents: int, until: float) -> Array:
    """Seconds (agents,) of computations that have ended in the log, before a time s."""
    own = work["agent"] >= 0
    return np.bincount(work["agent"][own], _clipped(work, until)[own], agents).astype(float)


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


def _carried(spans: dict[str, Columns]) -> tuple[Int, Array, Array, Array]:
    """Of sent messages, then of those that arrived: the agent, begin and end s, bytes, all (n,).

    What arrives comes in for as long as that attempt took to leave. Of one transmission that
    reaches several the log has the bytes once.
    """
    sent, came = spans["send"], spans["deliver"]
    names = ["agent", "peer", "time", "seconds", "bytes", "value"]
    out, into = (pd.DataFrame({name: one[name] for name in names}) for one in (sent, came))
    out["whole"] = out.groupby(["agent", "time"])["bytes"].transform("max")
    out.loc[out["agent"] < 0, "whole"] = out["bytes"]
    out = out.rename(columns={"agent": "peer", "peer": "agent", "seconds": "lasts"})
    into["row"], into["left"] = into.index, into["time"] - into["seconds"]
    again = into["value"] > 0.0
    keys, parts = ["agent", "peer", "value"], []
    ways: tuple[tuple[Any, str, Literal["nearest", "backward"]], ...] = (
        (into[~again], "left", "nearest"), (into[again], "time", "backward"),
    )  # fmt: skip
    for some, on, way in ways:
        attempts = out[[*keys, "time", "lasts", "whole"]].rename(columns={"time": on})
        parts.append(
            pd.merge_asof(some.sort_values(on, kind="stable"),
                          attempts.sort_values(on, kind="stable"), on=on, by=keys, direction=way)
        )  # fmt: skip
    found = pd.concat(parts).sort_values("row")
    lasts = found["lasts"].fillna(0.0).to_numpy(float)
    size = np.where(came["bytes"] > 0, came["bytes"], found["whole"].fillna(0.0))
    who = np.concatenate([sent["agent"], came["agent"]]).astype(np.int64)
    begin = np.concatenate([sent["time"], came["time"] - lasts])
    last = np.concatenate([sent["time"] + sent["seconds"], came["time"]])
    return who, begin, last, np.concatenate([sent["bytes"], size]).astype(float)


def _part(begin: Array, last: Array, until: float) -> Array:
    """Which share (n,) of what goes on from begin to last (n,) s has happened by a time s."""
    lasts = last - begin
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(lasts > 0.0, (until - begin) / lasts, begin <= until)
    return np.where(last <= until, 1.0, np.clip(share, 0.0, 1.0))


def _radio(
    who: Int, begin: Array, last: Array, down: Columns, lasts: Array, until: float
) -> tuple[Array, Array]:
    """Seconds (agents,) for which radios were on for messages, and in their tails.

    who, begin, last (n,): messages. A tail ends with the next message, or when its agent leaves.
    """
    on, tail = np.zeros(len(lasts)), np.zeros(len(lasts))
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
        on[agent] = np.maximum(np.minimum(ends, until) - start[opens], 0.0).sum()
        tail[agent] = np.maximum(over - ends, 0.0).sum()
    return on, tail


# Of a run.


def power_of(run: "Run") -> "Power | None":
    """What its devices take; None where its scenario does not say."""
    said = run.written
    if not any((said.get(section) or {}).get("power") for section in ("compute", "network")):
        return None
    from desim.scenario.watts import power

    return power(run.scenario, len(run.manifest["rows"]))


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


def spent(run: "Run", until: "float | Mapping[str, float] | None" = None) -> "pd.DataFrame":
    """See `Run.energy`."""
    power = power_of(run)
    if power is None:
        text = f"energy: run {run.name} says no watts"
        raise InputError(f"{text}; allowed: a scenario with compute.power or network.power")
    run.require("energy", *_needed(power))
    log = run.store.pieces("events", DONE)
    end = run.manifest.get("time")
    if end is None:  # it was killed: as far as its log goes
        end = max((float(one["time"].max(initial=0.0)) for one in log), default=0.0)
    last = _until(run, until, float(end))
    rounds = (run.written.get("stop") or {}).get("rounds", np.inf)
    table = energy(log, power, float(rounds), min(last, float(end)))
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
