"""Threads that train the agents of a wave in parts; who is free takes the next part.

Nobody waits for a thread that is asleep or at work elsewhere: its part of a wave is what it takes.
A second one makes a run of 100 agents or more 1.4 to 1.7 times as fast (analysis/benchmarks).
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numba.core.errors import TypingError

from desim.numerics.jit import lean_inline
from desim.numerics.tickets import swapped

TICKET, DONE = 0, 8  # of Shared.counts: in two lines of the processor's memory
LEFT = (1 << 32) - 1  # of a ticket: parts that nobody has taken; above that the number of the wave
NONE = -1
REST = 5e-5  # s between two looks for work, after some that found none


class Shared(NamedTuple):
    """What a crew shares.

    counts (16,): the ticket, and parts that are done; wave (6,): what `part` of a wave needs, see
    desim.engine.compiled.rounds; totals (members, 8): of each member's parts, in column 0.
    """

    counts: np.ndarray
    wave: np.ndarray
    totals: np.ndarray


def shared_by(members: int) -> Shared:
    """What so many members share before the first wave."""
    return Shared(np.zeros(16, np.int64), np.zeros(6, np.int64), np.zeros((members, 8)))


@lean_inline
def offered(shared, parts):
    """Let the crew take the parts of a wave, all of the one before being done."""
    counts = shared[0]
    counts[DONE] = 0
    before = swapped(counts, TICKET, NONE, NONE)
    swapped(counts, TICKET, before, ((before >> 32) + 1) << 32 | parts)


@lean_inline
def taken(shared):
    """The number of a part that is the caller's to do now, or NONE."""
    counts = shared[0]
    seen = swapped(counts, TICKET, NONE, NONE)
    while seen & LEFT:
        before = swapped(counts, TICKET, seen, seen - 1)
        if before == seen:
            return (seen & LEFT) - 1
        seen = before
    return NONE


@lean_inline
def noted(shared):
    """Note that a part is done."""
    counts = shared[0]
    seen = swapped(counts, DONE, NONE, NONE)
    while swapped(counts, DONE, seen, seen + 1) != seen:
        seen = swapped(counts, DONE, NONE, NONE)


@lean_inline
def awaited(shared, parts):
    """Wait until so many parts are done, which others have begun."""
    while swapped(shared[0], DONE, NONE, NONE) < parts:
        pass


class Crew:
    """Threads beside the caller's that call serve(member), member = 1, 2, ..., while one is in it.

    serve: compiled code without the interpreter's lock, which returns when it finds no work.
    """

    def __init__(self, members: int, serve: Callable[[int], Any]) -> None:
        self._serve, self._work, self._over = serve, threading.Event(), False
        self._threads = [
            threading.Thread(target=self._serving, args=(member,), daemon=True)
            for member in range(1, members)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        """Begin to help."""
        self._work.set()
        return self

    def __exit__(self, *_: object) -> None:
        """Rest: no part is left."""
        self._work.clear()

    def leave(self) -> None:
        """End the threads."""
        self._over = True
        self._work.set()
        for thread in self._threads:
            thread.join()

    def _serving(self, member: int) -> None:
        while self._work.wait() and not self._over:
            try:
                self._serve(member)
            except TypingError:  # the caller meets it, too, and tells it
                return
            time.sleep(REST)
