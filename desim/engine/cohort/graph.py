"""Cohort engine for graph methods: all agents in one program, a clock per agent, no event loop.

Legal while durations depend on nothing but the scenario: then the arrival of every message is known
when it is sent, and a gather is a maximum over arrivals.
"""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int, Mask
from desim.engine.crossing import APART, demand_patience, meeting, used_both_ways
from desim.engine.patience import Waits
from desim.engine.releasing import outgoing_part
from desim.engine.requests import Compute, Gather, Heard
from desim.engine.us import Cohort
from desim.engine.world import World
from desim.network.conditions.topology import Graph
from desim.network.timeline.messages import DELIVER, SEND, Links, broadcast
from desim.network.timeline.record import DISTANT, UPLINK, Batch, Kind
from desim.network.timeline.together import (
    TOGETHER,
    send_all,
    span,
    tell_messages,
    wait_all,
    work_all,
)
from desim.network.timeline.waiting_rule import close, close_by, nothing_seen


class Wires:
    """Messages in flight: per iteration the payloads (agents, dim) and arrivals (links,) s."""

    ahead = True

    def __init__(self, world: World) -> None:
        graph, links = world.settings.graph, world.settings.links
        assert graph is not None
        assert links is not None
        self.world, self.changing = world, world.settings.changing
        self._lay(graph, links)
        self.nothing = np.full(graph.agents, -1, np.int64)
        self.sent: Array = np.empty((0, 0))
        self.left = np.empty(0)  # clock s of each agent when it sent that
        self.silent = np.empty(0, bool)
        self.pending: deque[tuple[int, Array, Array, NDArray[np.bool_]]] = deque()
        self.last: Array | None = None  # (links, dim): latest message heard on each link
        self.number = np.zeros(len(graph.source), np.int64)  # its iteration
        self.base: Array = np.empty((0, 0))  # (agents, dim): what everybody heard last
        self.ever_silent = False
        self.overdue = False  # a message is under way when the run's time is over
        self.count = 0
        self.keys = np.empty(TOGETHER, np.uint64)
        self.gone = np.zeros(len(graph.degree), bool)  # agents that have sent their last message
        self.farewell = np.full(len(graph.source), np.inf)  # when that arrives (links,) s
        self.seen = nothing_seen(len(graph.source))  # how long messages were waited for
        self.pairs = meeting(world.settings, links)  # links whose messages meet on a line
        if self.pairs.shape[1]:
            from desim.network.timeline.contention import desk_for, exchange_all

            self.exchange_all = exchange_all
            self.desk = tuple(desk_for(links))
            self.room = (*np.zeros((4, 2)), np.zeros(4))

    def _lay(self, graph: Graph, links: Links) -> None:
        """Send and hear along the links of `graph` from now on."""
        self.graph, self.links, self.flat, self.first = graph, links, tuple(links), links.first
        self.everything = np.ones(len(graph.source), bool)
        self.degree, self.plain = graph.degree.astype(float), links.plain
        self.rows, self.places = links.rows * len(graph.source), np.arange(len(graph.source))
        self.arrival = self.awaited = np.empty(len(graph.source))
        self.recipients = np.diff(graph.outgoing)

    def send(
        self, us: Cohort, payload: Array, bits: Int, silent: Mask, used: Mask | None = None
    ) -> None:
        """Put one message per (used) link on its way; nothing leaves one that is past the end."""
        if self.changing is not None:
            self._lay(*self.changing.at(us.turn))
        sent = used
        if us.parting and used is not None:
            sent = None if us.leaving.all() else used | us.leaving[self.graph.source]
        pairs = self.pairs if used is None else used_both_ways(self.pairs, used)
        us.served(self._transmit(us, bits, silent, sent, pairs))
        if us.parting:
            self._part(us)
        self.awaited = self.arrival if used is None else np.where(used, self.arrival, -np.inf)
        self.ever_silent |= used is not None
        self.count += 1
        self.left = us.clock
        self.sent = payload.copy()
        self.silent = silent
        self.ever_silent |= silent is not us._nobody and bool(np.count_nonzero(silent))
        end = self.world.settings.horizon
        if end < np.inf:
            self.overdue |= bool(((self.arrival > end) & (self.arrival < np.inf)).any())
        if self.ever_silent or self.last is not None:
            self._keep()

    def _transmit(
        self, us: Cohort, bits: Int, silent: Mask, used: Mask | None, pairs: Int = APART
    ) -> Int:
        """Fill `arrival`, write or keep the rows of all messages; return their recipients (n,).

        pairs (2, n): links whose messages meet on a line.
        """
        log, end, graph = self.world.log, self.world.settings.horizon, self.graph
        if used is None and self.plain:
            number, clock = len(self.arrival), us.__dict__["clock"]
            factor, size = np.empty(number), np.empty(len(bits))
            place = int(us.round[0]), clock, bits, silent, self.keys, factor, size
            total, earliest, latest, last = send_all(
                self.first, graph.outgoing, *place, self.arrival
            )
            if latest <= end and max(latest, last) < np.inf:
                counts = (SEND, number, total), (DELIVER, number, total)
                inputs = self.first, factor, clock, us.round, size, us._release
                latest = max(latest, last)
                log.later(Batch(tell_messages, inputs, 2 * number, earliest, latest, counts))
                return self.recipients
        log.reserve(self.rows)
        sent = us.round, bits, silent, us._release
        delivered = np.zeros(len(us.who), np.int64)
        routes = graph.outgoing, graph.out_links
        if used is not None:
            self.arrival = np.full(len(used), np.inf)
        if pairs.shape[1]:
            used = self.everything.copy() if used is None else used.copy()
            used[pairs] = False
        if used is not None:
            routes = outgoing_part(graph, used)
        served = self.arrival, delivered, log.flat
        if len(routes[1]):
            broadcast(self.flat, *routes, us.who, us.clock, *sent, end, *served)
        if pairs.shape[1]:
            meet = us.clock, sent, end, self.desk, self.room
            self.exchange_all(self.flat, pairs, *meet, *served)
        return delivered

    def known(self, us: Cohort, values: Array) -> Heard:
        """All agents have announced values (agents, dim)."""
        graph, fresh = self.graph, np.ones(len(self.graph.source), bool)
        self.base = values.copy()
        return Heard(graph.incoming, graph.source, values.copy(), fresh)

    def _part(self, us: Cohort) -> None:
        """After the last message of an agent nothing is awaited from it but that message."""
        self.gone, source = us.gone, self.graph.source
        if np.count_nonzero(us.gone):
            self.arrival = np.where(us.gone[source], self.farewell, self.arrival)
        if np.count_nonzero(us.leaving):
            self.farewell = np.where(us.leaving[source], self.arrival, self.farewell)

    def _keep(self) -> None:
        arrival = self.arrival.copy()
        if self.world.filter is not None:
            arrival[self.gone[self.graph.source]] = np.inf
        self.pending.append((self.count, arrival, self.sent, self.silent))

    @property
    def open(self) -> bool:
        """Whether every gather so far has heard a value from every neighbour."""
        return not self.ever_silent and self.last is None

    def all_heard(self) -> Heard:
        """What a gather hears that has waited for everybody's value."""
        self.base = self.sent
        return Heard(self.graph.incoming, self.graph.source, self.sent, self.everything.copy())

    def gather(self, us: Cohort, request: Gather) -> Heard:
        """Advance the clocks to the closing of the gather and return what is heard by then."""
        graph = self.graph
        if not (patient := request.patient):
            demand_patience(self.pairs)
        if request.newest or request.later:
            raise RuntimeError("agents that hear each other's later rounds need the agent engine")
        if patient:
            close(graph.incoming, self.awaited, us.clock)
        else:
            room, rule = np.empty(len(self.awaited)), tuple(request.rule)
            close_by(rule, graph.incoming, self.awaited, self.seen, room, us.clock)
            if self.last is None and not self.pending:
                self._keep()
        return self._latest(us)

    def _latest(self, us: Cohort) -> Heard:
        """Newest message on each link among those that have arrived, in order of their numbers."""
        graph = self.graph
        if self.last is None:
            if self.base.shape != self.sent.shape:
                self.base = np.zeros_like(self.sent)
            self.last = np.ascontiguousarray(self.base[graph.source])
            self.number[:] = self.count - 1
        close = us.clock[graph.target]
        for number, arrival, payload, silent in self.pending:
            fresh = (arrival <= close) & (number > self.number)
            self.number[fresh] = number
            spoken = fresh & ~silent[graph.source]
            self.last[spoken] = payload[graph.source[spoken]]
        while (
            self.pending
            and ((self.pending[0][0] <= self.number) | (self.pending[0][1] == np.inf)).all()
        ):
            self.pending.popleft()
        return Heard(graph.incoming, self.places, self.last.copy(), self.number == self.count)


def play(program: Any, world: World) -> float:
    """Run `program(us)` to its end; return the end of the run in virtual seconds."""
    settings = world.settings
    us = Cohort(world, np.arange(settings.problem.agents), wires := Wires(world))
    generator = program(us)
    cut = np.zeros(len(us.who), bool)  # agents that the end of the run interrupts
    waits = Waits(settings.policy)
    end = settings.horizon
    answer: Any = None
    own, measured, filter_ = us.__dict__, world.observer.rows, world.filter
    while measured.reached is None:
        try:
            request = generator.send(answer)
        except StopIteration:
            break
        if filter_ is not None and us.gone.all():
            break
        before = own["clock"]
        serve = _work if isinstance(request, Compute) else _wait
        answer, earliest, latest = serve(request, us, wires, world)
        if latest == np.inf:
            waits.note_graph(request, us, before, wires)
        if failed := world.observer.failed:
            end = min(end, failed.time)  # others have not come that far yet: they go on until then
            if earliest >= end and world.hopeless:
                break
        if filter_ is not None:
            end = min(end, filter_.stopped)
        if latest > end or latest == np.inf:
            cut |= (us.live | us.leaving) & (us.clock > end) & (us.clock < np.inf)
            us._set(live=(us.clock <= end) & (us.clock < np.inf) & ~us.leaving)
        if (frontier := min(earliest, np.nextafter(end, np.inf))) < np.inf:  # no row after the end
            world.tick(float(frontier), whole=False)
    if world.observer.failed:
        raise world.observer.failed
    stuck = (us.clock == np.inf) & ~us.gone
    if settings.over or cut.any() or (wires.overdue and stuck.any()):
        return settings.horizon
    if stuck.any() and not world.reached:
        raise waits.deadlock(int(stuck.sum()))
    return float(max(us.clock[us.clock < np.inf].max(initial=0.0), us.ended.max()))


def _work(request: Compute, us: Cohort, wires: Wires, world: World) -> tuple[Any, float, float]:
    """The job's result, and the earliest and the latest clock s after it."""
    own, after = us.__dict__, np.empty(len(us.who))
    earliest, latest = within = work_all(own["clock"], request.seconds, after)
    own["clock"] = after
    world.log.each(
        Kind.COMPUTE, UPLINK, us.who, us.round, world.settings.horizon, after, request.seconds,
        request.value, wires.nothing, within,
    )  # fmt: skip
    inputs = [each.copy() for each in request.inputs]  # a job may change its own
    return world.computed(request.job, us.who, us.round, inputs), earliest, latest


def _wait(request: Gather, us: Cohort, wires: Wires, world: World) -> tuple[Heard, float, float]:
    """What is heard, and the earliest and the latest clock s after the gather."""
    own, n = us.__dict__, len(us.who)
    before = own["clock"]
    if request.patient and wires.open:
        after, waited = np.empty((2, n))
        earliest, latest = wait_all(wires.graph.incoming, wires.arrival, before, after, waited)
        own["clock"] = after
        heard, fresh = wires.all_heard(), wires.degree
    else:
        own["clock"] = before.copy()
        heard = wires.gather(us, request)
        fresh = np.add.reduceat(heard.fresh.astype(float), wires.graph.incoming[:-1])
        earliest, latest = span(us.clock)
        if not request.patient:
            live = us.live & (us.clock <= world.settings.horizon) & (us.clock < np.inf)
            world.waited(us.who[live], fresh[live], us.clock[live])
        waited = us.clock - before
    world.log.each(
        Kind.AGGREGATE, DISTANT, us.who, us.round, world.settings.horizon, own["clock"], waited,
        fresh, wires.nothing, (earliest, latest),
    )  # fmt: skip
    return heard, earliest, latest
