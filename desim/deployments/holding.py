"""Ctrl-C while processes are begun waits until they are: in a fork it would be lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WAITING = {signal.SIGINT}


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
