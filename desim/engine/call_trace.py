"""What a coordinator that waits for all does, noted once, and its clock in any other network."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int
from desim.engine.blind import BlindHub, BlindMethod
from desim.engine.play import BLIND, Simulation
from desim.engine.world import Discard
from desim.network.timeline.call_clock import CALL, COLLECT, POST, clock
from desim.network.timeline.computations import Speeds, nobody_leaves
from desim.network.timeline.messages import Links, no_calls
from desim.network.timeline.record import RELEASED, empty_rows
from desim.network.timeline.together import memory_for_draws
from desim.privacy.ledger.ledger import View, plain


class CallTrace(NamedTuple):
    """What a coordinator did up to the model that met the target, as arrays.

    acts (n, 8): WHAT it is, ROUND, EXCHANGE, BITS down, REPLY bits up, the agents who[FIRST:LAST],
    and the row of work (calls, agents), gradients of one row.
    """

    acts: Int
    who: Int
    work: Array


class Player:
    """Plays traces of `agents` agents in worlds one after the other, in memory of its own."""

    def __init__(self, agents: int) -> None:
        self.agents, self.memory = agents, memory_for_draws()
        self.terms, self.rows = plain(agents, View.COORDINATOR).compiled, 0
        self.log = self.ledger = empty_rows(0)

    def time(self, trace: CallTrace, speeds: Speeds, down: Links, up: Links) -> float:
        """When s the last model of the trace is shown; inf: never. Connections begin anew."""
        down, up = down.unused, up.unused
        if (rows := (4 + down.rows + up.rows) * self.agents) > self.rows:
            self.rows, self.log = rows, empty_rows(rows, kinds=0)
            self.ledger = empty_rows(rows, width=RELEASED)
        devices = tuple(speeds), tuple(down), tuple(up), self.memory, tuple(nobody_leaves())
        records = tuple(no_calls(self.agents)), tuple(self.log), tuple(self.ledger)
        return float(clock(tuple(trace), self.terms, devices, records))


class NotedMethod(BlindMethod):
    """A method that is played blind, and what its coordinator does noted, as in CallTrace.

    shown: how many acts there were before each model was shown, by round.
    """

    def __init__(self, method: Any) -> None:
        super().__init__(method)
        self.acts, self.who, self.work = list[Any](), [np.empty(0, np.int64)], list[Array]()
        self.shown: dict[int, int] = {}

    def note(self, what: int, who: Int, *numbers: int) -> None:
        """Append an act; numbers: ROUND, EXCHANGE, BITS, REPLY."""
        first = sum(map(len, self.who))
        row = max(len(self.work) - 1, 0)
        self.who.append(np.array(who, np.int64))
        self.acts.append((what, *numbers, *(0,) * (4 - len(numbers)), first, first + len(who), row))

    def until(self, round_: int, agents: int) -> CallTrace:
        """What had been done when the model of a round was shown."""
        acts = np.array(self.acts[: self.shown[round_]], np.int64).reshape(-1, 8)
        work = np.array(self.work, float) if self.work else np.empty((0, agents))
        return CallTrace(acts, np.concatenate(self.who), work)

    def coordinator(self, hub: Any) -> Iterator[Any]:
        """The coordinator's program; its station notes what it is asked before it does that."""
        call, post = hub.station.call, hub.station.post

        def noted_call(hub: Any, who: Int, bits: int, reply_bits: int, work: Array) -> None:
            self.work.append(np.array(work, float))
            self.note(CALL, who, hub.round, hub.exchange, bits, reply_bits)
            call(hub, who, bits, reply_bits, work)

        def noted_post(hub: Any, who: Int, bits: int) -> None:
            self.note(POST, who, hub.round, hub.exchange, bits)
            post(hub, who, bits)

        hub.station.call, hub.station.post = noted_call, noted_post
        program, answer = self.method.coordinator(NotedHub(hub, self)), None
        while True:
            try:
                request = program.send(answer)
            except StopIteration:
                return
            self.note(COLLECT, np.empty(0, np.int64))
            answer = yield request


class NotedHub(BlindHub):
    """`hub` for a program that is played blind and noted."""

    def __init__(self, hub: Any, method: NotedMethod) -> None:
        super().__init__(hub, method.seen)
        self._method = method

    def publish(self, model: Array) -> None:
        """Note how much had been done when a model is shown."""
        self._method.shown[self._hub.round if self._hub.begun else 0] = len(self._method.acts)
        super().publish(model)


def noted(simulation: Simulation, rounds: int, blanks: dict[Any, Any]) -> tuple[CallTrace, float]:
    """What a coordinator does in so many rounds, and when s it has done that where it is played.

    blanks: of blind plays before.
    """
    method = NotedMethod(simulation.method)
    method.seen.blanks = blanks
    bounded = replace(simulation.settings, rounds=rounds, horizon=np.inf)
    played = Simulation(method, bounded, BLIND, "cohort", "").play(Discard())
    return method.until(rounds, simulation.problem.agents), played.time
