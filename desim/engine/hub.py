"""`hub`: the coordinator's side of a method, and the bookkeeping of calls that engines share."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.engine.requests import Array, Collect, Replies
from desim.engine.world import World
from desim.kernels.clients import CALLED, PENDING, no_calls
from desim.kernels.record import DISTANT, Kind
from desim.privacy.ledger import Terms, View, plain

Int = NDArray[np.int64]
Train = Callable[..., Array]
COLLECT = Collect()


class Clients:
    """`us` of a client's job: rows of the agents' state for `who` (n,), called in `round` (n,)."""

    who: Int
    round: Int
    address: Int  # (n,) the round as draws inside jobs count it: exchanges of a round differ
    _world: World
    _terms: Terms | None
    _whole: bool

    def __init__(
        self, world: World, who: Int, round_: Int, terms: Terms | None, exchange: int = 0
    ) -> None:
        own = self.__dict__
        own["address"] = round_ + (exchange << 24) if exchange else round_
        own["who"], own["round"], own["_world"], own["_terms"] = who, round_, world, terms
        own["_whole"] = len(who) == world.settings.problem.agents

    def __getattr__(self, name: str) -> Array:
        try:
            rows = self._world.state[name]
        except KeyError:
            raise AttributeError(f"the agents have no state {name!r}") from None
        return rows if self._whole else np.asarray(rows[self.who])

    def __setattr__(self, name: str, value: Array) -> None:
        state = self._world.state
        if self._whole:
            state[name] = value
        else:
            state[name][self.who] = value

    @property
    def noise_key(self) -> np.uint64:
        """The key of noise drawn inside a kernel; only a call that was charged has one."""
        return np.uint64(self._world.ledger.noise_key(self._terms))


class Station(Protocol):
    """How an engine carries calls out."""

    @property
    def now(self) -> float:
        """Virtual time s."""

    def call(self, hub: "Hub", who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Send a call to agents who (n,)."""


class Hub:
    """What a coordinator does: invite, call, collect, publish.

    A round ends with publish(); calls before the first publish() belong to round 1, and publishing
    before any call shows the initial model as round 0.
    """

    def __init__(self, world: World, station: Station) -> None:
        agents = world.settings.problem.agents
        self.world, self.station, self.agents = world, station, agents
        self.round = 1
        self.begun = False  # whether agents have been called or the start been shown
        self.exchange = 0
        self.calls = no_calls(agents)
        self.flat = tuple(self.calls)
        self.terms: Terms = plain(agents, View.COORDINATOR)
        self.job: Train | None = None
        self.called: Int = np.empty(0, np.int64)  # agents of the latest call
        self.payload: Array = np.empty((agents, 0))

    @property
    def now(self) -> float:
        """Virtual time s."""
        return self.station.now

    @property
    def open(self) -> bool:
        """Whether another round may begin."""
        settings = self.world.settings
        return (
            self.round <= settings.rounds
            and self.now <= settings.horizon
            and not self.world.reached
        )

    def start(self, **state: Array) -> None:
        """Give the agents their initial state, arrays (agents, ...); their models are `x`."""
        self.world.state.update({name: rows.copy() for name, rows in state.items()})

    def invite(self) -> Int:
        """Agents (n,), ascending, that participate in this round and owe no reply."""
        settings = self.world.settings
        drawn = settings.participation.draw(self.round)
        if settings.policy.late == "discard":  # what is not collected is void, nobody owes a reply
            return drawn
        pending = self.calls.pending
        return drawn[pending[drawn] == 0] if pending.any() else drawn

    def call(
        self,
        who: Int,
        job: Train,
        payload: Array,
        *,
        work: Array,
        charge: Terms | None = None,
        bits: int | None = None,
        reply_bits: int | None = None,
    ) -> None:
        """Ask agents who (n,) to run job(us, payload rows) and to reply with its result (n, dim).

        payload (p,): the same for all; work (agents,): per-example gradient evaluations; charge:
        what the reply reveals. Bits default to 64 per number; the reply to as many as the payload.
        """
        self.job, self.terms = job, charge or plain(self.agents, View.COORDINATOR)
        if self.payload.shape[1] != len(payload):
            self.payload = np.empty((self.agents, len(payload)))
        self.called, self.begun = who, True
        self.payload[self.rows(who)] = payload
        down = 64 * len(payload) if bits is None else bits
        self.station.call(self, who, down, down if reply_bits is None else reply_bits, work)
        self.exchange += 1

    def collect(self) -> Collect:
        """Yield this to wait until the policy closes the collection; the answer is Replies."""
        return COLLECT

    def accept(self, who: Int, opened: float) -> Replies:
        """Run the jobs of the replies of agents who (n,), as one batch, and log the collection."""
        world, job, whole = self.world, self.job, self.calls.whole
        settings = world.settings
        assert job is not None
        whole[PENDING, slice(None) if settings.policy.late == "discard" else who] = 0
        rounds = whole[CALLED].take(who)
        if 0 < len(who) <= settings.batch_limit:
            us = Clients(world, who, rounds, self.terms, self.exchange - 1)
            payload = job(us, self.payload[self.rows(who)])
        else:
            payload = self._in_batches(job, who, rounds)
        now = self.station.now
        world.log.add(
            Kind.AGGREGATE, DISTANT, -1, self.round, now, seconds=now - opened, value=len(who)
        )
        return Replies(who, payload, rounds)

    def _in_batches(self, job: Train, who: Int, rounds: Int) -> Array:
        """Run the jobs of agents who (n,), called in rounds (n,), so many at a time."""
        payload, limit = (
            np.empty((len(who), self.payload.shape[1])),
            self.world.settings.batch_limit,
        )
        for first in range(0, len(who), limit):
            part = slice(first, first + limit)
            us = Clients(self.world, who[part], rounds[part], self.terms, self.exchange - 1)
            payload[part] = job(us, self.payload[who[part]])
        return payload

    def rows(self, who: Int) -> Any:
        """Index of the rows of agents who (n,): all of them as a slice, which copies nothing."""
        return slice(None) if len(who) == self.agents else who

    def missed(self, opened: float, missing: int) -> None:
        """Log that a deadline closed the collection with replies missing."""
        now = self.now
        self.world.log.add(
            Kind.DEADLINE, DISTANT, -1, self.round, now, seconds=now - opened, value=missing
        )

    def publish(self, model: Array) -> None:
        """Show the coordinator's model (dim,), true from now on, to the observer; a round ends."""
        world: Any = self.world
        world.observer.publish(self.now, self.round if self.begun else 0, world.state["x"], model)
        self.round += self.begun
        self.begun, self.exchange = True, 0
        world.tick(self.now)
