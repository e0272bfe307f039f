"""The coordinator of a deployment: it posts calls, counts replies and writes rows as it plays."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.deployments.client import Client
from desim.deployments.consent import Arrays, Asked, named, terms_for
from desim.deployments.fleet import Fleet, hear_out
from desim.deployments.formats import (
    CALL,
    COORDINATOR,
    POST,
    REPLY,
    Frame,
    Message,
    Torn,
    body_of,
    size_of,
    values_of,
    write_message,
)
from desim.deployments.place import Place
from desim.deployments.real import RealWorld, conclude
from desim.engine.hub import Hub
from desim.engine.world import Exhausted, World
from desim.errors import RunError, at
from desim.network.timeline.record import UPLINK, Kind, release_id

STATE = "state "  # before the names of arrays that are an agent's state
STEP = 0.1  # s after which the user sees how far the run is, and is heard
SYNC = 1.0  # s between two questions whether all reports until then are in
BOTH = "found both a reply to a call and word that it was given up"  # whichever came first


@dataclass
class Sent:
    """A message to an agent, until all is known of it."""

    agent: int
    round_: int
    exchange: int
    down: int  # bytes
    up: int  # bytes of the reply, -1 where none is asked for
    time: float
    terms: tuple[Any, ...] = ()
    price: Array = field(default_factory=lambda: np.zeros(3))
    came: float = np.inf  # when s the reply was here
    body: bytes = b""
    inside: bool = True  # whether the values are in the body
    report: Message | None = None
    used: bool = False  # whether its reply is


class Station:
    """How a coordinator's calls are carried out by processes that speak TCP.

    What became of its messages is written, as rows of the log and of the ledger, when reports come.
    """

    ahead = False
    first = 0  # id of the first agent in the log
    node = COORDINATOR  # who sends its frames

    def __init__(self, world: RealWorld, fleet: Any) -> None:
        self.world, self.fleet = world, fleet
        agents = world.settings.problem.agents
        self.sent: dict[int, Sent] = {}  # by number
        self.latest = [0] * agents  # number of the latest call of each agent
        self.used = [0] * agents  # number of its latest call whose reply was used
        self.late: list[tuple[float, int, int]] = []  # s by which computations took longer
        self.computed = 0
        self.number = 0
        self.orders: list[dict[str, Any]] = [{} for _ in range(agents)]  # the latest of each
        self.ordered = 0
        self.arrived: set[int] = set()
        self.after: set[int] = set()  # those that came after a deadline had passed
        self.lost: set[int] = set()
        self.fell: dict[int, int] = {}  # in which rounds agents died
        # jobs on news that an agent has not been sent yet
        self.news: list[list[tuple[dict[str, Any], Array, Arrays]]] = [[] for _ in range(agents)]
        self.hub: Any = None
        self.closed: float | None = None  # when s the collection closed that is being accepted
        self.opened: float | None = None  # s of the first call since the latest collection
        self._came = 0.0  # when s the latest reply did
        self._synced = np.zeros(agents)
        self._asked = 0.0
        fleet.reported, fleet.heard, fleet.buried = self._report, self._receive, self._bury

    def settle(self, number: int) -> None:
        """Write the rows that are known of a message now."""
        sent, world = self.sent[number], self.world
        if (report := sent.report) is None:
            return
        i, round_, said = sent.agent, sent.round_, report.fields
        if sent.down >= 0:
            got, place = float(said["got"]), (self.first + i, -1, round_)
            write_message(world.log, Kind.DELIVER, 0, *place, sent.down, -1, got, got - sent.time)
            sent.down = -1
            if report.kind == "aborted":
                self._aborted(sent, said)
            elif report.kind == "done":
                self._done(number, sent, said)
        if report.kind == "done" and sent.used:
            self.take_over(number, i, report)
        if report.kind == "done" and sent.came < np.inf and sent.up >= 0:
            seconds, came = sent.came - float(said["sent"]), sent.came
            about = round_, sent.up, self._release(sent), came, seconds
            write_message(world.log, Kind.DELIVER, UPLINK, -1, self.first + i, *about)
            sent.up = -1
        self.forget(number)

    def forget(self, number: int) -> None:
        """Drop what is known of a message, unless more is to come or it is still to be used."""
        sent = self.sent.get(number)
        if sent is None or sent.report is None or number == self.latest[sent.agent]:
            return
        if sent.report.kind != "done" or sent.came < np.inf:
            del self.sent[number]

    def _release(self, sent: Sent) -> int:
        """The id of what a reply releases."""
        place = sent.agent, sent.round_, sent.exchange
        return int(release_id(self.world.settings.problem.agents, *place))

    def _aborted(self, sent: Sent, said: dict[str, Any]) -> None:
        world, cut, begin = self.world, float(said["cut"]), float(said["begin"])
        if cut > begin:
            world.log.add(Kind.ABORT, UPLINK, sent.agent, sent.round_, cut, seconds=cut - begin)
        if world.filter is not None:
            world.filter.refund(sent.agent, sent.price)

    def _done(self, number: int, sent: Sent, said: dict[str, Any]) -> None:
        world, i, round_, release = self.world, sent.agent, sent.round_, self._release(sent)
        end, begin, left = (float(said[name]) for name in ("end", "begin", "sent"))
        world.log.add(Kind.COMPUTE, UPLINK, i, round_, end, seconds=end - begin)
        world.log.add(Kind.RELEASE, UPLINK, i, round_, left, release=release)
        write_message(world.log, Kind.SEND, UPLINK, i, -1, round_, sent.up, release, left, 0.0)
        world.ledger.charge_one(left, i, round_, release, sent.terms, 1)
        self.computed += 1
        if float(said["late"]) > 0.0:
            self.late.append((float(said["late"]), i, round_))

    def take_over(self, number: int, agent: int, report: Message) -> None:
        """Have the state of an agent as it was after that call, where agents tell it."""
        if self.world.reserved:
            return
        agents, state = len(self.latest), self.world.state
        for name, row in report.arrays.items():
            if name.startswith(STATE):
                key = name.removeprefix(STATE)
                if key not in state:
                    state[key] = np.zeros((agents, *row.shape))
                state[key][agent] = row
        observer: Any = self.world.observer
        observer.arrived(number, agent, state["x"][agent])

    @property
    def now(self) -> float:
        """Time of the run, s; while a collection is accepted, that at which it closed."""
        return self.fleet.now if self.closed is None else self.closed

    def call(self, hub: Any, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Post a call to agents who (n,): orders first, then all frames one right after another."""
        self.fleet.begin()
        now, frames, world = self.now, [], self.world
        if self.opened is None:
            self.opened = now
        mechanism, view, amounts = hub.terms.compiled
        assigned = hub.assignments.calls[hub.assignments.number]
        job, bound = self._job(hub, assigned.job)
        self.fleet.allow(size_of(reply_bits))
        for i in who.tolist():
            self._activate(i, hub.round, now)
            hub.calls.pending[i], hub.calls.round_[i] = 1, hub.round
            hub.calls.due[i] = np.inf
            self.arrived.discard(i)
            self.after.discard(i)
            self.lost.discard(i)
            if i in self.fleet.dead:
                self.lost.add(i)
                continue
            price = hub.prices[:, i].copy()
            terms = mechanism, view, *amounts[:, i].tolist()
            place, up = (hub.round, hub.exchange), size_of(reply_bits)
            before, sent = self.latest[i], Sent(i, *place, size_of(bits), up, now, terms, price)
            self.latest[i] = self._note(sent)
            self.forget(before)
            order = {"job": job, "exchange": hub.exchange, "work": float(work[i]), "size": up}
            order["terms"] = terms_for(hub.terms, i)
            frames.append(self._order(CALL, hub.payloads.of(np.array([i]))[0], order, dict(bound)))
            if world.filter is not None:
                world.filter.spend(i, price)
        self._let_go(frames)

    def _activate(self, i: int, round_: int, now: float) -> None:
        """Write that agent i is called."""
        self.world.log.add(Kind.ACTIVATE, 0, i, round_, now)

    def _job(self, hub: Any, job: Any) -> tuple[dict[str, Any], Arrays]:
        """The job of a call as an order has it."""
        return named(job, hub.method, "bound ")

    def post(self, hub: Any, who: Int, bits: int) -> None:
        """Send agents who (n,) a message that asks for no reply: news for their jobs."""
        frames = []
        for i in who.tolist():
            if i not in self.fleet.dead:
                self._note(Sent(i, hub.round, hub.exchange, size_of(bits), -1, self.now))
                frames.append(self._order(POST, np.empty(0), {}, {}))
        self._let_go(frames)

    def _note(self, sent: Sent) -> int:
        self.number += 1
        self.sent[self.number] = sent
        return self.number

    def _order(
        self, kind: int, payload: Array, fields: dict[str, Any], arrays: dict[str, Any]
    ) -> tuple[int, bytes]:
        """The frame of the newest message; with what it asks for, unless that is as before."""
        number, sent = self.number, self.sent[self.number]
        i = sent.agent
        body, inside = self._body(payload, sent.down)
        if not inside:
            arrays["payload"] = payload
        for place, (_, value, bound) in enumerate(self.news[i]):
            arrays |= {f"news{place}": value, **bound}
        fields |= {"told": [job for job, _, _ in self.news[i]]}
        self.news[i] = []
        known = self.orders[i]
        if arrays or fields != {key: known.get(key) for key in fields}:
            self.ordered += 1
            self.orders[i] = {} if arrays else fields | {"number": self.ordered}
            self.fleet.send(i, "order", fields | {"number": self.ordered}, arrays)
        order = int(self.orders[i].get("number", self.ordered))
        frame = Frame(kind, self.node, number, sent.round_, order, self.used[i], inside=inside)
        return number, frame.header(self.fleet.keys[i], sent.down) + body

    def _body(self, payload: Array, size: int) -> tuple[bytes, bool]:
        """The body of a message, and whether the payload is in it."""
        return body_of(payload, size)

    def _let_go(self, frames: list[tuple[int, bytes]]) -> None:
        """Send the frames, and write when each left."""
        for number, frame in frames:
            sent = self.sent[number]
            sent.time = self.hub.calls.sent[sent.agent] = self.now
            line = self.fleet.greeted.get(sent.agent)
            stream = line or self.fleet.connect(sent.agent, self.fleet.ports[sent.agent])
            stream.closing = line is None
            stream.push(frame)
        for number, _ in frames:
            sent = self.sent[number]
            place = -1, self.first + sent.agent, sent.round_, sent.down, -1
            write_message(self.world.log, Kind.SEND, 0, *place, sent.time, 0.0)

    def _receive(self, frame: Frame, time: float) -> None:
        """A reply is here; it counts if it answers a call that is still open."""
        sent = self.sent.get(frame.number)
        if sent is None or sent.agent != frame.source or sent.came < np.inf:
            raise Torn(f"found a reply of agent {frame.source} to no call of its own")
        report = sent.report
        if report is not None and report.kind != "done":
            raise Torn(BOTH)
        if not self._fits(frame, sent):
            raise Torn(f"found {len(frame.body)} bytes of agent {frame.source}, which are no reply")
        sent.came, sent.body, sent.inside = time, frame.body, frame.inside
        self.settle(frame.number)
        i = sent.agent
        if self.latest[i] == frame.number and self.hub.calls.pending[i]:
            self.arrived.add(i)
            self.hub.calls.due[i] = time
            self._came = time

    @staticmethod
    def _fits(frame: Frame, sent: Sent) -> bool:
        """Whether a frame is a reply such as was asked for."""
        whole = not frame.inside or sent.up % 8 == 0
        return frame.kind == REPLY and len(frame.body) == sent.up and whole

    def _report(self, agent: int, message: Message) -> None:
        """An agent tells what it has done."""
        fields = message.fields
        if message.kind == "synced":
            self._synced[agent] = min(float(fields["time"]), self.now)
        elif message.kind == "failed" and not self.fleet.dismissing:
            raise at(float(fields["time"]), f"{self.name(agent)}: {fields['why']}")
        elif message.kind in ("done", "aborted", "got"):
            sent = self.sent.get(int(fields["number"]))
            if message.kind == "aborted" and sent is not None and sent.came < np.inf:
                raise Torn(BOTH)
            if sent is not None and sent.agent == agent and sent.report is None:
                sent.report = message
                self.settle(int(fields["number"]))

    def _bury(self, agent: int) -> None:
        """An agent has died: what it sent is charged, what it owes is lost."""
        for sent in self.sent.values():
            if sent.agent == agent and sent.report is None and sent.came < np.inf:
                self._charge(sent)
        self._synced[agent] = np.inf
        self.world.caution(f"{self.name(agent)} {self.fleet.dead[agent]} at {self.now:.3g} s")
        self.fell[agent] = self.hub.round
        if agent in self.arrived | self.after and not self._here(agent):
            self.arrived.discard(agent)
            self.after.discard(agent)
            self.hub.calls.due[agent] = np.inf
        if agent not in self.arrived | self.after:
            self.lost.add(agent)

    def _here(self, i: int) -> bool:
        """Whether the numbers of agent i's latest reply are: what its report has may be to come."""
        sent = self.sent[self.latest[i]]
        return sent.inside or sent.report is not None

    def _charge(self, sent: Sent) -> None:
        """A reply came whose agent has died before it told of it."""
        about = sent.came, sent.agent, sent.round_, self._release(sent), sent.terms, 1
        self.world.ledger.charge_one(*about)

    def name(self, i: int) -> str:
        """Agent i in words."""
        return f"agent {i}"

    def collect(self, opened: float) -> float:
        """Wait until the policy closes the collection; when s that was, inf if the run is over."""
        world, until = self.world, self.hub.until(opened)
        horizon, over = world.settings.horizon, False
        self.arrived |= {i for i in self.after if self.hub.calls.pending[i]}  # others: discarded
        self.after.clear()
        while not self.hub.satisfied(self.arrived, over):
            now = self.fleet.now
            if world.settings.policy.adaptive and not over:
                until = self.hub.until(opened)
            if now >= min(until, horizon):
                self.fleet.wait(0.0)  # what the kernel had in time counts
                if horizon <= until:
                    return np.inf
                if self.hub.satisfied(
                    self.arrived, True
                ):  # what came later waits for the next collection
                    late = {i for i in self.arrived if self.sent[self.latest[i]].came > until}
                    self.arrived -= late
                    self.after |= late
                    return float(until)
                until, over = np.inf, True  # the least number is not there yet
                continue
            self._require_alive()
            step = min(until, horizon, now + STEP)
            if not self.fleet.wait(self.fleet.origin + (now if world.busy else step)):
                self._idle()
        return max(opened, self._came)

    def _require_alive(self) -> None:
        """RunError where a collection never closes because agents have died."""
        calls, policy = self.hub.calls, self.world.settings.policy
        some_live = bool(self.fleet.alive)
        if not self.lost or (policy.limited and some_live and not policy.at_least):
            return
        awaited = calls.pending > 0
        if policy.kind == "quorum":
            awaited &= calls.round_ == self.hub.round
        number = int(awaited.sum())
        coming = number - sum(bool(awaited[i]) for i in self.lost)
        if (policy.limited and not some_live) or coming < policy.least(number):
            hear_out(self.fleet)
            gone = [i for i in sorted(self.lost) if awaited[i]] or sorted(self.lost)
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            raise self._without(gone[0], f"policy {policy.kind} waits for it{more}")

    def _without(self, i: int, why: str) -> RunError:
        """The error for a run that ends with agent i, which is dead."""
        how, round_ = self.fleet.dead[i], self.fell.get(i, self.hub.round)
        return at(self.now, f"nobody can go on: {self.name(i)} {how} in round {round_}, and {why}")

    def _idle(self) -> None:
        """Nothing has come: see to what is not urgent."""
        if self.now - self._asked > SYNC:
            self._asked = self.now
            for i in self.fleet.alive:
                self.fleet.send(i, "sync", {"time": self._asked})
        self.world.spare(float(self._synced.min()), self.now)

    def need(self, calls: Iterable[tuple[int, int]]) -> None:
        """Wait for reports of (agent, number) calls whose replies are used: they come at once."""
        until = time.monotonic() + 5.0
        for i, number in calls:
            while i not in self.fleet.dead and time.monotonic() < until:
                sent = self.sent.get(number)
                if sent is None or sent.came == np.inf or sent.report is not None:
                    break
                self.fleet.wait(time.monotonic() + STEP)

    def reply(self, i: int) -> Array:
        """Reply (dim,) of agent i to its latest call, which is here."""
        reply = self._values(i)
        if self.world.settings.trust is None:  # else what is sent is the coordinator's alone
            self.world.released[i] = reply
        return reply

    def owed(self, who: Int) -> list[tuple[int, int]]:
        """Agents of who (n,) and numbers of the calls whose replies change their states."""
        return [(i, self.latest[i]) for i in who.tolist()]

    def _values(self, i: int) -> Array:
        sent = self.sent[self.latest[i]]
        if sent.inside:
            return values_of(sent.body)
        self.need([(i, self.latest[i])])
        if sent.report is None and i in self.fleet.dead:
            raise self._without(i, "its reply is lost")
        if sent.report is None:
            raise at(self.now, f"{self.name(i)} is silent: its reply is lost")
        return np.asarray(sent.report.arrays["reply"], float)

    def ended(self) -> float:
        """When the program, which has nothing more to do, was over, s."""
        return _ended(self)

    def use(self, i: int) -> None:
        """The latest reply of agent i is used: its state is what its job has made of it."""
        number = self.used[i] = self.latest[i]
        sent = self.sent[number]
        sent.used = True  # its report may come after the next reply is used, too
        if sent.report is not None:
            self.take_over(number, i, sent.report)


# The play: the program in this process, and each agent in a process of its own.


class RealHub(Hub):
    """`hub` where agents run their jobs themselves."""

    def __init__(self, world: World, station: Station, method: Any) -> None:
        super().__init__(world, station)
        self.method = method

    def start(self, **state: Array) -> None:
        """As Hub.start; every agent is told its rows."""
        super().start(**state)
        fleet = self.station.fleet  # type: ignore[attr-defined]
        for i in fleet.alive:
            rows = {name: array[i] for name, array in self.world.state.items()}
            fleet.send(i, "state", {}, rows)
        fleet.begin()  # the clock: what came before is preparation

    def publish(self, *arguments: Any, **more: Any) -> None:
        """As Hub.publish; the clock begins here at the latest."""
        station: Any = self.station
        station.fleet.begin()
        observer: Any = self.world.observer
        if observer.rows.targets:  # what is shown is looked at now
            station.need(observer.owed)
        super().publish(*arguments, **more)

    def answered(self, who: Int, rounds: Int) -> tuple[Array, Int]:
        """What agents who (n,) have replied."""
        station: Any = self.station
        rows = [station.reply(i) for i in who.tolist()]
        exchange = np.array([self.assignments.exchange(i) for i in who.tolist()], np.int64)
        observer: Any = self.world.observer
        if not observer.reserved:
            observer.owed += station.owed(who)
        for i in who.tolist():
            station.use(i)
        width = self.payloads.width if not rows else len(rows[0])
        for i, row in zip(who.tolist(), rows, strict=True):
            if row.shape != (width,):
                text = f"agent {i} sent a reply of shape {row.shape}, and others of ({width},)"
                raise at(station.now, text)
        return np.array(rows).reshape(len(who), width), exchange

    def tell(self, who: Int, job: Any, payload: Array) -> None:
        """As Hub.tell; agents run the job, too, once the news is there."""
        station: Any = self.station
        payload = self.news(np.asarray(payload, float))
        observer: Any = self.world.observer
        if not observer.reserved:
            station.need((i, station.latest[i]) for i in who.tolist())
        super().tell(who, _nothing if observer.reserved else job, payload)
        for i in who.tolist():
            prefix = f"told {len(station.news[i])} "
            fields, arrays = named(job, self.method, prefix)
            order = {"job": fields, "round": self.round}
            station.news[i].append((order, np.array(payload, float), arrays))
            if not observer.reserved:
                observer.changed[i] = self.world.state["x"][i]


def _nothing(us: Any, payload: Array) -> Array:
    """Stands for a job that changes the state of agents, where these keep it to themselves."""
    return payload


def serve(place: Place, world: World, method: Any, asked: Asked | None, above: int = -1) -> None:
    """What an agent's process does; asked: where it tells nothing but what it releases.

    above: who calls it.
    """
    client = getattr(world.settings.trust, "client", Client)(place, world, method, asked)
    client.above = above
    place.handlers["line"] = lambda message: meet(client, message.fields)
    lasting = place.network.transport.connection == "kept"
    place.report("ready", {"port": -1 if lasting else place.listen([-1])})
    client.live()


def meet(client: Client, said: dict[str, Any]) -> None:
    """Connect a client to the port that is said, of the process that calls it."""
    client.port = int(said["port"])
    client.place.network.peers = said.get("places", ())
    if client.place.network.transport.connection == "kept":
        client.line = client.place.connect(client.above, client.port)
        client.place.greet(client.line)


def assemble(fleet: Fleet) -> None:
    """Wait until every agent is ready and, where connections are kept, connected."""
    port = fleet.listen()
    fleet.get_ready()
    for i in fleet.alive:
        fleet.send(i, "line", {"port": port})
    if fleet.network.transport.connection == "kept":
        fleet.wait_for("not all are connected", lambda: len(fleet.greeted) == fleet.agents)


def play(program: Any, world: RealWorld, fleet: Fleet, method: Any) -> float:
    """Run `program(hub)` by the processes of `fleet`; return the end of the run, s."""
    station = getattr(world.settings.trust, "station", Station)(world, fleet)
    hub = station.hub = RealHub(world, station, method)
    try:
        return coordinate(program(hub), hub, station)
    finally:
        fleet.dismiss()
        late = max(station.late, default=(0.0, 0, 0))
        conclude(world, fleet, len(station.late), station.computed, late)


def _ended(station: Any) -> float:
    """When a program that has nothing more to do was over, s: what it took to look is no time."""
    observer: Any = station.world.observer
    settings, now = station.world.settings, station.now
    due = observer.rounds < settings.rounds and not observer.rows.met
    if due and now >= settings.horizon:  # it found its time over
        return float(settings.horizon)
    return float(observer.latest or now)


def coordinate(generator: Any, hub: RealHub, station: Station) -> float:
    """Play a program whose agents the hub calls; return the end of it, or of the run, s."""
    answer: Any = None
    while True:
        try:
            generator.send(answer)
        except StopIteration:
            return station.ended()
        except Exhausted:
            return station.now
        opened = station.now if station.opened is None else station.opened
        station.opened = None
        if (closed := station.collect(opened)) == np.inf:
            return station.world.settings.horizon
        station.closed = closed
        who = hub.shut(station.arrived, station.lost, opened, station.fleet.dead)
        answer = hub.accept(who)
        station.closed = None
