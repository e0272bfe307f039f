"""Agents as processes of this machine, forked from one that has built the scenario.

It has loaded all code by then, and no thread of its own has begun. Nothing of them outlives
`close`, whatever happened.
"""

import ctypes
import gc
import os
import signal
import socket
import time
from contextlib import suppress
from typing import Any

import numpy as np

from desim.deployments.fleet import PARTING, Fleet, Serve
from desim.deployments.ground import Ground
from desim.deployments.holding import deaf, held
from desim.deployments.keys import by_source
from desim.deployments.place import Ended, Place
from desim.deployments.processes import ending
from desim.deployments.streams import Stream
from desim.deployments.wire import packed
from desim.engine.patience import at
from desim.errors import InputError
from desim.numerics.jit import set_threads

HURRY = -10  # niceness of what is measured, where that is allowed


class Local(Fleet):
    """See Fleet."""

    def __init__(self, agents: int, ground: Ground) -> None:
        super().__init__(agents, ground)
        self.pids: dict[int, int] = {}
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)

    def launch(self, serve: Serve) -> None:
        """Begin a process for each agent, which does serve(place) until the run is over."""
        with held():
            gc.collect()
            gc.freeze()  # what is there already no collection looks at any more, in any process
            for i in range(self.agents):
                self._fork(i, serve)
        hurry(HURRY)
        if self.ground.alarm is not None:
            self.poll.add(self.ground.alarm)

    def _special(self, stream: Any) -> bool:
        """See Fleet: without what carries packets nothing comes any more."""
        if stream is not self.ground.alarm:
            return False
        self.poll.remove(stream)
        how = self.ground.fate()
        if self.origin == np.inf:
            raise InputError(f"deploy: {how} before the run began")
        if not self.dismissing:
            raise at(self.now, how)
        return True

    def _fork(self, i: int, serve: Serve) -> None:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._be(i, theirs, serve)
        theirs.close()
        self.pids[i] = pid
        self.controls[i] = Stream(ours, ("control", i))
        self.poll.add(self.controls[i])

    def _be(self, agent: int, control: socket.socket, serve: Serve) -> None:
        """What a new process does, and nothing else."""
        status = 1
        try:
            deaf()
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            for stream in self.controls.values():
                os.close(stream.fileno())
            self.poll.close()
            set_threads(1)
            hurry(HURRY)
            self.ground.enter(agent)
            keys = by_source(self.keys.table(agent, self.agents), agent)
            del self.keys, self._known  # those of others are not its own
            place = Place(agent, Stream(control), keys, self.ground)
            with suppress(Ended):
                serve(place)
            with suppress(OSError):
                control.setblocking(True)
                for rest in place.control.waiting:
                    control.sendall(rest)
                control.sendall(packed("bye", {}, {}))
            status = 0
        except BaseException as error:
            with suppress(Exception):
                text = f"{type(error).__name__}: {error}"
                control.setblocking(True)
                control.sendall(packed("failed", {"why": text, "where": "desim"}, {}))
        finally:
            os._exit(status)

    def _reap(self, agent: int) -> str:
        """How an agent's process ended, whose connection is closed."""
        if agent not in self.pids:
            return "closed its connection"
        until, status = time.monotonic() + PARTING, None
        while status is None and time.monotonic() < until:
            status = self._status(agent)
            time.sleep(0.002 if status is None else 0.0)
        if status is None:
            return "closed its connection"
        return ending(status)

    def _status(self, agent: int) -> int | None:
        """How a process ended; None if it has not."""
        try:
            pid, status = os.waitpid(self.pids[agent], os.WNOHANG)
        except ChildProcessError:
            pid, status = self.pids[agent], 0
        if pid == 0:
            return None
        del self.pids[agent]
        return status

    def close(self) -> None:
        """End all processes, at once where they still run."""
        for control in self.controls.values():
            control.close()
        until = time.monotonic() + 0.2
        while self.pids:
            for agent in list(self.pids):
                self._status(agent)
            if self.pids and time.monotonic() > until:
                for pid in self.pids.values():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                until = np.inf
            time.sleep(0.002 if self.pids else 0.0)
        hurry(self._nice)
        super().close()
        gc.unfreeze()


def hurry(nice: int) -> None:
    """Run before others where that is allowed: a neighbour's work is not to be measured."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
