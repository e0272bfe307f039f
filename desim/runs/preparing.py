"""Ctrl-C before a run begins: at once, but never in the middle of the compiler, which trips."""

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from desim.numerics.environment import environment
from desim.numerics.watched import watched
from desim.runs.interruption import Interruption

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
