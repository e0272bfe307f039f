"""Who plays the runs of a study: this process, local ones, or a Dask cluster; batch after batch.

The workers of a cluster need desim, and the scenarios' data files and plugins under the same names.
One that sees the study's folder stores its run there; another sends the run's files back.

Audits and rankings have other tasks than runs: `mapped` has local processes do these.
"""

import contextlib
import math
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cache
from typing import Any

import psutil

from desim.errors import InputError, RunError, refusal
from desim.experiments.studies import work
from desim.experiments.studies.folder import finished
from desim.experiments.studies.work import Job, Result, run_job
from desim.numerics.cores import cores
from desim.runs import processes

KILLED = "workers: a process ended before its work was done"


def mapped(
    make: Callable[[], Any], do: Callable[[Any, Any], Any], tasks: Sequence[Any], workers: int
) -> Iterator[Any]:
    """`do(make(), task)` of each task, in their order; every process calls `make` once.

    Both must pickle. What they raise is raised here; RunError where a process is killed.
    """
    spawn, others = multiprocessing.get_context("spawn"), {*multiprocessing.active_children()}
    with ProcessPoolExecutor(min(workers, len(tasks)), spawn, _begin, (make,)) as executor:
        try:
            with processes.beginning():
                results = [executor.submit(_done, do, task) for task in tasks]
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
SHARE = 0.8  # of the machine's free memory, for all processes together


class Players(processes.Workers):
    """Processes that play runs."""

    def __init__(self) -> None:
        super().__init__(run_job)
        self.turns = Turns(())

    def played(self, jobs: Iterable[Job], size: int, memory: int) -> Iterator[Result]:
        """Results of all jobs in the order in which they are done; see `results`."""
        self.turns = Turns(jobs)
        return self.results(size, memory)

    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self.turns)

    def next_for(self, worker: processes.Worker) -> Tried | None:
        """What a process does next: see `Turns.take`."""
        return self.turns.take(worker.last.root if worker.last else "")

    def again(self, job: Job, tries: int, cause: str) -> None:
        """Put back a job whose process was killed."""
        self.turns.again(job, tries)

    def heard(self, job: Job) -> None:
        """A job has ended."""
        self.turns.heard(job.key)

    def failed(self, worker: processes.Worker, why: str) -> Result:
        """The job has failed, and with it nothing else."""
        assert worker.job is not None
        self.turns.heard(worker.job.key)
        return Result(worker.job.key, "failed", why)


def on_cluster(jobs: Iterable[Job], address: str) -> Iterator[Result]:
    """Results of all jobs in the order in which they are done.

    InputError where no scheduler answers at `address`, RunError when it is gone later. A job whose
    worker is killed goes to another one, as Dask does it; one that kills several of them fails.
    """
    with processes.connected(address) as client:
        yield from _gathered(client, {job.key: job for job in jobs}, address)


def _task(job: Job) -> Result:
    processes.in_turn()
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
    processes.refuse_unfit(workers, dask)
    if dask is not None and memory is not None:
        raise InputError("dask: found memory too; allowed: the cluster has its own")
    if memory is not None and not 1e8 <= memory < math.inf:
        allowed = "a finite number, at least 1e8 bytes, 100 MB"
        raise InputError(f"memory: {refusal(memory, allowed)}")


@contextlib.contextmanager
def players(workers: int | None, dask: str | None, memory: float | None) -> Iterator[Play]:
    """What plays jobs, in the order in which they are done, however often it is asked.

    Local processes begin with the first batch that needs them and end with the context.
    """
    local = Players()

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
            yield from local.played(jobs, size, free if memory is None else int(memory))
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
