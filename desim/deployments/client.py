"""An agent that a coordinator calls: it takes calls, runs their jobs and replies, in real time.

What a job did to the agent's state holds once the coordinator has used the reply: the next call
says so, and where it does not, the agent goes on from what it had before, as if it had not taken
part. So a late reply that is discarded changes nothing, as in the simulation.
"""

import ctypes
import gc
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.deployments.consent import Asked, Consent, Opening, found, named, terms_for, terms_of
from desim.deployments.formats import (
    CALL,
    COORDINATOR,
    HELLO,
    POST,
    REPLY,
    Frame,
    Framing,
    Message,
    body_of,
    packed,
    values_of,
)
from desim.deployments.peer import Peer, Witness
from desim.deployments.place import FAR, Place
from desim.deployments.streams import Stream
from desim.engine.agents.programs import checked_requests
from desim.engine.clients import hear_news
from desim.engine.hub import reply_alone
from desim.engine.settings import Settings
from desim.engine.world import World
from desim.network.conditions.devices import lasting
from desim.network.timeline.computations import seconds_into

State = dict[str, Array]
ORDERS = 64  # that an agent remembers


@dataclass(frozen=True)
class Letter:
    """A message of the coordinator, the order that it refers to, and when s it was here."""

    frame: Frame
    order: Message
    got: float

    @property
    def number(self) -> int:
        """Of the message, among all of the run."""
        return self.frame.number

    @property
    def payload(self) -> Array:
        """The numbers (n,) that a call carries."""
        elsewhere = self.order.arrays.get("payload")
        return values_of(self.frame.body) if elsewhere is None else elsewhere


class Client:
    """Agent `place.agent` of a coordinator method on its part of `world`.

    asked: what it holds calls to, where it tells nothing but its replies, not what its state has
    become; None where it tells all.
    """

    above = -1  # who calls: the coordinator, or an edge of a tree

    def __init__(
        self, place: Place, world: World, method: Any, asked: Asked | None = None
    ) -> None:  # fmt: skip
        self.place, self.world, self.method = place, world, method
        self.consent = None if asked is None else Consent(world, method, place.agent, asked)
        self.who = np.array([place.agent])
        self.line: Stream | None = None
        self.port = 0  # of the coordinator, where every message has a connection of its own
        self.letters: deque[Letter] = deque()
        self.orders: dict[int, Message] = {}  # by number, the latest
        self.came: deque[tuple[Frame, float]] = deque()  # messages whose orders are to come
        self.free = 0.0  # since when s the device is idle
        self.tried: tuple[int, State] = (0, {})  # state after the call of that number
        place.heard = self._hear
        place.handlers |= {"state": self._begin, "order": self._note}

    def live(self) -> None:
        """Take letters in order, for ever."""
        while True:
            self.place.wait_for(lambda: bool(self.letters))
            letter = self.letters.popleft()
            while self.letters and self.world.settings.policy.interrupts:
                self._take_news(letter)
                self._void(letter, None)
                letter = self.letters.popleft()
            self._take(letter)

    def _begin(self, message: Message) -> None:
        if self.consent is not None:
            self.consent.to_start(message.arrays)
        for name, row in message.arrays.items():
            self._set(name, row)

    def _note(self, message: Message) -> None:
        number = int(message.fields["number"])
        self.orders[number] = message
        self.orders.pop(number - ORDERS, None)
        self._match()

    def _hear(self, frame: Frame, time: float) -> None:
        if frame.kind in (CALL, POST):
            self.came.append((frame, time))
            self._match()

    def _match(self) -> None:
        while self.came and self.came[0][0].order in self.orders:
            frame, time = self.came.popleft()
            self.letters.append(Letter(frame, self.orders[frame.order], time))

    def _void(self, letter: Letter, begin: float | None) -> None:
        """A newer call has made this one void, whose job began at `begin` s, or not at all."""
        now = self.free = self.place.now
        fields = {"number": letter.number, "got": letter.got, "cut": now}
        self.place.report("aborted", fields | {"begin": now if begin is None else begin})

    def _take(self, letter: Letter) -> None:
        self._take_news(letter)
        if letter.frame.kind == POST:
            self.place.report("got", {"number": letter.number, "got": letter.got})
            return
        begin, before = max(letter.got, self.free), self._own()
        work = float(letter.order.fields["work"])
        seconds = self._lasting(work, letter.frame.round_, begin)
        reply = self._reply(letter)
        after = self._own()
        self.tried = letter.number, after
        for name in after:
            self._set(name, before.get(name, np.zeros_like(after[name])))
        took = self.place.now - begin
        if self._pass(begin + seconds):
            self._send(letter, reply, after, begin, took - seconds)
        else:
            self.tried = 0, {}
            self._void(letter, begin)

    def _take_news(self, letter: Letter) -> None:
        """Run the jobs on the news that a letter brings, which hold even if it is void."""
        said, frame = letter.order, letter.frame
        if self.consent is not None:
            self.consent.to_news(frame.round_, said)
        number, state = self.tried
        for name, row in state.items() if number == frame.used else ():
            self._set(name, row)
        self.tried = 0, {}
        for place, one in enumerate(said.fields["told"]):
            job, news = found(one["job"], said.arrays, self.method), said.arrays[f"news{place}"]
            hear_news(self.world, self.who, one["round"], job, news)

    def _set(self, name: str, row: Array) -> None:
        if name not in self.world.state:
            agents = self.world.settings.problem.agents
            self.world.state[name] = np.zeros((agents, *row.shape))
        self.world.state[name][self.place.agent] = row

    def _own(self) -> State:
        return {name: rows[self.place.agent].copy() for name, rows in self.world.state.items()}

    def _lasting(self, work: float, round_: int, begin: float) -> float:
        """How long, in s, the job takes from `begin` s on, as the scenario's devices have it."""
        speeds, out = self.world.settings.speeds, np.empty(1)
        rounds = np.array([round_])
        if speeds.steady:
            return float(lasting(speeds, np.array([work]), self.who, rounds)[0])
        seconds_into(speeds, self.who, rounds, np.array([begin]), np.array([work]), out)
        return float(out[0])

    def _reply(self, letter: Letter) -> Array:
        """What the job of a call gives, of terms to which the agent consents; or Declined."""
        said, frame, payload = letter.order, letter.frame, letter.payload
        if self.consent is not None:
            terms = self.consent.to_call(frame.round_, said, payload)
        else:
            agents = self.world.settings.problem.agents
            terms = terms_of(said.fields["terms"], self.place.agent, agents)
        job = found(said.fields["job"], said.arrays, self.method)
        address = frame.round_, int(said.fields["exchange"])
        return reply_alone(self.world, self.place.agent, address, job, terms, payload)

    def _pass(self, end: float) -> bool:
        """Let time pass until `end` s; whether no newer call came that ends this one."""
        interrupts = self.world.settings.policy.interrupts
        while True:
            if interrupts and any(one.frame.kind == CALL for one in self.letters):
                return False
            if self.place.now >= end:
                return True
            self.place.wait(end)

    def _send(
        self, letter: Letter, reply: Array, state: State, begin: float, late: float
    ) -> None:  # fmt: skip
        place, size = self.place, int(letter.order.fields["size"])
        if self.consent is not None:
            self.consent.replied()
        body, inside = self._body(reply, size)
        frame = Frame(REPLY, place.agent, letter.number, letter.frame.round_, inside=inside)
        end = self.free = place.now
        stream = self.line or place.connect(self.above, self.port)
        sent = place.now if self.line else end
        stream.closing = self.line is None
        stream.push(frame.header(place.keys[self.above & COORDINATOR], size), body)
        fields = {"number": letter.number, "got": letter.got, "begin": begin, "end": end}
        shown = {} if self.consent is not None else state
        arrays = {f"state {name}": row for name, row in shown.items()}
        if not inside:
            arrays["reply"] = reply
        place.report("done", fields | {"sent": sent, "late": late}, arrays)

    def _body(self, reply: Array, size: int) -> tuple[bytes, bool]:
        """The body of a reply, and whether its numbers are in it."""
        return body_of(reply, size)


# An agent's first job, played once before the clock starts, for nobody.


TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's mallopt
LARGE = 1 << 25  # bytes from which on memory is the system's again when it is freed: glibc's most


class Alone(Exception):
    """Nothing more is to come."""


class Echo:
    """Stands for a connection; what goes out is read, as its receiver would, and goes to `heard`.

    key: of sender and receiver.
    """

    closing = False

    def __init__(self, agent: int, key: bytes, heard: Callable[[Frame], None]) -> None:
        self._framing, self._heard = Framing({agent & COORDINATOR: key}), heard

    def push(self, *parts: bytes) -> None:
        """As Stream.push."""
        for frame in self._framing.feed(b"".join(parts)):
            self._heard(frame)


class Stage:
    """Stands for the agent's `place`, where all that is waited for is there at once."""

    def __init__(self, place: Place) -> None:
        self.agent, self.keys, self.now = place.agent, place.keys, 0.0
        self.handlers: dict[str, Any] = {}
        self.heard: Callable[[Frame, float], None] = lambda frame, time: None
        self.sources: list[int] = []  # agents that this one hears
        self._said: dict[int, Frame] = {}  # by number, until it is heard

    def report(self, kind: str, fields: Any, arrays: Any = None) -> None:
        """As Place.report; neighbours have the values that letters do not."""
        packed(kind, fields, arrays or {})
        if kind == "values":
            for j in self.sources:
                said = {"source": j, "number": fields["number"]}
                self.handlers["values"](Message("values", said, arrays))

    def connect(self, to: int, port: int) -> Echo:
        """As Place.connect."""
        return Echo(self.agent, self.keys[to & COORDINATOR], self._say)

    def wait(self, until: float = FAR) -> None:
        """As Place.wait."""
        frames, self._said = list(self._said.values()), {}
        for frame in frames:
            for j in self.sources:
                self.heard(frame._replace(source=j, release=-1), self.now)
        if not frames and until == np.inf:
            raise Alone
        self.now = max(self.now, until if until < FAR else self.now)

    def _say(self, frame: Frame) -> None:
        if frame.kind != HELLO:
            self._said[frame.number] = frame


class Soliloquist(Peer):
    """An agent of a graph that hears itself."""

    def _until(self, end: Callable[[], float], holds: Any = lambda: False) -> None:
        while not holds() and self.place.now < (last := end()):
            self.place.wait(last)


def rehearse(
    place: Place, settings: Settings, method: Any, asked: Asked | None, opening: Opening | None
) -> None:  # fmt: skip
    """Play the agent's first job for nobody.

    What goes wrong goes wrong in the run once more, and is told there.
    """
    with suppress(OSError, AttributeError):  # what is freed stays: new memory makes jobs late
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP, LARGE)
        libc.mallopt(TRIM, (1 << 31) - 1)
    with suppress(Exception):
        _play(Stage(place), settings, method, asked, opening)
    gc.collect()  # worlds are in cycles: the memory of this one is to be there for the run


def _play(stage: Any, settings: Settings, method: Any, asked: Any, opening: Any) -> None:
    settings = replace(settings, rounds=1, horizon=np.inf)
    world = World.alone(settings, Witness())
    if method.kind == "graph":
        peer = Soliloquist(stage, world)
        stage.sources = peer.post.sources
        peer.post.ports = dict.fromkeys(peer.post.targets, 0)
        peer.live(checked_requests(method.agents, method.kind, lambda: stage.now))
        peer.hand_over(final=True)
    elif opening is not None:
        _call(stage, world, method, asked, opening)


def _call(stage: Any, world: World, method: Any, asked: Asked | None, opening: Opening) -> None:
    client, i = Client(stage, world, method, asked), stage.agent
    rows = {name: array[i] for name, array in opening.state.items()}
    stage.handlers["state"](Message("state", {}, rows))
    job, arrays = named(opening.job, method, "bound ")
    payload = opening.payload_of(i)
    size = 8 * len(payload)
    said = {
        "job": job, "told": [], "terms": terms_for(opening.terms, i),
        "exchange": opening.exchange, "work": float(opening.work[i]), "size": size,
    }  # fmt: skip
    order, (body, _) = Message("order", said, arrays), body_of(payload, size)
    client._take(Letter(Frame(CALL, COORDINATOR, 1, opening.round_, 1, body=body), order, 0.0))
