"""One thread that stores what a run hands over, so that the run itself need not wait for it."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

AHEAD = 32  # tasks that may wait for the thread: with more the run waits for it


class Worker:
    """Carries out tasks in order; what one raises the next calls raise, and no other is begun."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "desim-log")
        self._waiting: deque[Future[None]] = deque()
        self._failure: BaseException | None = None
        self._alarm: threading.Timer | None = None

    def do(self, task: Callable[..., None], *arguments: Any) -> None:
        """Let task(*arguments) run soon."""
        self._waiting.append(self._thread.submit(self._attempt, task, *arguments))
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > AHEAD):
            self._waiting[0].result()
            self._waiting.popleft()

    def later(self, seconds: float, task: Callable[[], None]) -> None:
        """Let task() run in so many seconds if the thread lives, even if nothing else is to do."""

        def ring() -> None:
            with suppress(RuntimeError):  # the thread has ended
                self._thread.submit(self._attempt, task)

        self._alarm = threading.Timer(seconds, ring)
        self._alarm.daemon = True
        self._alarm.start()

    def wait(self) -> None:
        """Wait until all tasks are done; raise what went wrong."""
        while self._waiting:
            self._waiting[0].result()
            self._waiting.popleft()

    def idle(self) -> None:
        """Wait until no task is left, whatever went wrong."""
        for task in self._waiting:
            task.exception()

    def close(self) -> None:
        """Wait for all tasks, raise what went wrong, and end the thread."""
        try:
            self.wait()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self._thread.shutdown()

    def _attempt(self, task: Callable[..., None], *arguments: Any) -> None:
        if self._failure is None:
            try:
                task(*arguments)
            except BaseException as failure:
                self._failure = failure
        if self._failure is not None:
            raise self._failure
