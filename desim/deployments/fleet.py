"""The processes of a deployment as its coordinator sees them, and how those of one machine run."""

import ctypes
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from desim.deployments.formats import Message, Torn
from desim.deployments.place import REFUSALS, Comm, Ended, Loopback, Place
from desim.deployments.streams import Closed, Control, Keys, Stream, by_source
from desim.errors import InputError, at, shortened
from desim.numerics.jit import set_threads

PATIENCE = 30.0  # s in which all agents have to be connected once they are ready
PARTING = 2.0  # s in which they have to leave once the run is over
TOGETHER = 0.05  # s in which agents that are killed at once are known to be
ODD = (
    LookupError, TypeError, ValueError, AttributeError, OverflowError, StopIteration,
    RecursionError,
)  # fmt: skip
Serve = Callable[[Place], None]


class Fleet(Comm):
    """Agents, each in a process of its own; what comes from them goes to `reported` and `heard`."""

    hosts_number = 1  # machines that take part
    lead = 0.05  # s from the order to start until the clock starts
    error = 0.0  # to how many s all clocks are aligned: on one machine there is one

    def __init__(self, agents: int, network: Loopback) -> None:
        self.root = Keys()
        super().__init__(-1, network, by_source(self.root.table(-1, agents), -1))
        self.agents = agents
        self.largest = 0
        self.turned_away = 0  # connections that were refused
        self.refusals: list[str] = []  # words on the first few
        self.controls: dict[int, Control] = {}
        self.ports: dict[int, int] = {}
        self.connected: set[int] = set()  # agents that are, with all their neighbours
        self.dead: dict[int, str] = {}  # how agents died
        self.warnings: list[str] = []
        self.dismissing = False
        self.parts: list[list[int]] = [[*range(agents)]]  # who leaves before others
        self.name: Callable[[int], str] = "agent {}".format
        self.ended: set[int] = set()  # agents that have said farewell
        self.reported: Callable[[int, Message], None] = lambda agent, message: None
        self.buried: Callable[[int], None] = lambda agent: None

    @property
    def alive(self) -> list[int]:
        """Agents whose processes run."""
        return [i for i in range(self.agents) if i not in self.dead]

    def allow(self, size: int) -> None:
        """Let frames have bodies of so many bytes: no reply is larger than what was asked for."""
        self.largest = max(self.largest, size)
        for framing in self.framings.values():
            framing.largest = self.largest

    def send(
        self, agent: int, kind: str, fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:  # fmt: skip
        """Send an agent a message over its control connection."""
        if agent not in self.dead:
            self.controls[agent].say(kind, fields, arrays)

    def enrol(self, agent: int, control: Control) -> None:
        """Listen to an agent's control connection."""
        self.controls[agent] = control
        self.watch(control, lambda: self._listen_to(agent))

    def begin(self) -> None:
        """Start, unless that has been done."""
        if self.origin == np.inf:
            self.start()

    def start(self) -> None:
        """Let the clock of all begin at one instant, soon, each in its own time.

        Once they have been sent what they begin with, behind which that would come too late.
        """
        while any(self.controls[i].waiting for i in self.alive):
            self.wait(time.monotonic() + 0.01)
        self.origin = time.monotonic() + self.lead
        for i in self.alive:
            self.send(i, "start", {"origin": self.origin + self.clock_ahead(i)})
        while (left := self.origin - time.monotonic()) > 0.0:
            time.sleep(left)

    def clock_ahead(self, agent: int) -> float:
        """By how many s an agent's clock is ahead of this one's."""
        return 0.0

    def get_ready(self) -> None:
        """Wait until every agent is: its first job, which it plays before, takes what it takes."""
        self.wait_for("not all agents are ready", lambda: len(self.ports) == self.agents, np.inf)

    def wait_for(
        self, what: str, holds: Callable[[], bool], patience: float | None = None
    ) -> None:  # fmt: skip
        """Read what comes until `holds()`; InputError where that takes too long, or one dies."""
        until = time.monotonic() + (PATIENCE if patience is None else patience)
        while not holds():
            self.wait(time.monotonic() + 0.1)
            if self.dead:
                agent, how = next(iter(self.dead.items()))
                raise InputError(f"deploy: {self.name(agent)} {how} before the run began")
            if time.monotonic() > until:
                raise InputError(f"deploy: after {PATIENCE:g} s {what}{self.visited()}")

    def wait(self, until: float) -> bool:
        """Read what comes, until something has, or `until` s of time.monotonic; whether any did.

        Messages of the links first: what is said beside them can wait until these have been used.
        """
        ready = self.poll.wait(min(until, self.strangers.due))
        self.read([one for one in ready if one in self.framings] or ready)
        return bool(ready)

    def places(self) -> list[str]:
        """Addresses at which agents can be reached, where that has to be sent."""
        return []

    def _listen_to(self, agent: int) -> None:
        try:
            for message in self.controls[agent].messages():
                self._note(agent, message)
        except Torn as torn:
            self._lose(agent, f"sent what cannot be read ({torn})")
        except Closed:
            self._lose(agent, "")

    def _note(self, agent: int, message: Message) -> None:
        """Take what an agent says of itself; Torn where it cannot be used."""
        fields = message.fields
        try:
            if message.kind == "bye":
                self.ended.add(agent)
            elif message.kind == "ready":
                self.ports[agent] = int(fields["port"])
            elif message.kind == "connected":
                self.connected.add(agent)
            elif message.kind == "failed" and fields.get("where") == "desim":
                self.dead[agent] = f"failed ({fields['why']})"
            else:
                if message.kind == "refused":
                    text = f"{self.name(agent)} refused a connection: {shortened(fields['why'])}"
                    self.turn_away(text, max(int(fields["number"]), 1))
                elif message.kind == "failed" and fields.get("declined"):
                    why = shortened(fields["why"])
                    self.turn_away(f"{self.name(agent)} declined a call: {why}")
                self.reported(agent, message)
        except ODD as error:
            text = f"a message {shortened(message.kind)} that is of no use"
            raise Torn(f"{text}: {type(error).__name__}: {shortened(str(error))}") from error

    def _lose(self, agent: int, how: str) -> None:
        self.controls[agent].close()
        if agent in self.ended:
            return
        died = self.reap(agent)
        self.dead.setdefault(agent, how or died)
        if line := self.greeted.pop(agent, None):
            self.drop(line)
        self.buried(agent)

    def torn(self, stream: Stream, torn: Torn) -> None:
        """See Comm; an agent whose connection is closed for that is lost."""
        self.turn_away(f"refused a connection to the coordinator: {torn}")
        self.drop(stream)
        if stream.owner is not None and self.greeted.get(stream.owner) is stream:
            self._lose(stream.owner, f"sent what was refused ({torn})")

    def turn_away(self, text: str, number: int = 1) -> None:
        """Count refused connections, and have the words on the first few in the manifest."""
        self.turned_away += number
        if len(self.refusals) < REFUSALS:
            self.refusals.append(text)
            self.caution(text)

    def visited(self) -> str:
        """How many were refused, to be said where somebody is missing."""
        if not self.turned_away:
            return ""
        number = f"{self.turned_away} connection{'s' * (self.turned_away != 1)} refused"
        return f"; {number}: {'; '.join(self.refusals)}"

    def caution(self, text: str) -> None:
        """Note what the run's manifest is to say."""
        if text not in self.warnings:
            self.warnings.append(text)

    def dismiss(self) -> None:
        """Let all agents report what they have not yet, and end; those that do not are killed.

        May be called twice.
        """
        self.buried, self.dismissing = lambda agent: None, True
        for part in self.parts:
            for i in part:
                self.send(i, "end", {})
            until = time.monotonic() + PARTING
            while not {*part} <= {*self.ended, *self.dead} and time.monotonic() < until:
                self.wait(until)
        if self.turned_away > 1:
            self.caution(f"{self.turned_away} connections were refused in all")

    def close(self) -> None:
        """Close all connections."""
        for control in self.controls.values():
            control.close()
        if self.listener is not None:
            self.listener.close()
        for stream in [*self.framings]:
            self.drop(stream)
        self.poll.close()

    def launch(self, serve: Serve) -> None:
        """Have a process for each agent, which does serve(place) until the run is over."""
        raise NotImplementedError

    def reap(self, agent: int) -> str:
        """How an agent's process ended, whose connection is closed."""
        raise NotImplementedError


# How a process ended, in words.


def hear_out(fleet: Any) -> None:
    """Read on for a moment, where the run ends: of those that died together chance has the first.

    fleet: one, or the members of an edge.
    """
    until = time.monotonic() + TOGETHER
    while time.monotonic() < until and fleet.wait(until):
        pass


def ending(status: int) -> str:
    """How a process ended, by what os.waitpid says of it."""
    return ended(os.waitstatus_to_exitcode(status))


def ended(code: int) -> str:
    """How a process ended: its exit code, negative for the number of a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # real-time signals have numbers alone
        name = f"SIGRTMIN+{-code - signal.SIGRTMIN}"
    return f"was killed by signal {-code} ({name})"


# Memory: in no process does the collector look at what was there before a run.


@contextmanager
def memory_left_alone() -> Iterator[None]:
    """Context whose collections look at nothing that there was before.

    All that was imported is hundreds of thousands of objects: a collection that walks through them
    takes longer than many a job, and a fork that does so copies them.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def settle_memory() -> None:
    """Free what the preparations left, and have no collection look at the rest any more."""
    gc.collect()
    gc.freeze()


# Signals that end a run: Ctrl-C waits until processes have begun, others count as Ctrl-C.

WAITING = {signal.SIGINT}
OTHERS = (signal.SIGTERM, signal.SIGHUP)  # what else asks a process to end


@contextmanager
def held() -> Iterator[None]:
    """Context whose Ctrl-C comes at its end, which a fork would lose; others hear of none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.set())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WAITING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if pressed.is_set() and before is not signal.SIG_IGN:
        raise KeyboardInterrupt


@contextmanager
def ended_by_others(say: Callable[[str], None]) -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP do what Ctrl-C does; say: hears which it was.

    One that was ignored, as nohup has it, still is; unanswered, others would cost a run its log.
    """

    def press(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # the terminal may be gone
            say(f"{signal.Signals(number).name}: stops as by Ctrl-C")
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in OTHERS}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, press)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def deaf() -> None:
    """Be a process that others end: Ctrl-C is for the one that has begun it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in OTHERS:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


# Agents as processes of this machine, forked from one that has built the scenario.

HURRY = -10  # niceness of what is measured, where that is allowed


class Children:
    """Processes that this one has forked, by the agents that they play."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}

    def begin(
        self, agent: int, place: Callable[[], Place], serve: Serve, complain: Callable[[str], None]
    ) -> None:
        """Begin the process of an agent, which does serve(place()); it complains of errors."""
        pid = os.fork()
        if pid == 0:
            _be(place, serve, complain)
        self.pids[agent] = pid

    def status(self, agent: int) -> int | None:
        """What os.waitpid says of how the process of an agent ended; None if it has not."""
        try:
            pid, status = os.waitpid(self.pids[agent], os.WNOHANG)
        except ChildProcessError:
            pid, status = self.pids[agent], 0
        if pid == 0:
            return None
        del self.pids[agent]
        return status

    def close(self, seconds: float) -> None:
        """Wait for all to end, and kill those that still run after so many s."""
        until = time.monotonic() + seconds
        while self.pids:
            for agent in [*self.pids]:
                self.status(agent)
            if time.monotonic() > until:
                for pid in self.pids.values():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                until = np.inf
            time.sleep(0.002 if self.pids else 0.0)


def _be(place: Callable[[], Place], serve: Serve, complain: Callable[[str], None]) -> NoReturn:
    status = 1
    try:
        deaf()
        set_threads(1)
        here = place()
        with suppress(Ended):
            serve(here)
        with suppress(OSError):
            here.control.part("bye")
        status = 0
    except BaseException as error:
        with suppress(Exception):
            complain(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


class Local(Fleet):
    """See Fleet. Forked before any thread begins, with all code; none outlives `close`."""

    def __init__(self, agents: int, network: Loopback) -> None:
        super().__init__(agents, network)
        self.children = Children()
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)

    def launch(self, serve: Serve) -> None:
        """Begin a process for each agent, which does serve(place) until the run is over."""
        with held():
            settle_memory()
            for i in range(self.agents):
                self._fork(i, serve)
        hurry(HURRY)
        if self.network.alarm is not None:
            self.watch(self.network.alarm, self._lose_links)

    def _lose_links(self) -> None:
        """Without what carries packets nothing comes any more."""
        self.poll.remove(self.network.alarm)
        how = self.network.fate()
        if self.origin == np.inf:
            raise InputError(f"deploy: {how} before the run began")
        if not self.dismissing:
            raise at(self.now, how)

    def _fork(self, i: int, serve: Serve) -> None:
        ours, theirs = socket.socketpair()
        control = Control(theirs)

        def place() -> Place:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            ours.close()
            for stream in self.controls.values():
                os.close(stream.fileno())
            self.poll.close()
            hurry(HURRY)
            keys = by_source(self.root.table(i, self.agents), i)
            del self.root, self.keys  # those of others are not its own
            return Place(i, control, keys, self.network)

        def complain(text: str) -> None:
            control.part("failed", {"why": text, "where": "desim"})

        self.children.begin(i, place, serve, complain)
        control.close()
        self.enrol(i, Control(ours, foreign=True))

    def reap(self, agent: int) -> str:
        """How an agent's process ended, whose connection is closed."""
        until, status = time.monotonic() + PARTING, None
        while agent in self.children.pids and time.monotonic() < until:
            if (status := self.children.status(agent)) is None:
                time.sleep(0.002)
        return "closed its connection" if status is None else ending(status)

    def close(self) -> None:
        """End all processes, at once where they still run."""
        for control in self.controls.values():
            control.close()
        self.children.close(0.2)
        hurry(self._nice)
        super().close()


def hurry(nice: int) -> None:
    """Run before others where that is allowed: a neighbour's work is not to be measured."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
