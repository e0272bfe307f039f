"""An agent's first job, played once before the clock starts, for nobody.

A process has forked from one that has all code, but its first job would still be late: its memory
is not its own before it is written to, and nothing is in the caches. So the agent plays its first
round, or the first call that a coordinator makes, on a world of its own, where time passes at once,
neighbours say what the agent says, and whatever is sent goes nowhere. That world ends with it: its
state, its rows and its releases, whose noise is not the run's, nor does its budget or its consent
count.
"""

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from desim.deployments.client import Client, Letter
from desim.deployments.consent import Asked, Opening, named, terms_for
from desim.deployments.formats import (
    CALL,
    COORDINATOR,
    HELLO,
    Frame,
    Framing,
    Message,
    body_of,
    packed,
)
from desim.deployments.peer import Peer, Witness
from desim.deployments.place import FAR, Place
from desim.engine.agents.programs import checked_requests
from desim.engine.observer import unheeding
from desim.engine.patience import Patience
from desim.engine.settings import Settings
from desim.engine.world import Discard, World

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's mallopt
LARGE = 1 << 25  # bytes from which on memory is the system's again when it is freed: glibc's most


class Alone(Exception):
    """Nothing more is to come."""


class Blind:
    """What an agent's world has in place of an observer: the coordinator's process observes."""

    rows = None
    failed = None
    alive = staticmethod(unheeding)
    rounds, due = 0, np.inf


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
    observer: Any = Witness() if method.kind == "graph" else Blind()
    patience = Patience(settings.problem.agents, 1, np.inf)
    world = World(settings, observer, patience, Discard())
    if method.kind == "graph":
        peer = Soliloquist(stage, world)
        stage.sources = peer.post.sources
        peer.post.ports = dict.fromkeys(peer.post.targets, 0)
        peer.live(checked_requests(method.agents, method.kind, lambda: stage.now))
        peer.tell(final=True)
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
