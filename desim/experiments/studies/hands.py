"""Who plays the runs of a study: this process, local ones, or a Dask cluster; batch after batch.

The workers of a cluster need desim, and the scenarios' data files and plugins under the same names.
One that sees the study's folder stores its run there; another sends the run's files back.
"""

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from desim.errors import InputError, RunError, refusal, require, show
from desim.experiments.studies import processes, work
from desim.experiments.studies.folder import finished
from desim.experiments.studies.work import Job, Result, carry_out
from desim.numerics.cores import cores
from desim.numerics.environment import environment

# A Dask cluster; no other module imports dask.distributed.
PATIENCE = 10.0  # s for a scheduler to answer


def carried_out(jobs: Iterable[Job], address: str) -> Iterator[Result]:
    """Results of all jobs in the order in which they are done.

    InputError where no scheduler answers at `address`, RunError when it is gone later. A job whose
    worker is killed goes to another one, as Dask does it; one that kills several of them fails.
    """
    client = _client(address)
    try:
        yield from _gathered(client, {job.key: job for job in jobs}, address)
    finally:
        client.close(timeout=2.0)


def _task(job: Job) -> Result:
    os.environ.setdefault("DESIM_THREADS", "1")  # others on the machine are workers too
    return carry_out(job)


def _client(address: str) -> Any:
    require("--dask", "distributed", "dask")
    from distributed import Client

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # its end is told in words
    try:
        return Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--dask: no scheduler answers at {show(address)} ({why})") from None


def _gathered(client: Any, wanted: dict[str, Job], address: str) -> Iterator[Result]:
    """Results as they come; jobs that share the training of another one are sent after it."""
    from distributed import as_completed

    def sent(job: Job) -> Any:
        future = client.submit(_task, job, key=f"desim-{job.key}-{job.token}", pure=False)
        keys[future.key] = job.key
        return future

    keys: dict[str, str] = {}
    later: dict[str, list[Job]] = {}
    for job in wanted.values():
        if job.root in wanted and job.root != job.key:
            later.setdefault(job.root, []).append(job)
    after = {job.key for jobs in later.values() for job in jobs}
    begun = [sent(job) for key, job in wanted.items() if key not in after]
    futures = as_completed(begun, loop=client.loop)
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
FEW = 100  # runs that are measured in this process
Carry = Callable[[list[Job]], Iterator[Result]]


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
def hands(workers: int | None, dask: str | None, memory: float | None) -> Iterator[Carry]:
    """What carries out jobs, in the order in which they are done, however often it is asked.

    Local processes begin with the first batch that needs them and end with the context.
    """
    with contextlib.ExitStack() as stack:
        crews: list[processes.Crew] = []

        def local(jobs: list[Job]) -> Iterator[Result]:
            if not crews:
                crews.append(stack.enter_context(processes.crew()))
            size = max(crews[0].size, min(workers or cores(), len(jobs)))
            bound = processes.memory_share(size) if memory is None else int(memory)
            return crews[0].carried_out(jobs, size, bound)

        def carry(jobs: list[Job]) -> Iterator[Result]:
            stored = [job for job in jobs if finished(job.place)] if workers != 0 else []
            if len(stored) <= FEW:  # to read them here takes less than to start a process
                yield from map(carry_out, stored)
                jobs = [job for job in jobs if job not in stored]
            if not jobs:
                return
            if dask is not None:
                yield from carried_out(jobs, dask)
            elif workers == 0:
                yield from _one_by_one(jobs)
            else:
                yield from local(jobs)

        try:
            yield carry
        finally:
            work.forget()


def _one_by_one(jobs: list[Job]) -> Iterator[Result]:
    """Jobs in this process; a run that Ctrl-C has stopped ends the study."""
    for job in jobs:
        result = carry_out(job)
        yield result
        if result.status == "stopped":
            raise KeyboardInterrupt
