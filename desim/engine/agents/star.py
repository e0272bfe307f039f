"""Agent engine for coordinator methods: coordinator and agents are SimPy processes with mailboxes.

Every message is a SimPy event, a deadline is a SimPy condition, and churn interrupts computations.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import simpy

from desim.arrays import Array, Int
from desim.engine.agents.clock import LAST, Clock, Device, Steps
from desim.engine.hub import Hub
from desim.engine.patience import Waits
from desim.engine.world import Exhausted, World
from desim.errors import Deadlock
from desim.network.conditions.devices import lasting
from desim.network.timeline.computations import all_taken_in, seconds_into, takes
from desim.network.timeline.messages import transmit_one
from desim.network.timeline.record import UPLINK, Kind, release_id

# A client: one agent's process, its mailbox and the calls that it takes.


@dataclass(frozen=True)
class Letter:
    """A call as an agent receives it: how long the job takes, and what the reply costs."""

    round_: int
    exchange: int
    seconds: float
    work: float  # where the speed changes in time, the gradients that take more or less seconds
    bits: int
    terms: tuple[Any, ...]
    price: Array  # what is taken from the agent's budget for it


@dataclass
class Coming:
    """A message that is on its way to an agent, or waits there for one that was sent before."""

    arrive: Callable[[], None]
    here: bool = False


class Client:
    """One agent's process: it takes calls from its mailbox, one at a time."""

    def __init__(self, station: Any, agent: int) -> None:
        self.station, self.agent = station, agent
        self.device = Device(station.clock, station.world, agent)
        self.mailbox: simpy.Store = simpy.Store(station.clock)
        self.latest = 0.0  # when the latest call is taken; calls are taken in order
        self.coming: deque[Coming] = deque()  # those on their way where messages share bandwidth
        self.device.process = station.clock.process(self._live())

    def receive(self, letter: Letter) -> None:
        """A call arrives: it interrupts an older one where the policy says so, else it waits."""
        policy = self.station.world.settings.policy
        if policy.interrupts and self.mailbox.items:
            self.station.void(self.agent, self.mailbox.items)
            self.mailbox.items.clear()
        device = self.device
        if policy.interrupts and device.computing and self.station.now < device.until:
            assert device.process is not None
            device.process.interrupt(letter)
        else:
            self.mailbox.put(letter)

    def take(self, message: Coming) -> None:
        """A message is here; those sent before it come first."""
        message.here = True
        while self.coming and self.coming[0].here:
            self.coming.popleft().arrive()

    def _live(self) -> Steps:
        letter: Letter | None = None
        while True:
            if letter is None:
                letter = yield self.mailbox.get()
                while self.mailbox.items:
                    self.station.void(self.agent, [letter])
                    letter = self.mailbox.items.pop(0)
            assert letter is not None
            waits = self.station.waits[self.agent]
            duration = partial(self._lasting, letter)
            try:
                begin, _ = yield from self.device.work(duration, letter.work, letter.round_, waits)
            except simpy.Interrupt as newer:
                self.station.void(self.agent, [letter])
                letter = newer.cause
                continue
            now = self.station.now
            self.station.world.log.add(
                Kind.COMPUTE, UPLINK, self.agent, letter.round_, now, seconds=now - begin
            )
            if self.device.forgot:
                self.station.anew.add(self.agent)
                self.device.forgot = False
            self.station.reply(self.agent, letter)
            letter = None

    def _lasting(self, letter: Letter, begin: float) -> float:
        """How long, in s, the job of `letter` takes from `begin` s on."""
        speeds = self.station.world.settings.speeds
        if speeds.steady:
            return letter.seconds
        seconds = np.empty(1)
        who, round_, work = np.array([self.agent]), np.array([letter.round_]), letter.work
        seconds_into(speeds, who, round_, np.array([begin]), np.array([work]), seconds)
        return float(seconds[0])


# The coordinator's station, and the play.


class AgentStation:
    """The coordinator's station: it posts calls and counts replies.

    members: those of the agents that it calls, of an edge of a tree; None for all.
    """

    ahead = False  # rows are written when things happen

    def __init__(self, world: World, clock: Clock, members: Iterable[int] | None = None) -> None:
        self.world, self.clock = world, clock
        agents = world.settings.problem.agents
        self.waits = [
            Waits(world.settings.policy) for _ in range(agents)
        ]  # causes in the latest call of each agent
        self.arrived: set[int] = set()  # agents whose latest reply is in, not collected yet
        self.letters: dict[int, Letter] = {}  # which it answers
        self.lost: set[int] = set()  # agents whose latest call or its reply is lost for good
        self.enough: simpy.Event | None = None
        self.opened, self.until = 0.0, np.inf  # of the collection, s, and its limit
        self.over = False  # whether that is
        self.hub: Hub | None = None
        self.finished = False
        self.begun: dict[str, Array] | None = None  # the agents' state at the start
        self.anew: set[int] = set()  # agents whose next job begins with that state
        own = range(agents) if members is None else members
        self.clients = {i: Client(self, i) for i in own}
        self.ports: Sequence[Any] = None, None
        ways = (world.settings.uplinks, UPLINK), (world.settings.downlinks, 0)
        if any(links.contention for links, _ in ways if links is not None):
            from desim.engine.agents.ports import ports_of

            self.ports = ports_of(world, clock, ways, self._gone)

    @property
    def now(self) -> float:
        """Virtual time s."""
        return float(self.clock.now)

    def call(self, hub: Hub, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Post a call to agents who (n,)."""
        world = self.world
        mechanism, view, amounts = hub.terms.compiled
        durations = lasting(world.settings.speeds, work[who], who, hub.round)
        if self.begun is None and world.settings.churn is not None and world.settings.churn.forgets:
            self.begun = {name: rows.copy() for name, rows in world.state.items()}
        for i, seconds in zip(who.tolist(), durations, strict=True):
            world.log.add(Kind.ACTIVATE, 0, i, hub.round, self.now)
            hub.calls.pending[i], hub.calls.round_[i] = 1, hub.round
            hub.calls.sent[i], hub.calls.due[i] = self.now, np.inf
            self.arrived.discard(i)
            self.lost.discard(i)
            self.waits[i] = Waits(world.settings.policy)
            terms = mechanism, view, *amounts[:, i].tolist()
            price = hub.prices[:, i].copy()
            letter = Letter(
                hub.round, hub.exchange, float(seconds), float(work[i]), reply_bits, terms, price
            )
            receive = partial(self.clients[i].receive, letter)
            if self.carry(True, i, hub.round, hub.exchange, bits, -1, receive):
                if world.filter is not None:
                    world.filter.spend(i, price)
            else:
                self.lost.add(i)
                self.waits[i].lost(self.now, -1, i, hub.round)

    def post(self, hub: Hub, who: Int, bits: int) -> None:
        """Send agents who (n,) a message that asks for no reply."""
        for i in who.tolist():
            self.carry(True, i, hub.round, hub.exchange, bits, -1, lambda: None)

    def carry(
        self, down: bool, i: int, round_: int, exchange: int, bits: int, release: int,
        arrive: Callable[[], None],
    ) -> bool:  # fmt: skip
        """Send `bits` on agent i's downlink or uplink now; return whether they ever arrive.

        What is sent to one agent arrives in the order in which it was sent.
        """
        settings, log = self.world.settings, self.world.log
        links = settings.downlinks if down else settings.uplinks
        assert links is not None
        side, client, ports = 0 if down else UPLINK, self.clients[i], self.ports[down]
        if ports is not None:
            coming = Coming(arrive)
            taken = partial(client.take, coming) if down else arrive
            served: bool = ports.send([i], round_, exchange, bits, release, lambda _: taken())[0]
            if served and down:
                client.coming.append(coming)
            return served
        log.reserve(links.rows)
        arrival = float(
            transmit_one(links, i, self.now, round_, exchange, bits, release, side, log.rows)
        )
        if down and arrival < np.inf:
            arrival = client.latest = max(arrival, client.latest)
        if arrival < np.inf:
            self.clock.at(arrival, arrive)
        return arrival < np.inf

    def _gone(self, side: int, i: int, round_: int) -> None:
        """The connection of agent i, up or down, has been given up with a message of a round."""
        ends = (i, -1) if side == UPLINK else (-1, i)
        if self.hub is not None and self.hub.calls.round_[i] == round_:
            self.lost.add(i)
        self.waits[i].lost(self.now, *ends, round_)

    def void(self, i: int, letters: list[Letter]) -> None:
        """Agent i will never answer these letters: their prices are given back."""
        if self.world.filter is not None:
            for letter in letters:
                self.world.filter.refund(i, letter.price)

    def reply(self, i: int, letter: Letter) -> None:
        """Agent i has finished the job of `letter`: its reply is on the way."""
        world = self.world
        release = int(release_id(world.settings.problem.agents, i, letter.round_, letter.exchange))
        world.log.add(Kind.RELEASE, UPLINK, i, letter.round_, self.now, release=release)
        arrive = partial(self.receive, i, letter)
        served = self.carry(
            False, i, letter.round_, letter.exchange, letter.bits, release, arrive
        )  # fmt: skip
        charged = int(world.ledger.rows.n[0])
        world.ledger.charge_one(self.now, i, letter.round_, release, letter.terms, int(served))
        if self.hub is not None:
            self.hub.charged(charged)
        if not served:
            if self._awaits(i, letter):
                self.lost.add(i)
            self.waits[i].lost(self.now, i, -1, letter.round_)

    def receive(self, i: int, letter: Letter) -> None:
        """A reply arrives at the coordinator; it counts if it answers a call that is still open."""
        if self._awaits(i, letter):
            assert self.hub is not None
            self.hub.calls.due[i] = self.now
            self.arrived.add(i)
            self.letters[i] = letter
            self.check()
            if self.world.settings.policy.adaptive:
                self._limit(self.hub)

    def _awaits(self, i: int, letter: Letter) -> bool:
        """Whether the coordinator still waits for agent i's answer to `letter`."""
        assert self.hub is not None
        calls = self.hub.calls
        if not calls.pending[i] or calls.round_[i] != letter.round_:
            return False
        return self.hub.assignments.exchange(i) == letter.exchange

    def check(self) -> None:
        """Let the coordinator know when the policy is satisfied."""
        if self.enough is not None and self.hub and self.hub.satisfied(self.arrived, self.over):
            self.enough.succeed()
            self.enough = None

    def hopeful(self) -> bool:
        """Whether the policy's limit will close the collection with what is here."""
        return bool(self.enough and self.hub and self.hub.satisfied(self.arrived, True))

    def deadlock(self) -> Deadlock:
        """The error for a collection that never closes; its root is in a call that still counts."""
        assert self.hub is not None
        waits = Waits(self.world.settings.policy)
        for i in np.flatnonzero(self.hub.calls.pending):
            waits.roots += self.waits[i].roots
        return waits.deadlock(1)

    def coordinate(self, program: Any) -> Steps:
        """The coordinator's process."""
        hub = self.hub = Hub(self.world, self)
        yield from self.rounds(program, hub)

    def rounds(self, program: Any, hub: Hub) -> Steps:
        """Rounds of program(hub) from now on: an edge of a tree plays some for each call."""
        generator = program(hub)
        answer: Any = None
        while True:
            try:
                generator.send(answer)
            except (StopIteration, Exhausted):
                self.finished = True
                return
            opened = self.now
            yield from self._wait(hub, opened)
            who = hub.shut(self.arrived, self.lost, opened)
            yield from self._take_in(hub, who)
            self._forget(who)
            answer = hub.accept(who)

    def _wait(self, hub: Hub, opened: float) -> Steps:
        """The coordinator waits until its policy closes the collection."""
        self.opened, self.until, self.over = opened, np.inf, False
        closing = self.enough = self.clock.event()
        self.check()
        self._limit(hub)
        yield closing
        yield self.clock.last()

    def _limit(self, hub: Hub) -> None:
        """See to it that the collection closes at its limit, which may follow what has come."""
        until, waits = hub.world.settings.policy.until(self.opened, hub.calls), self.enough
        if waits is None or until == self.until or self.over:
            return
        self.until = until

        def end() -> None:
            if self.enough is waits and self.until == until:
                self.over = True
                self.check()

        self.clock.limit(max(until, self.now), end)

    def _take_in(self, hub: Hub, who: Int) -> Steps:
        """The coordinator is at work on the replies of agents who (n,)."""
        closed, intake = self.now, self.world.settings.intake
        done = closed + sum(one.labour(hub, who) for one in hub.features)
        if takes(intake):
            letters = [self.letters[i] for i in who.tolist()]
            names = "round_", "exchange", "bits"
            calls = (np.array([getattr(one, name) for one in letters], np.int64) for name in names)
            done = float(all_taken_in(intake, who, *calls, done))
        if done > closed:
            yield self.clock.at(done, lambda: None, LAST)
            hub.worked(who, closed)

    def _forget(self, who: Int) -> None:
        """Agents among who (n,) that lost their state before this job begin with their first."""
        lost = [i for i in who.tolist() if i in self.anew]
        self.anew.difference_update(lost)
        for name, rows in (self.begun or {}).items():
            self.world.state[name][lost] = rows[lost]


def play(program: Any, world: World) -> float:
    """Run `program(hub)`; return the end of the run in virtual seconds."""
    clock = Clock()
    station = AgentStation(world, clock)
    clock.process(station.coordinate(program))
    more = clock.play(world, lambda: station.finished, station.hopeful)
    if station.finished:
        return float(clock.now)
    if not more:
        raise station.deadlock()
    return world.settings.horizon
