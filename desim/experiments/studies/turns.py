"""The order in which processes take jobs: who shares a training comes after who has it."""

from collections import deque
from collections.abc import Iterable

from desim.experiments.studies.job import Job

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
