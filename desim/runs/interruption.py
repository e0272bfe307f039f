"""Ctrl-C before and during a run: an end between two steps, so that the log and the arrays agree.

Pressed again it ends the run as a kill does: a program cannot be left anywhere and tell what of it
is complete. Several at once are one: a terminal and what has started desim may both pass it on.
"""

import _thread
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from desim.errors import AtOnce
from desim.numerics.environment import environment
from desim.numerics.watched import watched

PAUSE = 0.5  # s after the first Ctrl-C in which others are the same one
WAITS = "Ctrl-C: stops after this compilation; press again to stop now"


class Compiling(Protocol):
    """What knows whether a function is being compiled."""

    @property
    def under_way(self) -> bool:
        """Whether that is so now."""


class Interruption:
    """Context in which the first Ctrl-C waits for `check`, the second raises AtOnce.

    Those that follow the first within PAUSE of the clock are the same, later ones are ignored.
    Does nothing outside the main thread, or where the program has a SIGINT handler of its own.
    Nothing can stop a compilation but a second Ctrl-C: where `compiling` is given and under way, a
    line on stderr says so at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pressed = 0
        self._clock, self._since = clock, 0.0
        self.compiling: Compiling | None = None
        self._stepped = False
        self._installed = False
        self._before: Any = None
        self._bell: _Bell | None = None

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if main and before in (signal.default_int_handler, signal.SIG_IGN):
            self._before = before  # SIG_IGN: a shell has put the run into the background
            signal.signal(signal.SIGINT, self._press)
            self._installed = True
            self._bell = _Bell(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bell is not None:
            self._bell.close()
        if self._installed:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed: to be called where stopping is safe."""
        self._stepped = True
        if self.pressed:
            raise KeyboardInterrupt

    def compiled(self) -> None:
        """A function has been compiled: as `check`, but once, and before the first step alone.

        What raises in a thread that only helps is lost: it is for the one that plays.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if not self._stepped:
            self.check()
            self._stepped = False

    def close(self) -> None:
        """From here on Ctrl-C is ignored: what is being stored is going to be complete."""
        self.pressed = max(self.pressed, 2)

    def _press(self, number: int, frame: FrameType | None) -> None:
        now = self._clock()
        if self.pressed == 0:
            self._since = now  # before the other: signals may come while one is answered
            self.pressed = 1
        elif self.pressed == 1 and now - self._since >= PAUSE:
            self.pressed = 2
            raise AtOnce


class _Bell:
    """Answers Ctrl-C from a thread: Python's own handler waits until the compiler returns."""

    def __init__(self, of: Interruption) -> None:
        self.of = of
        self.inner, self.outer = socket.socketpair()
        self.inner.setblocking(False)
        self.before = -1
        self.thread = threading.Thread(target=self._listen, daemon=True)
        try:
            self.before = signal.set_wakeup_fd(self.inner.fileno(), warn_on_full_buffer=False)
            if self.before != -1:  # somebody else's event loop needs it
                self._give_back()
            self.thread.start()
        except BaseException:
            self.before = -1
            self.close()
            raise

    def _give_back(self) -> None:
        try:
            signal.set_wakeup_fd(self.before)
        except (OSError, ValueError):  # who had it has closed it
            self.before = -1

    def _listen(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads stderr
            while heard := self.outer.recv(1):
                compiling = self.of.compiling
                if heard[0] == signal.SIGINT and compiling is not None and compiling.under_way:
                    os.write(sys.stderr.fileno(), f"{WAITS}\n".encode())
                    return

    def close(self) -> None:
        """Give the wake-up back to whom it belonged, and end the thread."""
        if self.before == -1:
            signal.set_wakeup_fd(-1)
        self.inner.close()
        if self.thread.ident is not None:
            self.thread.join()
        self.outer.close()


# Ctrl-C before a run begins: at once, but never in the middle of the compiler, which trips.

COMPILER = ("llvmlite", "numba")
AGAIN = 0.02  # s after which a Ctrl-C that fell into the compiler is looked at again


class Preparing(Interruption):
    """Context in which Ctrl-C raises at once, or once the compiler has returned.

    Where it falls into a callback of the compiler, it would be lost there, and the compiler fail of
    something else: whatever fails after a Ctrl-C is a KeyboardInterrupt.
    """

    _timer: threading.Timer | None = None
    _again = False  # whether the timer presses
    _over = False

    def __enter__(self) -> Self:
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in worker processes
        return self if ignored else super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        super().__exit__(kind, error, trace)
        if self.pressed and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self._over:
            return
        again, self._again = self._again, False
        self.pressed += not again
        if not _inside(frame, COMPILER if self.pressed < 2 else COMPILER[:1]):
            raise KeyboardInterrupt
        compiles = self.compiling is not None and self.compiling.under_way
        if not compiles or self.pressed > 1:  # nothing else comes back to it
            self._timer = threading.Timer(AGAIN, self._press_again)
            self._timer.daemon = True
            self._timer.start()

    def _press_again(self) -> None:
        self._again = True
        _thread.interrupt_main()


def _inside(frame: FrameType | None, packages: tuple[str, ...]) -> bool:
    """Whether a frame, or one that has called it, is of these packages."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in packages:
            return True
        frame = frame.f_back
    return False


@contextmanager
def preparing() -> Iterator[None]:
    """Heed Ctrl-C while something is built that may have to be compiled.

    InputError for an environment that says nonsense of that, before anything is begun.
    """
    environment()
    with Preparing() as interruption, watched(end=interruption.compiled) as compilation:
        interruption.compiling = compilation
        yield
