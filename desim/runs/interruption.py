"""Ctrl-C during a run: an end between two steps, so that the log and the arrays agree."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interruption:
    """Context in which the first Ctrl-C waits for `check`, the second raises, others are ignored.

    Does nothing outside the main thread, or where the program has a SIGINT handler of its own.
    """

    def __init__(self) -> None:
        self.pressed = 0
        self._installed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if main and before in (signal.default_int_handler, signal.SIG_IGN):
            self._before = before  # SIG_IGN: a shell has put the run into the background
            signal.signal(signal.SIGINT, self._press)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed: to be called where stopping is safe."""
        if self.pressed:
            raise KeyboardInterrupt

    def close(self) -> None:
        """From here on Ctrl-C is ignored: what is being stored is going to be complete."""
        self.pressed = max(self.pressed, 2)

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.pressed += 1
        if self.pressed == 2:
            raise KeyboardInterrupt
