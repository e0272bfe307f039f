"""Cohort engine for coordinator methods: due times of replies are known when a call is made.

Legal while durations depend on nothing but the scenario. A round costs a few compiled calls.
"""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.hub import Hub
from desim.engine.patience import Waits
from desim.engine.world import Exhausted, World
from desim.errors import RunError
from desim.memory import Tree, recall
from desim.network.timeline.computations import all_taken_in, nobody_leaves, takes
from desim.network.timeline.messages import (
    BEGIN,
    BITS,
    CALLED,
    DUE,
    EXCHANGE,
    FINISH,
    LOGGED,
    ROUND,
    SENT,
    TAKEN,
    call,
    post,
    settle_due,
)
from desim.network.timeline.together import memory_for_draws
from desim.network.timeline.waiting_rule import lost


class CohortStation:
    """Calls as arrays: pending replies with their due times."""

    def __init__(self, world: World) -> None:
        settings = world.settings
        assert settings.downlinks is not None
        assert settings.uplinks is not None
        self.world = world
        self.now = 0.0
        self.defer = settings.policy.interrupts
        self.ahead = not self.defer
        speeds, down, up = settings.speeds, settings.downlinks, settings.uplinks
        self.presences = world.presences
        away = nobody_leaves() if self.presences is None else self.presences.attendance
        self.devices = tuple(speeds), tuple(down), tuple(up), memory_for_draws(), tuple(away)
        self.takes = takes(settings.intake)
        self.rows_per_call = 4 + settings.uplinks.rows + settings.downlinks.rows

    def call(self, hub: Hub, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Send a call to agents who (n,) and fill in when their replies are due."""
        charged = int(self.world.ledger.rows.n[0])
        call(
            who, self.now, hub.round, hub.exchange, bits, reply_bits, work, self.defer,
            hub.terms.compiled, self.devices, self._book(hub, len(who)),
        )  # fmt: skip
        hub.charged(charged)
        self.attend(self.now)
        for one in hub.features:
            one.called(hub, who)

    def attend(self, now: float) -> None:
        """Write what absences ended of the calls just made; tell what is to be told by `now` s."""
        if self.presences is not None:
            self.presences.lost(self.devices[0])
            self.presences.tell(self.world, now)

    def taken_in(self, hub: Hub, who: Int) -> float:
        """When the replies of agents who (n,), here now, have been taken in, s."""
        done = self.now + sum(one.labour(hub, who) for one in hub.features)
        if not self.takes:
            return done
        calls = (hub.calls.whole[who, column] for column in (ROUND, EXCHANGE, BITS))
        return float(all_taken_in(self.world.settings.intake, who, *calls, done))

    def work(self, hub: Hub, who: Int, done: float) -> None:
        """The coordinator takes the replies of agents who (n,) in, until `done` s."""
        closed, self.now = self.now, done
        hub.worked(who, closed)
        if self.defer:
            self.settle(hub, done)
        self.attend(done)

    def conclude(self, hub: Hub, end: float) -> float:
        """The run ends at `end` s: write what happened by then, and return it."""
        self.settle(hub, end)
        if self.presences is not None:
            self.presences.tell(self.world, end)
            self.presences.until(end)
        return end

    def post(self, hub: Hub, who: Int, bits: int) -> None:
        """Send agents who (n,) a message that asks for no reply."""
        log = self.world.log
        log.reserve(self.rows_per_call * len(who))
        post(who, self.now, hub.round, hub.exchange, bits, self.devices[1], hub.flat, log.flat)

    def settle(self, hub: Hub, until: float) -> None:
        """Write the rows of calls whose computation was over by `until` s."""
        open_calls = int(np.count_nonzero(hub.calls.whole[:, LOGGED] == 0))
        if open_calls:
            charged = int(self.world.ledger.rows.n[0])
            settle_due(until, self.devices, self._book(hub, open_calls))
            hub.charged(charged)

    def _book(self, hub: Hub, calls: int) -> tuple[Any, ...]:
        """Calls, log and ledger as kernels take them, with room for so many more calls."""
        log, ledger = self.world.log, self.world.ledger
        log.reserve(self.rows_per_call * calls)
        ledger.reserve(2 * calls)
        return hub.flat, log.flat, ledger.flat


def play(program: Any, world: World) -> float:
    """Run `program(hub)`; return the end of the run in virtual seconds."""
    station = CohortStation(world)
    hub = Hub(world, station)
    try:
        return rounds_of(program, world, station, hub)
    except (KeyboardInterrupt, RunError):
        raise
    except BaseException:  # of the program: what came before this instant is complete
        station.settle(hub, station.now)
        world.now = station.now
        raise


def rounds_of(program: Any, world: World, station: CohortStation, hub: Hub) -> float:
    """Run `program(hub)` from the station's time on; return its end, or the run's, in s.

    An edge of a tree plays some rounds for each call, with the same hub.
    """
    hub.boundary = lambda hub: world.keep(lambda: hub.remembered() | {"now": station.now})
    world.go_on(lambda tree: _recall(hub, station, tree))
    policy, horizon = world.settings.policy, world.settings.horizon
    waits_for_all, due_at, round_of = policy.kind == "all", hub.calls.due, hub.calls.round_
    generator = program(hub)
    answer: Any = None
    while True:
        try:
            generator.send(answer)
        except (StopIteration, Exhausted):
            end = station.now
            break
        opened = station.now
        pending = hub.called if waits_for_all else hub.pending.nonzero()[0]
        due, fresh = due_at[hub.rows(pending)], round_of[pending] == hub.round
        close = policy.close(opened, policy.until(opened, hub.calls), due, fresh)
        if close == np.inf and not under_way(hub, horizon):
            raise explained(hub, station, pending[due == np.inf])
        if close > horizon:
            end = horizon
            break
        station.now = close
        if station.defer:
            station.settle(hub, close)
        station.attend(close)
        if not waits_for_all:
            arrived = due <= close
            missing = policy.missing(arrived, fresh) if policy.limited else 0
            if missing > 0:
                hub.missed(opened, missing)
                rounds, finish = hub.calls.whole[pending].T, hub.calls.real[pending, FINISH]
                gone = lost(due, rounds[ROUND], rounds[CALLED], finish, close)
                hub.calls.pending[pending[gone]] = 0
            pending = pending[arrived]
        hub.close(pending, opened)
        done = station.taken_in(hub, pending)
        if done > horizon:
            end = horizon
            break
        if done > close:
            station.work(hub, pending, done)
        answer = hub.accept(pending)
    return station.conclude(hub, end)


def _recall(hub: Hub, station: CohortStation, tree: Tree) -> None:
    recall(station, tree, "now")
    hub.recall(tree)


def under_way(hub: Hub, horizon: float) -> bool:
    """Whether anything still happens after the horizon, so that time is what ends the run."""
    real, presences = hub.calls.real, hub.world.presences
    times = real[:, [TAKEN, BEGIN, FINISH, DUE]]
    if ((times > horizon) & (times < np.inf)).any():
        return True
    rests = presences is not None and bool((real[:, BEGIN] == np.inf).any())
    return presences is not None and rests and presences.go_on(horizon)


def explained(hub: Hub, station: CohortStation, silent: Int) -> Exception:
    """The error that says why the replies of agents silent (n,) will never come."""
    waits, calls, presences = Waits(hub.world.settings.policy), hub.calls, hub.world.presences
    station.settle(hub, np.inf)
    if presences is not None:
        presences.tell(hub.world, np.inf)
    for i in silent:
        taken, begin, finish = calls.real[i, [TAKEN, BEGIN, FINISH]].tolist()
        round_ = int(calls.round_[i])
        exchange = hub.assignments.exchange(int(i)) if hub.assignments.ready else 0  # compiled: 0
        if tuple(calls.whole[i, [ROUND, EXCHANGE]]) != (round_, exchange):
            waits.lost(float(calls.real[i, SENT]), -1, int(i), round_)
        elif begin == np.inf and presences is not None:
            waits.away(presences.gone(int(i), taken), int(i))
        elif finish == np.inf:
            waits.endless(begin, int(i), round_)
        else:
            waits.lost(finish, int(i), -1, round_)
    return waits.deadlock(1)
