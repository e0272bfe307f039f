"""What batteries hold over time, and when they are empty: an integral over what a log has.

    charge'(t) = charger - power      up to the capacity
    empty at the first t at which charge = 0; back at the first after that at which it is the level

While an agent is down nothing is taken of it but by messages that go on without it: those it had
handed over, and those that arrive. They may take more than there is; what charges it pays first.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from desim.amounts import percent
from desim.arrays import Array, Int, Mask
from desim.columns import Pieces
from desim.errors import InputError
from desim.numerics.jit import kernel
from desim.numerics.later import pd
from desim.runs import drain
from desim.runs.reading.energy import TURNS as TURNED
from desim.runs.reading.energy import (
    Activity,
    Spans,
    activity,
    coordinating,
    end_of,
    joined,
    readable,
)
from desim.scenario import batteries

if TYPE_CHECKING:
    from desim.runs.run import Run
    from desim.scenario.watts import Power

SAME = 1e-9  # relative, of two times that differ by rounding: a battery ends what it ends with


@kernel
def walked(
    ends: Array, device: Array, message: Array, gone: Mask, drop: Array, charging: Array,
    charge: float, capacity: float, level: float, curve: Array, turns: Array,
) -> int:  # fmt: skip
    """How often a battery turns (empty, back, empty, ...), its times in turns (m,); -1: too often.

    ends (n + 1,) s: edges of intervals in which nothing changes, of which device, message and
    charging (n,) are W, and drop (n,) J at the beginning; charge, capacity, level J. gone (n,): the
    agent is down in the log, and what its messages take then is no mere guess. curve (n + 1,)
    becomes what there is at each edge, J, before what drops there.
    """
    count, on = 0, True
    curve[0] = charge
    for k in range(len(device)):
        if on or gone[k]:
            charge -= drop[k]
        time, end = ends[k], ends[k + 1]
        if on and drop[k] > 0.0 and charge <= 0.0:
            if count == len(turns):
                return -1
            turns[count] = time
            count, on = count + 1, False
        while True:
            power = charging[k]
            if on:
                power -= device[k] + message[k]
            elif gone[k]:
                power -= message[k]
            left = np.inf
            if on and power < 0.0:
                left = max(charge, 0.0) / -power
            elif not on and power > 0.0:
                left = max(level - charge, 0.0) / power
            if not time + left <= end + SAME * (1.0 + end):
                break
            if count == len(turns):
                return -1
            time = min(time + left, end)
            charge = 0.0 if on else level
            turns[count] = time
            count, on = count + 1, not on
        charge = min(charge + power * (end - time), capacity)
        curve[k + 1] = charge
    return count


class Draws(NamedTuple):
    """What is taken of batteries up to a time: spans, their W, and which of agents that are up.

    drops: J at a time s, of messages that take no time; turns: agent and time s of every down (-1)
    and up (1).
    """

    spans: Spans
    watts: Array
    up: Mask
    drops: Spans
    joules: Array
    turns: tuple[Int, Array, Int]


def draws(seen: Activity, power: "Power") -> Draws:
    """What `seen` says of each agent, but idle watts."""
    parts, rates = [(seen.work, power.rates["computing"][seen.work.who], True)], power.rates
    who, begin, last = seen.traffic
    cost = np.zeros(len(who))
    for cause, rows in zip(("sending", "receiving"), seen.sides, strict=True):
        cost[rows] += (seen.bytes * rates[cause][np.maximum(who, 0)])[rows]
    lasting, at_once = (cost > 0.0) & (last > begin), (cost > 0.0) & (last <= begin)
    spread = Spans(who[lasting], begin[lasting], last[lasting])
    parts += [(spread, cost[lasting] / (spread.last - spread.begin), False)]
    parts += [(seen.radio, rates["radio"][seen.radio.who], False)]
    parts += [(seen.tail, rates["tail"][seen.tail.who], False)]
    spans = joined([one[0] for one in parts])
    watts = np.concatenate([one[1] for one in parts])
    up = np.concatenate([np.full(len(one[0].who), one[2]) for one in parts])
    drops = Spans(who[at_once], begin[at_once], last[at_once])
    down, back = (seen.spans[kind] for kind in TURNED)
    turns = (
        np.concatenate([down["agent"], back["agent"]]),
        np.concatenate([down["time"], back["time"]]),
        np.repeat([-1, 1], [len(down["time"]), len(back["time"])]),
    )
    return Draws(spans, watts, up, drops, cost[at_once], turns)


class Charge(NamedTuple):
    """Of one agent: J (n,) at times (n,) s, and when its battery was empty and back, in turn, s.

    The last of turns may be after the log's end: it is back then if only what charges it goes on.
    """

    times: Array
    joules: Array
    turns: Array


def charges(
    pieces: Pieces, of: batteries.Batteries, rounds: float, until: float,
) -> list[Charge]:  # fmt: skip
    """Every agent's battery until a time s, as `energy` reads a log.

    Where an agent is down in the
    log that has charge, its idle watts are counted here: nobody knows what else it would have done.
    """
    taken, agents = draws(activity(pieces, of.power, rounds, until), of.power), len(of.capacity)
    order, dropped = (np.argsort(one.who, kind="stable") for one in (taken.spans, taken.drops))
    at = np.arange(agents + 1)
    first = np.searchsorted(taken.spans.who[order], at)
    begun = np.searchsorted(taken.drops.who[dropped], at)
    return [
        _charge(
            agent, taken, order[first[agent] : first[agent + 1]],
            dropped[begun[agent] : begun[agent + 1]], of, until,
        )
        for agent in range(agents)
    ]  # fmt: skip


def _charge(
    agent: int, taken: Draws, own: Int, dropped: Int, of: batteries.Batteries, until: float,
) -> Charge:  # fmt: skip
    begin, last = (np.clip(one[own], 0.0, until) for one in taken.spans[1:])
    watts, up = taken.watts[own], taken.up[own]
    drops, joules = taken.drops.begin[dropped], taken.joules[dropped]
    charger = of.chargers[agent]
    times, power = charger.steps(until)
    turns, here = of.presences(agent, until)
    inside = drops <= until
    logged = np.flatnonzero(taken.turns[0] == agent)
    logged = logged[np.argsort(taken.turns[1][logged], kind="stable")]
    moved = np.minimum(taken.turns[1][logged], until)
    moments = [np.array([0.0, until]), begin, last, drops[inside], times, turns, moved]
    edges = np.unique(np.concatenate(moments))
    rates = []
    for which in (up, ~up):
        change = np.zeros(len(edges))
        np.add.at(change, np.searchsorted(edges, begin[which]), watts[which])
        np.add.at(change, np.searchsorted(edges, last[which]), -watts[which])
        rates.append(np.maximum(np.cumsum(change), 0.0)[:-1])
    lost = np.zeros(len(edges))
    np.add.at(lost, np.searchsorted(edges, drops[inside]), joules[inside])
    starts = edges[:-1]
    rates[0] += (
        float(of.power.rates["idle"][agent]) * here[np.searchsorted(turns, starts, "right") - 1]
    )
    charging = power[np.searchsorted(times, starts, "right") - 1]
    gone = np.zeros(len(edges))
    np.add.at(gone, np.searchsorted(edges, moved), -taken.turns[2][logged])
    curve, found = np.zeros(len(edges)), np.empty(drain.TURNS)
    n = walked(
        edges, *rates, np.cumsum(gone)[:-1] > 0.0, lost[:-1], charging, float(of.charge[agent]),
        float(of.capacity[agent]), float(of.level[agent]), curve, found,
    )  # fmt: skip
    if n < 0:
        raise drain.too_often(agent, until)
    empty = found[:n].copy()
    if n % 2:
        lacking = float(of.level[agent] - curve[-1])
        empty = np.append(empty, charger.brings(max(lacking, 0.0), until))
    return Charge(edges, curve, empty)


# Of a run.


def joules_by(run: "Run", times: Array) -> Array:
    """See `Run.joules_by`."""
    log, power, rounds = readable(run)
    end = end_of(run, log)
    taken = draws(activity(log, power, rounds, end), power)
    who, turned, sign = taken.turns
    idle = power.rates["idle"]
    found = times * float(idle.sum()) + _ramps(turned, idle[who] * sign, times)
    found += _ramps(taken.spans.begin, taken.watts, times)
    found -= _ramps(np.minimum(taken.spans.last, end), taken.watts, times)
    order = np.argsort(taken.drops.begin, kind="stable")
    dropped = np.concatenate([[0.0], np.cumsum(taken.joules[order])])
    found += dropped[np.searchsorted(taken.drops.begin[order], times, "right")]
    if power.coordinator is not None:
        at_rest, computing = power.coordinator
        begin, last = coordinating(log, end)
        found += times * at_rest + computing * (
            _ramps(begin, np.ones(len(begin)), times) - _ramps(last, np.ones(len(last)), times)
        )
    return np.asarray(found)


def _ramps(begin: Array, watts: Array, times: Array) -> Array:
    """Joules (m,) at times (m,) s of watts (n,) that each last from begin (n,) s on."""
    order = np.argsort(begin, kind="stable")
    begin, watts = begin[order], watts[order]
    n = np.searchsorted(begin, times, "right")
    whole, late = (np.concatenate([[0.0], np.cumsum(one)]) for one in (watts, watts * begin))
    return np.asarray(whole[n] * times - late[n])


def batteries_of(run: "Run") -> list[tuple[Charge, float, float]]:
    """Each agent's battery, its capacity and its level J; InputError for a run that has none."""
    of = None
    if run.written.get("battery", "none") != "none":
        of = batteries.batteries(run.scenario, len(run.manifest["rows"]))
    if of is None:
        text = f"battery: run {run.name} has none"
        raise InputError(f"{text}; allowed: a scenario with battery")
    log, _, rounds = readable(run, "charge")
    found = charges(log, of, rounds, end_of(run, log))
    return [*zip(found, of.capacity.tolist(), of.level.tolist(), strict=True)]


def charge(run: "Run") -> "pd.DataFrame":
    """See `Run.charge`."""
    parts = []
    for agent, (one, capacity, level) in enumerate(batteries_of(run)):
        end = float(one.times[-1])
        turns = one.turns[one.turns <= end]
        times = np.concatenate([one.times, turns])
        up = np.arange(len(turns)) % 2 == 1
        joules = np.concatenate([one.joules, np.where(up, level, 0.0)])
        event = np.concatenate([np.full(len(one.times), ""), np.where(up, "back", "empty")])
        order = np.argsort(times, kind="stable")
        parts.append(
            pd.DataFrame({
                "time": times[order], "agent": agent, "charge": joules[order],
                "share": joules[order] / capacity, "event": event[order],
            })
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def exhaustion(run: "Run") -> str:
    """Whose batteries were empty, and what is left, in words; empty where a run has none."""
    try:
        found = batteries_of(run)
    except InputError:
        return ""
    end = float(found[0][0].times[-1])
    when = [one.turns[::2][one.turns[::2] <= end] for one, _, _ in found]
    left = np.array([max(one.joules[-1] / capacity, 0.0) for one, capacity, _ in found])
    last = f"at the end {percent(left.min())} (agent {left.argmin()}) to "
    last += f"{percent(left.max())} of what they hold"
    empty = [agent for agent, times in enumerate(when) if len(times)]
    if not empty:
        return f"none was empty; {last}"
    first = min(empty, key=lambda agent: (when[agent][0], agent))
    number = sum(map(len, when))
    text = f"{len(empty)} of {len(found)} agents were empty, {number} times in all, first agent "
    return f"{text}{first} at {when[first][0]:.4g} s; {last}"
