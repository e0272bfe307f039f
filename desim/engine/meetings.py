"""What has arrived at one agent whose neighbours change from round to round (agent engine)."""

from collections.abc import Callable

import numpy as np
import simpy
from numpy.typing import NDArray

from desim.arrays import Array
from desim.network.conditions.changing import Changing
from desim.network.timeline.collection import WAITING


class Meetings:
    """The messages of each turn by sender: those of a turn are heard together and then forgotten.

    A mailbox for agents that wait for every neighbour of a turn, and have heard no other before.
    """

    def __init__(self, agent: int, changing: Changing) -> None:
        self.agent, self.changing = agent, changing
        self.letters: dict[int, dict[int, Array]] = {}
        self.last: Array = np.empty((0, 0))  # (neighbours, dim), as heard in the latest turn
        self.rule, self.over = WAITING, False  # no wait closes before all are here
        self.wanted = 0
        self.limit: Callable[[], None] | None = None
        self.complete: simpy.Event | None = None

    def widen(self, dim: int) -> None:
        """Messages are of dimension `dim`."""
        if self.last.shape[1] == 0:
            self.last = np.empty((0, dim))

    def put(self, turn: int, sender: int, letter: Array) -> None:
        """Take the message of a neighbour of `turn`; wake the agent if it was the last wanted."""
        self.letters.setdefault(turn, {})[sender] = letter
        if self.complete is not None and self.has(self.wanted):
            self.complete.succeed()
            self.complete = None

    def _neighbours(self, turn: int) -> NDArray[np.int64]:
        graph = self.changing.at(turn)[0]
        return graph.source[graph.incoming[self.agent] : graph.incoming[self.agent + 1]]

    def has(self, turn: int) -> bool:
        """Whether every neighbour's message of `turn` is here."""
        return len(self.letters.get(turn, ())) == len(self._neighbours(turn))

    def until(self, _turn: int, _opened: float) -> float:
        """When the limit of a wait is: never."""
        return np.inf

    def read(self, turn: int) -> NDArray[np.bool_]:
        """Hear the messages of `turn`, in the order of the neighbours; all are of that turn."""
        letters, dim = self.letters.pop(turn, {}), self.last.shape[1]
        rows = [letters[int(j)] for j in self._neighbours(turn)]
        self.last = np.array(rows).reshape(len(rows), dim)
        return np.ones(len(rows), bool)
