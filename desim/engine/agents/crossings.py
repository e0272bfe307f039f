"""Messages of the agent engine that meet on a line: each end's is worked out again with the other.

Where everybody waits for everybody, the two ends of a line send in turns: message k of one end
meets message k of the other and no later one. What the first of them is like without the other
holds until that one is handed over; all is worked out again then, from what the connections
remembered before both, so that the cohort engine, which knows both at once, finds the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from desim.arrays import Array, Int
from desim.engine.agents.clock import Clock
from desim.engine.world import World
from desim.network.timeline.contention import desk_for, exchange
from desim.network.timeline.messages import Links, alone, log_message, try_once
from desim.network.timeline.record import UPLINK, Kind


@dataclass
class Meeting:
    """Two messages, one for each way: when handed over, s, bits, latency s, round, and release."""

    before: Array  # what both connections remembered
    times: Array = field(default_factory=lambda: np.full(2, np.inf))
    bits: Array = field(default_factory=lambda: np.zeros(2))
    latencies: Array = field(default_factory=lambda: np.zeros(2))
    rounds: Array = field(default_factory=lambda: np.zeros(2))
    releases: list[int] = field(default_factory=lambda: [-1, -1])
    arrive: list[Callable[[int], None] | None] = field(default_factory=lambda: [None, None])
    over: list[bool] = field(default_factory=lambda: [False, False])
    plans: int = 0


class Crossings:
    """The lines on which messages meet, pairs (2, n) of links.

    lost(link, round): a connection has been given up.
    """

    def __init__(
        self, world: World, clock: Clock, links: Links, pairs: Int,
        lost: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self.world, self.clock, self.links, self.flat = world, clock, links, tuple(links)
        self.lost, self.pairs = lost, pairs
        self.place = {int(e): (p, r) for r in range(2) for p, e in enumerate(pairs[r])}
        self.meetings: dict[int, Meeting] = {}
        self.there = np.zeros(4)
        if pairs.shape[1]:
            self.desk = desk_for(links)
            self.flat_desk = tuple(self.desk)

    def send(
        self, e: int, round_: int, bits: int, release: int, arrive: Callable[[int], None]
    ) -> None:
        """Hand over a message on link e."""
        p, r = self.place[e]
        memory, edges = self.links.transport.memory, self.pairs[:, p]
        one = self.meetings.get(p)
        if one is None or one.times[r] < np.inf:
            one = self.meetings[p] = Meeting(memory[edges].copy())
        now = float(self.clock.now)
        one.times[r], one.bits[r], one.rounds[r] = now, bits, round_
        one.latencies[r] = try_once(self.flat, e, now, round_, 0, 0)[0]
        one.releases[r], one.arrive[r] = release, arrive
        self._log(one, r, e, Kind.SEND, now, float(alone(self.flat, e, now, float(bits))))
        memory[edges] = one.before
        self.desk.flows[0][:] = edges
        work = one.times, one.bits, one.latencies, one.rounds
        exchange(self.flat, *work, self.flat_desk, self.there)
        one.plans += 1
        for way, e in enumerate(edges.tolist()):
            if one.times[way] < np.inf and not one.over[way]:
                there, given_up = self.there[way], self.there[2 + way]
                end = partial(self._end, one, way, e, one.plans, bool(there < np.inf))
                self.clock.at(float(there if there < np.inf else given_up), end)

    def _end(self, one: Meeting, way: int, e: int, plan: int, arrives: bool) -> None:
        """A message is there, or its connection given up, unless all was worked out again."""
        if plan != one.plans:
            return
        one.over[way], now = True, float(self.clock.now)
        kind = Kind.DELIVER if arrives else Kind.LOST
        self._log(one, way, e, kind, now, now - float(one.times[way]))
        arrive = one.arrive[way]
        if not arrives:
            self.lost(e, int(one.rounds[way]))
        elif arrive is not None:
            arrive(e)

    def _log(self, one: Meeting, way: int, e: int, kind: Kind, time: float, seconds: float) -> None:
        log, size = self.world.log, (int(one.bits[way]) + 7) // 8
        source, target = self.links.ends[:, e].tolist()
        ends = (source, target) if kind is Kind.SEND else (target, source)
        log.reserve(1)
        log_message(
            log.flat, int(kind), UPLINK, *ends, int(one.rounds[way]), size, one.releases[way], time,
            seconds, 0,
        )  # fmt: skip
