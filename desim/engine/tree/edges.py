"""A star of stars: the cloud's agents are edges, whose work is a play of a star of their own.

An edge that is called plays so many rounds of its own from the moment at which the call arrives,
and replies when they have ended. With one round it passes on what it was sent, and its reply is the
sum of its clients' replies: nothing of the method happens there. With more it runs the method's own
program, from what the program above remembers when it calls, with its own clients alone; its reply
is what the sums of its rounds come to in turn (`Tree.in_turn`).

What an edge does from a call on depends on nothing but the call: nobody interrupts it. So it is
played when it is called, and its clients' states are shown once its reply has been taken in.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int
from desim.engine.clients import Clients
from desim.engine.cohort.star import CohortStation, rounds_of
from desim.engine.hub import Hub, Variables
from desim.engine.requests import COLLECT, Collect, Job, Replies
from desim.engine.tree.absent_edges import Attending, edges_named, when_there
from desim.engine.world import Discard, World
from desim.errors import Deadlock, InputError, RunError
from desim.log.event_log import EventLog
from desim.network.conditions.hierarchy import InTurn, invited
from desim.network.conditions.participation import Drawn
from desim.network.timeline.messages import (
    BEGIN,
    BITS,
    CALLED,
    DUE,
    EXCHANGE,
    FINISH,
    LOGGED,
    PENDING,
    ROUND,
    SENT,
    TAKEN,
    transmit_one,
)
from desim.network.timeline.record import UPLINK, Kind
from desim.problem.kernels.sums import column_sums

LOW = 0xFFFFFFFF  # of a row's agent and peer: the peer
MESSAGES = [int(kind) for kind in (Kind.SEND, Kind.LOST, Kind.DELIVER)]


class Order(NamedTuple):
    """What a coordinator's program asks of whom it calls, and what the program remembers."""

    job: Job
    payload: Array
    own: Variables | None
    round: int
    terms: dict[str, Any]


class StarWorld(World):
    """The world of the stars of a tier, whose rows go on to the log of the run."""

    def tick(self, frontier: float, whole: bool = True) -> None:
        """Nothing: the run's world is told by the cloud alone."""

    @classmethod
    def below(cls, world: World, settings: Any) -> "StarWorld":
        """One of the same play, with settings of its own."""
        own = cls(settings, world.observer, world.patience, Discard())
        own.ledger, own.presences, own.stuck = world.ledger, world.presences, world.stuck
        own.cautions = world.cautions
        return own


def passed_on(rows: EventLog, log: EventLog, own: int) -> None:
    """Move all of `rows` to the log, where -1 is this coordinator's id: whose row, to whom sent."""
    used, brief, _ = rows.rows.n.tolist()
    log.reserve(max(used, brief))
    n = log.rows.n
    if used:
        place, ints = slice(n[0], n[0] + used), rows.rows.ints[:used]
        agent, peer = ints[:, 1] >> 32, ints[:, 1] & LOW  # one more than they are
        sent = np.isin(ints[:, 3] & 255, MESSAGES)
        agent = np.where(agent == 0, own + 1, agent)
        peer = np.where((peer == 0) & sent, own + 1, peer)
        log.rows.ints[place], log.rows.floats[place] = ints, rows.rows.floats[:used]
        log.rows.ints[place, 1] = agent << 32 | peer
    if brief:
        log.rows.brief[n[1] : n[1] + brief] = rows.rows.brief[:brief]
    n[0] += used
    n[1] += brief
    rows.rows.n[:2] = 0


class Star:
    """One coordinator and its members (n,), ascending numbers of the tier below.

    reach (m,): clients under it; first: id of the members' tier; id: its own.
    """

    def __init__(
        self, world: World, station: Any, members: Int, reach: Int, own: int, first: int,
        address: int,
    ) -> None:  # fmt: skip
        self.world, self.station, self.members, self.reach = world, station, members, reach
        self.id, self.first, self.address = own, first, address
        self.hub = Hub(world, station)
        self.hub.moved = []
        self.agents = world.settings.problem.agents
        self.edges: Sequence[Edge] = ()  # of the tier below by number, where there are any
        self.order: Order | None = None  # what they are called for

    def over(self, edges: "Sequence[Edge]") -> None:
        """Be above these edges of the tier below, by number, and give them what codes replies."""
        self.edges, self.station.star = edges, self
        for one in self.hub.features:
            self.world.state.update(one.state())

    def invite(self) -> Int:
        """Members (n,), ascending, that take part in the round and owe no reply."""
        settings, hub = self.world.settings, self.hub
        place = self.members, self.first, self.address
        way = settings.participation
        assert isinstance(way, Drawn)
        who = invited(way, hub.round, *place)
        if settings.policy.late != "discard" and hub.pending.any():
            who = who[hub.pending[who] == 0]
        return who

    def call(self, who: Int, order: Order) -> None:
        """Call members who (n,) for an order."""
        terms = order.terms
        if not self.edges:
            self.hub.call(who, order.job, order.payload, **terms)
            return
        self.order = order
        bits, up = terms["bits"], terms["reply_bits"]
        if self.world.settings.codecs.plain:
            bits = 64 * order.payload.shape[-1] if bits is None else bits
            up = bits if up is None else up
        free = np.zeros(self.hub.agents)
        self.hub.call(who, self.answer, order.payload, work=free, bits=bits, reply_bits=up)

    def answer(self, us: Clients, _: Array) -> Array:
        """The replies (n, width) of edges `us`, with the states of their clients."""
        edges = [self.edges[e] for e in us.who.tolist()]
        self.take(edges)
        return np.array([one.reply[0] for one in edges])

    def take(self, edges: "Sequence[Edge]") -> None:
        """These edges' replies are in: what their clients have become is to be seen."""
        for one in edges:
            one.shown()

    def named(self, error: Deadlock) -> Deadlock:
        """The same, where edges are called agents by the name that words have for them."""
        if not self.edges:
            return error
        return Deadlock(edges_named(str(error), self.first - self.agents))

    def total(self, replies: Replies) -> tuple[Array, float]:
        """The sum (dim,) of weighed replies, and how many clients' it counts."""
        if not self.edges:
            return self.hub.total(replies)
        counts = np.array([self.edges[e].reply[1] for e in replies.who.tolist()], float)
        number, some = float(counts.sum()), counts > 0.0
        for one in self.hub.features:
            payload = replies.payload[some] / counts[some, None]
            means = Replies(replies.who[some], payload, replies.round[some], replies.weight[some])
            if (found := one.total(self.hub, means)) is not None:  # edges count alike there
                return found[0] * (number / max(found[1], 1)), number * (found[1] > 0)
        return column_sums(replies.weighed), number


class Seat:
    """`hub` of an edge for the method's program, which goes on from what is remembered above."""

    def __init__(self, star: "Edge", order: Order, agents: int, rounds: int) -> None:
        self.star, self.order, self.agents = star, order, agents
        self.left, self.begun = rounds, False
        self.own = order.own  # what an edge below goes on from, where this one passes on
        self.totals, self.counts = list[Array](), list[float]()

    def __getattr__(self, name: str) -> Any:
        raise InputError(f"network.topology: found a tree, whose edges have no hub.{name}")

    @property
    def now(self) -> float:
        """Virtual time s."""
        return float(self.star.station.now)

    @property
    def round(self) -> int:
        """Of the edge."""
        return self.star.hub.round

    @property
    def open(self) -> bool:
        """Whether another round of this call begins."""
        return self.left > 0

    def memory(self, **start: Any) -> Variables:
        """What the program above remembers, a copy of its own."""
        above = self.order.own
        if above is None:
            text = "found a tree with rounds of edges, and a program that asks for no hub.memory"
            raise RunError(f"network.topology: {text}; allowed: rounds: 1")
        self.own = Variables({name: getattr(above, name) for name in start})
        if odd := [name for name in start if hasattr(getattr(self.own, name), "recall")]:
            text = f"found a tree with rounds of edges, and a program that remembers {odd[0]}"
            raise RunError(f"network.topology: {text} of every agent; allowed: rounds: 1")
        return self.own

    def start(self, **state: Array) -> None:
        """Nothing: clients have their states."""

    def invite(self) -> Int:
        """Members that take part in the round."""
        return self.star.invite()

    def call(self, who: Int, job: Job, payload: Array, **terms: Any) -> None:
        """Call members who (n,)."""
        self.begun = True
        self.star.call(who, ordered(job, payload, self.own, self.round, terms))

    def collect(self) -> Collect:
        """Yield this to wait for replies."""
        return COLLECT

    def total(self, replies: Replies) -> tuple[Array, float]:
        """The sum (dim,) of weighed replies, and how many clients' it counts."""
        total, count = self.star.total(replies)
        self.totals.append(total)
        self.counts.append(count)
        return total, count

    def publish(self, model: Array) -> None:
        """A round of the edge ends; nobody looks at its model."""
        if self.begun:
            self.left -= 1
            self.star.next_round()


def ordered(
    job: Job, payload: Array, own: Variables | None, round_: int, terms: dict[str, Any]
) -> Order:
    """An order as edges pass it on."""
    known = {"charge": None, "bits": None, "reply_bits": None} | terms
    several = np.ndim(known["bits"]) + np.ndim(known["reply_bits"]) > 0
    for what, wrong in (("a payload", np.ndim(payload) != 1), ("a size", several)):
        if wrong:
            text = f"found a tree, and a call of hub with {what} for each agent"
            raise RunError(f"network.topology: {text}; allowed: one for all")
    return Order(job, np.asarray(payload, float), own, round_, known)


class Edge(Star):
    """A coordinator between: it plays `rounds` rounds for each call from above.

    program: the method's, which more than one round needs; show(moved, reach): clients reach (m,)
    are shown as they are now, of which moved (n,) have models anew, None for all that there are.
    """

    def __init__(
        self, world: World, station: Any, members: Int, reach: Int, own: int, first: int,
        address: int, *, program: Callable[[Any], Any], rounds: int, in_turn: InTurn | None,
        log: EventLog, show: Callable[[Int | None, Int], None], attending: Attending | None,
    ) -> None:  # fmt: skip
        super().__init__(world, station, members, reach, own, first, address)
        self.attending = attending  # None: it is always there
        self.program, self.rounds, self.in_turn = program, rounds, in_turn
        self.log, self.show = log, show
        self.reply: tuple[Array, float] = np.zeros(0), 0.0  # the latest, and how many it counts
        self.taken: dict[int, Edge] = {}  # by id, those below whose replies are in its own
        self.stuck: RunError | None = None  # why it waits for ever

    def next_round(self) -> None:
        """The edge's next round begins."""
        hub = self.hub
        hub.round, hub.begun, hub.exchange = hub.round + 1, True, 0

    def play(self, begin: float, order: Order) -> float:
        """Play the rounds that a call asks for which is here at `begin` s; return their end s.

        inf where they never end; past the run's end where they end then or later.
        """
        hub, horizon = self.hub, self.world.settings.horizon
        hub.round, hub.exchange = (order.round - 1) * self.rounds + 1, 0
        seat = Seat(self, order, self.agents, self.rounds)
        over = [False]

        def program(_: Hub) -> Any:
            yield from self.program(seat) if self.rounds > 1 else relayed(seat)
            over[0] = True

        try:
            begin = begin if self.attending is None else self.attending.acting(begin)
            end = float(self.station.played(program, hub, begin, self.attending))
        except Deadlock as error:
            self.stuck, end = self.named(error), np.inf
        passed_on(self.world.log, self.log, self.id)
        if not over[0]:
            return np.inf if end == np.inf else float(np.nextafter(horizon, np.inf))
        totals, counts = np.array(seat.totals), np.array(seat.counts, float)
        if len(totals) > 1:
            assert self.in_turn is not None
            self.reply = self.in_turn(totals, counts)
        else:
            self.reply = totals[0], float(counts[0])
        return end

    def take(self, edges: "Sequence[Edge]") -> None:
        """What clients have become is shown with the edge's own reply."""
        self.taken |= {one.id: one for one in edges}

    def shown(self) -> None:
        """The reply is taken in: show what the clients that it is of have become."""
        below, self.taken = [*self.taken.values()], {}
        for one in below:
            one.shown()
        if not self.edges:
            moved, self.hub.moved = self.hub.moved, []
            who = None if moved is None else np.concatenate([self.reach[:0], *moved])
            self.show(who, self.reach)

    def settle(self, until: float) -> None:
        """Write all that happened by `until` s."""
        self.station.past(self.hub, until)
        passed_on(self.world.log, self.log, self.id)


class EdgesStation(CohortStation):
    """Of a coordinator whose agents are edges: when they reply is known once they have played."""

    star: Star

    def call(self, hub: Hub, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Call edges who (n,): down, a play of their own, up."""
        log, settings, star = self.world.log, self.world.settings, self.star
        down, up = settings.downlinks, settings.uplinks
        assert down is not None
        assert up is not None
        assert star.order is not None
        whole, real, place = hub.calls.whole, hub.calls.real, (hub.round, hub.exchange)
        order, coded = star.order, not settings.codecs.plain
        for e in who.tolist():
            edge = star.edges[e]
            if coded:
                order = order._replace(payload=hub.payloads.of(np.array([e]))[0])
            log.reserve(self.rows_per_call)
            begin = transmit_one(down, e, self.now, *place, bits, -1, 0, log.rows)
            whole[e, PENDING], whole[e, CALLED], whole[e, LOGGED] = 1, hub.round, 1
            real[e, SENT], real[e, DUE] = self.now, np.inf
            if begin == np.inf:
                continue
            begin = real[e, TAKEN] = real[e, BEGIN] = max(float(begin), real[e, TAKEN])
            whole[e, ROUND], whole[e, EXCHANGE], whole[e, BITS] = *place, reply_bits
            end = real[e, FINISH] = edge.play(begin, order)
            if end <= settings.horizon and end < np.inf:
                log.reserve(self.rows_per_call)
                real[e, DUE] = transmit_one(
                    up, e, end, *place, reply_bits, -1, UPLINK, log.rows
                )  # fmt: skip

    def played(
        self, program: Any, hub: Hub, begin: float, attending: Attending | None
    ) -> float:  # fmt: skip
        """Run a program from `begin` s on; return its end s."""
        self.now = begin
        return rounds_of(program, when_there(self.world, attending), self, hub)

    def past(self, hub: Hub, until: float) -> None:
        """Nothing is left to be written: what happens is known when it begins."""


def relayed(seat: Seat) -> Any:
    """The program of an edge that passes on what it was sent."""
    order = seat.order
    seat.call(seat.invite(), order.job, order.payload, **order.terms)
    replies = yield seat.collect()
    seat.total(replies)
