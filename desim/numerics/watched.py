"""What numba compiles while somebody watches: a first run on a machine waits for it and should say.

Code that is found on disk is not compiled.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core.event import Event, Listener, install_listener

COMPILES = "numba:compile"


class Compilation(Listener):  # type: ignore[misc]
    """How many functions were compiled and how many seconds that took.

    begin(n): called before the n-th; end(): after each that no other waits for.
    """

    def __init__(
        self,
        begin: Callable[[int], None] = lambda n: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.functions = 0
        self.seconds = 0.0
        self._begin, self._end = begin, end
        self._depth = 0  # a function is compiled while another is that calls it
        self._began = 0.0

    @property
    def under_way(self) -> bool:
        """Whether a function is being compiled now."""
        return self._depth > 0

    def on_start(self, event: Event) -> None:
        """Note that a function begins to be compiled."""
        self.functions += 1
        self._begin(self.functions)
        if not self._depth:
            self._began = time.perf_counter()
        self._depth += 1

    def on_end(self, event: Event) -> None:
        """Note that a function is compiled."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._began
            self._end()


@contextmanager
def watched(
    begin: Callable[[int], None] = lambda n: None, end: Callable[[], None] = lambda: None
) -> Iterator[Compilation]:
    """Count what is compiled from here on; see Compilation."""
    compilation = Compilation(begin, end)
    with install_listener(COMPILES, compilation):
        yield compilation
