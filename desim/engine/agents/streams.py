"""A port whose messages are flows of packets over TCP, which queue for one line."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from desim.engine.agents.clock import Clock
from desim.network.timeline.contention import entered, flowing
from desim.network.timeline.duplex import Desk, crossing_flows, desk_for, entered_at_end, let_go
from desim.network.timeline.mending import (
    ANSWERED,
    GIVEN_UP,
    ONLINE,
    RESENT,
    STATE,
    TAG,
    TAIL,
    UNSENT,
)
from desim.network.timeline.messages import FAIR, Links
from desim.network.timeline.transport import HEADER, SEGMENT


class Handed(NamedTuple):
    """A message that is handed over: its link, when, bits, latency s, round and number of it."""

    e: int
    time: float
    bits: int
    latency: float
    round_: int
    number: int
    told: Callable[[float], None]


class Streams:
    """Flows on one line; a connection sends one message after the other."""

    def __init__(self, clock: Clock, links: Links) -> None:
        self.clock, self.links, self.flat = clock, links, tuple(links)
        self.fair = links.contention == FAIR
        self.flows: list[Handed] = []
        self.slots: list[int] = []  # of each flow, its place in the arrays
        self.flights = np.zeros((0, *links.transport.flight.shape))
        self.states = np.zeros((0, STATE))
        self.free: list[int] = []
        self.waiting: dict[int, deque[Handed]] = {}  # for the connection of a link
        self.line = np.zeros(2)
        self.plans = 0

    def enter(self, message: Handed) -> None:
        """Take a message; told(arrival s) is called when the last of its packets leaves."""
        self._advance()
        if message.e in self.waiting:
            self.waiting[message.e].append(message)
        else:
            self.waiting[message.e] = deque()
            self._begin(message)
        self._advance()

    def _begin(self, message: Handed) -> None:
        if not self.free:  # room for twice as many
            n = len(self.states)
            more = max(4, n)
            self.flights = np.concatenate([self.flights, np.zeros((more, *self.flights.shape[1:]))])
            self.states = np.concatenate([self.states, np.zeros((more, STATE))])
            self.free = list(range(n, n + more))
        now, slot = float(self.clock.now), self.free.pop()
        what = float(message.bits), message.latency, float(message.round_), float(message.number)
        place = self.flights[slot], self.states[slot], self.line
        entered(self.flat, message.e, now, what, *place)
        self.flows.append(message)
        self.slots.append(slot)

    def _advance(self) -> None:
        """Let all flow until now, tell of those that are over, and wake up for the next."""
        now = float(self.clock.now)
        self.plans += 1
        while self.flows:
            edges, slots = np.array([flow.e for flow in self.flows]), np.array(self.slots)
            which, there, later = flowing(
                self.flat, edges, slots, self.flights, self.states, self.line, self.fair, now
            )
            if which < 0:
                self.clock.at(max(later, self._soonest(now)), partial(self._wake, self.plans))
                return
            self._over(which, float(there))

    def _over(self, which: int, there: float) -> None:
        message, slot = self.flows.pop(which), self.slots.pop(which)
        self.free.append(slot)
        message.told(np.inf if self.states[slot, GIVEN_UP] else there)
        if self.waiting[message.e]:
            self._begin(self.waiting[message.e].popleft())
        else:
            del self.waiting[message.e]

    def _soonest(self, now: float) -> float:
        """Before this time, s, no flow is over, even if it had the line to itself."""
        if self.links.plays.shape[1]:
            return now
        q, edges, links = self.states[self.slots].T, [flow.e for flow in self.flows], self.links
        law = links.transport.law[:, edges]
        packets = q[UNSENT] + q[RESENT] + q[TAIL] - q[ONLINE] - 2.0
        rates = links.lines[1, edges] if links.lines.shape[1] else links.wires[1, edges]
        bits = 8.0 * (law[SEGMENT] + law[HEADER])
        return now + float((np.maximum(packets, 0.0) * bits / rates).min())

    def _wake(self, plan: int) -> None:
        if plan == self.plans:
            self._advance()


class Site:
    """An access line: flows down, side 0, and up, 1, whose acknowledgements share its queues."""

    def __init__(self, clock: Clock, down: Links, up: Links) -> None:
        self.clock, self.links, self.flats = clock, (down, up), (tuple(down), tuple(up))
        self.flows: list[tuple[int, Handed]] = []  # with their sides
        self.slots: list[int] = []
        self.desk: Desk = desk_for(max(self.links, key=lambda one: one.transport.flight.shape[1]))
        self.free = [1, 0]
        self.waiting: dict[tuple[int, int], deque[Handed]] = {}
        self.plans = 0

    def enter(self, side: int, message: Handed) -> None:
        """Take a message on one side; see Streams.enter."""
        self._advance()
        if (side, message.e) in self.waiting:
            self.waiting[side, message.e].append(message)
        else:
            self.waiting[side, message.e] = deque()
            self._begin(side, message)
        self._advance()

    def _begin(self, side: int, message: Handed) -> None:
        for r, (way, flow) in enumerate(self.flows):
            if (way, flow.e) == (side, message.e):  # its last segments are not answered
                self._leave(r)
                break
        if not self.free:
            flights, states = self.desk.flights, self.desk.states
            self.free = list(range(2 * len(states) - 1, len(states) - 1, -1))
            flights = np.concatenate([flights, np.zeros_like(flights)])
            self.desk = self.desk._replace(
                flights=flights, states=np.concatenate([states, np.zeros_like(states)])
            )
        now, slot = float(self.clock.now), self.free.pop()
        what = float(message.bits), message.latency, float(message.round_), float(message.number)
        place = self.desk.flights[slot], self.desk.states[slot]
        self.desk.states[slot] = 0.0
        entered_at_end(self.flats[side], message.e, now, what, *place)
        self.flows.append((side, message))
        self.slots.append(slot)

    def _leave(self, r: int) -> None:
        """A flow that is over goes, and its connection remembers it."""
        (side, flow), slot = self.flows.pop(r), self.slots.pop(r)
        let_go(self.flats[side], flow.e, self.desk.flights[slot], self.desk.states[slot])
        self.free.append(slot)

    def _advance(self) -> None:
        """Let all flow until now, tell of those that are over, and wake up for the next."""
        now = float(self.clock.now)
        self.plans += 1
        while self.flows:
            edges = np.array([flow.e for _, flow in self.flows])
            sides = np.array([side for side, _ in self.flows])
            flows = edges, edges, sides, np.array(self.slots)
            desk = tuple(self.desk._replace(flows=flows))
            which, there, later = crossing_flows(*self.flats, desk, now)
            if which < 0:
                break
            self._over(which, float(there))
        q = self.desk.states
        for r in reversed(range(len(self.flows))):
            state = q[self.slots[r]]
            if state[TAG] and state[ANSWERED] == state[ONLINE]:
                self._leave(r)
        if any(not q[slot, TAG] for slot in self.slots):
            later = max(float(later), self._soonest(now))
            self.clock.at(later, partial(self._wake, self.plans))

    def _over(self, which: int, there: float) -> None:
        side, message = self.flows[which]
        given_up = bool(self.desk.states[self.slots[which], GIVEN_UP])
        message.told(np.inf if given_up else there)
        if self.waiting[side, message.e]:
            self._begin(side, self.waiting[side, message.e].popleft())
        else:
            del self.waiting[side, message.e]

    def _soonest(self, now: float) -> float:
        """Before this time, s, no flow is over, even if it had the line to itself."""
        found = np.inf
        for (side, flow), slot in zip(self.flows, self.slots, strict=True):
            q, links = self.desk.states[slot], self.links[side]
            if not q[TAG]:
                packets = q[UNSENT] + q[RESENT] + q[TAIL] - q[ONLINE] - 2.0
                law, rate = links.transport.law[:, flow.e], links.lines[1, flow.e]
                bits = 8.0 * (law[SEGMENT] + law[HEADER])
                found = min(found, max(packets, 0.0) * bits / rate)
        return now + float(found)

    def _wake(self, plan: int) -> None:
        if plan == self.plans:
            self._advance()


class End:
    """One side of a site: what a port hands its messages to."""

    def __init__(self, site: Site, side: int) -> None:
        self.site, self.side = site, side

    def enter(self, message: Handed) -> None:
        """See Streams.enter."""
        self.site.enter(self.side, message)
