"""What has arrived at one agent of a graph and was not read: messages of each neighbour."""

import numpy as np
import simpy
from numpy.typing import NDArray

from desim.arrays import Array, Mask
from desim.engine.agents.clock import Clock
from desim.engine.requests import Heard


class Mailbox:
    """What has arrived at one agent: per neighbour its messages by number, a null being None."""

    def __init__(self, clock: Clock, agent: int, neighbours: int) -> None:
        self.clock, self.agent = clock, agent
        self.letters: list[dict[int, Array | None]] = [{} for _ in range(neighbours)]
        self.last: Array = np.empty((neighbours, 0))
        self.number = np.zeros(neighbours, np.int64)
        self.farewell = np.full(neighbours, 1 << 60)  # number of the last message ever
        self.awaited: Mask | None = None  # neighbours that have something for the agent, or all
        self.wanted = 0
        self.complete: simpy.Event | None = None

    def widen(self, dim: int) -> None:
        """Until something is heard it is zeros of dimension `dim`."""
        if self.last.shape[1] == 0:
            self.last = np.zeros((len(self.letters), dim))

    def put(self, place: int, number: int, letter: Array | None, last: bool = False) -> None:
        """Take a message of the neighbour at `place`; wake the agent if it was the last wanted."""
        self.letters[place][number] = letter
        if last:
            self.farewell[place] = number
        if self.complete is not None and self.has(self.wanted):
            self.complete.succeed()
            self.complete = None

    def has(self, number: int) -> bool:
        """Whether every awaited message `number` is here, or will never be sent."""
        return all(
            number in letters or heard >= number or last < number or not awaited
            for letters, heard, last, awaited in zip(
                self.letters, self.number, self.farewell,
                [True] * len(self.letters) if self.awaited is None else self.awaited, strict=True,
            )
        )  # fmt: skip

    def read(self, number: int) -> NDArray[np.bool_]:
        """Bring `last` up to the newest messages not after `number`; say which have that number."""
        for place in range(len(self.letters)):
            self._take(place, number)
        return np.asarray(self.number == number)

    def newest(self) -> NDArray[np.bool_]:
        """Bring `last` up to all that is here; say which neighbours it has news of."""
        return np.array([self._take(place, 1 << 60) for place in range(len(self.letters))])

    def _take(self, place: int, number: int) -> bool:
        """Read the neighbour's messages up to `number`; return whether they hold a value."""
        letters, spoken = self.letters[place], False
        for n in sorted(k for k in letters if k <= number):
            letter = letters.pop(n)
            if n > self.number[place]:
                self.number[place] = n
                if letter is not None:
                    if self.last.shape[1] != len(letter):
                        self.last = np.zeros((len(self.letters), len(letter)))
                    self.last[place], spoken = letter, True
        return spoken


def heard_by(box: Mailbox, fresh: NDArray[np.bool_]) -> Heard:
    """What the agent hears, given which messages in its mailbox are fresh."""
    neighbours = len(box.last)
    return Heard(np.array([0, neighbours]), np.arange(neighbours), box.last.copy(), fresh)
