"""The private verbs of a cohort, for both engines: noise, its ledger rows, and chosen receivers.

Whatever draws noise charges for it in the same call, and asks the budget before.

Receivers wait for the messages that are addressed to them, so that the choice must be public: a
function of numbers, rounds and draws that each agent can compute for all, as a random matching is.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int, Mask
from desim.engine.arguments import terms_given
from desim.engine.at_work import Outside, refused
from desim.engine.observer import ReleasedObserver
from desim.engine.requests import Compute, Gather
from desim.engine.world import World
from desim.errors import show
from desim.masks import is_public, of_agents, public
from desim.network.conditions.topology import Graph
from desim.network.timeline.record import UPLINK, Kind, round_of
from desim.privacy.ledger.exposure import Exposure, rows
from desim.privacy.ledger.ledger import Mechanism, Terms, View, plain
from desim.shapes import amounts_given, numbers_given, refuse, rows_given, whole_given

# Messages to chosen neighbours: whom every agent sends to in a round, which everybody knows.

WHERE = "us.send(to=...)"
RELEASED = (
    "to release only where an agent sends, us.release(..., where=us.public(...)), or with kept=True"
)


def used_links(to: Any, graph: Graph, changing: Any) -> Mask:
    """Links (links,) on which a message goes if agent i sends to to[i], -1 for nobody.

    ValueError unless `to` (agents,) names neighbours, on a graph that stays.
    """
    rows, agents = np.asarray(to), graph.agents
    if changing is not None:
        raise ValueError(f"{WHERE}: found a graph that changes; allowed: one that stays")
    if rows.shape != (agents,) or rows.dtype.kind not in "iu":
        found = f"an array of {rows.dtype} {rows.shape}"
        allowed = f"whom each of all {agents} agents sends to, whole numbers ({agents},)"
        raise ValueError(f"{WHERE}: found {found}; allowed: {allowed}")
    used, sends = rows[graph.source] == graph.target, rows != -1
    if np.count_nonzero(used) != np.count_nonzero(sends):
        sends[graph.source[used]] = False
        i = int(sends.argmax())
        near = graph.target[graph.source == i].tolist()
        allowed = f"-1 for nobody, or a neighbour of it: {show(near)}"
        raise ValueError(f"{WHERE}: found {rows[i]} for agent {i}; allowed: {allowed}")
    return np.asarray(used)


def outgoing_part(graph: Graph, used: Mask) -> tuple[Int, Int]:
    """Outgoing pointers (agents + 1,) and links of the graph's used links (links,) alone."""
    out, before = used[graph.out_links], np.zeros(len(used) + 1, np.int64)
    out.cumsum(out=before[1:])
    return before[graph.outgoing], graph.out_links[out]


def demand_released(who: Int, speaks: Mask, releases: list[Int]) -> None:
    """ValueError where an agent that sends to nobody, not `speaks` (n,), has released a value.

    releases: ids (n,) of those that were made to be sent now.
    """
    for ids in releases:
        if len(mute := np.flatnonzero(~speaks & (ids >= 0))):
            found = f"agent {who[mute[0]]}, which sends to nobody, has released a value"
            raise ValueError(f"{WHERE}: found {found}; allowed: {RELEASED}")


def addressed(us: Any, settings: Any, to: Any) -> tuple[Mask | None, Mask]:
    """The links (links,) that `us` send on, or None for all; and which agents (n,) send at all."""
    if to is None or settings.graph is None:
        return None, us._everybody
    used = used_links(to, settings.graph, settings.changing)
    speaks = np.asarray(np.asarray(to)[us.who] >= 0)
    demand_released(us.who, speaks | ~us.live, us._fresh)
    return used, speaks


def parted(ids: Int, speaks: Mask) -> tuple[Int, Int]:
    """Releases ids (n,) of agents that speak, and of those that keep them until they do."""
    return np.where(speaks, ids, -1), np.where(speaks, -1, ids)


def entries_heard(matrix: Array, graph: Graph, who: Int) -> Array:
    """Entries (links,) of a matrix (agents, agents) for the links into agents who (n,)."""
    links = graph.into(who)
    return np.ascontiguousarray(matrix[graph.target[links], graph.source[links]])


# The verbs that release values.

Request = TypeVar("Request", Compute, Gather)
MAX_RELEASES = 255  # of a round, with noise of their own: the next has that of `draw=`
DRAWS = 1 << 32  # numbers of noise that serves again
LEFT = 1 << 14  # the number in their round of charges that only some agents of a cohort have
CODED = 1  # step of the draws' addresses; methods with a codec of their own have 0


class Releasing:
    """Agents `who` (n,) in their `round` (n,) at `clock` (n,) s, as far as they release values."""

    who: Int
    round: Int
    clock = Outside[Array]("us")
    live = Outside[NDArray[np.bool_]]("us")
    _world: World
    _release: Int
    _unsent: list[Int]  # ids (n,) of releases that the next message carries
    _ahead: list[Int]  # those whose noise was drawn before a computation
    _exposure: Exposure
    _releases: int  # in this round
    _asked: Compute | Gather | None  # the request that is to be yielded now
    _everybody: Mask  # (n,), and its opposite, not to be written to
    _nobody: Mask
    _codings: tuple[int, int] = (0, 0)  # the round of the latest one, and its number there

    def _set(self, **names: Any) -> None:
        """Set what the engine owns, which a program cannot."""
        self.__dict__.update(names)
        if "live" in names:
            self.__dict__["_all_live"] = bool(names["live"].all())

    def _begin(self, what: str) -> None:
        """RuntimeError in a job, and where what was asked for before has not been yielded."""
        if self._world.working:
            raise refused(what)
        if self._asked is not None:
            computes = isinstance(self._asked, Compute)
            cure = "g = yield us.compute(...)" if computes else "heard = yield us.gather()"
            text = f"found after a request that was not yielded; write {cure}"
            raise RuntimeError(f"{what}: {text}")

    def _asks(self, request: Request) -> Request:
        """The request, which the program is to yield before all else, once."""
        self.__dict__["_asked"] = request
        return request

    @property
    def noise_seed(self) -> int:
        """Seed of the noise of this play, which an audit varies and nothing else."""
        return int(self._world.ledger.seed)

    def release(
        self, value: Array, terms: Terms, where: Any = None, draw: int | None = None,
        kept: bool = False,
    ) -> Array:  # fmt: skip
        """Return value (n, dim) with the noise of `terms`, charged to the agents where `where`.

        where: a mask of `us.above` or `us.public`; for any other one they are charged without
        bound. draw: noise of this number instead of fresh one; it may serve one value only. kept:
        only the next message tells of it, whose time its row gets; without one it costs nothing.
        """
        self._begin("us.release")
        n = len(self.who)
        value = rows_given("us.release: value", value, n)
        terms_given("us.release: terms", terms, n)
        if draw is not None and not 0 <= (draw := whole_given("us.release: draw", draw)) < DRAWS:
            refuse("us.release: draw", draw, f"a whole number below {DRAWS}")
        self._tell(where)
        world, mask = self._world, self._admitted(terms, where)
        now = self.__dict__["clock"], self.who, self.round, self._releases
        noisy, ids = world.ledger.release(*now, value, terms, mask, draw, kept)
        self._note(ids, self._nobody if kept else mask)
        if kept:
            self.__dict__["_ahead"] = [*self._ahead, ids]
        self._exposure.release(mask)
        if world.signals.inside:
            noisy = world.signals.released(self.who, self.round, ids, value, noisy, terms)
            world.signals.waits(ids, kept)
        if isinstance(world.observer, ReleasedObserver):
            shown = mask & self.live
            place = self.clock[shown], self.who[shown], int(self.round[0])
            world.observer.released(*place, value[shown], noisy[shown])
        return noisy

    def coded(self, value: Array) -> Array:
        """Return Q(value) (n, dim), the scenario's codec as a contraction: what `send` takes.

        Every neighbour reads the same. The method remembers what Q leaves out. Without a codec it
        is the value.
        """
        self._world.outside("us.coded")
        settings = self._world.settings
        value = rows_given("us.coded: value", value, len(self.who))
        now, (before, number) = int(self.round[0]), self._codings
        number = number + 1 if now == before else 0
        place = {"agent": self.who, "round": self.round, "step": CODED + number}
        coded = settings.codecs.up.coded(settings.seed, value, False, **place)
        self.__dict__.update(_coded=coded, _codings=(now, number))
        return np.asarray(coded)

    def perturbation(self, dim: int, terms: Terms, where: Any = None) -> Array:
        """Return noise (n, dim) that enters the next computation; its outcome needs no release.

        Objective perturbation: the row, of the agents where `where`, gets the time of the message
        that carries the outcome.
        """
        self._begin("us.perturbation")
        dim = whole_given("us.perturbation: dim", dim)
        terms_given("us.perturbation: terms", terms, len(self.who))
        self._tell(where)
        ledger, mask = self._world.ledger, self._admitted(terms, where)
        noise, ids = ledger.ahead(self.who, self.round, self._releases, dim, terms, mask)
        self._world.signals.waits(ids, True)
        self._note(ids, self._nobody)
        self._exposure.cover(mask)
        self._set(_ahead=[*self._ahead, ids])
        return noise

    def charged(self, terms: Terms) -> NDArray[np.uint64]:
        """Return keys (n,) of noise inside the next computation, whose outcome has these terms."""
        number = self._releases
        self.perturbation(0, terms)
        return np.full(len(self.who), self._world.ledger.noise_key(terms, number))

    def released(self, output: Array, value: Callable[[], Array], terms: Terms) -> Array:
        """What to use for output (n, dim) of `charged` noise; value(): the same without noise."""
        signals, batch = self._world.signals, (self.who, self.round, self._ahead[-1])
        return signals.released(*batch, value(), output, terms) if signals.releasing else output

    def above(
        self, margin: Array, terms: Terms, threshold_scale: Any = 0.0, where: Any = None
    ) -> Mask:
        """Whether margin (n,), a query minus its threshold, is >= 0 with fresh noise on both.

        Not `where` is no question, answered False without charge.

        One answer of a sparse vector, charged whatever it is: silence tells as much as a message.
        Scales b of Laplace noise (n,): terms.scale of the query, threshold_scale.
        """
        self._begin("us.above")
        margin = numbers_given("us.above: margin", margin, n := len(self.who))
        terms_given("us.above: terms", terms, n)
        if terms.mechanism not in (Mechanism.SPARSE_VECTOR, Mechanism.NONE):
            allowed = "Mechanism.SPARSE_VECTOR: the noise of a comparison is Laplace's"
            refuse("us.above: terms: mechanism", terms.mechanism.name, allowed)
        scale = amounts_given("us.above: threshold_scale", threshold_scale, n)
        self._tell(where)
        world, second = self._world, np.broadcast_to(scale, self.who.shape)
        wide = replace(terms, scale=np.maximum(terms.scale, second))
        mask = self._admitted(wide, where)
        place = self.clock, self.who, self.round, self._releases
        noisy, ids = world.ledger.compare(*place, margin, wide, terms.scale, second, mask)
        self._note(ids, mask)
        if world.signals.releasing:
            batch = self.who, self.round, ids, margin[:, None], noisy[:, None]
            noisy = world.signals.released(*batch, terms)[:, 0]
        return public((noisy >= 0.0) & mask)

    def public(self, mask: Any) -> Mask:
        """State that mask (n,) follows from time, terms, answers and releases, not from data.

        Or a table (agents,) of whole numbers, whom each of all agents sends to.

        Nothing proves it: `desim check --contract` and `desim audit` look for what contradicts it.
        """
        self._world.outside("us.public")
        table = np.asarray(mask)
        if table.dtype.kind in "iu":
            return public(of_agents(table, self._world.settings.problem.agents, "us.public"))
        return public(of_agents(table, len(self.who), "us.public"))

    def yielded(self, request: Any) -> bool:
        """Whether the request is the one that is to be yielded now, and no older one."""
        expected = request is self._asked
        self.__dict__["_asked"] = None
        return expected

    def computed(self, work: Array, result: Array) -> None:
        """Note what a computation gave, rows (n, ...) for work (n,)."""
        self._exposure.finish(work, result)

    def _bare(self, payload: Array, speaks: Mask) -> Array:
        """Charge agents that speak (n,) and have read data without a release; return payload."""
        n, number = len(self.who), self._releases
        left = speaks & rows(self._exposure.read, n)
        if self._exposure.computed:
            return self.release(payload, plain(n, View.NEIGHBOURS), public(left))
        if not left.any():  # a release was for others: not all engines are here
            return payload
        self._set(_releases=LEFT + number)
        payload = self.release(payload, plain(n, View.NEIGHBOURS), public(left))
        self._set(_releases=number)
        return payload

    def _tell(self, where: Any) -> None:
        """Charge all agents for a mask that may come from their data: an answer without noise."""
        if where is None or is_public(of_agents(where, len(self.who), "where")):
            return
        n, world = len(self.who), self._world
        nothing = np.full(n, np.nan)
        bare = Terms(
            Mechanism.SPARSE_VECTOR, View.NEIGHBOURS, np.full(n, np.inf), np.zeros(n), nothing
        )
        mask = self._admitted(bare, None)
        place = self.clock, self.who, self.round, self._releases
        ids = world.ledger.charged(*place, bare, mask)
        self._note(ids, mask)

    def _admitted(self, terms: Terms, where: Any) -> Mask:
        """Agents (n,) that release now where `where`: live, and within their budgets."""
        live = self.__dict__["live"]
        mask = live if where is None else np.asarray(live & np.asarray(where))
        if self._world.filter is None or not mask.any():
            return mask
        from desim.engine.budgets import admitted

        return admitted(self, self._world, terms, mask)

    def _note(self, ids: Int, now: NDArray[np.bool_]) -> None:
        """The next message carries releases ids (n,), -1 for none; log those made `now` (n,)."""
        if self._releases % LEFT >= MAX_RELEASES:
            text = f"found more than {MAX_RELEASES} releases in a round"
            raise RuntimeError(f"{text}; allowed: {MAX_RELEASES}")
        own, number = self.__dict__, np.count_nonzero(now)
        own["_release"] = ids if number == len(now) else np.where(ids >= 0, ids, self._release)
        own["_releases"] += 1
        own["_unsent"] = [*self._unsent, ids]
        self._log_releases(ids, now, number, self.round)

    def _log_releases(self, ids: Int, now: NDArray[np.bool_], number: Any, round_: Int) -> None:
        """Log releases ids (n,) of rounds (n,) where they are made `now` (n,), so many of them."""
        if number > 0:
            end, clock = self._world.settings.horizon, self.__dict__["clock"]
            time = clock if number == len(now) else np.where(now, clock, np.inf)
            place, none = (UPLINK, self.who, round_, end, time), np.zeros(len(now))
            self._world.log.each(Kind.RELEASE, *place, none, none, ids)

    @property
    def _fresh(self) -> list[Int]:
        """Ids (n,) of releases that the next message carries, but for those drawn ahead."""
        ahead = [id(ids) for ids in self._ahead]
        return [ids for ids in self._unsent if id(ids) not in ahead]

    def _tell_kept(self, speaks: Mask) -> list[Int]:
        """The next message tells of what was kept: now where `speaks` (n,); return what waits on.

        Releases ids (n,) of agents that send to nobody in this round.
        """
        world, waiting = self._world, list[Int]()
        agents = world.settings.problem.agents
        rest, live = self._fresh, self.__dict__["live"]
        for drawn in self._ahead:
            ids, later = parted(drawn, speaks)
            world.ledger.sent(ids, self.__dict__["clock"], live)
            now = live & (ids >= 0)
            rounds = np.where(ids >= 0, round_of(agents, ids), self.round)
            self._log_releases(ids, now, np.count_nonzero(now), rounds)
            if world.signals.waiting:
                world.signals.waits(np.where(live, ids, -1), False)
            rest.append(ids)
            waiting += [later] if np.maximum.reduce(later) >= 0 else []
        self._set(_ahead=[], _unsent=rest)
        return waiting

    def served(self, recipients: Int) -> None:
        """Note that the network serves recipients (n,) of the message just sent.

        What an agent without neighbours sends is published, to whoever reads it.
        """
        graph = self._world.settings.graph
        if graph is not None and graph.agents == 1:
            recipients = np.ones_like(recipients)
        ledger = self._world.ledger
        for ids in self._unsent:
            ledger.delivered(ids, recipients)
        if ledger.waiting is not None:
            ledger.waiting[self.who] = np.inf
        self.__dict__["_unsent"] = []
