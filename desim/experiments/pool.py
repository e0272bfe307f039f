"""Who plays the runs of a study: this process, local ones, or a Dask cluster; batch after batch.

The workers of a cluster need desim, and the scenarios' data files and plugins under the same names.
One that sees the study's folder stores its run there; another sends the run's files back.

Audits and rankings have other tasks than runs: `mapped` has local processes do these.
"""

import contextlib
import logging
import math
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Any

import psutil

from desim.errors import InputError, RunError, refusal, require, show
from desim.experiments.studies import work
from desim.experiments.studies.folder import finished
from desim.experiments.studies.work import Job, Result, run_job
from desim.numerics.cores import cores
from desim.numerics.environment import environment

# Local processes, of one thread each.
THREADS = ("DESIM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
KILLED = "workers: a process ended before its work was done"


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


def mapped(
    make: Callable[[], Any], do: Callable[[Any, Any], Any], tasks: Sequence[Any], workers: int
) -> Iterator[Any]:
    """`do(make(), task)` of each task, in their order; every process calls `make` once.

    Both must pickle. What they raise is raised here; RunError where a process is killed.
    """
    spawn, others = multiprocessing.get_context("spawn"), {*multiprocessing.active_children()}
    with ProcessPoolExecutor(min(workers, len(tasks)), spawn, _begin, (make,)) as processes:
        try:
            with beginning():
                results = [processes.submit(_done, do, task) for task in tasks]
            yield from (one.result() for one in results)
        except BrokenProcessPool:
            raise RunError(f"{KILLED}; allowed: --workers 1, which needs less memory") from None
        finally:
            for process in {*multiprocessing.active_children()} - others:
                process.kill()  # of what it is at nobody will hear


_state: Callable[[], Any]  # of a process that `mapped` has begun


def _begin(make: Callable[[], Any]) -> None:
    global _state
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    _state = cache(make)  # by the first task, whose errors are heard


def _done(do: Callable[[Any, Any], Any], task: Any) -> Any:
    return do(_state(), task)


# The order in which processes take jobs: a training comes before those that share it.
Tried = tuple[Job, int]  # a job, and how often it was tried before


class Turns:
    """Jobs that wait."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        wanted = list(jobs)
        keys = {job.key for job in wanted}
        self._first: deque[Tried] = deque()
        self._after: dict[str, deque[Tried]] = {}
        for job in wanted:
            follows = job.root in keys and job.root != job.key and job.place is not None
            line = self._after.setdefault(job.root, deque()) if follows else self._first
            line.append((job, 0))
        self._open: set[str] = set()

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._after.values()))

    def take(self, root: str) -> Tried | None:
        """What a process does next whose last job had this root; None where it has to wait.

        Its own family goes before the others', these before what shares a training elsewhere.
        """
        if not (root in self._open and root in self._after):
            if self._first:
                return self._first.popleft()
            root = next((one for one in self._after if one in self._open), "")
        if not root:
            return None
        found = self._after[root].popleft()
        if not self._after[root]:
            del self._after[root]
        return found

    def heard(self, key: str) -> None:
        """Note that a job has ended, so that others may share its training."""
        self._open.add(key)

    def again(self, job: Job, tries: int) -> None:
        """Put back a job whose process was killed."""
        self._first.appendleft((job, tries))


# Processes for the runs of a study, which goes on when one is killed or grows.
ATTEMPTS = 2  # of a job whose process is killed
STILLBORN = 3  # processes in a row that end before their first job
LOOK = 0.25  # s between looks at the processes' memory
SHARE = 0.8  # of the machine's free memory, for all processes together


def serve(jobs: Connection) -> None:
    """Do jobs as they come until there are no more, or nobody who waits for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        jobs.send("ready")
        while True:
            jobs.send(run_job(jobs.recv()))


@dataclass
class Worker:
    """A process, the pipe to it, and the job it has (with how many tries before), if any."""

    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    job: Job | None = None
    tries: int = 0
    root: str = ""  # of the last job

    @classmethod
    def begun(cls) -> "Worker":
        """One in a new process, inside `beginning`."""
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        process = spawn.Process(target=serve, args=(there,), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def memory(self) -> int:
        """Bytes that the process holds; 0 where it has ended."""
        try:
            return int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0


class Workers:
    """Processes that do any number of batches of jobs; as many as there is work for."""

    def __init__(self) -> None:
        self.waiting = Turns(())
        self.size = 0
        self.memory = 0
        self.every: list[Worker] = []
        self.stillborn = 0

    def results(self, jobs: Iterable[Job], size: int, memory: int) -> Iterator[Result]:
        """Results of all jobs in the order in which they are done.

        size: how many processes there may be. A job whose process is killed is tried once more; one
        whose process holds more than `memory` bytes fails. RunError where none can begin.
        """
        self.waiting, self.size, self.memory = Turns(jobs), size, memory
        while self.waiting or self.busy:
            self._send_jobs()
            ready = wait([worker.pipe for worker in self.every], timeout=LOOK)
            for worker in [one for one in self.every if one.pipe in ready]:
                yield from self._hear(worker)
            for worker in [one for one in self.busy if one.memory() > memory]:
                self.end(worker)
                allowed = f"{memory / 1e9:.3g} GB"
                yield self._failed(worker, f"needed more memory than the {allowed} of a worker")

    @property
    def busy(self) -> list[Worker]:
        """Workers that have a job."""
        return [worker for worker in self.every if worker.job is not None]

    def _send_jobs(self) -> None:
        """Start processes as long as there is work for them, and give the idle ones their jobs."""
        wanted = min(self.size, len(self.waiting) + len(self.busy))
        if len(self.every) < wanted:
            with beginning():  # Ctrl-C is heard once all that begins is known, and so ended
                while len(self.every) < wanted:
                    self.every.append(Worker.begun())
        for worker in self.every:
            if worker.ready and worker.job is None and (turn := self.waiting.take(worker.root)):
                worker.job, worker.tries = turn
                worker.root = worker.job.root
                with contextlib.suppress(OSError):  # just killed: its pipe says so next
                    worker.pipe.send(worker.job)

    def _hear(self, worker: Worker) -> Iterator[Result]:
        """Take what a worker says; its silence means that it has been killed."""
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._lost(worker)
            return
        if isinstance(said, Result):
            worker.job = None
            self.waiting.heard(said.key)
            yield said
            if worker.memory() > self.memory // 2:
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

    def _failed(self, worker: Worker, why: str) -> Result:
        assert worker.job is not None
        self.waiting.heard(worker.job.key)
        return Result(worker.job.key, "failed", why)

    def _lost(self, worker: Worker) -> Iterator[Result]:
        worker.process.join()
        code, tries = worker.process.exitcode or 0, worker.tries + 1
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.end(worker)
        if worker.job is None:
            self.stillborn += not worker.ready
            if self.stillborn >= STILLBORN:
                raise RunError(f"workers: processes end before they begin ({cause})")
        elif tries < ATTEMPTS:
            self.waiting.again(worker.job, tries)
        else:
            yield self._failed(worker, f"its process ended {tries} times ({cause})")


# A Dask cluster; no other module imports dask.distributed.
PATIENCE = 10.0  # s for a scheduler to answer


def on_cluster(jobs: Iterable[Job], address: str) -> Iterator[Result]:
    """Results of all jobs in the order in which they are done.

    InputError where no scheduler answers at `address`, RunError when it is gone later. A job whose
    worker is killed goes to another one, as Dask does it; one that kills several of them fails.
    """
    require("--dask", "distributed", "dask")
    from distributed import Client

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # its end is told in words
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--dask: no scheduler answers at {show(address)} ({why})") from None
    try:
        yield from _gathered(client, {job.key: job for job in jobs}, address)
    finally:
        client.close(timeout=2.0)


def _task(job: Job) -> Result:
    os.environ.update({"DESIM_THREADS": "1", "DESIM_COMPILE": "here"} | os.environ)  # others work
    return run_job(job)


def _gathered(client: Any, wanted: dict[str, Job], address: str) -> Iterator[Result]:
    """Results as they come; jobs that share the training of another one are sent after it."""
    from distributed import as_completed

    def sent(job: Job) -> Any:
        future = client.submit(_task, job, key=f"desim-{job.key}-{job.token}", pure=False)
        keys[future.key] = job.key
        return future

    keys: dict[str, str] = {}
    later: dict[str, list[Job]] = {"": []}
    for job in wanted.values():
        alone = job.root == job.key or job.root not in wanted
        later.setdefault("" if alone else job.root, []).append(job)
    futures = as_completed([sent(job) for job in later.pop("")], loop=client.loop)
    for future in futures:
        key = keys[future.key]
        yield _result(future, key, address)
        future.release()
        for job in later.pop(key, ()):
            futures.add(sent(job))


def _result(future: Any, key: str, address: str) -> Result:
    if future.status == "finished":
        found: Result = future.result()
        return replace(found, key=key)
    if future.status == "error":
        error = future.exception()
        return Result(key, "failed", f"on the cluster: {type(error).__name__}: {error}")
    raise RunError(f"--dask: the scheduler at {address} is gone; what was done is stored")


# This process, local ones, or the cluster.
FEW_STORED = 100  # runs that are measured in this process
Play = Callable[[list[Job]], Iterator[Result]]


def check(workers: int | None, dask: str | None, memory: float | None) -> None:
    """Raise InputError for numbers that no one can work with; see `desim.study`."""
    environment()
    if workers is not None and workers < 0:
        raise InputError(f"workers: {refusal(workers, 'a whole number, at least 0')}")
    if dask is not None and (workers is not None or memory is not None):
        raise InputError("dask: found workers or memory too; allowed: the cluster has its own")
    if memory is not None and not 1e8 <= memory < math.inf:
        allowed = "a finite number, at least 1e8 bytes, 100 MB"
        raise InputError(f"memory: {refusal(memory, allowed)}")


@contextlib.contextmanager
def players(workers: int | None, dask: str | None, memory: float | None) -> Iterator[Play]:
    """What plays jobs, in the order in which they are done, however often it is asked.

    Local processes begin with the first batch that needs them and end with the context.
    """
    local = Workers()

    def play(jobs: list[Job]) -> Iterator[Result]:
        stored = [job for job in jobs if finished(job.place)] if workers != 0 else []
        if len(stored) <= FEW_STORED:  # to read them here takes less than to start a process
            yield from map(run_job, stored)
            jobs = [job for job in jobs if job not in stored]
        if jobs and dask is not None:
            yield from on_cluster(jobs, dask)
        elif jobs and workers != 0:
            size = max(local.size, min(workers or cores(), len(jobs)))
            free = int(SHARE * psutil.virtual_memory().available / size)
            yield from local.results(jobs, size, free if memory is None else int(memory))
        else:
            for job in jobs:
                result = run_job(job)
                yield result
                if result.status == "stopped":  # by Ctrl-C, which ends the study
                    raise KeyboardInterrupt

    try:
        yield play
    finally:
        local.end()
        work.forget()
