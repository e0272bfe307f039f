"""`hub`: the coordinator's side of a method, and the bookkeeping of calls that engines share.

Beside it are what calls carry, large matrices that are lent again, and a program's variables.
"""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast
from weakref import finalize, ref

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.engine.arguments import (
    agents_given,
    called,
    check_owing,
    job_given,
    of_one_size,
    published,
    sizes,
    started,
)
from desim.engine.at_work import Outside
from desim.engine.clients import (
    Assignment,
    Assignments,
    Clients,
    answers,
    ascending,
    hear_news,
    reply_of,
)
from desim.engine.requests import COLLECT, Collect, Job, Replies, Station
from desim.engine.signals import Feature
from desim.engine.world import World
from desim.errors import RunError
from desim.memory import Tree, attributes, fill, fitting, recall, recalling
from desim.network.timeline.computations import AT_WORK
from desim.network.timeline.messages import CALLED, PENDING, Calls, learned, no_calls
from desim.network.timeline.record import DISTANT, Kind, release_id
from desim.privacy.ledger.ledger import Terms, View, plain
from desim.problem.kernels.sums import column_sums
from desim.shapes import row_given

# What the latest call of each agent carried: one row for all that were sent the same.


class Payloads:
    """Rows (width,) by agent; a row that several agents were sent is in memory once."""

    def __init__(self, agents: int) -> None:
        self.width = 0
        self._blocks: dict[int, Array] = {}
        self._block, self._row = np.zeros(agents, np.int64), np.zeros(agents, np.int64)
        self._number = 0

    def note(self, who: Int, payload: Array) -> None:
        """Agents who (n,) are sent payload (p,), or (n, p), a row each."""
        if payload.shape[-1] != self.width:
            self.width, self._blocks = payload.shape[-1], {}
        self._number += 1
        self._blocks[self._number] = np.array(payload, float, ndmin=2)
        self._block[who] = self._number
        self._row[who] = 0 if payload.ndim == 1 else np.arange(len(who))
        if len(self._blocks) > 2 * len(self._block) + 2:
            used = np.unique(self._block).tolist()
            self._blocks = {one: self._blocks[one] for one in used if one in self._blocks}
        elif len(who) == len(self._block):
            self._blocks = {self._number: self._blocks[self._number]}

    def of(self, who: Int) -> Array:
        """A copy of the rows (n, width) of agents who (n,)."""
        block, row = self._block[who], self._row[who]
        if len(who) and np.logical_and.reduce(block == block[0]):
            return self._blocks[int(block[0])][row]
        rows = np.empty((len(who), self.width))
        for one in np.unique(block).tolist():
            mine = block == one
            rows[mine] = self._blocks[one][row[mine]]
        return rows


# Large matrices that are lent again once nobody holds them, as new memory is slow.

MAX_FREE = 2  # matrices that nobody holds


class Leases:
    """Lends matrices; their memory comes back when the last array that looks at it is gone."""

    def __init__(self) -> None:
        self._free: list[Array] = []

    def matrix(self, rows: int, width: int) -> Array:
        """A matrix (rows, width), float64, of any numbers."""
        self._free = [one for one in self._free if one.shape == (rows, width)]
        lease = _Lease(self._free.pop() if self._free else np.empty((rows, width)))
        finalize(lease, _returned, ref(self), lease.matrix).atexit = False
        return np.asarray(lease)


def _returned(lender: "ref[Leases]", matrix: Array) -> None:
    leases = lender()
    if leases is not None and len(leases._free) < MAX_FREE:
        leases._free.append(matrix)


class _Lease:
    """What arrays hold that look at a matrix, in the matrix's place."""

    def __init__(self, matrix: Array) -> None:
        self.matrix, self.__array_interface__ = matrix, matrix.__array_interface__


# What a coordinator's program remembers from one round to the next, as attributes.


class Variables:
    """Arrays, numbers, and what remembers and recalls itself, such as `Latest`, by name.

    Arrays are copied when they are set and read, so that `x = own.x; x -= g` changes no variable.
    """

    def __init__(self, start: Tree) -> None:
        self.__dict__["_values"] = {name: _copied(value) for name, value in start.items()}

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__["_values"]:
            raise self._unknown(name)
        return _copied(self._values[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise self._unknown(name)
        self._values[name] = _copied(value)

    def _unknown(self, name: str) -> AttributeError:
        names = ", ".join(self._values) or "none"
        return AttributeError(f"hub.memory: found {name!r}; allowed: those it began with, {names}")


def remembered(own: Variables | None) -> Tree:
    """What a checkpoint needs of them."""
    values: Tree = {} if own is None else own._values
    return {k: v.remembered() if hasattr(v, "recall") else v for k, v in values.items()}


def recalled(own: Variables, tree: Tree) -> None:
    """Give them what they were when the checkpoint was taken."""
    before = SimpleNamespace(**own._values)
    with recalling():
        for name, value in own._values.items():
            if hasattr(value, "recall"):
                value.recall(tree[name])
            else:
                recall(before, tree, name)
                own._values[name] = getattr(before, name)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


# What hangs on calls: what a scenario does not have is not imported.


def features(world: World) -> tuple[Feature, ...]:
    """The features of one play, in the order in which they are asked."""
    settings, found, price = world.settings, list[Feature](), None
    if settings.participation.remembers:
        from desim.engine.inviting import Choosing

        found = [choosing := Choosing(world)]
        price = choosing.price
    if not settings.codecs.plain:
        from desim.engine.coding import Coding

        found.insert(0, Coding(settings))
    if world.filter is not None:
        from desim.engine.budgets import Spending

        found.insert(0, Spending(world, world.filter, price))
    if settings.trust is not None:
        found.append(settings.trust.feature(world))
    return (*found, *(hang(world) for hang in settings.hung))


def reply_alone(
    world: World, agent: int, place: tuple[int, int], job: Job, terms: Terms, payload: Array
) -> Array:
    """What one agent answers (dim,) to a call of place (round, exchange) with payload (p,)."""
    desk = SimpleNamespace(world=world, features=features(world), payloads=Payloads(agent + 1))
    who, (round_, exchange) = np.array([agent]), place
    desk.payloads.note(who, payload)
    return np.asarray(reply_of(desk, Assignment(job, terms, exchange), who, np.array([round_]))[0])


# The hub itself.

NOBODY = np.empty(0, np.int64)
STORED = "round begun exchange unheard busy"
EXCHANGES = 256  # calls in a round; who makes more has forgotten to end it


class Hub:
    """What a coordinator does: invite, call, collect, publish.

    A round ends with publish(); calls before the first publish() belong to round 1, and publishing
    before any call shows the initial model as round 0.
    """

    world = Outside[World]("hub")
    station = Outside[Station]("hub")
    calls = Outside[Calls]("hub")

    def __init__(self, world: World, station: Station) -> None:
        agents = world.settings.problem.agents
        self.world, self.station, self.agents = world, station, agents
        self.outside = world.outside
        self.round = 1
        self.begun = False  # whether agents have been called or the start been shown
        self.exchange = 0
        self.unheard = 0  # latest collections in a row without a reply
        self.calls = no_calls(agents)
        self._world, self._station, self._calls = world, station, self.calls  # not asked who looks
        self.pending, self.flat = self.calls.pending, tuple(self.calls)
        self.bare = self.terms = plain(agents, View.COORDINATOR)
        self.assignments = Assignments(agents)
        self.busy = np.zeros(agents, bool)  # agents that have not replied to their latest call
        self.called: Int = NOBODY  # agents called since the latest collection
        self.informed: Int = NOBODY  # agents that the next calls inform, or messages
        self.payloads, self.leases = Payloads(agents), Leases()
        settings = world.settings
        self.learns = settings.policy.adaptive or settings.participation.remembers
        self.features = features(world)
        self.beside = sum(one.beside for one in self.features)
        self.work: Array | None = None  # of the latest call
        self.prices = np.zeros((3, agents))  # of the present call, for each agent's budget
        self.moved: list[Int] | None = None  # agents that ran jobs since a model was shown; or all
        self.own: Variables | None = None
        self.before: Tree | None = None  # what an earlier process remembered, until it is taken up
        self.boundary: Callable[[Hub], None] | None = None  # of an engine with checkpoints

    @property
    def now(self) -> float:
        """Virtual time s."""
        self.outside("hub.now")
        return self._station.now

    @property
    def open(self) -> bool:
        """Whether another round may begin."""
        self.outside("hub.open")
        self.before, settings = None, self._world.settings
        another = self.round <= settings.rounds and self._station.now <= settings.horizon
        another = another and not self._world.reached
        known = self.assignments.single or not self.pending.any()
        if another and known and self.own is not None and self.boundary is not None:
            self.boundary(self)
        return another

    def memory(self, **start: Any) -> Variables:
        """What the program remembers from one round to the next, as attributes: arrays or `Latest`.

        All of its variables that outlive a round must be there: a run that is resumed comes to its
        first round with what they last were. A program that does not ask is played from its start.
        """
        self.own = Variables(start)
        if self.before is not None:
            recalled(self.own, self.before)
        return self.own

    def remembered(self) -> Tree:
        """What a checkpoint needs; the payloads, of those that owe a reply."""
        owing = np.flatnonzero(self._calls.pending)
        return attributes(self, STORED) | {
            "own": remembered(self.own),
            "calls": self._calls._asdict(),
            "assignments": self.assignments.remembered(owing),
            "payload": self.payloads.of(owing),
            "told": self.informed,
            "features": {one.name: one.remembered() for one in self.features},
        }

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint: until the first round begins, nothing is started or shown."""
        recall(self, tree, STORED)
        for name, array in self._calls._asdict().items():
            fill(array, tree["calls"][name])
        self.before, self.informed = tree["own"], tree["told"]
        owing = np.flatnonzero(self._calls.pending)
        like = np.empty((len(owing), np.shape(tree["payload"])[-1]))
        self.payloads.note(owing, fitting(like, tree["payload"]))
        self.assignments.recall(owing, tree["assignments"])
        for one in self.features:
            one.recall(tree["features"][one.name])

    def start(self, **state: Array) -> None:
        """Give the agents their initial state, arrays (agents, ...); their models are `x`."""
        if self.before is None:
            dim = self._world.settings.problem.dim
            self._world.state.update(started(state, self.agents, dim, Clients))
            for one in self.features:
                self._world.state.update(one.state())
            self.moved = None

    def invite(self) -> Int:
        """Agents (n,), ascending, that participate in this round and owe no reply.

        Those that have spent their budgets do no more.
        """
        self.outside("hub.invite")
        settings, pending = self._world.settings, self.pending
        who: Int = settings.participation.draw(self.round)
        if settings.policy.late != "discard" and pending.any():  # what is discarded is void
            who = who[pending[who] == 0]
        for one in self.features:
            who = one.invited(self, who)
        return who

    def call(
        self, who: Int, job: Job, payload: Array, *, work: NDArray[Any],
        charge: Terms | None = None, bits: int | Int | None = None,
        reply_bits: int | Int | None = None,
    ) -> None:  # fmt: skip
        """Ask agents who (n,) to run job(us, payload rows) and to reply with its result (n, dim).

        payload (p,): the same for all, or (n, p): a row for each; work (agents,): per-example
        gradient evaluations; charge: what the reply reveals, terms (agents,) of all agents, whoever
        is called; agents whose budgets that would exceed retire and are not called. Without a
        charge the reply is one without noise. Bits, one number or (n,), default to the codec's, 64
        per number without; the reply to as many as the payload.
        """
        self.outside("hub.call")
        again = work is self.work  # which was looked at
        who, payload, self.work = called(who, job, payload, work, charge, self.agents, again)
        if self.exchange == EXCHANGES:
            raise RuntimeError(f"{EXCHANGES} calls in round {self.round}; publish ends it")
        asked, (who, payload) = who, ascending(who, payload)
        size = payload.shape[-1]
        check_owing(self, who, size)
        self.terms = charge or self.bare
        for one in self.features:
            who, payload = one.calling(self, who, payload)
            bits, reply_bits = one.sized(size, bits, reply_bits)
        self.payloads.note(who, payload)
        new = Assignment(job, self.terms, self.exchange)
        self.assignments.note(self.rows(who), new, self.pending)
        self.called = np.union1d(self.called, who) if len(self.called) else who
        self.begun, self.busy[who] = True, True
        down, up = sizes(size, bits, reply_bits, asked, self.agents)
        up = up + self.beside
        if len(self.informed):
            others = self.informed[~self.busy[self.informed]]  # who are called are busy by now
            if len(others):
                news = down if isinstance(down, int) else 64 * size
                self._station.post(self, np.sort(others), news)
            self.informed = NOBODY
        for some, there, back in of_one_size(who, down, up):
            self._station.call(self, some, there, back, self.work)
        self.exchange += 1

    def collect(self) -> Collect:
        """Yield this to wait until the policy closes the collection; the answer is Replies."""
        return COLLECT

    def total(self, replies: Replies) -> tuple[Array, float]:
        """The sum (dim,) of weighed replies as whoever adds them up has it, and how many it counts.

        That is what a program takes that reads replies in no other way: it works whoever is trusted
        with them.
        """
        for one in self.features:
            if (found := one.total(self, replies)) is not None:
                return found
        return column_sums(replies.weighed), len(replies.who)

    def tell(self, who: Int, job: Job, payload: Array) -> None:
        """Let agents who (n,), whose replies are in, run job(us, payload rows) on news (p,).

        The next call's payload carries the news to those that it goes to; the others are sent a
        message of their own. Both come in order and for sure, so that the job is run here.
        """
        self.outside("hub.tell")
        job_given("hub.tell", job)
        self.informed = who = agents_given("hub.tell", who, self.agents)
        if self.busy[who].any():
            text = "which has not replied to its latest call; allowed: agents that have"
            raise ValueError(f"hub.tell: found agent {who[self.busy[who]][0]}, {text}")
        payload = self.news(row_given("hub.tell: payload", payload))
        if len(who):
            self._move(who)
            hear_news(self._world, who, self.round, job, payload)

    def news(self, payload: Array) -> Array:
        """What agents hear of news (p,)."""
        for one in self.features:
            payload = one.news(payload)
        return payload

    def inform(self, who: Int, job: Job, payload: Array) -> None:
        """As `tell`, but the news goes out now, in a message of its own to each agent."""
        who = agents_given("hub.inform", who, self.agents)
        self.tell(who, job, payload)
        if len(who):
            self._station.post(self, who, self._world.settings.codecs.down.bits(len(payload)))
        self.informed = NOBODY

    def satisfied(self, arrived: set[int], over: bool) -> bool:
        """Whether the policy closes the collection with these agents' replies; over: its limit."""
        fresh = self._calls.round_ == self.round
        return self._world.settings.policy.closed(self.pending > 0, arrived, fresh, over)

    def shut(
        self, arrived: set[int], lost: set[int], opened: float, dead: Iterable[int] = ()
    ) -> Int:  # fmt: skip
        """Close the collection; return the agents (n,) whose replies are here.

        Calls to agents `lost` are void where a limit has closed it; but for dead ones they are
        forgotten.
        """
        policy, pending = self._world.settings.policy, np.flatnonzero(self.pending)
        here = np.isin(pending, sorted(arrived))
        missing = policy.missing(here, self._calls.round_[pending] == self.round)
        if policy.limited and missing > 0:
            self.missed(opened, missing)
            self.pending[list(lost)] = 0
            lost.intersection_update(dead)
        who = np.array(sorted(arrived), np.int64)
        arrived.clear()
        self.close(who, opened)
        return who

    def close(self, who: Int, opened: float) -> None:
        """The collection with the replies of agents who (n,) closes now: log it."""
        world, now = self._world, self._station.now
        if not self.assignments.ready:
            raise RunError("algorithm: collects replies before any call; allowed: hub.call first")
        self.busy[who] = False
        if self.learns:
            learned(who, now, self.flat)
        late = world.settings.policy.late
        self._calls.whole[slice(None) if late == "discard" else who, PENDING] = 0
        self.unheard = 0 if len(who) else self.unheard + 1
        place = DISTANT, -1, self.round, now
        world.log.add(Kind.AGGREGATE, *place, seconds=now - opened, value=len(who))
        self.called = NOBODY

    def worked(self, who: Int, closed: float) -> None:
        """Log that the coordinator, since it closed the collection, has taken in these replies."""
        now = self._station.now
        place = AT_WORK, -1, self.round, now
        self._world.log.add(Kind.COMPUTE, *place, seconds=now - closed, value=len(who))

    def accept(self, who: Int) -> Replies:
        """Run the jobs of the replies of agents who (n,), as one batch."""
        world = self._world
        self._move(who)
        rounds = self._calls.whole[who, CALLED]
        payload, exchange = self.answered(who, rounds)
        for one in self.features:
            one.taken(self, who, rounds, exchange)
        if world.signals.sending:
            ids = release_id(self.agents, who, rounds, exchange)
            traffic = np.full(len(who), self._station.now), *self._calls.traffic(who)
            payload = world.signals.sent(who, rounds, ids, payload, traffic)
        weight = world.settings.policy.staleness.weights(self.round - rounds)
        return Replies(who, payload, rounds, weight)

    def charged(self, first: int) -> None:
        """The ledger has rows of replies from number `first` on."""
        for one in self.features:
            one.charged(first)

    def answered(self, who: Int, rounds: Int) -> tuple[Array, Int]:
        """What agents who (n,), called in rounds (n,), reply, and in which exchanges."""
        return answers(self, who, rounds)

    def _move(self, who: Int) -> None:
        """Note that agents who (n,) get models anew."""
        if len(who) == self.agents:
            self.moved = None
        elif self.moved is not None:
            self.moved.append(who)

    def rows(self, who: Int) -> Any:
        """Index of the rows of agents who (n,): all of them as a slice, which copies nothing."""
        return slice(None) if len(who) == self.agents else who

    def until(self, opened: float) -> float:
        """When the limit of the collection that is opened now is, s; inf where there is none."""
        return self._world.settings.policy.until(opened, self._calls)

    def missed(self, opened: float, missing: int) -> None:
        """Log that a limit closed the collection with replies missing; note how long they took."""
        if self.learns:
            learned(NOBODY, self._station.now, self.flat)
        place, waited = (DISTANT, -1, self.round, self._station.now), self._station.now - opened
        self._world.log.add(Kind.DEADLINE, *place, seconds=waited, value=missing)

    def publish(self, model: Array) -> None:
        """Show the coordinator's model (dim,), true from now on, to the observer; a round ends."""
        self.outside("hub.publish")
        if self.before is not None:
            return
        world, now = cast(Any, self._world), self._station.now
        round_ = self.round if self.begun else 0
        moved = None if self.moved is None else np.concatenate([NOBODY, *self.moved])
        model = published(model, world.state, self.agents, world.settings.problem.dim)
        world.observer.publish(now, round_, world.state["x"], model, moved)
        self.moved = []
        self.round += self.begun
        self.begun, self.exchange = True, 0
        world.tick(now)
        if self._station.ahead:
            world.between(now)
        world.patience.require_reply(self.unheard, now)
