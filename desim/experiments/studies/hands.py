"""Who plays the runs of a study: this process, local ones, or a Dask cluster; batch after batch."""

import contextlib
import math
from collections.abc import Callable, Iterator

from desim.errors import InputError, refusal
from desim.experiments.studies import cluster, family, processes
from desim.experiments.studies.folder import finished
from desim.experiments.studies.job import Job
from desim.experiments.studies.work import Result, carry_out
from desim.numerics.environment import cores, environment

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
                yield from cluster.carried_out(jobs, dask)
            elif workers == 0:
                yield from _one_by_one(jobs)
            else:
                yield from local(jobs)

        try:
            yield carry
        finally:
            family.forget()


def _one_by_one(jobs: list[Job]) -> Iterator[Result]:
    """Jobs in this process; a run that Ctrl-C has stopped ends the study."""
    for job in jobs:
        result = carry_out(job)
        yield result
        if result.status == "stopped":
            raise KeyboardInterrupt
