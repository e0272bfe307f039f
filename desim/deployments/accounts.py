"""What became of a coordinator's messages: rows of the log and of the ledger, as reports come."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.deployments.fleet import Fleet
from desim.deployments.real import RealWorld, slower
from desim.deployments.wire import Message
from desim.network.timeline.messages import log_message
from desim.network.timeline.record import UPLINK, Kind, release_id

STATE = "state "  # before the names of arrays that are an agent's state


@dataclass
class Sent:
    """A message to an agent, until all is known of it."""

    agent: int
    round_: int
    exchange: int
    down: int  # bytes
    up: int  # bytes of the reply, -1 where none is asked for
    time: float
    terms: tuple[Any, ...] = ()
    price: Array = field(default_factory=lambda: np.zeros(3))
    came: float = np.inf  # when s the reply was here
    body: bytes = b""
    inside: bool = True  # whether the values are in the body
    report: Message | None = None


class Accounts:
    """Messages by number, and what is known of them; see Station."""

    def __init__(self, world: RealWorld, fleet: Fleet) -> None:
        self.world, self.fleet = world, fleet
        agents = world.settings.problem.agents
        self.sent: dict[int, Sent] = {}
        self.latest = [0] * agents  # number of the latest call of each agent
        self.used = [0] * agents  # number of its latest call whose reply was used
        self.late: list[tuple[float, int, int]] = []  # s by which computations took longer
        self.computed = 0

    def row(
        self, kind: Kind, side: int, agent: int, peer: int, round_: int, size: int, release: int,
        time: float, seconds: float,
    ) -> None:  # fmt: skip
        """A row of a message."""
        log = self.world.log
        log.reserve(1)
        place = side, agent, peer, round_, size, release
        log_message(log.flat, int(kind), *place, time, seconds, 0)

    def settle(self, number: int) -> None:
        """Write the rows that are known of a message now."""
        sent, world = self.sent[number], self.world
        if (report := sent.report) is None:
            return
        i, round_, told = sent.agent, sent.round_, report.fields
        if sent.down >= 0:
            got = float(told["got"])
            self.row(Kind.DELIVER, 0, i, -1, round_, sent.down, -1, got, got - sent.time)
            sent.down = -1
            if report.kind == "aborted":
                self._aborted(sent, told)
            elif report.kind == "done":
                self._done(number, sent, told)
        if report.kind == "done" and number == self.used[i]:
            self.take_over(number, i, report)
        if report.kind == "done" and sent.came < np.inf and sent.up >= 0:
            release = int(release_id(world.settings.problem.agents, i, round_, sent.exchange))
            seconds, came = sent.came - float(told["sent"]), sent.came
            self.row(Kind.DELIVER, UPLINK, -1, i, round_, sent.up, release, came, seconds)
            sent.up = -1
        self.forget(number)

    def forget(self, number: int) -> None:
        """Drop what is known of a message, unless more is to come or it is still to be used."""
        sent = self.sent.get(number)
        if sent is None or sent.report is None or number == self.latest[sent.agent]:
            return
        if sent.report.kind != "done" or sent.came < np.inf:
            del self.sent[number]

    def _aborted(self, sent: Sent, told: dict[str, Any]) -> None:
        world, cut, begin = self.world, float(told["cut"]), float(told["begin"])
        if cut > begin:
            world.log.add(Kind.ABORT, UPLINK, sent.agent, sent.round_, cut, seconds=cut - begin)
        if world.filter is not None:
            world.filter.refund(sent.agent, sent.price)

    def _done(self, number: int, sent: Sent, told: dict[str, Any]) -> None:
        world, i, round_ = self.world, sent.agent, sent.round_
        release = int(release_id(world.settings.problem.agents, i, round_, sent.exchange))
        end, begin, left = (float(told[name]) for name in ("end", "begin", "sent"))
        world.log.add(Kind.COMPUTE, UPLINK, i, round_, end, seconds=end - begin)
        world.log.add(Kind.RELEASE, UPLINK, i, round_, left, release=release)
        self.row(Kind.SEND, UPLINK, i, -1, round_, sent.up, release, left, 0.0)
        world.ledger.charge_one(left, i, round_, release, sent.terms, 1)
        self.computed += 1
        if float(told["late"]) > 0.0:
            self.late.append((float(told["late"]), i, round_))

    def take_over(self, number: int, agent: int, report: Message) -> None:
        """Have the state of an agent as it was after that call, where agents tell it."""
        if self.world.reserved:
            return
        agents, state = len(self.latest), self.world.state
        for name, row in report.arrays.items():
            if name.startswith(STATE):
                key = name.removeprefix(STATE)
                if key not in state:
                    state[key] = np.zeros((agents, *row.shape))
                state[key][agent] = row
        observer: Any = self.world.observer
        observer.arrived(number, state["x"][agent])

    def conclude(self) -> None:
        """All has been told: say what was not as the scenario has it."""
        self.world.settled = np.inf
        for text in self.fleet.warnings:
            self.world.caution(text)
        if self.late:
            self.world.caution(slower(len(self.late), self.computed, *max(self.late)))
