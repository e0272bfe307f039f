"""What a coordinator that waits for all does, noted once; and its clock in any other world.

Whom it calls with how many bits for how much work is the same in every network. So one blind play
(desim.engine.blind) notes it, and a world plays the notes through the kernels of the engines, which
is what `desim.retime` does with a program in between: the times have the same bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int
from desim.engine.blind import BlindHub, BlindMethod
from desim.experiments.ranking.clock import CALL, COLLECT, POST, clock
from desim.network.timeline.attendance import nobody_leaves
from desim.network.timeline.calls import no_calls
from desim.network.timeline.messages import Links
from desim.network.timeline.record import RELEASED, empty_rows
from desim.network.timeline.speed import Speeds
from desim.network.timeline.together import memory_for_draws
from desim.privacy.ledger.ledger import View, plain


class Score(NamedTuple):
    """What a coordinator did up to the model that met the target, as arrays.

    acts (n, 8): WHAT it is, ROUND, EXCHANGE, BITS down, REPLY bits up, the agents who[FIRST:LAST],
    and the row of work (calls, agents), gradients of one row.
    """

    acts: Int
    who: Int
    work: Array


class Player:
    """Plays scores of `agents` agents in worlds one after the other, in memory of its own."""

    def __init__(self, agents: int) -> None:
        self.agents, self.memory = agents, memory_for_draws()
        bare = plain(agents, View.COORDINATOR)
        self.terms, self.rows = bare.compiled, 0
        self.log = self.ledger = empty_rows(0)

    def time(self, score: Score, speeds: Speeds, down: Links, up: Links) -> float:
        """When s the last model of the score is shown; inf: never. Connections begin anew."""
        down, up = down.unused, up.unused
        self._reserve((4 + down.rows + up.rows) * self.agents)
        devices = tuple(speeds), tuple(down), tuple(up), self.memory, tuple(nobody_leaves())
        book = tuple(no_calls(self.agents)), tuple(self.log), tuple(self.ledger)
        return float(clock(tuple(score), self.terms, devices, book))

    def _reserve(self, rows: int) -> None:
        if rows > self.rows:
            self.rows, self.log = rows, empty_rows(rows, kept=0)
            self.ledger = empty_rows(rows, width=RELEASED)


@dataclass
class Notes:
    """A score while it is noted; shown: acts before each model was shown, by round."""

    acts: list[tuple[int, ...]]
    who: list[Int]
    work: list[Array]
    shown: dict[int, int]

    def note(self, what: int, who: Int, *numbers: int) -> None:
        """Append an act; numbers: ROUND, EXCHANGE, BITS, REPLY."""
        first = sum(map(len, self.who))
        row = max(len(self.work) - 1, 0)
        self.who.append(np.array(who, np.int64))
        self.acts.append((what, *numbers, *(0,) * (4 - len(numbers)), first, first + len(who), row))

    def until(self, round_: int, agents: int) -> Score:
        """What had been done when the model of a round was shown."""
        acts = np.array(self.acts[: self.shown[round_]], np.int64).reshape(-1, 8)
        who = np.concatenate([np.empty(0, np.int64), *self.who])
        work = np.array(self.work, float) if self.work else np.empty((0, agents))
        return Score(acts, who, work)


class Noted:
    """A station whose calls are noted before they are made."""

    def __init__(self, station: Any, notes: Notes) -> None:
        self.__dict__.update(_station=station, _notes=notes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._station, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._station, name, value)

    def call(self, hub: Any, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """As CohortStation.call."""
        self._notes.work.append(np.array(work, float))
        self._notes.note(CALL, who, hub.round, hub.exchange, bits, reply_bits)
        self._station.call(hub, who, bits, reply_bits, work)

    def post(self, hub: Any, who: Int, bits: int) -> None:
        """As CohortStation.post."""
        self._notes.note(POST, who, hub.round, hub.exchange, bits)
        self._station.post(hub, who, bits)


class NotingHub(BlindHub):
    """`hub` for a program that is played blind and noted."""

    def publish(self, model: Array) -> None:
        """Note how much had been done when a model is shown."""
        notes = self._hub.station._notes
        notes.shown[self._hub.round if self._hub.begun else 0] = len(notes.acts)
        super().publish(model)


class NotedMethod(BlindMethod):
    """A method that is played blind, and its calls noted."""

    def __init__(self, method: Any) -> None:
        super().__init__(method)
        self.notes = Notes([], [], [], {})

    def coordinator(self, hub: Any) -> Iterator[Any]:
        """The coordinator's program."""
        hub.station = Noted(hub.station, self.notes)
        program, answer = self.method.coordinator(NotingHub(hub, self.seen)), None
        while True:
            try:
                request = program.send(answer)
            except StopIteration:
                return
            self.notes.note(COLLECT, np.empty(0, np.int64))
            answer = yield request
