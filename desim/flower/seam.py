"""Between a ServerApp, which waits in its own thread, and whoever plays it: one question at a time.

Only one of the two sides ever runs, so that nothing depends on how threads are scheduled. Threads
of the app other than its own may ask who is there, and hear what it has heard last; a message of
theirs is refused, as only real time would say which of them belong together.
"""

import random
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

PATIENCE = 5.0  # s in which an app's thread may come to its end
LOOK = 0.2  # s after which a wait looks whether Ctrl-C was pressed


class Ask(NamedTuple):
    """What the app asks for: nodes, send, push, pull; or that it is done, or failed."""

    kind: str
    value: Any = None
    timeout: float | None = None


class Ended:
    """The answer to an app whose run is over."""


class Seam:
    """An app's thread, its questions and their answers.

    over: what to raise in the app once the run is over; rounds: how many the app plays, if it says.
    """

    def __init__(self, over: Callable[[], BaseException]) -> None:
        self._asked: SimpleQueue[Ask] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._over, self.ended = over, False
        self.thread: threading.Thread | None = None
        self.nodes: list[int] = []  # as the app heard last
        self.rounds: int | None = None
        self.central: dict[int, dict[str, float]] = {}  # what the server measures, by round
        self.told = False  # whether strategies tell of their models
        self._made: list[Any] = []
        self.strategy: Any = None  # the latest that has begun
        self.averages: list[Any] = []  # to which it has added noise, see `central`

    # The app's side.

    def ask(self, kind: str, value: Any = None, timeout: float | None = None) -> Any:
        """The answer to a question of the app."""
        if self.ended:
            raise self._over()
        if threading.current_thread() is not self.thread:
            if kind == "nodes":
                return self.nodes
            text = "found messages from several threads of the app at once; allowed: one call of "
            raise RuntimeError(f"flower: {text}send_and_receive with all of them")
        self._asked.put(Ask(kind, value, timeout))
        answer = self._answers.get()
        if answer is Ended:
            raise self._over()
        return answer

    def note(self, model: Any) -> None:
        """A strategy has made a model (dim,), or None where it leaves the one before."""
        self._made = [model]

    # The other side.

    def begin(self, app: Callable[[], None]) -> None:
        """Start the app in its thread."""

        def run() -> None:
            try:
                app()
                last = Ask("done")
            except BaseException as error:
                last = Ask("failed", error)
            self._asked.put(last)

        self.thread = threading.Thread(target=run, name="flower-server-app", daemon=True)
        self.thread.start()

    def next(self) -> Ask:
        """What the app asks for next."""
        while True:
            try:
                return self._asked.get(timeout=LOOK)
            except Empty:
                continue

    def answer(self, value: Any, *address: Any) -> None:
        """Answer, with `random` as it follows from an address: strategies draw nodes from it."""
        if address:
            random.seed(" ".join(map(str, address)))
        self._answers.put(value)

    def take(self) -> list[Any]:
        """The latest model that a strategy made since this was asked, as note has it; or none."""
        made, self._made = self._made, []
        return made

    def end(self) -> None:
        """The run is over: whatever the app waits for is answered by that, its thread ends."""
        self.ended = True
        self._answers.put(Ended)
        if self.thread not in (None, threading.current_thread()):  # which may collect an old play
            self.thread.join(PATIENCE)
