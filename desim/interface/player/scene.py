"""The scene of a player: a run's network, moves, curves and epsilon, as what its page can draw."""

from base64 import b64encode
from collections.abc import Mapping
from math import ceil
from typing import Any
from zlib import compress

import numpy as np
from numpy.typing import NDArray

from desim.agent_names import NETWORK, agent_named, numbered
from desim.amounts import epsilon, percent
from desim.arrays import Array, Int
from desim.interface.player.moves import Moves, Reading, ticks
from desim.interface.plots.style import AXIS_END, LOGARITHMIC, is_share, ranked
from desim.interface.reports.page import LABELS, rounded, thinned
from desim.interface.reports.readable import Reading as Read
from desim.interface.reports.readable import readings
from desim.runs.premises import real
from desim.runs.reading.waits import CLOSERS
from desim.runs.run import Run

ROUNDS = 20_000  # whose ends, and whose rows of a curve, are known to the page
NAMED = 4000  # nodes that have names
SPREAD = 300  # nodes of a graph up to which it is laid out by its links
LINES = 4000  # links that are drawn
WARNINGS = 6  # that are shown
STEPPED = 3  # circles on which many agents of a star stand, so that they do not overlap
CROWDED = 100  # agents on one circle


def scene(
    run: Run, log: Reading | None = None, spent: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All that a page draws, as JSON has it.

    log: what was read of it already; spent: its `privacy`, where that is known.
    """
    one = readings([run])[0]
    log = log or reading_of(run)
    moved = one.tried("the log", lambda: log.moves(run))
    end = moved.end if moved else run.manifest.get("time") or 0.0
    lines = curves(one, end, log.plays)
    spent = _on_axis(privacy(one) if spent is None else spent, end)
    shown = [each for each in (*lines, spent) if "rows" in each]
    parts = {
        "name": run.name, "status": run.status, "reason": one.stored("reason", str) or "",
        "plays": log.plays, "asks": False, "left": "",
        "curves": lines, "axis_end": AXIS_END, "privacy": spent,
        **({} if moved is None else _moving(one, moved, log.agents)),
    }  # fmt: skip
    troubles = (
        f"not shown: {', '.join(dict.fromkeys(what))}: {why}" for why, what in one.troubles.items()
    )
    warned = [str(text) for text in one.stored("warnings", list) or ()]
    if len(warned) > WARNINGS:
        more = f"{len(warned) - WARNINGS} more warnings: desim show has them all"
        warned = [*warned[:WARNINGS], more]
    most = max((each.pop("rows") for each in shown), default=0)
    return {**parts, "notes": [*notes(one, moved, most > ROUNDS), *troubles, *warned]}


def reading_of(run: Run, plays: bool = False) -> Reading:
    """What reads the log of a run; plays: that grows."""
    limit = (run.written.get("stop") or {}).get("rounds")
    rounds = float(limit) if isinstance(limit, int | float) else np.inf
    return Reading(len(run.manifest.get("rows") or ()), plays, rounds)


def _moving(one: Read, moved: Moves, agents: int) -> dict[str, Any]:
    """Nodes, links, and all that moves between them."""
    manifest, end = one.run.manifest, moved.end
    seen = int(moved.links.max(initial=-1)) + 1
    count = max(agents, seen)
    hub = moved.hub or one.written.get("network", {}).get("topology", "star") == "star"
    place, how = places(count, hub, moved.links)
    lines = moved.links[np.all(moved.links < count, axis=1)]
    lines = np.unique(np.sort(lines, axis=1), axis=0)
    messages, spans, waits = moved.messages, moved.spans, moved.waits
    rounds = _ends(one, moved, hub)
    some = _some(len(rounds))
    busy = np.rint(255.0 * moved.busy).astype(np.uint8)
    return {
        "end": end, "since": moved.since, "every": moved.every, "rows": moved.rows, "hub": hub,
        "agents": agents, "nodes": count, "how": how, "sent_left": moved.sent,
        "edges": one.run.manifest.get("edges", count), "level": one.run.level,
        "turns": len(rounds),
        "names": [numbered(manifest, who) for who in range(min(count, NAMED))],
        "places": rounded(place.ravel()),
        "links": lines[:: max(1, len(lines) // LINES)].ravel().tolist(),
        "awaited": moved.awaited.tolist() if hub else [],
        "closers": _closers(manifest, moved),
        "crowd": [rounded(each) for each in moved.crowd], "bin": moved.bin,
        "bins": moved.busy.shape[1] if len(moved.busy) else 0,
        "arrays": {
            "sent": packed(ticks(messages.begin, end), True),
            "taking": packed(_lasting(messages.begin, messages.end, end)),
            "source": packed(messages.source.astype(np.int32)),
            "target": packed(messages.target.astype(np.int32)),
            "lost": packed(messages.lost.astype(np.uint8)),
            "begun": packed(ticks(spans.begin, end), True),
            "lasting": packed(_lasting(spans.begin, spans.end, end)),
            "who": packed(spans.agent.astype(np.int32)),
            "state": packed(spans.state.astype(np.uint8)),
            "opened": packed(ticks(waits.begin, end), True),
            "open": packed(_lasting(waits.begin, waits.end, end)),
            "waiter": packed(waits.agent.astype(np.int32)),
            "closer": packed(waits.closer.astype(np.int32)),
            "round": packed((some + 1).astype(np.uint32), True),
            "over": packed(ticks(rounds[some], end), True),
            "busy": packed(busy.ravel()),
        },
    }  # fmt: skip


def _ends(one: Read, moved: Moves, hub: bool) -> Array:
    """When s each round (r,) was over that all have done.

    Of a graph as metrics of each round say it: the last wait of a round may be before its last
    computation, or after its model is there.
    """
    rows, every = one.measured, (one.written.get("observe") or {}).get("every")
    if not hub and every == "round" and rows is not None and len(rows):
        rows = rows[rows["time"] <= moved.end]
        first = rows.groupby("round")["time"].min().sort_index()
        first = first[first.index > 0]
        if np.array_equal(first.index, 1 + np.arange(len(first))):
            return first.to_numpy(float)
    done = one.run.manifest.get("rounds", moved.done)
    return moved.rounds[:done]


def _some(rounds: int) -> Int:
    """Which of the rounds, from 0, have an end in the page: the latest, of those before each k-th.

    The number of rounds that are over is then k - 1 too small at most.
    """
    late = ROUNDS // 2
    before = rounds - late if rounds > ROUNDS else 0
    every = max(ceil(before / late), 1)
    return np.append(np.arange(every - 1, before, every), np.arange(before, rounds)).astype(
        np.int64
    )


def _lasting(begin: Array, end: Array, whole: float) -> NDArray[np.uint32]:
    """How long, in ticks, so that the end is the tick of the end."""
    return ticks(end, whole) - ticks(begin, whole)


def packed(values: NDArray[Any], running: bool = False) -> dict[str, Any]:
    """An array in few letters: its type, and its bytes, compressed; running: of its differences.

    Differences are taken modulo the largest number of the type, and add up to what was there.
    """
    given = np.diff(values, prepend=values.dtype.type(0)) if running else values
    kind = given.dtype.newbyteorder("<")
    planes = np.ascontiguousarray(given, kind).view(np.uint8).reshape(-1, kind.itemsize)
    data = b64encode(compress(planes.T.tobytes(), 6)).decode()
    return {"kind": kind.str[1:], "n": len(values), "running": running, "data": data}


def _closers(manifest: Mapping[str, Any], moved: Moves) -> list[list[str]]:
    """Who was waited for longest: a name, the share of waits closed, the share of their time."""
    table = moved.closers
    waits, passed = float(table["size"].sum()), float(table["sum"].sum())
    return [
        [CLOSERS.get(int(who), agent_named(manifest, int(who))), percent(times / waits),
         percent(lost / passed if passed > 0.0 else 0.0)]
        for who, (times, lost) in zip(table.index[:5], table.to_numpy(float), strict=False)
    ]  # fmt: skip


# Where nodes stand: the cloud in the middle of a tree, agents of a graph by their links.


def places(count: int, hub: bool, links: Int) -> tuple[Array, str]:
    """Places (count + hub, 2) between -1 and 1, the coordinator's last; and how they came about."""
    if hub:
        return _around(count, links), "the coordinator in the middle, in the cloud"
    ends = np.unique(np.sort(links, axis=1), axis=0)
    ends = ends[(ends[:, 0] >= 0) & (ends[:, 0] < ends[:, 1])]
    if not len(ends) or count > SPREAD:
        angle = 2.0 * np.pi * np.arange(count) / max(count, 1)
        circle = np.stack([np.sin(angle), -np.cos(angle)], axis=1)
        return circle, "agents in a circle, in the order of their numbers"
    from desim.interface.plots.network_map import spread

    place = spread(ends, np.ones(len(ends)), count)
    return place / np.abs(place).max(), "agents as far apart as there are links between them"


def _around(count: int, links: Int) -> Array:
    """Places of a tree: a node's distance from the middle is its depth, its angle its leaves'."""
    ends = np.unique(np.sort(links, axis=1), axis=0)
    near: dict[int, list[int]] = {}
    for one, other in ends.tolist():
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    depth, order, below = {NETWORK: 0}, [NETWORK], {NETWORK: list[int]()}
    for node in order:  # which grows meanwhile
        for other in near.get(node, ()):
            if other not in depth:
                depth[other] = depth[node] + 1
                below[node].append(other)
                below[other] = []
                order.append(other)
    for who in range(count):  # of whom nothing was heard or sent yet
        if who not in depth:
            depth[who], below[who] = 1, []
            below[NETWORK].append(who)
    leaves = _leaves(below)
    angle: dict[int, float] = {who: k / max(len(leaves), 1) for k, who in enumerate(leaves)}
    for node in reversed(order):
        if below[node]:
            angle[node] = float(np.mean([angle[one] for one in below[node]]))
    deepest = max(depth.values()) or 1
    place = np.zeros((count + 1, 2))
    for who in range(count):
        turn = 2.0 * np.pi * angle[who]
        far = depth[who] / deepest
        if len(leaves) > CROWDED and not below[who]:
            far -= 0.12 * (who % STEPPED)
        place[who] = far * np.sin(turn), -far * np.cos(turn)
    return place


def _leaves(below: Mapping[int, list[int]]) -> list[int]:
    """The nodes below which there is none, subtree by subtree, in the order of their numbers."""
    found, rest = [], [NETWORK]
    while rest:
        node = rest.pop()
        inner = sorted(below[node], reverse=True)
        rest += inner
        found += [] if inner or node == NETWORK else [node]
    return found


# Curves, epsilon, and what a reader has to know.


def curves(one: Read, end: float, plays: bool = False) -> list[dict[str, Any]]:
    """Each metric of the network: name, label, how it is shown, and its rows, of many a part.

    end s: of the log; of a run that plays, which has stored more since, rows until then.
    """
    found = []
    measured = one.measured
    if measured is None:
        return []
    measured = measured[measured["time"] <= end] if plays else measured
    parts = dict(iter(measured.groupby("metric", observed=True, sort=True)))
    for name in ranked([list(map(str, parts))]):
        time, value = (parts[name][each].to_numpy(float) for each in ("time", "value"))
        rows = _rows(value)
        found.append({
            "name": name, "label": LABELS.get(name, name).split(":")[0], "percent": is_share(name),
            "log": name in LOGARITHMIC, "turns": int(parts[name]["round"].max()),
            "rows": len(value),
            "ticks": packed(ticks(time[rows], end), True), "value": packed(value[rows]),
        })  # fmt: skip
    return found


def _rows(value: Array) -> NDArray[np.int64]:
    """Which rows (n,) of a curve a page has: the latest all, of those before the extreme ones."""
    n, late = len(value), ROUNDS // 2
    if n <= ROUNDS:
        return np.arange(n)
    return np.append(thinned(value[: n - late], ROUNDS // 10), np.arange(n - late, n))


def privacy(one: Read) -> dict[str, Any]:
    """Epsilon so far in words, its terms, why it is infinite, how it has grown, its doubts."""
    account = one.account
    if account is None:
        said = "nothing is released" if one.released == 0 else "not known"
        return {"said": said, "terms": "", "why": "", "doubts": []}
    why = next((text for text in account.flags if text.startswith("infinite")), "")
    terms = f"{account.terms}; unit: one {account.unit}; of the agent that has spent most"
    doubts = [f"privacy: {text}" for text in account.flags if not text.startswith("infinite")]
    spent: dict[str, Any] = {}
    if one.spent is not None:
        rows = _rows(one.spent.totals)
        most = np.maximum.reduceat(one.spent.totals, rows)  # until the next row: never too little
        spent = {
            "rows": len(one.spent.totals),
            "time": one.spent.times[rows],
            "value": packed(most),
        }
    return {"said": epsilon(account.worst, account.flags), "terms": terms, "why": why,
            "doubts": doubts, **spent}  # fmt: skip


def _on_axis(spent: Mapping[str, Any], end: float) -> dict[str, Any]:
    """What `privacy` says, its times as ticks of a log that ends at `end` s."""
    found = dict(spent)
    if "time" in found:
        found["ticks"] = packed(ticks(found.pop("time"), end), True)
    return found


def notes(one: Read, moved: Moves | None, thinned_out: bool = False) -> list[str]:
    """What a page does not show, and why; thinned_out: of curves some rows are left out."""
    found = []
    if moved is None:
        return []
    if not moved.rows:
        found.append("The log is empty: nothing has happened, or nothing is stored yet.")
    elif not moved.end:
        found.append("All that happened took no virtual time: there is nothing to play.")
    if moved.every > 1:
        found.append(
            f"Sampled: of {moved.rows:,} events one message in {moved.every:,} is drawn. How busy "
            f"agents are is from all of them, on average over 1/{moved.busy.shape[1]} of the run."
        )
    if moved.since > 0.0:
        found.append(
            "Map, timeline and who was waited for are of the latest events, from "
            f"{moved.since:.6g} s on; curves and epsilon are of the whole run."
        )
    if (rounds := len(moved.rounds)) > ROUNDS:
        late = ROUNDS // 2
        found.append(
            f"Of {rounds:,} rounds the ends of the latest {late:,} are in this page: before these "
            f"the number of rounds that are over may be {ceil(rounds / late) - 2} too small."
        )
    left = {"messages": "what agents do", "rounds": "messages and what agents do"}
    if one.run.level in left:
        found.append(f"The log leaves out {left[one.run.level]} (log: {one.run.level}).")
    if thinned_out:
        found.append(
            f"Of a curve of more than {ROUNDS:,} rows the latest {ROUNDS // 2:,} are in this page, "
            "and before these the lowest and the highest of each of many stretches: what is shown "
            "at such a moment is a value of shortly before, and epsilon, of shortly after."
        )
    if one.measured is not None and one.measured.empty:
        later = (
            ": those of a deployment are computed when it is over" if real(one.run.manifest) else ""
        )
        found.append(f"No metric is recorded so far{later}.")
    return found
