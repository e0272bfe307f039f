"""A client in the agent engine: one agent's process, its mailbox and the calls that it takes."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import simpy

from desim.arrays import Array
from desim.engine.agents.clock import Device, Steps
from desim.network.timeline.record import UPLINK, Kind
from desim.network.timeline.speed import seconds_into


@dataclass(frozen=True)
class Letter:
    """A call as an agent receives it: how long the job takes, and what the reply costs."""

    round_: int
    exchange: int
    seconds: float
    work: float  # where the speed changes in time, the gradients that take more or less seconds
    bits: int
    terms: tuple[Any, ...]
    price: Array  # what is taken from the agent's budget for it


@dataclass
class Coming:
    """A message that is on its way to an agent, or waits there for one that was sent before."""

    arrive: Callable[[], None]
    here: bool = False


class Client:
    """One agent's process: it takes calls from its mailbox, one at a time."""

    def __init__(self, station: Any, agent: int) -> None:
        self.station, self.agent = station, agent
        self.device = Device(station.clock, station.world, agent)
        self.mailbox: simpy.Store = simpy.Store(station.clock)
        self.latest = 0.0  # when the latest call is taken; calls are taken in order
        self.coming: deque[Coming] = deque()  # those on their way where messages share bandwidth
        self.device.process = station.clock.process(self._live())

    def receive(self, letter: Letter) -> None:
        """A call arrives: it interrupts an older one where the policy says so, else it waits."""
        policy = self.station.world.settings.policy
        if policy.interrupts and self.mailbox.items:
            self.station.void(self.agent, self.mailbox.items)
            self.mailbox.items.clear()
        device = self.device
        if policy.interrupts and device.computing and self.station.now < device.until:
            assert device.process is not None
            device.process.interrupt(letter)
        else:
            self.mailbox.put(letter)

    def take(self, message: Coming) -> None:
        """A message is here; those sent before it come first."""
        message.here = True
        while self.coming and self.coming[0].here:
            self.coming.popleft().arrive()

    def _live(self) -> Steps:
        letter: Letter | None = None
        while True:
            if letter is None:
                letter = yield self.mailbox.get()
                while self.mailbox.items:
                    self.station.void(self.agent, [letter])
                    letter = self.mailbox.items.pop(0)
            assert letter is not None
            waits = self.station.waits[self.agent]
            duration = partial(self._lasting, letter)
            try:
                begin, _ = yield from self.device.work(duration, letter.work, letter.round_, waits)
            except simpy.Interrupt as newer:
                self.station.void(self.agent, [letter])
                letter = newer.cause
                continue
            now = self.station.now
            self.station.world.log.add(
                Kind.COMPUTE, UPLINK, self.agent, letter.round_, now, seconds=now - begin
            )
            if self.device.forgot:
                self.station.anew.add(self.agent)
                self.device.forgot = False
            self.station.reply(self.agent, letter)
            letter = None

    def _lasting(self, letter: Letter, begin: float) -> float:
        """How long, in s, the job of `letter` takes from `begin` s on."""
        speeds = self.station.world.settings.speeds
        if speeds.steady:
            return letter.seconds
        seconds = np.empty(1)
        who, round_, work = np.array([self.agent]), np.array([letter.round_]), letter.work
        seconds_into(speeds, who, round_, np.array([begin]), np.array([work]), seconds)
        return float(seconds[0])
