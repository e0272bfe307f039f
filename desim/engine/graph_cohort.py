"""Cohort engine for graph methods: all agents in one program, a clock per agent, no event loop.

Legal while durations depend on nothing but the scenario: then the arrival of every message is known
when it is sent, and a gather is a maximum over arrivals.
"""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.engine.cohort import Cohort
from desim.engine.requests import Array, Compute, Gather, Heard
from desim.engine.waits import Waits
from desim.engine.world import World
from desim.kernels.network import broadcast, close_all, close_within, log_each
from desim.kernels.record import DISTANT, UPLINK, Kind

Int = NDArray[np.int64]


class Wires:
    """Messages in flight: per iteration the payloads (agents, dim) and arrivals (links,) s."""

    def __init__(self, world: World) -> None:
        graph, links = world.settings.graph, world.settings.links
        assert graph is not None
        assert links is not None
        self.world, self.graph, self.links = world, graph, links
        self.flat = tuple(links)
        self.everything = np.ones(len(graph.source), bool)
        self.degree = graph.degree.astype(float)
        self.arrival = np.empty(len(graph.source))
        self.sent: Array = np.empty((0, 0))
        self.silent = np.empty(0, bool)
        self.pending: deque[tuple[int, Array, Array, NDArray[np.bool_]]] = deque()
        self.last: Array | None = None  # (links, dim): latest message heard on each link
        self.number = np.zeros(len(graph.source), np.int64)  # its iteration
        self.base: Array = np.empty((0, 0))  # (agents, dim): what everybody heard last
        self.ever_silent = False
        self.overdue = False  # a message is under way when the run's time is over
        self.count = 0
        self.gone = np.zeros(len(graph.degree), bool)  # agents that have sent their last message
        self.farewell = np.full(len(graph.source), np.inf)  # when that arrives (links,) s

    def send(self, us: Cohort, payload: Array, bits: Int, silent: NDArray[np.bool_]) -> None:
        """Put one message per link on its way; nothing leaves an agent that is past the end."""
        log = self.world.log
        log.reserve(self.links.rows * len(self.arrival))
        delivered = np.empty(len(us.who), np.int64)
        broadcast(
            self.flat, self.graph.outgoing, self.graph.out_links, us.who, us.clock, us.round, bits,
            silent, us._release, self.world.settings.horizon, self.arrival, delivered, log.flat,
        )  # fmt: skip
        us.served(delivered)
        self._part(us)
        self.count += 1
        self.sent = payload.copy()
        self.silent = silent
        self.ever_silent |= bool(silent.any())
        end = self.world.settings.horizon
        if end < np.inf:
            self.overdue |= bool(((self.arrival > end) & (self.arrival < np.inf)).any())
        if self.ever_silent or self.last is not None:
            self._keep()

    def known(self, us: Cohort, values: Array) -> Heard:
        """All agents have announced values (agents, dim)."""
        graph = self.graph
        self.base = values
        return Heard(graph.incoming, graph.source, values, np.ones(len(graph.source), bool))

    def _part(self, us: Cohort) -> None:
        """After the last message of an agent nothing is awaited from it but that message."""
        self.gone, source = us.gone, self.graph.source
        if us.gone.any():
            self.arrival = np.where(us.gone[source], self.farewell, self.arrival)
        if us.leaving.any():
            self.farewell = np.where(us.leaving[source], self.arrival, self.farewell)

    def _keep(self) -> None:
        arrival = np.where(self.gone[self.graph.source], np.inf, self.arrival)
        self.pending.append((self.count, arrival, self.sent, self.silent))

    def gather(self, us: Cohort, request: Gather) -> Heard:
        """Advance the clocks to the closing of the gather and return what is heard by then."""
        graph = self.graph
        if request.newest:
            raise RuntimeError("agents that wait for nothing need the agent engine: policy each")
        if request.within == np.inf:
            close_all(graph.incoming, self.arrival, us.clock)
            if not self.ever_silent and self.last is None:
                self.base = self.sent
                return Heard(graph.incoming, graph.source, self.sent, self.everything)
        else:
            close_within(graph.incoming, self.arrival, request.within, us.clock)
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
        own = np.arange(len(graph.source))
        return Heard(graph.incoming, own, self.last.copy(), self.number == self.count)


def play(program: Any, world: World) -> float:
    """Run `program(us)` to its end; return the end of the run in virtual seconds."""
    settings = world.settings
    us = Cohort(world, np.arange(settings.problem.agents), wires := Wires(world))
    generator = program(us)
    cut = np.zeros(len(us.who), bool)  # agents that the end of the run interrupts
    waits = Waits()
    end, after = settings.horizon, np.nextafter(settings.horizon, np.inf)
    answer: Any = None
    while not world.reached:
        try:
            request = generator.send(answer)
        except StopIteration:
            break
        if us.gone.all():
            break
        before = us.clock
        answer = _serve(request, us, wires, world)
        latest = np.maximum.reduce(us.clock)
        if latest == np.inf:
            waits.note_graph(request, us, before, wires)
        if failed := world.observer.failed:
            end = min(end, failed.time)  # others have not come that far yet: they go on until then
        end = min(end, world.stopped)
        if latest > end or latest == np.inf:
            cut |= (us.live | us.leaving) & (us.clock > end) & (us.clock < np.inf)
            us.live = (us.clock <= end) & (us.clock < np.inf) & ~us.leaving
        frontier = min(np.minimum.reduce(us.clock), after)
        if frontier < np.inf:
            world.tick(float(frontier))
    if world.observer.failed:
        raise world.observer.failed
    stuck = (us.clock == np.inf) & ~us.gone
    if settings.over or cut.any() or (wires.overdue and stuck.any()):
        return settings.horizon
    if stuck.any() and not world.reached:
        raise waits.deadlock(int(stuck.sum()))
    return float(max(us.clock[us.clock < np.inf].max(initial=0.0), us.ended.max()))


def _serve(request: Any, us: Cohort, wires: Wires, world: World) -> Any:
    log, nothing, end = world.log, np.full(len(us.who), -1, np.int64), world.settings.horizon
    before = us.clock
    log.reserve(len(us.who))
    if isinstance(request, Compute):
        us.clock = before + request.seconds
        log_each(
            log.flat, int(Kind.COMPUTE), UPLINK, us.who, -1, us.round, end, us.clock,
            request.seconds, request.value, nothing,
        )  # fmt: skip
        return request.job(us, *request.inputs)
    us.clock = before.copy()
    heard = wires.gather(us, request)
    fresh = wires.degree
    if heard.fresh is not wires.everything:
        fresh = np.add.reduceat(heard.fresh.astype(float), wires.graph.incoming[:-1])
    waited = us.clock - before
    log_each(
        log.flat, int(Kind.AGGREGATE), DISTANT, us.who, -1, us.round, end, us.clock,
        waited, fresh, nothing,
    )  # fmt: skip
    return heard
