"""Ports of the agent engine: messages that share a node's bandwidth hold each other up.

A message takes its turn when it is handed over, one at the same instant by sender and receiver, and
goes on its way, which takes the latency, when its last bit has left. What an attempt loses is drawn
when it is handed over, and a lost one is handed over again at the times of
`desim.network.timeline.messages`, whether or not it has left by then. In the log a send lasts as
long as the bits would take alone, a delivery from the first handing over to the arrival, waiting
included. Over TCP, messages are flows of packets.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array
from desim.engine.agents.clock import Clock
from desim.engine.world import World
from desim.network.timeline.contention import (
    Desk,
    crossing_flows,
    desk_for,
    entered,
    entered_at_end,
    flowing,
    let_go,
    rate_shares,
    share_out,
    shared_ends,
)
from desim.network.timeline.flow import ANSWERED, GIVEN_UP, ONLINE, RESENT, STATE, TAG, TAIL, UNSENT
from desim.network.timeline.link_laws import ATTEMPTS
from desim.network.timeline.messages import FAIR, FIFO, Links, alone, log_message, try_once
from desim.network.timeline.record import Kind
from desim.network.timeline.transport import CUBIC, HEADER, KIND, RENO, SEGMENT

# A port over TCP: its messages are flows of packets, which queue for one line.


class Handed(NamedTuple):
    """A message that is handed over: its link, when, bits, latency s, round and number of it."""

    e: int
    time: float
    bits: int
    latency: float
    round_: int
    number: int
    arrives: Callable[[float], None]


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
        """Take a message; arrives(arrival s) is called when the last of its packets leaves."""
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
        message.arrives(np.inf if self.states[slot, GIVEN_UP] else there)
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
        message.arrives(np.inf if given_up else there)
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


# Ports without packets, one after the other or all at once, and which link has which port.

ADMIT = 5  # SimPy priority: after all that happens at an instant, before what closes it
Left = Callable[[float, float], None]


def port_of(links: Links) -> list[int]:
    """Which port each of a coordinator's links leaves from: its line's, or the only one."""
    if links.lines.shape[1]:
        return [int(line) for line in links.lines[0]]
    return [0] * links.ends.shape[1]


def ports_of(world: World, clock: Clock, ways: Any, gone: Callable[..., None]) -> list[Any]:
    """For each way, of links and their side, one port at the coordinator or one for each line.

    None where messages do not share any.
    """
    up, down = (
        Ports(world, clock, links, port_of(links), side, partial(gone, side))
        if links is not None and links.contention
        else None
        for links, side in ways
    )
    if up and down:
        join_ways(down, up)
    return [up, down]


def join_ways(down: "Ports", up: "Ports") -> None:
    """Let what goes down and up on lines that are shared meet at their ends; Reno and CUBIC do."""
    links, kinds = (down.links, up.links), (RENO, CUBIC)
    if any(one.transport.ideal or one.contention != FIFO for one in links):
        return
    for line in np.unique(down.links.lines[0]):
        behind = np.flatnonzero(down.links.lines[0] == line)
        if len(behind) > 1 and all(
            np.isin(a.transport.law[KIND, behind], kinds).all() for a in links
        ):
            site = Site(down.clock, *links)
            down.queues[int(line)], up.queues[int(line)] = End(site, 0), End(site, 1)


class Fifo:
    """One message after the other, each at the rate of its link; called with begin and seconds."""

    def __init__(self, clock: Clock, links: Links) -> None:
        self.clock, self.links, self.flat = clock, links, tuple(links)
        self.free = 0.0  # when the port has sent all that is in it, s

    def enter(self, e: int, bits: int, left: Left) -> None:
        """Take a message for link e; left(begin, seconds) tells when it is on the wire.

        A line that all share takes a message as its bits come out of the link before it: so late
        that it need not wait for them, and others that come sooner are not held up by it.
        """
        now = float(self.clock.now)
        if not self.links.lines.shape[1]:
            begin = max(now, self.free)
            seconds = float(alone(self.flat, e, begin, float(bits)))
            self.free = begin + seconds
            left(begin, seconds)
            return
        own, line = bits / float(self.links.wires[1, e]), bits / float(self.links.lines[1, e])
        if own > line:
            self.clock.at(now + own - line, partial(self._take, own, line, left), ADMIT)
        else:
            self._take(own, line, left)

    def _take(self, own: float, line: float, left: Left) -> None:
        """The line takes a message for `line` s that its own link would have for `own` s."""
        self.free = max(self.free, float(self.clock.now)) + line
        left(self.free - max(own, line), max(own, line))


class Fair:
    """All at once: each of n messages leaves at 1/n of the rate of its link (processor sharing)."""

    def __init__(self, clock: Clock, links: Links) -> None:
        self.clock, self.flat, self.lined = clock, tuple(links), links.lines.shape[1] > 0
        self.flows: list[tuple[float, Left]] = []  # when each one came, s, and whom to tell
        self.edges = np.empty(0, np.int64)
        self.bits = np.empty(0)  # of each that are left
        self.ends = np.empty(0)  # s if no message comes or goes before
        self.since = 0.0  # when the bits left were reckoned, s
        self.plans = 0

    def enter(self, e: int, bits: int, left: Left) -> None:
        """Take a message for link e; left(begin, seconds) is called when all of it has left."""
        self._reckon()
        self.flows.append((float(self.clock.now), left))
        self.edges, self.bits = np.append(self.edges, e), np.append(self.bits, float(bits))
        self._plan()

    def _reckon(self) -> None:
        """Take off what has left since the last time."""
        now = float(self.clock.now)
        if now > self.since and self.lined and self.flows:
            self.bits = np.maximum(self.bits - self._shares() * (now - self.since), 0.0)
        elif now > self.since:
            share_out(self.flat, self.edges, self.bits, self.since, now)
        self.since = now

    def _shares(self) -> Array:
        """What each flow (n,) gets of a line, bit/s."""
        shares = np.empty(len(self.flows))
        rate_shares(self.flat, self.edges, shares)
        return shares

    def _plan(self) -> None:
        """Wake up when the next message has left, unless the number of them changes before."""
        self.plans += 1
        if self.flows:
            self.ends = np.empty(len(self.flows))
            now = float(self.clock.now)
            if self.lined:
                self.ends = now + self.bits / self._shares()
            else:
                shared_ends(self.flat, self.edges, self.bits, now, self.ends)
            self.clock.at(float(self.ends.min()), partial(self._leave, self.plans))

    def _leave(self, plan: int) -> None:
        if plan != self.plans:
            return
        self._reckon()
        now = float(self.clock.now)
        stay = self.ends > now
        gone = [flow for flow, stays in zip(self.flows, stay, strict=True) if not stays]
        self.flows = [flow for flow, stays in zip(self.flows, stay, strict=True) if stays]
        self.edges, self.bits = self.edges[stay], self.bits[stay]
        self._plan()
        for begin, left in gone:
            left(begin, now - begin)


class Try(NamedTuple):
    """An attempt: when it is handed over, how long after the first, its latency, all s; lost."""

    begin: float
    after: float
    latency: float
    lost: bool


class Message(NamedTuple):
    """What is sent on links `edges`, and the attempts to do so on each."""

    edges: Sequence[int]
    round_: int
    exchange: int
    bits: int
    release: int
    tries: list[list[Try]]
    arrive: Callable[[int], None]  # called with the link


class Ports:
    """The ports that the links leave from; ports (links,): which one each of them does."""

    def __init__(
        self, world: World, clock: Clock, links: Links, ports: Sequence[int], side: int,
        gone: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self.gone = gone  # called with link and round where a connection is given up
        self.world, self.clock, self.links, self.ports, self.side = world, clock, links, ports, side
        self.flat = tuple(links)
        law: Any = Fair if links.contention == FAIR else Fifo
        law = law if links.transport.ideal else Streams
        self.queues: dict[int, Any] = {port: law(clock, links) for port in sorted(set(ports))}
        self.waiting: list[tuple[tuple[int, ...], Message, int]] = []  # handed over at this instant

    def send(
        self, edges: Sequence[int], round_: int, exchange: int, bits: int, release: int,
        arrive: Callable[[int], None],
    ) -> list[bool]:  # fmt: skip
        """Hand over a message that one transmission takes to all `edges`; return who gets it."""
        tries = [self._fate(e, round_, exchange) for e in edges]
        message = Message(edges, round_, exchange, bits, release, tries, arrive)
        for attempt in range(max(len(one) for one in tries)):
            begin = next(one[attempt].begin for one in tries if len(one) > attempt)
            if attempt:
                self.clock.at(begin, partial(self._hand_over, message, attempt))
            else:
                self._hand_over(message, 0)
        return [not one[-1].lost for one in tries]

    def _fate(self, e: int, round_: int, exchange: int) -> list[Try]:
        """The attempts on link e of a message that is handed over now."""
        links, now, pauses, pause = self.links, float(self.clock.now), 0.0, 1.0
        found: list[Try] = []
        while not found or (found[-1].lost and len(found) <= links.limit):
            after = pauses * links.timeout
            latency, lost = try_once(self.flat, e, now + after, round_, exchange, len(found))
            found.append(Try(now + after, after, float(latency), bool(lost)))
            if not links.transport.ideal:  # packets are lost, and repeated
                return [found[0]._replace(lost=False)]
            pauses, pause = pauses + pause, pause * links.backoff
        return found

    def _hand_over(self, message: Message, attempt: int) -> None:
        now, first = float(self.clock.now), self._lacking(message, attempt)[0]
        seconds = float(alone(self.flat, message.edges[first], now, float(message.bits)))
        self._log(message, attempt, Kind.SEND, lambda _: (now, seconds))
        if not self.waiting:
            self.clock.at(now, self._admit, ADMIT)
        source, target = self.links.ends[:, message.edges[first]].tolist()
        order = source, target, message.round_, message.exchange, attempt
        self.waiting.append((order, message, attempt))

    def _admit(self) -> None:
        waiting, self.waiting = sorted(self.waiting, key=lambda one: one[0]), []
        for _, message, attempt in waiting:
            e = message.edges[self._lacking(message, attempt)[0]]
            queue, handed = self.queues[self.ports[e]], float(self.clock.now)
            if isinstance(queue, Streams | End):
                latency, number = message.tries[0][0].latency, message.exchange * ATTEMPTS
                arrives = partial(self._streamed, message, handed, latency)
                sent = e, handed, message.bits, latency, message.round_, number, arrives
                queue.enter(Handed(*sent))
                continue
            queue.enter(e, message.bits, partial(self._left, message, attempt, handed))

    def _streamed(self, message: Message, handed: float, latency: float, there: float) -> None:
        """All packets of a message are under way, the last of which arrives at `there` s, or never.

        The connection is given up then, and the message is lost.
        """
        if there == np.inf:
            now = float(self.clock.now)
            self._log(message, 0, Kind.LOST, lambda _: (now, now - handed))
            self.gone(message.edges[0], message.round_)
            return
        self._left(message, 0, handed, handed, there - latency - handed)

    def _left(
        self, message: Message, attempt: int, handed: float, begin: float, seconds: float
    ) -> None:
        """An attempt is on the wire from `begin` for `seconds` s: what follows can be told."""
        now = float(self.clock.now)

        def arrival(place: int) -> tuple[float, float]:
            one = message.tries[place][attempt]
            delay = one.latency + seconds
            since = delay if one.lost else one.after + delay
            return max(begin + delay, now), begin - handed + since

        self._log(message, attempt, None, arrival)
        for place in self._lacking(message, attempt):
            if not message.tries[place][attempt].lost:
                arrive = partial(message.arrive, message.edges[place])
                self.clock.at(arrival(place)[0], arrive)

    def _lacking(self, message: Message, attempt: int) -> list[int]:
        """Places of the links that this attempt is for."""
        return [place for place, tries in enumerate(message.tries) if len(tries) > attempt]

    def _log(
        self, message: Message, attempt: int, kind: Kind | None,
        when: Callable[[int], tuple[float, float]],
    ) -> None:  # fmt: skip
        """One row for each link that an attempt is for; its bytes count once, on the first."""
        log, size = self.world.log, (message.bits + 7) // 8
        for place in self._lacking(message, attempt):
            lost = message.tries[place][attempt].lost
            shown = kind if kind is not None else (Kind.LOST if lost else Kind.DELIVER)
            ends = self.links.ends[:, message.edges[place]].tolist()
            source, target = ends if kind is Kind.SEND else ends[::-1]
            log.reserve(1)
            log_message(
                log.flat, int(shown), self.side, source, target, message.round_, size,
                message.release, *when(place), attempt,
            )  # fmt: skip
            size = 0
