"""`hub`: the coordinator's side of a method, and the bookkeeping of calls that engines share."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.engine.requests import Array, Collect, Replies
from desim.engine.spending import Spending
from desim.engine.world import World
from desim.kernels.clients import CALLED, PENDING, no_calls, release_id
from desim.kernels.record import DISTANT, Kind
from desim.privacy.ledger import Mechanism, Terms, View, plain

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
    _drawn: bool  # whether noise was asked for

    def __init__(
        self, world: World, who: Int, round_: Int, terms: Terms | None, exchange: int = 0
    ) -> None:
        own = self.__dict__
        own["address"] = round_ + (exchange << 24) if exchange else round_
        own["who"], own["round"], own["_world"], own["_terms"] = who, round_, world, terms
        own["_whole"] = len(who) == world.settings.problem.agents
        own["_drawn"] = False

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
        """The key of noise drawn inside a kernel; only a call that was charged has one, once."""
        self._draw_once()
        return np.uint64(self._world.ledger.noise_key(self._terms))

    def _draw_once(self) -> None:
        if self._drawn:
            raise RuntimeError("a call asks twice for its noise, which may serve one value only")
        self.__dict__["_drawn"] = True

    def noised(self, value: Array) -> Array:
        """Return value (n, dim) with the noise of the call's charge, which may serve it only."""
        terms, world = self._terms, self._world
        if terms is None or terms.mechanism is Mechanism.NONE:
            return value
        self._draw_once()
        exchange = int((self.address[0] - self.round[0]) >> 24)
        noisy = world.ledger.noise(self.who, self.round, exchange, value, terms)
        return self.released(noisy, lambda: value)

    def released(self, output: Array, value: Callable[[], Array]) -> Array:
        """Return what a kernel with noise inside gave, output (n, dim), to be used in its place.

        value(): the same (n, dim) without noise, asked for only by the check of the transcript.
        """
        world = self._world
        if world.transcript is None:
            return output
        exchange, agents = (self.address - self.round) >> 24, world.settings.problem.agents
        ids = release_id(agents, self.who, self.round, exchange)
        terms = self._terms or plain(agents, View.COORDINATOR)
        return world.transcript.release(self.who, self.round, ids, value(), output, terms, self.who)


class Station(Protocol):
    """How an engine carries calls out."""

    @property
    def now(self) -> float:
        """Virtual time s."""

    def call(self, hub: "Hub", who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Send a call to agents who (n,)."""

    def post(self, hub: "Hub", who: Int, bits: int) -> None:
        """Send agents who (n,) a message that asks for no reply."""


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
        self.told: Int = np.empty(0, np.int64)  # agents that the next calls inform, or messages
        self.payload: Array = np.empty((agents, 0))
        filter_ = world.filter
        self.spending = None if filter_ is None else Spending(world, filter_)

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
        """Agents (n,), ascending, that participate in this round and owe no reply.

        Those that have spent their budgets do no more.
        """
        settings, filter_ = self.world.settings, self.world.filter
        drawn = settings.participation.draw(self.round)
        if filter_ is not None:
            drawn = drawn[~filter_.retired[drawn]]
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
        what the reply reveals; agents whose budgets that would exceed retire and are not called.
        Bits default to 64 per number; the reply to as many as the payload.
        """
        self.job, self.terms = job, charge or plain(self.agents, View.COORDINATOR)
        if self.payload.shape[1] != len(payload):
            self.payload = np.empty((self.agents, len(payload)))
        if self.spending is not None:
            who = self.spending.affordable(who, self.terms, self.round, self.now)
        self.called, self.begun = who, True
        self.payload[self.rows(who)] = payload
        down = 64 * len(payload) if bits is None else bits
        if len(self.told):
            self.station.post(self, np.setdiff1d(self.told, who), down)
            self.told = np.empty(0, np.int64)
        self.station.call(self, who, down, down if reply_bits is None else reply_bits, work)
        self.exchange += 1

    def collect(self) -> Collect:
        """Yield this to wait until the policy closes the collection; the answer is Replies."""
        return COLLECT

    def tell(self, who: Int, job: Train, payload: Array) -> None:
        """Let agents who (n,), whose replies are in, run job(us, payload rows) on news (p,).

        The next call's payload carries the news to those that it goes to; the others are sent a
        message of their own. Both come in order and for sure, so that the job is run here.
        """
        self.told = who
        if len(who):
            us = Clients(self.world, who, np.full(len(who), self.round), None)
            job(us, np.broadcast_to(payload, (len(who), len(payload))))

    def inform(self, who: Int, job: Train, payload: Array) -> None:
        """As `tell`, but the news goes out now, in a message of its own to each agent."""
        self.tell(who, job, payload)
        if len(who):
            self.station.post(self, who, 64 * len(payload))
        self.told = np.empty(0, np.int64)

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
        if world.transcript is not None:
            payload = world.transcript.send(who, rounds, payload)
        now = self.station.now
        world.log.add(
            Kind.AGGREGATE, DISTANT, -1, self.round, now, seconds=now - opened, value=len(who)
        )
        return Replies(who, payload, rounds)

    def _in_batches(self, job: Train, who: Int, rounds: Int) -> Array:
        """Run the jobs of agents who (n,), called in rounds (n,), so many at a time."""
        limit, parts = self.world.settings.batch_limit, []
        for first in range(0, len(who), limit):
            part = slice(first, first + limit)
            us = Clients(self.world, who[part], rounds[part], self.terms, self.exchange - 1)
            parts.append(job(us, self.payload[who[part]]))
        return np.concatenate(parts) if parts else np.empty((0, self.payload.shape[1]))

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
