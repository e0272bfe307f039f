"""Local processes that play the runs of a study, which goes on when one is killed or grows."""

import contextlib
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import ModuleType

import psutil

from desim.errors import RunError
from desim.experiments.studies.work import Job, Result
from desim.experiments.studies.worker import serve

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

    def __bool__(self) -> bool:
        return bool(self._first or self._after)

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._after.values()))

    def take(self, root: str) -> Tried | None:
        """What a process does next whose last job had this root; None where it has to wait.

        Its own family goes before the others', these before what shares a training elsewhere.
        """
        if root in self._open and root in self._after:
            return self._pop(root)
        if self._first:
            return self._first.popleft()
        ready = next((one for one in self._after if one in self._open), None)
        return None if ready is None else self._pop(ready)

    def heard(self, key: str) -> None:
        """Note that a job has ended, so that others may share its training."""
        self._open.add(key)

    def again(self, job: Job, tries: int) -> None:
        """Put back a job whose process was killed."""
        self._first.appendleft((job, tries))

    def _pop(self, root: str) -> Tried:
        found = self._after[root].popleft()
        if not self._after[root]:
            del self._after[root]
        return found


# The processes, and what they carry out.
ATTEMPTS = 2  # of a job whose process is killed
STILLBORN = 3  # processes in a row that end before their first job
LOOK = 0.25  # s between looks at the processes' memory
SHARE = 0.8  # of the machine's free memory, for all processes together


@dataclass
class Worker:
    """A process, the pipe to it, and the job it has (with how many tries before), if any."""

    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    job: Job | None = None
    tries: int = 0
    root: str = ""  # of the last job

    def memory(self) -> int:
        """Bytes that the process holds; 0 where it has ended."""
        try:
            return int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def end(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def memory_share(workers: int) -> int:
    """Bytes that each of so many processes may hold: its part of SHARE of what is free now."""
    return int(SHARE * psutil.virtual_memory().available / workers)


@contextlib.contextmanager
def crew() -> Iterator["Crew"]:
    """Processes for any number of batches of jobs, which begin with the first and end here."""
    made = Crew()
    try:
        yield made
    finally:
        for worker in made.workers:
            worker.end()


class Crew:
    """Processes that carry out jobs; as many as there is work for, `size` at most."""

    def __init__(self) -> None:
        self.waiting = Turns(())
        self.size = 0
        self.memory = 0
        self.workers: list[Worker] = []
        self.stillborn = 0

    def carried_out(self, jobs: Iterable[Job], size: int, memory: int) -> Iterator[Result]:
        """Results of all jobs in the order in which they are done.

        A job whose process is killed is tried once more; one whose process holds more than
        `memory` bytes fails. RunError where none can begin.
        """
        self.waiting, self.size, self.memory = Turns(jobs), size, memory
        while self.waiting or self.busy:
            self.hand_out()
            ready = wait([worker.pipe for worker in self.workers], timeout=LOOK)
            for worker in [one for one in self.workers if one.pipe in ready]:
                yield from self.hear(worker)
            for worker in [one for one in self.busy if one.memory() > memory]:
                yield self.stop(worker)

    @property
    def busy(self) -> list[Worker]:
        """Workers that have a job."""
        return [worker for worker in self.workers if worker.job is not None]

    def hand_out(self) -> None:
        """Start processes as long as there is work for them, and give the idle ones their jobs."""
        wanted = min(self.size, len(self.waiting) + len(self.busy))
        while len(self.workers) < wanted:
            self.workers.append(Worker(*begun(serve)))
        for worker in self.workers:
            if worker.ready and worker.job is None and (turn := self.waiting.take(worker.root)):
                worker.job, worker.tries = turn
                worker.root = worker.job.root
                try:
                    worker.pipe.send(worker.job)
                except OSError:
                    continue  # it has just been killed: its pipe says so next

    def hear(self, worker: Worker) -> Iterator[Result]:
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
                self._dismiss(worker)  # a fresh process begins with little memory
        else:
            worker.ready, self.stillborn = True, 0

    def stop(self, worker: Worker) -> Result:
        """End a worker that holds too much."""
        job = worker.job
        assert job is not None
        self._dismiss(worker)
        self.waiting.heard(job.key)
        allowed = f"{self.memory / 1e9:.3g} GB"
        return Result(job.key, "failed", f"needed more memory than the {allowed} of a worker")

    def _dismiss(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.end()

    def _lost(self, worker: Worker) -> Iterator[Result]:
        worker.process.join()
        code, job, tries = worker.process.exitcode, worker.job, worker.tries + 1
        self._dismiss(worker)
        if job is None:
            self.stillborn += not worker.ready
            if self.stillborn >= STILLBORN:
                raise RunError(f"workers: processes end before they begin ({_cause(code)})")
        elif tries < ATTEMPTS:
            self.waiting.again(job, tries)
        else:
            self.waiting.heard(job.key)
            yield Result(job.key, "failed", f"its process ended {tries} times ({_cause(code)})")


def begun(target: Callable[[Connection], None]) -> tuple[SpawnProcess, Connection]:
    """A new process for `target` and a pipe to it; it does not run this one's script again."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=target, args=(there,), daemon=True)
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = script
    there.close()
    return process, here


def _cause(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
