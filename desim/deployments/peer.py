"""An agent of a graph: it drives the method's program for itself and talks to its neighbours.

Its rows, models and releases wait until there is time, and then go to the process that observes.
"""

import time as wall
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.deployments.consent import Asked, beyond, largest
from desim.deployments.fleet import Fleet, hear_out
from desim.deployments.formats import (
    LAST,
    LETTER,
    NULL,
    Declined,
    Frame,
    Message,
    Torn,
    body_of,
    raw_rows,
    released_by,
    require_own,
    size_of,
    stamped,
    take_in,
    values_of,
    write_message,
)
from desim.deployments.place import Place
from desim.deployments.real import RealWorld, conclude
from desim.deployments.streams import Stream
from desim.engine.agents.mailbox import Mailbox
from desim.engine.agents.programs import checked_requests
from desim.engine.requests import Compute, Gather, Heard
from desim.engine.us import Cohort
from desim.engine.world import World
from desim.errors import at, shortened
from desim.network.timeline.record import UPLINK, Kind
from desim.network.timeline.waiting_rule import FIXED
from desim.privacy.ledger.ledger import Terms

ROWS = ("ints", "floats", "whole", "real")  # of the log, of the ledger
OFTEN = 0.25  # s after which rows go to the process that observes, if there is time


class Witness:
    """What an agent's world has in place of an observer: it keeps what it sees, to be sent."""

    rows = None
    rounds, due = 0, np.inf
    alive: Any = None

    def __init__(self) -> None:
        self.failed: Any = None
        self.seen: list[tuple[float, int, Array | None]] = []
        self.left: list[float] = []
        self.message: Array | None = None  # the latest that was sent

    def report(self, time: Array, who: Int, round_: int, x: Array) -> None:
        """The agent shows its model x (1, dim) of a round, true from time (1,) s."""
        self.seen.append((float(time[0]), round_, x[0].copy()))

    def leave(self, agent: int, time: float) -> None:
        """The agent retires."""
        self.left.append(time)

    def released(self, value: Array, output: Array) -> None:
        """A value (n,) leaves the agent as `output` (n,), with noise or as it is."""

    def known(self, until: float) -> float:
        """Until when, s, all that was seen may be told, if nothing else is to come by `until`."""
        return until

    def end(self) -> None:
        """Nothing more is to come."""


class Reserved(Witness):
    """A witness that keeps a model to itself: what it tells is what became of it in a release.

    Of a model that is released neither as it is nor with noise it tells the round alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own: tuple[float, int, Array] | None = None  # reported, not yet released
        self._shows = False

    def report(self, time: Array, who: Int, round_: int, x: Array) -> None:
        """See Witness."""
        self._keep()
        self._own = float(time[0]), round_, x[0].copy()

    def released(self, value: Array, output: Array) -> None:
        """See Witness."""
        if self._own is not None and np.array_equal(self._own[2], value):
            time, round_, _ = self._own
            self.seen.append((time, round_, output.copy()))
            self._own, self._shows = None, True

    def known(self, until: float) -> float:
        """See Witness."""
        return until if self._own is None else min(until, self._own[0])

    def end(self) -> None:
        """See Witness; a round that was cut before its release is none."""
        if not self._shows:
            self._keep()

    def _keep(self) -> None:
        if self._own is not None:
            time, round_, _ = self._own
            self.seen.append((time, round_, None))
        self._own = None


class Watched(Cohort):
    """`us` of an agent whose witness sees what it releases."""

    def release(
        self, value: Array, terms: Terms, where: Any = None, draw: int | None = None,
        kept: bool = False,
    ) -> Array:  # fmt: skip
        """As Cohort.release."""
        noisy = super().release(value, terms, where, draw, kept)
        if not kept and self._unsent[-1][0] >= 0:
            witness: Any = self._world.observer
            witness.released(np.asarray(value, float)[0], noisy[0])
        return noisy


class PeerPost:
    """Carries the messages of one agent over its connections; see Carrier."""

    ahead = False

    def __init__(self, place: Place, world: World) -> None:
        graph = world.settings.graph
        assert graph is not None
        self.place, self.world, self.graph, self.i = place, world, graph, place.agent
        self.agents = world.settings.problem.agents
        incoming = slice(graph.incoming[self.i], graph.incoming[self.i + 1])
        self.sources: list[int] = graph.source[incoming].tolist()
        self.box = Mailbox(self.i, len(self.sources))
        self.lines: dict[int, Stream] = {}
        self.ports: dict[int, int] = {}
        self.sent = 0
        self.widths: list[int] = []  # numbers in each message that was sent
        self.latest = 0.0  # when s the latest message came
        self.round = 1  # of the latest message that was sent
        self.most: Callable[[int], float] = lambda round_: np.inf  # of what is heard in a round
        self.came: dict[tuple[int, int], tuple[Frame, float]] = {}  # whose values are to come
        self.values: dict[tuple[int, int], Array] = {}
        place.heard = self._hear
        place.handlers["values"] = self._take_values

    @property
    def near(self) -> list[int]:
        """Agents at the other ends of this agent's links."""
        return sorted({*self.sources, *self.targets})

    @property
    def targets(self) -> list[int]:
        """Agents that this agent's links lead to."""
        graph = self.graph
        out = graph.out_links[graph.outgoing[self.i] : graph.outgoing[self.i + 1]]
        return sorted(set(graph.target[out].tolist()))

    def send(
        self, us: Cohort, payload: Array, bits: Int, silent: Mask, used: Mask | None = None
    ) -> None:
        """Send the agent's message on its (used) links, at once."""
        if us.gone[0]:
            return
        _, edges = self.box.routes(us, self.graph, used)
        self.sent += 1
        self.widths.append(payload.shape[1])
        self.box.widen(payload.shape[1])
        kind = (LAST if us.leaving[0] else NULL) if silent[0] else LETTER
        size = size_of(1 if silent[0] else int(bits[0]))
        body, inside = (bytes(size), True) if silent[0] else body_of(payload[0], size)
        targets = self.graph.target[edges].tolist()
        if not inside:
            self.place.report("values", {"to": targets, "number": self.sent}, {"row": payload[0]})
        release, round_ = int(us._release[0]), int(us.round[0])
        self.round = round_
        if targets and not silent[0]:
            witness: Any = self.world.observer
            witness.message = message = payload[0].copy()
            own = message[: self.world.settings.problem.dim]
            witness.released(own, own)
        for j in targets:
            frame = Frame(kind, self.i, self.sent, round_, release=release, inside=inside)
            self._post(j, frame, body)
        us.served(np.array([len(targets)]))

    def _post(self, j: int, frame: Frame, body: bytes) -> None:
        now = self.place.now
        line = self.lines.get(j)
        stream = line or self.place.connect(j, self.ports[j])
        stream.closing = line is None
        stream.push(stamped(frame, now).header(self.place.keys[j], len(body)), body)
        about = frame.round_, len(body), frame.release, now, 0.0
        write_message(self.world.log, Kind.SEND, UPLINK, self.i, j, *about)

    def _hear(self, frame: Frame, time: float) -> None:
        if frame.source not in self.sources or frame.kind not in (LETTER, NULL, LAST):
            raise Torn(f"found kind {frame.kind} of agent {frame.source}, which sends none")
        if frame.release != -1 and released_by(self.agents, frame.release) != frame.source:
            raise Torn(f"found somebody else's release in a letter of agent {frame.source}")
        if frame.kind == LETTER and frame.inside and len(frame.body) % 8:
            raise Torn(f"found a letter of {len(frame.body)} bytes, which are no numbers")
        sent, self.latest = frame.time, time
        place = self.i, frame.source, frame.round_, len(frame.body), frame.release
        write_message(self.world.log, Kind.DELIVER, UPLINK, *place, time, time - sent)
        key = frame.source, frame.number
        if not frame.inside and key not in self.values:
            self.came[key] = frame, time
            return
        self._put(frame, time)

    def _put(self, frame: Frame, time: float) -> None:
        """Lay a message that came at `time` s, and whose values are here, into the mailbox.

        Declined for values that the coordinator has handed on, and Torn for a neighbour's own:
        whichever of the two, frame or values, was here first.
        """
        letter = None
        if frame.kind == LETTER:
            elsewhere = self.values.pop((frame.source, frame.number), None)
            letter = values_of(frame.body) if elsewhere is None else elsewhere
            if beyond(letter, most := self.most(self.round)):
                text = f"found what is no number up to {most:.3g} of agent {frame.source}"
                raise Torn(text) if elsewhere is None else Declined(f"a letter: {text}")
        place = self.sources.index(frame.source)
        self.box.put(place, frame.number, letter, frame.kind == LAST, time)

    def _take_values(self, message: Message) -> None:
        key = int(message.fields["source"]), int(message.fields["number"])
        self.values[key] = message.arrays["row"]
        if came := self.came.pop(key, None):
            self._put(*came)

    def require_alike(self) -> None:
        """RunError for a letter of another width than this agent's own letter of its number."""
        own = self.widths
        for source, letters in zip(self.sources, self.box.letters, strict=True):
            for number, letter in letters.items():
                allowed = own[number - 1 : number] or own
                if letter is not None and own and len(letter) not in allowed:
                    text = f"agent {source} sent {len(letter)} numbers to agent {self.i}"
                    raise at(self.place.now, f"{text}; allowed: {allowed[-1]}")

    def known(self, us: Cohort, values: Array) -> Heard:
        """The agent's neighbours have announced their rows of values (agents, dim)."""
        return self.box.announced(values[self.sources])


class Peer:
    """Drives the program of one agent of a graph.

    reserved: it tells nothing but what it releases; the world's observer is a Witness of that kind.
    """

    def __init__(self, place: Place, world: World, reserved: bool = False) -> None:
        self.place, self.world, self.reserved = place, world, reserved
        self.post = PeerPost(place, world)
        self.us = Watched(world, np.array([place.agent]), self.post)
        self.gathered = 0
        self.late = (0.0, 0)
        self.slow = self.computed = 0
        self._handed = 0.0

    def live(self, program: Any) -> None:
        """Run the program to its end."""
        generator, answer = program(self.us), None
        while True:
            self.us._set(clock=np.array([self.place.now]))
            try:
                request = generator.send(answer)
            except StopIteration:
                return
            if self.world.observer.failed:
                raise self.world.observer.failed
            if self.us.gone[0]:
                return
            answer = (
                self._compute(request) if isinstance(request, Compute) else self._gather(request)
            )

    def _compute(self, request: Compute) -> Array:
        us, world, begin = self.us, self.world, self.place.now
        i, round_ = int(us.who[0]), int(us.round[0])
        seconds = us.lasting(request, begin)
        inputs = [np.array(one) for one in request.inputs]
        result = world.computed(request.job, us.who, us.round, inputs)
        self.computed += 1
        if (late := self.place.now - begin - seconds) > 0.0:
            self.slow, self.late = self.slow + 1, max(self.late, (late, round_))
        self._until(lambda: begin + seconds)
        value = float(request.value[0])
        now = self.place.now
        world.log.add(Kind.COMPUTE, UPLINK, i, round_, now, seconds=now - begin, value=value)
        return result

    def _gather(self, request: Gather) -> Heard:
        box, begin = self.post.box, self.place.now
        self.gathered += 1
        self.place.wait(begin)
        closed = self.place.now
        if not request.newest:
            closed = self._wait(box, request, begin)
        self.post.require_alike()
        return box.hear(self.us, request, self.gathered, begin, min(closed, self.place.now))

    def _wait(self, box: Mailbox, request: Gather, begin: float) -> float:
        """Wait from `begin` s until the rule closes the wait; return when s that was."""
        rule = request.rule
        box.rule, box.over, box.later = rule, False, request.later
        number = self.gathered
        self._until(lambda: box.until(number, begin), lambda: bool(box.has(number)))
        end = box.until(number, begin)
        closed = max(begin, self.post.latest)
        if not box.has(self.gathered):
            box.over, closed = True, end
            if not box.has(self.gathered):
                self._until(lambda: np.inf, lambda: bool(box.has(self.gathered)))
                closed = max(begin, self.post.latest)
        if rule.law != FIXED:
            box.learn(self.gathered, begin, closed)
        return closed

    def _until(self, end: Callable[[], float], holds: Any = lambda: False) -> None:
        """Let time pass, and messages come, until end() s or until holds()."""
        while not holds() and (now := self.place.now) < (last := end()):
            if wall.monotonic() - self._handed > OFTEN and last - now > 0.005:
                self.hand_over()
            self.place.wait(min(last, now + OFTEN))

    def hand_over(self, final: bool = False) -> None:
        """Send what happened until now to the process that observes."""
        self._handed = wall.monotonic()
        world, now = self.world, self.place.now
        witness: Any = world.observer
        if final:
            witness.end()
        until = np.inf if final else witness.known(now)
        charged = until if final else world.ledger.settled(until)
        rows = *raw_rows(world.log, until), *raw_rows(world.ledger, charged)
        arrays = dict(zip(ROWS, rows, strict=True))
        if models := [x for _, _, x in witness.seen if x is not None]:
            arrays["models"] = np.array(models)
        fields = {
            "before": min(until, charged, 1e300),
            "seen": [(time, round_, x is not None) for time, round_, x in witness.seen],
            "left": witness.left,
        }
        witness.seen, witness.left = [], []
        self.place.report("rows", fields, arrays)

    def part(self) -> None:
        """The run is over: tell the rest, and what the state, or the latest message, has become."""
        self.hand_over(final=True)
        witness: Any = self.world.observer
        state = {name: rows[self.place.agent] for name, rows in self.world.state.items()}
        if self.reserved:
            state = {} if witness.message is None else {"released": witness.message}
        spent = self.world.filter
        retired = spent is not None and bool(spent.retired[self.place.agent])
        about = {"slow": self.slow, "computed": self.computed, "late": list(self.late)}
        self.place.report("state", {**about, "retired": retired}, state)


# The process that observes a graph of processes: it takes in their rows, and ends the run.


STEP = 0.1  # s after which the user sees how far the run is, and is heard
WITHHELD = (
    "deploy: agents release no model as it is, nor with noise, and keep it: no metrics and no "
    "iterates are here; desim run has them"
)


def serve(place: Place, world: World, method: Any, asked: Asked | None) -> None:
    """What an agent's process does; asked: where it tells nothing but what it releases."""
    peer = Peer(place, world, asked is not None)
    post, dim = peer.post, world.settings.problem.dim
    if peer.reserved:
        post.most = lru_cache(1)(lambda k: largest(method.planned(k), place.agent, dim))
    place.parting = peer.part
    place.handlers["ports"] = lambda message: _hear_ports(peer, message)
    lasting = place.network.transport.connection == "kept"
    calling = sorted(set(post.sources)) if lasting else post.near
    place.report("ready", {"port": place.listen(calling)})
    place.wait_for(lambda: bool(post.ports))
    if lasting:
        _meet(peer)
        place.wait_for(lambda: len(place.greeted) == len(calling))
        place.close_port()
    place.report("connected", {})
    place.wait_for(lambda: place.origin < np.inf)
    while place.now < 0.0:
        place.wait(0.0)
    program = checked_requests(method.agents, method.kind, lambda: place.now)
    peer.live(program)
    place.report("finished", {"time": place.now})
    while True:
        place.wait(place.now + STEP)
        peer.hand_over()


def _hear_ports(peer: Peer, message: Message) -> None:
    """Note where the others listen."""
    peer.post.ports = dict(enumerate(message.fields["ports"]))
    peer.place.network.peers = message.fields["places"]


def _meet(peer: Peer) -> None:
    """Connect to those that links lead to: a connection that is kept serves one direction.

    Between hosts who calls waits until he is answered, and answers nobody meanwhile. So everybody
    calls those above him first, in their order, and those below once they have called: who waits
    for somebody waits for one that is through, or that waits for somebody farther up.
    """
    post, place = peer.post, peer.place
    above = sorted(j for j in post.targets if j > place.agent)
    below = {*post.targets} - {*above}

    def call(some: Iterable[int]) -> None:
        for j in some:
            post.lines[j] = place.connect(j, post.ports[j])
            place.greet(post.lines[j])

    call(above)
    place.wait_for(lambda: below & {*post.sources} <= place.greeted.keys())
    call(sorted(below))


def assemble(fleet: Fleet) -> None:
    """Wait until every agent is connected with its neighbours."""
    fleet.get_ready()
    ports = [fleet.ports[i] for i in range(fleet.agents)]
    for i in fleet.alive:
        fleet.send(i, "ports", {"ports": ports, "places": fleet.places()})
    fleet.wait_for("not all are connected", lambda: len(fleet.connected) == fleet.agents)


class Overseer:
    """Takes in what agents tell, until the last has finished or something ends the run."""

    def __init__(self, world: RealWorld, fleet: Fleet) -> None:
        self.world, self.fleet = world, fleet
        agents = world.settings.problem.agents
        self.settled = np.zeros(agents)
        self.finished: dict[int, float] = {}
        self.slow = self.computed = 0
        self.late: tuple[float, int, int] = (0.0, 0, 0)
        self.models = np.array(world.settings.initial("x0"), float)  # as agents have shown them
        fleet.reported, fleet.buried = self._report, self._bury

    def watch(self) -> float:
        """Wait for the end of the run; return it, s."""
        world, fleet = self.world, self.fleet
        horizon = world.settings.horizon
        while len({*self.finished, *fleet.dead}) < fleet.agents:
            if fleet.now >= horizon:
                return horizon
            step = min(fleet.now + STEP, horizon)
            fleet.wait(fleet.origin + step)
            self._require_alive()
            world.spare(float(self.settled.min()), fleet.now)
            if world.settings.targets:
                world.observer.settle(float(self.settled.min()))
            if world.observer.failed:
                raise world.observer.failed
            if world.observer.rows.reached is not None:
                return float(world.observer.rows.reached)
        if not self.finished:
            first = min(fleet.dead)
            text = f"agent {first} {fleet.dead[first]}, and no other is left"
            raise at(fleet.now, f"nobody can go on: {text}")
        return min(max(self.finished.values()), horizon)

    def _report(self, agent: int, message: Message) -> None:
        fields, arrays, world = message.fields, message.arrays, self.world
        if message.kind == "rows":
            rows = [arrays[name] for name in ROWS]
            require_own(agent, self.fleet.agents, *rows)
            take_in(world.log, *rows[:2])
            take_in(world.ledger, *rows[2:])
            observer: Any = world.observer
            seen, who = observer.rows, np.array([agent])
            models = iter(arrays.get("models", ()))
            for time, round_, shown in fields["seen"]:
                if shown:
                    self.models[agent] = next(models)
                elif seen.metrics.names or seen.targets or observer.stored is not None:
                    # agents keep the models that the method reports: nothing is known of them
                    world.sink.append("metrics", seen.take(np.inf))
                    seen.metrics.names = seen.targets = ()
                    observer.stored = None
                    world.caution(WITHHELD)
                observer.report(np.array([time]), who, int(round_), self.models[who])
            for time in fields["left"]:
                observer.leave(agent, float(time))
            self.settled[agent] = float(fields["before"])
        elif message.kind == "refused":
            self._deaf(agent, int(fields["agent"]), str(fields["why"]))
        elif message.kind == "values":
            for j in fields["to"]:
                more = {"source": agent, "number": fields["number"]}
                self.fleet.send(int(j), "values", more, arrays)
        elif message.kind == "finished":
            self.finished[agent] = float(fields["time"])
        elif message.kind == "state":
            self._end_of(agent, message)
        elif message.kind == "failed" and not self.fleet.dismissing:
            raise at(float(fields["time"]), f"agent {agent}: {fields['why']}")

    def _end_of(self, agent: int, message: Message) -> None:
        for name, row in message.arrays.items():
            if self.world.reserved:
                self.world.released[agent] = row
            else:
                rows = np.zeros((self.fleet.agents, *row.shape))
                self.world.state.setdefault(name, rows)[agent] = row
        spent = self.world.filter
        if spent is not None and message.fields["retired"]:
            spent.retired[agent] = True
            if spent.retired.all():
                spent.reason = "privacy.budget: every agent has retired"
        self.slow += int(message.fields["slow"])
        self.computed += int(message.fields["computed"])
        late, round_ = message.fields["late"]
        self.late = max(self.late, (float(late), agent, int(round_)))

    @property
    def _alone(self) -> bool:
        """Whether agents go on without somebody who is silent."""
        policy = self.world.settings.policy
        return policy.kind == "each" or (policy.limited and not policy.at_least)

    def _deaf(self, agent: int, source: int, why: str) -> None:
        """An agent hears a neighbour no more, whose words were refused."""
        if source >= 0 and not self._alone and not self.fleet.dismissing:
            kind, who = self.world.settings.policy.kind, f"agent {source}, whom agent {agent}"
            text = f"{who} hears no more ({shortened(why)}), and policy {kind} waits for it"
            raise at(self.fleet.now, f"nobody can go on: {text}")

    def _bury(self, agent: int) -> None:
        how, now = self.fleet.dead[agent], self.fleet.now
        self.settled[agent] = np.inf
        self.world.caution(f"agent {agent} {how} at {now:.3g} s")
        if self._alone or agent in self.finished:
            self.world.observer.leave(agent, now)

    def _require_alive(self) -> None:
        """RunError where others wait for one that has died: of several the first by number."""
        if not self._alone and {*self.fleet.dead} - {*self.finished}:
            hear_out(self.fleet)
            first = min({*self.fleet.dead} - {*self.finished})
            kind = self.world.settings.policy.kind
            text = f"agent {first} {self.fleet.dead[first]}, and policy {kind} waits for it"
            raise at(self.fleet.now, f"nobody can go on: {text}")


def play(world: RealWorld, fleet: Fleet) -> float:
    """Let the agents of `fleet` play; return the end of the run, s."""
    overseer = Overseer(world, fleet)
    fleet.start()
    try:
        return overseer.watch()
    finally:
        fleet.dismiss()
        conclude(world, fleet, overseer.slow, overseer.computed, overseer.late)
