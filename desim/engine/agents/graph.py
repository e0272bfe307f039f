"""Agent engine for graph methods: every agent its own SimPy process, every message a SimPy event.

The reference: it runs whatever the scenario asks for, churn included. Jobs are run late, in
batches: their inputs are frozen when they begin and rows do not depend on each other, so that bits
depend neither on the size of a batch nor on what else is in it. Jobs that are never asked for never
run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from desim.arrays import Array, Int, Mask
from desim.engine.agents.clock import Clock, Device, Steps
from desim.engine.agents.mailbox import Mailbox, Meetings
from desim.engine.crossing import demand_patience, meeting, used_both_ways
from desim.engine.patience import Waits
from desim.engine.releasing import outgoing_part
from desim.engine.requests import Compute, Gather, Heard, Job
from desim.engine.us import Cohort
from desim.engine.world import World
from desim.errors import Deadlock
from desim.network.conditions.topology import Graph
from desim.network.timeline.messages import Links, broadcast
from desim.network.timeline.record import UPLINK, Kind
from desim.network.timeline.waiting_rule import ALL, FIXED

if TYPE_CHECKING:
    from desim.engine.agents.ports import Ports

# Pure jobs, run late: what has begun waits until a result is needed, then runs as one batch.


@dataclass
class Ticket:
    """One agent's job and, once it has run, its result (1, dim)."""

    job: Job
    who: Int
    round: Int
    inputs: tuple[Array, ...]
    result: Array | None = None

    def alike(self, other: "Ticket") -> bool:
        """Whether one batch may run both."""
        one, two = ([(rows.dtype, rows.shape[1:]) for rows in t.inputs] for t in (self, other))
        return self.job == other.job and one == two


class Jobs:
    """Jobs that have begun and not run yet."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pending: list[Ticket] = []

    def begin(self, job: Job, us: Any, inputs: tuple[Array, ...]) -> Ticket:
        """Freeze the inputs (rows of one agent) and return the ticket for the result."""
        ticket = Ticket(job, us.who, us.round, tuple(np.array(rows) for rows in inputs))
        self.pending.append(ticket)
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """Nobody will ask for the result of this job."""
        self.pending = [other for other in self.pending if other is not ticket]

    def result(self, ticket: Ticket) -> Array:
        """Return the result of a job; if it has not run, run it and all pending of its kind."""
        if ticket.result is None:
            kind = [t for t in self.pending if t.alike(ticket) and t is not ticket]
            batch = [ticket, *kind][: self.world.settings.batch_limit]
            self.pending = [t for t in self.pending if all(t is not b for b in batch)]
            who, round_ = (np.concatenate([getattr(t, n) for t in batch]) for n in ("who", "round"))
            inputs = [
                np.concatenate(parts) for parts in zip(*(t.inputs for t in batch), strict=True)
            ]
            results = self.world.computed(ticket.job, who, round_, inputs)
            for r, t in enumerate(batch):
                t.result = results[r : r + 1]
        assert ticket.result is not None
        return ticket.result


# Messages, agents and the play.


class Lost(NamedTuple):
    """A message that was lost for good, at `time` s; number: None where only its round is known.

    last: whether its sender has left with it.
    """

    time: float
    sender: int
    receiver: int
    round: int
    number: int | None = None
    last: bool = False

    def needed(self, wanted: int, round_: int) -> bool:
        """Whether who waits in a round for messages of a number waits for it."""
        if self.number is None:
            return self.round == round_
        return self.number == wanted or (self.last and self.number < wanted)


class Post:
    """Carries messages of single agents as SimPy events."""

    ahead = False

    def __init__(self, world: World, clock: Clock) -> None:
        graph, links = world.settings.graph, world.settings.links
        assert graph is not None
        assert links is not None
        self.world, self.clock, self.changing = world, clock, world.settings.changing
        self._lay(graph, links)
        self.boxes: list[Any] = [Mailbox(i, int(d)) for i, d in enumerate(graph.degree)]
        if self.changing is not None:
            self.boxes = [Meetings(i, self.changing) for i in range(graph.agents)]
        self.sent = np.zeros(graph.agents, np.int64)
        self.forgets = bool(world.settings.churn and world.settings.churn.forgets)
        self.waits = Waits(world.settings.policy)
        self.lost: list[Lost] = []
        self.ports: Any = None  # one at each agent, where messages share bandwidth
        self.pairs = meeting(world.settings, links)
        if self.pairs.shape[1]:
            from desim.engine.agents.crossings import Crossings

            self.crossings = Crossings(world, clock, links, self.pairs, self._gone)
        if links.contention:
            from desim.engine.agents.ports import Ports

            self.ports = Ports(world, clock, links, graph.source.tolist(), UPLINK, self._gone)

    def _lay(self, graph: Graph, links: Links) -> None:
        """Send along the links of `graph` from now on."""
        self.graph, self.links, self.flat = graph, links, tuple(links)
        self.arrival = np.empty(len(graph.source))

    def send(
        self, us: Cohort, payload: Array, bits: Int, silent: Mask, used: Mask | None = None
    ) -> None:
        """Schedule the arrival of one message per (used) link of the agent."""
        if us.gone[0]:
            return
        i = int(us.who[0])
        if self.changing is not None:
            self._lay(*self.changing.at(us.turn))
        graph, box = self.graph, self.boxes[i]
        routes, edges = box.routes(us, graph, used)
        self.sent[i] += 1
        if self.forgets and self.sent[i] != us.round[0]:
            found = f"found message {self.sent[i]} of agent {i} in round {us.round[0]}"
            raise ValueError(f"us.send: {found}; allowed with churn.memory: lost: one a round")
        box.widen(payload.shape[1])
        letter, last = None if silent[0] else payload[0].copy(), bool(us.leaving[0])
        receive = partial(self._receive, int(self.sent[i]), letter, last)
        if self.changing is not None:
            receive = partial(self._meet, self.graph, us.turn, letter)
        if self.ports is None:
            meet = self._cross(us, 1 if silent[0] else int(bits[0]), edges, used, receive)
            served = meet.copy()
            if len(edges) and not meet.all():
                if meet.any():
                    part = np.zeros(len(graph.source), bool)
                    part[edges[~meet]] = True
                    routes = outgoing_part(graph, part)
                rest = self._carry(us, bits, silent, edges[~meet], routes, receive)
                served[~meet] = rest
        else:
            size = 1 if silent[0] else int(bits[0])
            served = self._share(self.ports, us, size, edges, receive)
        us.served(np.array([served.sum()]))
        number = int(self.sent[i]) if self.changing is None else us.turn
        for e in edges[~served]:
            target = int(self.graph.target[e])
            self.lost.append(Lost(float(us.clock[0]), i, target, int(us.round[0]), number, last))

    def _gone(self, e: int, round_: int) -> None:
        """A connection has been given up with a message of a round."""
        source, target = self.links.ends[:, e].tolist()
        self.lost.append(Lost(float(self.clock.now), source, target, round_))

    def deadlock(self, rounds: Sequence[int], waiting: int) -> Deadlock:
        """Why nobody can go on, agents being in these rounds; of lost messages, those in need."""
        for one in self.lost:
            box, own = self.boxes[one.receiver], rounds[one.receiver]
            if box.complete and one.needed(box.wanted, own):
                self.waits.lost(one.time, one.sender, one.receiver, own)
        return self.waits.deadlock(waiting)

    def _receive(self, number: int, letter: Array | None, last: bool, e: int) -> None:
        """A message arrives on link e."""
        target = self.graph.target[e]
        place, now = int(e - self.graph.incoming[target]), float(self.clock.now)
        self.boxes[target].put(place, number, letter, last, now)

    def _meet(self, graph: Graph, turn: int, letter: Array | None, e: int) -> None:
        """A message of turn `turn` arrives on link e of its graph."""
        assert letter is not None  # with policy all everybody has something to say
        self.boxes[graph.target[e]].put(turn, int(graph.source[e]), letter)

    def _cross(
        self, us: Cohort, bits: int, edges: Int, used: Mask | None, receive: Any
    ) -> NDArray[np.bool_]:
        """Send on those of links `edges` on which messages meet; return which they are."""
        pairs = used_both_ways(self.pairs, used)
        meet = np.isin(edges, pairs)
        if us.clock[0] <= self.world.settings.horizon:
            for e in edges[meet].tolist():
                place = int(us.round[0]), bits, int(us._release[0])
                self.crossings.send(e, *place, receive)
        return np.asarray(meet)

    def _carry(
        self, us: Cohort, bits: Int, silent: Mask, edges: Int, routes: tuple[Int, Int],
        receive: Any,
    ) -> Mask:  # fmt: skip
        """Send on links `edges`, of which each has its own bandwidth; return which serve."""
        log = self.world.log
        log.reserve(self.links.rows * len(edges))
        broadcast(
            self.flat, *routes, us.who, us.clock, us.round, bits, silent, us._release,
            self.world.settings.horizon, self.arrival, np.empty(1, np.int64), log.flat,
        )  # fmt: skip
        served = self.arrival[edges] < np.inf
        for e in edges[served]:
            self.clock.at(float(self.arrival[e]), partial(receive, e))
        return np.asarray(served)

    def _share(
        self, ports: "Ports", us: Cohort, bits: int, edges: Int, receive: Any
    ) -> NDArray[np.bool_]:
        """Send on links `edges`, whose messages share the agent's port; return which serve."""
        round_, release = int(us.round[0]), int(us._release[0])
        groups = [edges.tolist()] if self.links.once else [[e] for e in edges.tolist()]
        served = [ports.send(one, round_, 0, bits, release, receive) for one in groups if one]
        return np.array([flag for flags in served for flag in flags], bool)

    def known(self, us: Cohort, values: Array) -> Heard:
        """The agent's neighbours have announced their rows of values (agents, dim)."""
        box = self.boxes[int(us.who[0])]
        graph = self.graph if self.changing is None else self.changing.at(us.turn)[0]
        links = slice(graph.incoming[box.agent], graph.incoming[box.agent + 1])
        heard: Heard = box.announced(values[graph.source[links]])
        return heard


class Agent:
    """One agent's process: it drives the program for a cohort of one."""

    def __init__(self, program: Any, world: World, clock: Clock, post: Post, jobs: Jobs, i: int):
        self.world, self.clock, self.post, self.jobs = world, clock, post, jobs
        self.us = Cohort(world, np.array([i]), post)
        self.device = Device(clock, world, i, restarts=post.forgets)
        self.gathered = 0
        self.ticket: Ticket | None = None
        self.finished = False
        self.process = clock.process(self._live(program))
        self.device.process = self.process

    def _live(self, program: Any) -> Steps:
        """Run the program, and again from its beginning whenever the agent loses its memory."""
        while not self.finished:
            try:
                yield from self._run(program(self.us))
                self.finished = True
            except simpy.Interrupt:
                self._forget()
                yield from self.device.ready(self.post.waits)

    def _run(self, generator: Any) -> Steps:
        answer: Any = None
        while True:
            self.us._set(clock=np.array([float(self.clock.now)]))
            try:
                request = generator.send(answer)
            except StopIteration:
                return
            if failed := self.world.hopeless:
                raise failed
            if self.us.gone[0]:
                return
            if isinstance(request, Compute):
                answer = yield from self._compute(request)
            else:
                answer = yield from self._gather(request)

    def _forget(self) -> None:
        """All is lost but what has come since and was not read, and how many messages went out."""
        box, sent = self.post.boxes[int(self.us.who[0])], int(self.post.sent[self.us.who[0]])
        if self.ticket is not None:
            self.jobs.drop(self.ticket)
        box.complete, self.gathered = None, sent
        self.us.begin_anew(sent)

    def _compute(self, request: Compute) -> Steps:
        us = self.us
        i, round_, value = int(us.who[0]), int(us.round[0]), float(request.value[0])
        self.ticket = self.jobs.begin(request.job, us, request.inputs)
        _, seconds = yield from self.device.work(
            lambda begin: us.lasting(request, begin), value, round_, self.post.waits
        )
        now = float(self.clock.now)
        self.world.log.add(Kind.COMPUTE, UPLINK, i, round_, now, seconds=seconds, value=value)
        ticket, self.ticket = self.ticket, None
        return self.jobs.result(ticket)

    def _gather(self, request: Gather) -> Steps:
        box, begin = self.post.boxes[int(self.us.who[0])], float(self.clock.now)
        box.rule, box.over, box.later = request.rule, False, request.later
        if not request.patient:
            demand_patience(self.post.pairs)
        self.gathered += 1
        number = self.gathered if self.post.changing is None else self.us.turn
        self.device.waiting = self.post.forgets
        try:
            if not request.newest and not box.has(number):
                yield from self._wait(box, number)
            if not request.patient:
                yield self.clock.last()
            if request.rule.law != FIXED:
                box.learn(number, begin, float(self.clock.now))
            yield from self.device.ready(self.post.waits)
        finally:
            self.device.waiting = False
        return box.hear(self.us, request, number, begin, float(self.clock.now))

    def _wait(self, box: Mailbox, number: int) -> Steps:
        closing, opened, last = self.clock.event(), float(self.clock.now), [np.inf]
        box.complete, box.wanted = closing, number

        def limit() -> None:
            until = box.until(number, opened)
            if until != last[0] and not box.over:
                last[0] = until
                self.clock.limit(max(until, float(self.clock.now)), partial(end, until))

        def end(until: float) -> None:
            if box.complete is closing and until == last[0]:
                box.over = True
                box.check()

        if box.rule.kind != ALL:
            limit()
        box.limit = limit if box.rule.law != FIXED else None
        try:
            yield closing
        finally:
            box.complete = box.limit = None


def play(program: Any, world: World) -> float:
    """Run `program(us)` for every agent; return the end of the run in virtual seconds."""
    clock = Clock()
    post, jobs = Post(world, clock), Jobs(world)
    agents = [
        Agent(program, world, clock, post, jobs, i) for i in range(world.settings.problem.agents)
    ]
    more = clock.play(
        world, lambda: all(a.finished for a in agents),
        lambda: any(box.complete and box.has(box.wanted, True) for box in post.boxes),
    )  # fmt: skip
    if world.observer.failed:
        raise world.observer.failed
    if all(a.finished for a in agents) or world.reached:
        return float(clock.now)
    if not more and not world.settings.over:
        rounds = [int(a.us.round[0]) for a in agents]
        raise post.deadlock(rounds, sum(not a.finished for a in agents))
    return world.settings.horizon
