"""A port whose messages are flows of packets over TCP, which queue for one line."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from desim.engine.agents.clock import Clock
from desim.timeline.contention import entered, flowing
from desim.timeline.mending import GIVEN_UP, ONLINE, RESENT, STATE, TAIL, UNSENT
from desim.timeline.messages import FAIR, Links
from desim.timeline.transport import HEADER, SEGMENT


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
