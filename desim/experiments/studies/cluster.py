"""Runs of a study on a Dask cluster: the only module that knows dask.distributed.

Workers need desim, and the scenarios' data files and plugins under the same names. A worker that
sees the study's folder stores its run there itself; another sends the run's files back.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from desim.errors import InputError, RunError, require, show
from desim.experiments.studies.job import Job
from desim.experiments.studies.work import Result, carry_out

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
