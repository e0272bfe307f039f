"""`us`: a cohort of agents that run one program, as the algorithm sees it in either engine.

Attributes that are set on it are rows of the agents' state, shape (agents of the cohort, ...). Rows
of agents whose clock has passed the end of the run no longer change.
"""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.engine import arguments
from desim.engine.arguments import set_state, unknown
from desim.engine.at_work import Outside, refused
from desim.engine.releasing import Releasing, addressed, entries_heard
from desim.engine.requests import Carrier, Compute, Gather, Heard, Job
from desim.engine.world import World
from desim.masks import is_public
from desim.network.conditions.devices import overheads_of, speeds_of
from desim.network.conditions.topology import Graph
from desim.network.timeline.computations import fitting, seconds_into
from desim.network.timeline.messages import neighbour_sum
from desim.network.timeline.waiting_rule import ALL
from desim.privacy.ledger.exposure import Exposure
from desim.shapes import rows_given, wait_given, whole_given


class Cohort(Releasing):
    """Agents `who` (n,) in their `round` (n,) at `clock` (n,) s; `live` (n,): still in the run."""

    leaving = Outside[NDArray[np.bool_]]("us")  # budget spent: the next message is a last null
    gone = Outside[NDArray[np.bool_]]("us")  # nothing comes any more
    ended = Outside[Array]("us")  # (n,) s when that began
    degree: Int
    turn: int  # the round on whose graph messages are exchanged
    _carrier: Carrier
    _speed: Array | None
    _lasted: tuple[Array, Array] | None  # seconds and work (n,) of the latest computation
    _sent: bool  # whether a message waits for its `gather`
    _past: int  # rounds before the first
    _reported: int  # rounds that have been shown
    _width: int  # of the messages, see `one_width`, with _some
    _some: bool
    _whole: bool
    _all_live: bool

    def __init__(self, world: World, who: Int, carrier: Carrier) -> None:
        own = self.__dict__
        own["_world"], own["_carrier"], own["who"] = world, carrier, who
        own["round"], own["turn"] = np.zeros(len(who), np.int64), 1
        own["clock"] = np.zeros(len(who))
        own["live"] = np.ones(len(who), bool)
        own["leaving"] = own["gone"] = np.zeros(len(who), bool)
        own["ended"] = np.zeros(len(who))
        own["_release"] = np.full(len(who), -1, np.int64)
        own["_unsent"], own["_ahead"], own["_exposure"] = [], [], Exposure()
        own["_sent"] = own["_some"] = False
        own["_speed"] = own["_lasted"] = own["_asked"] = None
        own["_releases"] = 0
        own["_past"] = own["_reported"] = own["_width"] = 0
        own["_whole"] = len(who) == world.settings.problem.agents
        own["_all_live"] = True
        own["_everybody"], own["_nobody"] = np.ones(len(who), bool), np.zeros(len(who), bool)
        if (graph := world.settings.graph) is not None:
            own["degree"] = graph.degree[who]

    def __getattr__(self, name: str) -> Array:
        try:
            rows = self._world.state[name]
        except KeyError:
            raise unknown(name) from None
        return np.array(rows) if self._whole else np.asarray(rows[self.who])

    def __setattr__(self, name: str, value: Any) -> None:
        if self._world.working:
            raise refused(f"us.{name} = ...")
        set_state(self, name, value, None if self._all_live else self.live)

    def rounds(self) -> Iterator[int]:
        """Count the cohort's iterations 1, 2, ... until the run ends."""
        self._world.outside("us.rounds")
        k, limit = self._past, self._world.settings.rounds
        while self._reported < k:  # rounds that were lost on the way show the state of the restart
            self._show(self._reported + 1, self.x)
        while k < limit and self.on:
            k += 1
            self.begin(k)
            yield k

    @property
    def on(self) -> bool:
        """Whether any of the agents goes on."""
        return self._all_live or bool(self.live.any() or self.leaving.any())

    def begin(self, k: int) -> None:
        """Begin round k."""
        if self._carrier.ahead:
            self._world.between(float(np.minimum.reduce(self.clock)))
        round_ = np.empty(len(self.who), np.int64)
        round_[:] = k
        self.__dict__.update(round=round_, _releases=0)

    def speed(self) -> Array:
        """Speeds (n,) 1/s in this round: per-example gradient evaluations per second."""
        self._world.outside("us.speed")
        speeds = self._world.settings.speeds
        if self._speed is not None and not speeds.redraw:
            return self._speed
        drawn = speeds_of(speeds, self.who, self.round)
        self._set(_speed=drawn)
        return drawn

    def capacity(self, seconds: float) -> Int:
        """How many gradient evaluations (n,) fit into `seconds` s of this round, overhead left."""
        most = wait_given("us.capacity: seconds", seconds)
        left = most - overheads_of(self._world.settings.speeds, self.who, self.round)
        return np.asarray(fitting(self.speed(), left))

    def compute(
        self, job: Job, *inputs: NDArray[Any], work: Any = None, seconds: float | None = None
    ) -> Compute:
        """Yield this to run `job(us, *inputs)` for overhead + work / speed s, or for `seconds` s.

        work (n,): per-example gradient evaluations, what the log shows.
        """
        self._begin("us.compute")
        arguments.inputs_given(job, inputs, len(self.who))
        self._exposure.begin(len(self.who))
        if self._unsent:  # an answer that goes with the outcome: its row waits for that message
            self._world.ledger.wait(self.who, self.clock)
        before, speeds = self._lasted, self._world.settings.speeds
        if seconds is None and before is not None and arguments.unchanged(before[1], work):
            return self._asks(Compute(job, inputs, *before))
        amount, lasting = arguments.effort(work, seconds, len(self.who))
        if lasting is not None:
            return self._asks(Compute(job, inputs, lasting, amount))
        if speeds.steady:
            lasting = amount / self.speed() + overheads_of(speeds, self.who, self.round)
            again = speeds.settled and len(amount) > 1
            self._set(_lasted=(lasting, amount) if again else None)
            return self._asks(Compute(job, inputs, lasting, amount))
        lasting = self._lasting(amount, self.clock)
        return self._asks(Compute(job, inputs, lasting, amount, paced=True))

    def _lasting(self, work: Array, begin: Array) -> Array:
        """How long (n,) s work (n,) takes from begin (n,) s on."""
        seconds, speeds = np.empty(len(self.who)), self._world.settings.speeds
        seconds_into(speeds, self.who, self.round, begin, work, seconds)
        return seconds

    def lasting(self, request: Compute, begin: float) -> float:
        """How long, in s, a cohort of one computes for `request` if it begins at `begin` s."""
        if not request.paced or begin == self.clock[0]:
            return float(request.seconds[0])
        return float(self._lasting(request.value, np.array([begin]))[0])

    @property
    def parting(self) -> bool:
        """Whether agents may leave the run before its end."""
        return self._world.filter is not None

    def begin_anew(self, past: int) -> None:
        """Forget what was under way, and all state: the next round is `past` + 1."""
        self._set(_past=past, turn=past + 1, _ahead=[], _unsent=[], _exposure=Exposure())
        self._set(_sent=False, _reported=min(self._reported, past), _asked=None)
        self._set(_release=np.full(len(self.who), -1, np.int64))
        for state in self._world.state.values():
            state[self.who] = 0.0

    def depart(self, left: NDArray[np.bool_]) -> None:
        """Agents (n,) where `left` do, send and hear nothing any more."""
        ended, clock = np.where(left, self.clock, self.ended), np.where(left, np.inf, self.clock)
        self._set(gone=self.gone | left, ended=ended, clock=clock)

    def send(
        self, payload: Array, *, bits: int | Int | None = None, where: Any = None,
        turn: int | None = None, to: NDArray[Any] | None = None,
    ) -> None:  # fmt: skip
        """Send payload (n, dim) to all neighbours; where it is False a null of one bit goes out.

        where: as in `release`. bits of a message, one number or (n,), default to 64 per number, and
        with a codec to those of what `coded` gave. It carries the releases since the last one. What
        was computed and not released since is charged as a release without noise. turn: the round
        whose graph the neighbours are of, by default this one. to (agents,): the one neighbour that
        each of all agents sends to, -1 for nobody; the next gather waits for the messages that are
        addressed to the agent.
        """
        self._begin("us.send")
        some = to is not None or where is not None
        payload, size = arguments.message(self, payload, bits, some)
        arguments.demand_turn(self, sends=True)
        self._tell(where)
        if not is_public(to):
            self._tell(~self._nobody)
        own = self.__dict__
        own["turn"] = int(self.round[0]) if turn is None else whole_given("us.send: turn", turn)
        used, speaks = addressed(self, self._world.settings, to)
        silent = self._nobody if where is None else ~np.asarray(where, bool)
        if self._exposure.bare:
            payload = self._bare(payload, speaks & ~silent)
        leaving, waiting = own["leaving"], list[Int]()
        farewell = self.parting and np.count_nonzero(leaving) > 0
        if farewell:
            silent = silent | leaving
            self._set(_release=np.where(leaving, -1, self._release))
        if self._ahead:
            waiting = self._tell_kept(speaks & ~leaving)
        if self._world.signals.sending:
            quiet = (silent | self.gone | ~speaks)[:, None]
            spoken = np.where(quiet, 0.0, payload)
            place, traffic = (self.who, self.round, self._release), (self.clock, size, silent)
            out = leaving | (self.live & speaks)
            out &= self.clock <= self._world.settings.horizon  # where others still go on after it
            heard = self._world.signals.sent(*place, spoken, traffic, out)
            payload = np.where(quiet, payload, heard)  # what is not said, nobody changes
        self._carrier.send(self, payload, size, silent, used)
        if waiting:
            self._set(_ahead=waiting, _unsent=[*self._unsent, *waiting])
        if farewell:
            self.depart(leaving)
            self._set(leaving=np.zeros_like(leaving))

    def gather(self, within: float | None = None) -> Gather:
        """Yield this to wait for the neighbours' messages, as the policy says, or `within` s."""
        self._begin("us.gather")
        arguments.demand_turn(self, sends=False)
        rule = arguments.waiting(self, within)
        return self._asks(Gather(rule, later=self._world.settings.later and rule.kind != ALL))

    def arrived(self) -> Gather:
        """Yield this to hear the newest messages that are here, with `policy: each`."""
        if (kind := self._world.settings.policy.kind) != "each":
            raise ValueError(f"us.arrived: found policy: {kind}; allowed: policy: each")
        self._begin("us.arrived")
        self._set(_sent=False)
        return self._asks(Gather(arguments.at_once(self), newest=True))

    def known(self, values: Array) -> Heard:
        """What all agents hear if values (agents, dim) are public from the start."""
        agents = self._world.settings.problem.agents
        return self._carrier.known(self, rows_given("us.known: values", values, agents))

    def sum(self, heard: Heard, weights: NDArray[Any] | None = None) -> Array:
        """Sum (n, dim) of what is heard, each message times its weight (links,) where given.

        heard.fresh are weights, too: they leave the messages of this iteration alone.
        """
        if not isinstance(heard, Heard):
            raise TypeError("found no messages but a request; write heard = yield us.gather()")
        if weights is None and heard.total is not None:
            return heard.total.copy()
        out = np.empty((len(self.who), heard.values.shape[1]))
        if weights is None:
            used = self._world.ones(len(heard.index))
        else:
            used = arguments.weights_given(weights, len(heard.index))
        neighbour_sum(heard.pointer, heard.index, heard.values, used, out)
        if weights is None:
            heard.total = out.copy()  # the program may change its own
        return out

    def link_weights(self, matrix: Array, graph: Graph | None = None) -> Array:
        """Entries (links,) of W (agents, agents) for the incoming links, in the order of Heard.

        graph: the one whose links are meant where it changes.
        """
        graph = graph or self._world.settings.graph
        assert graph is not None
        rows_given("us.link_weights: matrix", matrix, graph.agents, graph.agents)
        return entries_heard(matrix, graph, self.who)

    def report(self, models: Array) -> None:
        """Show the agents' own models (n, dim) of this round to the observer, true from now on."""
        self._world.outside("us.report")
        self._show(*arguments.reported(self, models, self._world.settings.problem.dim))

    def _show(self, round_: int, models: Array) -> None:
        own, observer = self.__dict__, cast(Any, self._world.observer)
        own["_reported"] = round_
        clock, live = own["clock"], own["live"]
        if self._all_live:
            observer.report(clock, self.who, round_, models)
        elif live.any():
            observer.report(clock[live], self.who[live], round_, models[live])
