"""Cohort engine for coordinator methods: due times of replies are known when a call is made.

Legal while durations depend on nothing but the scenario. A round costs a few compiled calls.
"""

from typing import Any

import numpy as np

from desim.engine.hub import Hub, Int
from desim.engine.requests import Array
from desim.engine.waits import Waits
from desim.engine.world import World
from desim.kernels.clients import BEGIN, DUE, FINISH, LOGGED, call, settle_due


class CohortStation:
    """Calls as arrays: pending replies with their due times."""

    def __init__(self, world: World) -> None:
        settings = world.settings
        assert settings.downlinks is not None
        assert settings.uplinks is not None
        self.world = world
        self.now = 0.0
        self.defer = settings.policy.interrupts
        self.links = settings.downlinks, settings.uplinks
        self.rows_per_call = 4 + settings.uplinks.rows + settings.downlinks.rows

    def call(self, hub: Hub, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Send a call to agents who (n,) and fill in when their replies are due."""
        world, n = self.world, len(who)
        world.log.reserve(self.rows_per_call * n)
        world.ledger.reserve(2 * n)
        downlinks, uplinks = self.links
        call(
            who, self.now, hub.round, hub.exchange, bits, reply_bits, work, self.defer,
            world.settings.speeds, downlinks, uplinks, hub.calls, hub.terms.compiled,
            world.log.rows, world.ledger.charges,
        )  # fmt: skip

    def settle(self, hub: Hub, until: float) -> None:
        """Write the rows of calls whose computation was over by `until` s."""
        world = self.world
        open_calls = int(np.count_nonzero(hub.calls.whole[LOGGED] == 0))
        if open_calls:
            world.log.reserve(self.rows_per_call * open_calls)
            world.ledger.reserve(open_calls)
            settle_due(until, hub.calls, self.links[1], world.log.rows, world.ledger.charges)


def play(program: Any, world: World) -> float:
    """Run `program(hub)`; return the end of the run in virtual seconds."""
    station = CohortStation(world)
    hub = Hub(world, station)
    policy, horizon = world.settings.policy, world.settings.horizon
    generator = program(hub)
    answer: Any = None
    while True:
        try:
            generator.send(answer)
        except StopIteration:
            end = station.now
            break
        opened = station.now
        everybody = policy.kind == "all"
        pending = hub.called if everybody else np.flatnonzero(hub.calls.pending)
        due = hub.calls.due[pending]
        close = policy.close(opened, due, hub.calls.round_[pending] == hub.round)
        if close == np.inf and not _under_way(hub, horizon):
            raise _explain(hub, pending[due == np.inf], opened)
        if close > horizon:
            end = horizon
            break
        station.now = close
        if station.defer:
            station.settle(hub, close)
        if not everybody:
            arrived = due <= close
            if policy.kind == "deadline" and not arrived.all():
                hub.missed(opened, int((~arrived).sum()))
            pending = pending[arrived]
        answer = hub.accept(pending, opened)
    station.settle(hub, end)
    return end


def _under_way(hub: Hub, horizon: float) -> bool:
    """Whether anything still happens after the horizon, so that time is what ends the run."""
    times = hub.calls.real[[BEGIN, FINISH, DUE]]
    return bool(((times > horizon) & (times < np.inf)).any())


def _explain(hub: Hub, silent: Int, opened: float) -> Exception:
    waits, calls = Waits(), hub.calls
    for i in silent:
        begin, finish = float(calls.real[BEGIN, i]), float(calls.real[FINISH, i])
        round_ = int(calls.round_[i])
        if begin == np.inf:
            waits.lost(opened, -1, int(i), round_)
        elif finish == np.inf:
            waits.endless(begin, int(i), round_)
        else:
            waits.lost(finish, int(i), -1, round_)
    return waits.deadlock(1)
