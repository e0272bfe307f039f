"""Local processes that do jobs, however often one is killed, and the door to a Dask cluster.

Studies have their runs done so, and a run the training of its agents.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import current_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from numbers import Integral
from types import ModuleType
from typing import Any

import psutil

from desim.errors import InputError, RunError, refusal, require, show
from desim.numerics.cores import cores
from desim.numerics.environment import environment

# Local processes, of one thread each.
THREADS = ("DESIM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ATTEMPTS = 2  # of a job whose process is killed
STILLBORN = 3  # processes in a row that end before their first job
LOOK = 0.25  # s between looks at the processes' memory
PER_CORE, LEAST_BOUND = 4, 32  # processes that anybody may ask for
ANY = 1 << 62  # bytes of memory that no process holds


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """Context in which processes begin: they hear no Ctrl-C, and do not run this one's script."""
    masks = hasattr(signal, "pthread_sigmask")  # which a process inherits: it is long in importing
    if masks:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        resource_tracker.ensure_running()  # to begin it would let signals through
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    script, before = sys.modules["__main__"], {name: os.environ.get(name) for name in THREADS}
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ |= dict.fromkeys(THREADS, "1")  # they look when they import numpy and numba
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def serve(jobs: Connection, do: Callable[[Any], Any]) -> None:
    """Do jobs as they come until there are no more, or nobody who waits for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    with contextlib.suppress(EOFError, OSError):
        jobs.send("ready")
        while True:
            result = do(jobs.recv())
            with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none
                sys.stdout.flush()  # of what a model prints: a process is ended by a kill
            jobs.send(result)


@dataclass
class Worker:
    """A process, the pipe to it, and the job it has (with how many tries before), if any."""

    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    job: Any = None
    tries: int = 0
    last: Any = None  # the latest job that it had

    @classmethod
    def begun(cls, do: Callable[[Any], Any]) -> "Worker":
        """One in a new process that does jobs so, inside `beginning`."""
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        process = spawn.Process(target=serve, args=(there, do), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def holds_more(self, memory: int) -> bool:
        """Whether the process holds more bytes than these; one that has ended holds none."""
        try:
            return memory < ANY and psutil.Process(self.process.pid).memory_info().rss > memory
        except psutil.Error:
            return False


class Workers:
    """Processes that do any number of batches of jobs; as many as there is work for.

    do: what a process does with a job, a function of a module. A subclass says which job comes
    next, and what becomes of one whose process was killed twice.
    """

    def __init__(self, do: Callable[[Any], Any]) -> None:
        self.do = do
        self.size = 0
        self.memory = ANY
        self.every: list[Worker] = []
        self.stillborn = 0

    def waiting(self) -> int:
        """How many jobs wait."""
        raise NotImplementedError

    def next_for(self, worker: Worker) -> tuple[Any, int] | None:
        """A job for a worker and how often it was tried before; None where it has to wait."""
        raise NotImplementedError

    def again(self, job: Any, tries: int, cause: str) -> None:
        """Put back a job whose process was killed, for this cause."""
        raise NotImplementedError

    def failed(self, worker: Worker, why: str) -> Any:
        """What comes of the job of a worker that does not bear it."""
        raise NotImplementedError

    def message(self, worker: Worker) -> Any:
        """What a worker is sent of its job."""
        return worker.job

    def heard(self, job: Any) -> None:
        """A job has ended."""

    def results(self, size: int, memory: int = ANY) -> Iterator[Any]:
        """Results of all jobs that wait, in the order in which they are done.

        size: how many processes there may be. A job whose process is killed is tried once more; one
        whose process holds more than `memory` bytes fails. RunError where none can begin.
        """
        self.size, self.memory = size, memory
        while self.waiting() or self.busy:
            self._send_jobs()
            ready = wait([worker.pipe for worker in self.every], timeout=LOOK)
            for worker in [one for one in self.every if one.pipe in ready]:
                yield from self._hear(worker)
            for worker in [one for one in self.busy if one.holds_more(memory)]:
                self.end(worker)
                allowed = f"{memory / 1e9:.3g} GB"
                yield self.failed(worker, f"needed more memory than the {allowed} of a worker")

    @property
    def busy(self) -> list[Worker]:
        """Workers that have a job."""
        return [worker for worker in self.every if worker.job is not None]

    def _send_jobs(self) -> None:
        """Start processes as long as there is work for them, and give the idle ones their jobs."""
        wanted = min(self.size, self.waiting() + len(self.busy))
        if len(self.every) < wanted:
            with beginning():  # Ctrl-C is heard once all that begins is known, and so ended
                while len(self.every) < wanted:
                    self.every.append(Worker.begun(self.do))
        for worker in self.every:
            if worker.ready and worker.job is None and (turn := self.next_for(worker)):
                worker.job, worker.tries = turn
                worker.last = worker.job
                with contextlib.suppress(OSError):  # just killed: its pipe says so next
                    worker.pipe.send(self.message(worker))

    def _hear(self, worker: Worker) -> Iterator[Any]:
        """Take what a worker says; its silence means that it has been killed."""
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._lost(worker)
            return
        if worker.ready:
            self.heard(worker.job)
            worker.job = None
            yield said
            if self.memory < ANY and worker.holds_more(self.memory // 2):
                self.end(worker)  # a fresh process begins with little memory
        else:
            worker.ready, self.stillborn = True, 0

    def end(self, *workers: Worker) -> None:
        """End processes at once; by default all of them."""
        for worker in workers or [*self.every]:
            self.every.remove(worker)
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()

    def _lost(self, worker: Worker) -> Iterator[Any]:
        worker.process.join()
        code, tries = worker.process.exitcode or 0, worker.tries + 1
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.end(worker)
        if worker.job is None:
            self.stillborn += not worker.ready
            if self.stillborn >= STILLBORN:
                raise RunError(f"workers: processes end before they begin ({cause})")
        elif tries < ATTEMPTS:
            self.again(worker.job, tries, cause)
        else:
            yield self.failed(worker, f"its process ended {tries} times ({cause})")


def refuse_unfit(workers: int | None, dask: str | None) -> None:
    """Raise InputError for numbers that no one can work with."""
    environment()
    whole = isinstance(workers, Integral) and not isinstance(workers, bool)
    if workers is not None and not (whole and workers >= 0):
        raise InputError(f"workers: {refusal(workers, 'a whole number, at least 0')}")
    most = max(LEAST_BOUND, PER_CORE * cores())
    if workers is not None and workers > most:
        allowed = f"at most {most}: each is a process, of {cores()} cores"
        raise InputError(f"workers: {refusal(workers, allowed)}")
    if workers and current_process().daemon:  # as those of multiprocessing.Pool are
        allowed = "0, or one of concurrent.futures"
        raise InputError(f"workers: found {workers} in a daemon process; allowed: {allowed}")
    if dask is not None and not (isinstance(dask, str) and dask):
        raise InputError(f"dask: {refusal(dask, 'the address of a scheduler')}")
    if dask is not None and workers is not None:
        raise InputError("dask: found workers too; allowed: the cluster has its own")


# A Dask cluster; the only other module that imports dask.distributed is the one of studies.
PATIENCE = 10.0  # s for a scheduler to answer


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """The client of a cluster's scheduler; InputError where none answers at `address`."""
    require("--dask", "distributed", "dask")
    from distributed import Client

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # its end is told in words
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--dask: no scheduler answers at {show(address)} ({why})") from None
    try:
        yield client
    finally:
        client.close(timeout=2.0)


def in_turn() -> None:
    """What holds in a worker of a cluster: others work beside it."""
    os.environ.update({"DESIM_THREADS": "1", "DESIM_COMPILE": "here"} | os.environ)
