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
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from numba.core.event import register, unregister

from desim.errors import AtOnce
from desim.numerics.environment import environment
from desim.numerics.watched import COMPILES, Compilation

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
    Nothing can stop a compilation but a second Ctrl-C: where one is under way, a line on stderr
    says so at once. To enter and to leave are whole: what is pressed meanwhile waits.

    compilation: what was compiled inside; compiling: what is asked whether that goes on.
    """

    # SIG_IGN: a shell has put the run into the background
    _replaced: tuple[Any, ...] = signal.default_int_handler, signal.SIG_IGN

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pressed = 0
        self._clock, self._since = clock, 0.0
        self.compilation = Compilation(end=self.compiled)
        self.compiling: Compiling = self.compilation
        self._stepped = False
        self._installed = False
        self._before: Any = None
        self._bell: _Bell | None = None

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if main and before in self._replaced:
            self._before = before
            self._installed = True
            signal.signal(signal.SIGINT, self._press)
            with suppress(OSError, RuntimeError):  # no file or thread is left: it works, in silence
                self._bell = _Bell(self)
        register(COMPILES, self.compilation)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unregister(COMPILES, self.compilation)
        if self._bell is not None:
            self._bell.close()
        if self._installed:
            signal.signal(signal.SIGINT, self._before)

    def _between(self, frame: FrameType | None) -> bool:
        """Whether this context is just being entered or left."""
        while frame is not None:
            if frame.f_code in ENDS and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

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
        elif self.pressed == 1 and now - self._since >= PAUSE and not self._between(frame):
            self.pressed = 2
            raise AtOnce


class _Bell:
    """Answers Ctrl-C from a thread: Python's own handler waits until the compiler returns."""

    def __init__(self, of: Interruption) -> None:
        self.of = of
        self.inner, self.outer = socket.socketpair()
        self.inner.setblocking(False)
        self.thread = threading.Thread(target=self._listen, daemon=True)
        try:
            self.thread.start()
        except BaseException:
            self.inner.close()
            self.outer.close()
            raise
        before = signal.set_wakeup_fd(self.inner.fileno(), warn_on_full_buffer=False)
        self.rings = before == -1
        if not self.rings:  # somebody else's event loop needs it
            try:
                signal.set_wakeup_fd(before)
            except (OSError, ValueError):  # who had it has closed it
                self.rings = True

    def _listen(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads stderr
            while heard := self.outer.recv(1):
                if heard[0] == signal.SIGINT and self.of.compiling.under_way:
                    os.write(sys.stderr.fileno(), f"{WAITS}\n".encode())
                    return

    def close(self) -> None:
        """Take it down, if it is not another's, and end the thread."""
        if self.rings:
            signal.set_wakeup_fd(-1)
        self.inner.close()
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

    _replaced = (signal.default_int_handler,)  # not SIG_IGN, which worker processes have
    _timer: threading.Timer | None = None
    _again = False  # whether the timer presses

    def __enter__(self) -> Self:
        super().__enter__()
        if self.pressed:
            self.__exit__(None, None, None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        super().__exit__(kind, error, trace)
        if self.pressed and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    def _press(self, number: int, frame: FrameType | None) -> None:
        again, self._again = self._again, False
        self.pressed += not again
        if self._between(frame):
            return
        if not _inside(frame, COMPILER if self.pressed < 2 else COMPILER[:1]):
            raise KeyboardInterrupt
        if not self.compiling.under_way or self.pressed > 1:  # nothing else comes back to it
            self._timer = threading.Timer(AGAIN, self._press_again)
            self._timer.daemon = True
            self._timer.start()

    def _press_again(self) -> None:
        self._again = True
        _thread.interrupt_main()


ENDS = {
    end.__code__ for kind in (Interruption, Preparing) for end in (kind.__enter__, kind.__exit__)
}


def _inside(frame: FrameType | None, packages: tuple[str, ...]) -> bool:
    """Whether a frame, or one that has called it, is of these packages."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in packages:
            return True
        frame = frame.f_back
    return False


def preparing() -> Preparing:
    """Context that heeds Ctrl-C while something is built that may have to be compiled.

    InputError for an environment that says nonsense of that, before anything is begun.
    """
    environment()
    return Preparing()
