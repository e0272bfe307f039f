"""Signals that end a run: Ctrl-C waits until processes have begun, others count as Ctrl-C.

In a fork a Ctrl-C would be lost. Without an answer to SIGTERM, the end of a session or of a job in
a batch system would lose the log.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

WAITING = {signal.SIGINT}
OTHERS = (signal.SIGTERM, signal.SIGHUP)  # what else asks a process to end


@contextmanager
def held() -> Iterator[None]:
    """Context whose Ctrl-C comes at its end; what is begun in it hears of none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.set())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WAITING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if pressed.is_set() and before is not signal.SIG_IGN:
        raise KeyboardInterrupt


@contextmanager
def ended_by_others(tell: Callable[[str], None]) -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP do what Ctrl-C does; tell: is told which it was.

    One that was ignored, as nohup has it, still is.
    """

    def press(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # the terminal may be gone
            tell(f"{signal.Signals(number).name}: stops as by Ctrl-C")
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in OTHERS}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, press)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def deaf() -> None:
    """Be a process that others end: Ctrl-C is for the one that has begun it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in OTHERS:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
