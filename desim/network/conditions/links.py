"""Links as the kernels take them, one entry per directed link: wires, shared lines, connections.

Latencies are drawn once per link, and once per line where links share one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.conditions.devices import PerClient, Traces
from desim.network.timeline.contention import desk_for, exchange
from desim.network.timeline.flow import ROWS, STATE
from desim.network.timeline.link_laws import HUB
from desim.network.timeline.messages import DIRECT, NONE, Links
from desim.network.timeline.tcp import streamed
from desim.network.timeline.transport import (
    BBR,
    CUBIC,
    FIELDS,
    IDEAL,
    RENO,
    SEGMENT,
    UNDER_WAY,
    Transport,
)
from desim.numerics import keys
from desim.numerics.distributions import Distribution, draw
from desim.numerics.keys import Stream, seed_word
from desim.readers import matrices, select

# Measured latencies: a matrix between sites, and which agent sits at which of them.

SITES = 3  # sub-counter of the draw, apart from those of links and traces
WHERE = "network.latency_matrix"
UNITS = {"_us": 1e-6, "_ms": 1e-3, "_s": 1.0}  # that an array's name may end with


@dataclass(frozen=True)
class Latencies:
    """seconds (sites, sites): one way from a row's site to a column's; NaN: not measured.

    missing: error, mirror (what the opposite direction has, else an error) or median (the same,
    else the median of all that was measured between two sites).
    """

    seconds: Array
    missing: Literal["error", "mirror", "median"]

    def between(self, source: Int, target: Int) -> Array:
        """Latencies (links,) s from sites source to sites target; 0 within a site by default.

        InputError where nothing was measured and nothing stands in for it.
        """
        taken = self.seconds[source, target]
        taken = np.where((source == target) & np.isnan(taken), 0.0, taken)
        if self.missing != "error":
            taken = np.where(np.isnan(taken), self.seconds[target, source], taken)
        lacking = np.isnan(taken)
        if lacking.any() and self.missing == "median":
            taken[lacking] = self.median()
        elif lacking.any():
            e = int(np.argmax(lacking))
            others = f"; {int(lacking.sum())} of {len(taken)} links lack it"
            allowed = "missing: mirror or median" if self.missing == "error" else "missing: median"
            raise InputError(
                f"{WHERE}: found no measurement from site {source[e]} to {target[e]}{others}; "
                f"allowed: {allowed}, or other places"
            )
        return np.asarray(taken)

    def median(self) -> float:
        """The median s over pairs of sites that were measured; InputError if none was."""
        known = self.seconds[~np.isnan(self.seconds) & ~np.eye(len(self.seconds), dtype=bool)]
        if not len(known):
            raise InputError(f"{WHERE}: found no measurement at all; allowed: at least one")
        return float(np.median(known))


def latencies(
    path: Path, field: str | None, slot: int, unit: float | None, share: float,
    missing: Literal["error", "mirror", "median"],
) -> Latencies:  # fmt: skip
    """Read a matrix (sites, sites), or its slice `slot` where the file has several of them.

    share: of a measurement that is one way, 1/2 of a round trip that the row's site measured; unit:
    s of a 1 in the file, by default as the array's name ends (rtt_ms). 0 off the diagonal and NaN:
    not measured. InputError for other shapes, negative and infinite entries, and without a unit.
    """
    found = {
        name: array
        for name, array in matrices(path, WHERE).items()
        if array.ndim in (2, 3) and array.shape[-1] == array.shape[-2]
    }
    if field is not None:
        found = select(found, [field], WHERE)
    if len(found) != 1:
        text = f"found {len(found)} square matrices in {path}"
        allowed = f"field: one of {', '.join(found)}" if found else "one, sites x sites"
        raise InputError(f"{WHERE}: {text}; allowed: {allowed}")
    ((name, matrix),) = found.items()
    slots = len(matrix) if matrix.ndim == 3 else 1
    if slot >= slots:
        raise InputError(f"{WHERE}.slice: found {slot}; allowed: 0 to {slots - 1}")
    matrix = matrix[slot] if matrix.ndim == 3 else matrix
    wrong = (matrix < 0.0) | np.isinf(matrix)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        text = f"found {matrix[i, j]:g} from site {i} to {j}"
        raise InputError(f"{WHERE}: {text}; allowed: finite latencies, 0 or NaN where missing")
    if unit is None:
        unit = next((scale for end, scale in UNITS.items() if name.endswith(end)), None)
    if unit is None:
        known = matrix[(matrix > 0.0) & ~np.isnan(matrix)]
        middle = f"{np.median(known):g}" if len(known) else "of none"
        text = f"missing, and {path.name} does not say what its numbers are (median {middle})"
        raise InputError(f"{WHERE}.unit: {text}; allowed: ms, us, s or the like")
    seconds = matrix * (unit * share)
    seconds[(seconds == 0.0) & ~np.eye(len(seconds), dtype=bool)] = np.nan
    return Latencies(seconds, missing)


def sites(
    places: str | Sequence[int], coordinator: int | None, star: bool, agents: int, have: int,
    seed: int,
) -> Int:  # fmt: skip
    """The sites (agents + 1,) of the agents, and last that of the coordinator, -1 without one.

    places: first (agent i at site i, the coordinator behind them), random (drawn without
    replacement) or a list. InputError if there are too few sites.
    """
    needed = agents + (star and coordinator is None)
    if isinstance(places, str) and needed > have:
        who = f"{agents} agents" + (" and the coordinator" if needed > agents else "")
        raise InputError(f"{WHERE}: found {have} sites for {who}; allowed: at least {needed}")
    if places == "first":
        chosen = np.arange(agents)
        hub = agents
    elif places == "random":
        drawn = keys.permutation(seed, Stream.LINK, have, step=SITES)[:needed]
        chosen, hub = drawn[:agents], int(drawn[-1])
    else:
        chosen, hub = np.array(places, np.int64), -1
        if len(chosen) != agents:
            text = f"found {len(chosen)} sites; allowed: {agents}, one for each agent"
            raise InputError(f"{WHERE}.places: {text}")
        if star and coordinator is None:
            text = "missing; where places are listed, the coordinator's site is needed, too"
            raise InputError(f"{WHERE}.coordinator: {text}")
    if coordinator is not None:
        hub = coordinator
    for key, found in (("places", int(chosen.max())), ("coordinator", hub if star else 0)):
        if found >= have:
            raise InputError(f"{WHERE}.{key}: found site {found}; allowed: 0 to {have - 1}")
    return np.append(chosen, hub if star else -1).astype(np.int64)


LATENCY, BANDWIDTH = 0, 64  # indices of the draws


def make_links(
    link: Any, source: Int, target: Int, seed: int, *, traces: Traces | None = None,
    measured: Array | None = None, others: Sequence[Any] = (), onward: Any = None,
    once: bool = False, contention: int = NONE,
) -> Links:  # fmt: skip
    """Draw the links source[e] -> target[e] (-1: coordinator), those that differ in their way.

    link, others: as the sections `Link` and `LinkOf` of desim.scenario.sections.links have them.
    traces: in place of the bandwidth, of which every device plays one: a link's device is its
    sender, on a star the agent in both directions. measured (links,) s: what each link's latency
    has besides the drawn one. onward: the way from a node in the middle to the receiver; `link` is
    then the way from the sender to that node, and both draw what they would draw of a star with the
    same agents. once: one transmission of a sender reaches all neighbours, at the rate of the
    slowest of its links; contention: how the messages of a port share it.
    """
    wires = _wires(link, source, target, seed, others, onward)
    plays, samples, loops = np.empty((2, 0), np.int64), np.empty((3, 0)), False
    if traces is not None:
        plays, wires[2] = traces.played(np.where(source < 0, target, source), seed)
        samples, loops = traces.samples, traces.loops
    if measured is not None:
        wires[0] += measured
    if once and len(source):
        slowest = np.full(source.max() + 1, np.inf)
        np.minimum.at(slowest, source, wires[1])
        wires[1] = slowest[source]
    second = DIRECT if onward is None else [*onward.jitter, *onward.losses, *onward.bursts]
    return Links(
        seed_word(seed), np.array([source, target]), wires, link.jitter[:], link.losses,
        link.bursts, float(link.timeout), float(link.backoff), link.resends, plays, samples, loops,
        once, contention, onward=np.array(second, np.float64),
    )  # fmt: skip


def _wires(
    link: Any, source: Int, target: Int, seed: int, others: Sequence[Any], onward: Any
) -> Array:
    """What is drawn of each link: latency s, bit/s, where a trace begins, the second hop's part."""
    place = _place(link, source, target)
    wires = np.zeros((3 if onward is None else 4, len(source)))
    if onward is None:
        wires[:2] = _hop(link, source, target, seed)
    else:
        hub = np.full(len(source), HUB)
        first, second = _hop(link, source, hub, seed), _hop(onward, hub, target, seed)
        wires[[0, 1, 3]] = first[0], np.minimum(first[1], second[1]), second[0]
    for other in others:
        where = concerned(other, source, target)
        for row, law, index in ((0, other.latency, LATENCY), (1, other.bandwidth, BANDWIDTH)):
            if law is not None:
                wires[row, where] = draw(law, seed, Stream.LINK, **place, index=index)[where]
                wires[row + 3 : row + 4, where] = 0.0  # the second hop's part of a latency
    return wires


def concerned(other: Any, source: Int, target: Int) -> NDArray[np.bool_]:
    """Which of the links (links,) differ."""
    found = np.ones(len(source), bool)
    for nodes, ends in ((other.sender, source), (other.receiver, target)):
        if nodes is not None:
            found &= np.isin(ends, nodes)
    return found


def _place(link: Any, source: Int, target: Int) -> dict[str, Int]:
    """Where links draw: once for both directions, or for each its own."""
    if link.directions == "own":
        return {"agent": source, "peer": target}
    return {"agent": np.maximum(source, target), "peer": np.minimum(source, target)}


def _hop(link: Any, source: Int, target: Int, seed: int) -> Array:
    """Rows (2, links) of links: latency s, and bit/s, 0 where a trace says them."""
    place, found = _place(link, source, target), np.zeros((2, len(source)))
    for row, law, index in ((0, link.latency, LATENCY), (1, link.bandwidth, BANDWIDTH)):
        if isinstance(law, Distribution):
            found[row] = draw(law, seed, Stream.LINK, **place, index=index)
        elif isinstance(law, PerClient):
            found[row] = law.of(np.where(source < 0, target, source), seed)
    return found


# Access lines that links share.
LINE_LATENCY, LINE_BANDWIDTH = 128, 192  # indices of the draws, apart from those of links
STEP = 1  # sub-counter of the draws


def lined(links: Links, behind: Int, line: Any, seed: int) -> Links:
    """`links` of a star, whose agents (n,) are behind so many lines (-1: none)."""
    alone = np.flatnonzero(behind < 0)
    which = behind.copy()
    which[alone] = behind.max(initial=-1) + 1 + np.arange(len(alone))
    rate, latency = (
        draw(law, seed, Stream.LINK, agent=which, step=STEP, index=index)
        for law, index in ((line.bandwidth, LINE_BANDWIDTH), (line.latency, LINE_LATENCY))
    )
    rate[alone], latency[alone] = np.inf, 0.0
    wires = links.wires.copy()
    wires[0] += latency
    return links._replace(wires=wires, lines=np.array([which, rate], np.float64))


# Connections of TCP: one law for each link, and nothing carried yet.
CONGESTION = {"reno": RENO, "cubic": CUBIC, "bbr": BBR}
OF_IDEAL = (float(IDEAL), 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, np.inf)


def law(tcp: Any, met_anew: bool) -> tuple[float, ...]:
    """A column of `Transport.law`; None: ideal; met_anew: links that come and go open new ones."""
    if tcp is None:
        return OF_IDEAL
    kind, anew = CONGESTION[tcp.congestion], met_anew or tcp.connection == "new"
    restarts = tcp.idle_restart and kind != BBR
    numbers = tcp.segment, tcp.header, tcp.initial_window, tcp.most, anew, restarts, tcp.queue
    return float(kind), *map(float, numbers)


def connected(links: Links, laws: Sequence[tuple[float, ...]], back: Links) -> Links:
    """`links` with a connection on each, of so many laws; back: their ways back, one for each."""
    table = np.array(laws, np.float64).reshape(-1, len(OF_IDEAL)).T.copy()
    most = int(table[UNDER_WAY].max(initial=1.0))
    way, memory = np.array([back.latency, rates(back)]), np.zeros((table.shape[1] + 1, FIELDS))
    connections = Transport(table, way, memory, np.zeros((ROWS, most + 2)), np.zeros(STATE))
    return links._replace(transport=connections)


def joined(link: Any, tcp: Any, number: int, seed: int) -> Links:
    """So many links with a connection on each, on which nothing depends on what others carry."""
    ends = np.arange(number)
    links = make_links(link, ends, ends + number, seed)
    return connected(links, [law(tcp, False)] * number, links)


def seconds_after(links: Links, edges: Int, bits: int, pauses: Array, before: int = 2) -> Array:
    """How long a message takes on links edges (n,), s, after others, pauses (n,) s apart.

    Jitter and losses are left out, and connections begin anew.
    """
    fresh, found = links._replace(transport=_small(links, bits, before)), np.empty(len(edges))
    for place, e in enumerate(edges.tolist()):
        latency, time, there = float(links.latency[e]), 0.0, 0.0
        for _ in range(before + 1):
            time = there + float(pauses[place])
            there = float(streamed(fresh, e, time, bits, latency, False)[1])
        found[place] = there - time
    return found


def seconds_both_ways(links: Links, pairs: Int, bits: int) -> tuple[Array, Array]:
    """How long the later of two messages takes, s, on pairs (2, n) of links: met, and alone.

    Both ends send at once, over connections that are new, without jitter and losses.
    """
    fresh = links._replace(transport=_small(links, bits, 1))
    desk, there, none = desk_for(fresh), np.zeros(4), np.full(2, np.inf)
    found = np.zeros((2, pairs.shape[1]))
    for place, ends in enumerate(pairs.T):
        desk.flows[0][:] = ends
        known = np.full(2, float(bits)), links.latency[ends], np.ones(2), tuple(desk), there
        for row, others in enumerate((0.0, np.inf)):
            for first in range(2):
                times = none.copy()
                times[first], times[1 - first] = 0.0, others
                fresh.transport.memory[:] = 0.0
                exchange(tuple(fresh), times, *known)
                found[row, place] = max(found[row, place], there[first])
    return found[0], found[1]


def _small(links: Links, bits: int, before: int) -> Transport:
    """Connections that have carried nothing, with room for so many more messages alone."""
    transport, law_ = links.transport.forgotten, links.transport.law.copy()
    segments = -(-bits // int(8 * law_[SEGMENT].min(initial=np.inf)))
    most = min(transport.flight.shape[1] - 2, (before + 1) * segments + 16)
    law_[UNDER_WAY] = np.minimum(law_[UNDER_WAY], most)
    return transport._replace(law=law_, flight=np.zeros((ROWS, most + 2)))


def rates(links: Links) -> Array:
    """Bandwidths (links,) bit/s, means of traces; of a line that is shared, all of it."""
    if links.lines.shape[1]:
        return np.asarray(np.minimum(links.wires[1], links.lines[1]))
    if not links.plays.shape[1]:
        return np.asarray(links.wires[1])
    first, last = links.plays
    lasting = links.samples[0, last] - links.samples[0, first]
    return np.asarray((links.samples[2, last] - links.samples[2, first]) / lasting)
