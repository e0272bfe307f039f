"""A graph method played with symbols: what each message is made of, by the method's own source.

The program runs on the same engine, network and clocks, but what is a vector of the model has a
column for each symbol in place of its coordinates: a start, the result of a job, the noise of a
release. Where all is linear, with the same coefficients for all coordinates, a message is these
rows times what the symbols stand for. That is tried: the run is played with its numbers as well,
and each of its messages compared.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.columns import Words
from desim.engine.play import BLIND, Simulation
from desim.engine.requests import Compute, Job
from desim.engine.world import Discard
from desim.errors import InputError
from desim.log.event_log import Outcome
from desim.methods.shared.declarations import Ingredients
from desim.privacy.accounting.prices import prices
from desim.privacy.ledger.ledger import MECHANISMS, Mechanism, Terms
from desim.signals import Listener, Message

START, INPUT, NOISE = range(3)  # kinds of symbols
LINEAR_IN = (Mechanism.GAUSSIAN, Mechanism.CHAINED_GAUSSIAN, Mechanism.NONE)
LINEAR = 1e-10  # of a vector, beside what symbols say of it, term by term
ROUNDING = 1e-14  # of the largest vector of all: what cancels leaves that much
DELIVERED = ("time", "agent", "peer", "round", "seconds")  # columns of the log
DIRECTIONS = 3  # of the model's space in which that is compared
ROOM = 4e9  # bytes of coefficients


class Unfit(InputError):
    """Why messages of a run are not known to be linear in inputs and noise."""


@dataclass
class Sent:
    """A message of an agent in a round, at `time` s.

    to (agents,): whom each sends to; None: to all of its own.

    vectors (k, symbols so far): coefficients of the vectors that it is made of, none if silent.
    """

    agent: int
    round: int
    time: float
    to: Int | None
    vectors: Array


class Counts:
    """How many symbols of each kind agents have had."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int], int] = {}

    def numbers(self, who: Int, kind: int) -> list[tuple[int, int]]:
        """Agents who (n,), each with how many of a kind it has had before."""
        found = []
        for i in who.tolist():
            n = self.counts.get((i, kind), 0)
            self.counts[i, kind] = n + 1
            found.append((i, n))
        return found


class Seen(Counts):
    """What a play with numbers came across, by agent, kind and number: results, noise, messages."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[int, int, int], Array] = {}
        self.sent: dict[int, list[Array]] = {}
        self.jobs: dict[Job, Job] = {}
        self.moved: dict[tuple[int, int], Array] = {}  # what is added to results, by agent, number


class Screen:
    """`us` for a program that is watched: a subclass says what of."""

    def __init__(self, us: Any, own: Any) -> None:
        self.__dict__.update(_us=us, _own=own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._us, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._us, name, value)

    def perturbation(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise Unfit("its noise enters a computation")

    charged = perturbation

    def above(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise Unfit("its agents ask whether a value is above a threshold")


class Watched:
    """`method` as engines play it behind a screen."""

    def __init__(self, method: Any, screen: type[Screen], own: Any) -> None:
        self.method, self.screen, self.own = method, screen, own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def agents(self, us: Any) -> Any:
        """The agents' program."""
        return self.method.agents(self.screen(us, self.own))


class Heard(Listener):
    """Hands messages on, and notes which were delivered."""

    def __init__(self, note: Any) -> None:
        self.note, self.delivered = note, list[dict[str, Array]]()

    def sending(self, message: Message) -> Array:
        """What an agent sends."""
        silent = np.asarray(message.traffic[2])
        for r, agent in enumerate(message.who.tolist()):
            row = message.payload[r] if not silent[r] else None
            self.note(agent, int(message.round[r]), float(message.traffic[0][r]), row)
        return message.payload

    def rows(self, table: str, columns: Mapping[str, Any]) -> None:
        """Messages that arrive."""
        if table == "events":
            here = columns["kind"].equal("deliver")
            self.delivered.append({name: columns[name][here] for name in DELIVERED})


# The play with its numbers.


class NumbersScreen(Screen):
    """Notes results of jobs, noise and messages in a `Seen`."""

    def compute(self, job: Job, *inputs: Array, **duration: Any) -> Compute:
        """As Cohort.compute."""
        seen: Seen = self._own
        numbers = np.array([n for _, n in seen.numbers(self._us.who, INPUT)])
        noting = seen.jobs.setdefault(job, partial(_noted, seen, job))
        request: Compute = self._us.compute(noting, *inputs, numbers[:, None], **duration)
        return request

    def release(self, value: Array, *terms: Any, **more: Any) -> Array:
        """As Cohort.release."""
        seen: Seen = self._own
        noisy = self._us.release(value, *terms, **more)
        who, rows = self._us.who, np.asarray(noisy - value)
        if (chain := terms[0].chain) is not None:
            number = chain.factor.draws(int(self._us.round[0]))
            draws = self._us._world.ledger.draws
            for fresh in draws(who, self._us.round, number, value.shape[1]):
                scaled = terms[0].scale[:, None] * fresh
                for (i, n), row in zip(seen.numbers(who, NOISE), scaled, strict=True):
                    seen.values[i, NOISE, n] = row
            return np.asarray(noisy)
        for (i, n), row in zip(seen.numbers(who, NOISE), rows, strict=True):
            seen.values[i, NOISE, n] = row
        return np.asarray(noisy)


def _noted(seen: Seen, job: Job, us: Any, *inputs: Array) -> Array:
    *own, numbers = inputs
    result = job(us, *own)
    where = [(i, int(n)) for i, n in zip(us.who.tolist(), numbers[:, 0].tolist(), strict=True)]
    if any(one in seen.moved for one in where):
        result = np.asarray(result) + np.array([seen.moved.get(k, 0.0 * result[0]) for k in where])
    for (i, n), row in zip(where, result, strict=True):
        seen.values[i, INPUT, n] = np.array(row, float)
    return result


# The play with symbols.


class Symbols(Counts):
    """Symbols of a run, one a column: owner, kind; bound of inputs; scale of noise; messages.

    other: who knows noise beside its owner, or -1.

    priced: of releases time s, agent, column of the input that each is the first to hold or holds
    alone (-1: none), its coefficient there, mechanism, sensitivity, scale, and the sensitivity of
    the value by itself. part: in which rounds of a cycle the records of an input are. feedback:
    whether a job has read noise. bared (agents,): whose inputs another agent's job has read without
    noise.
    """

    def __init__(self, agents: int, dim: int, width: int, seen: Seen) -> None:
        super().__init__()
        self.agents, self.dim, self.width, self.seen = agents, dim, width, seen
        self.owner, self.other, self.kind = np.full((3, width), -1)
        self.scale = np.zeros(width)
        self.priced: list[tuple[float, int, int, float, int, float, float, float]] = []
        self.bare = np.ones(width, bool)  # inputs that no release has held yet
        self.count, self.feedback = 0, False
        self.bared = np.zeros(agents, bool)
        self.columns: dict[tuple[int, ...], int] = {}  # of noise that serves again
        self.memory: dict[int, Array] = {}  # of noise that is correlated over rounds, by agent
        self.part = np.full(width, -1)
        self.numbered: dict[int, tuple[int, int, int]] = {}  # columns, as `Seen` has their values
        self.sent: list[list[Sent]] = [[] for _ in range(agents)]
        self.to: Int | None = None
        rng = np.random.default_rng(0)
        self.directions = rng.standard_normal((dim, DIRECTIONS)) / np.sqrt(dim)
        self.values = np.zeros((width, DIRECTIONS))
        self.place = -1  # of the numbers in a message, after so many vectors
        self.apart = 0.0  # how much more than LINEAR a vector differs from its symbols
        self.worth = 0.0
        self.bytes = 0

    def start(self, array: Array) -> Array:
        """A start (agents, dim) with a symbol for each agent."""
        rows = np.zeros((self.agents, self.width))
        for i in range(self.agents):
            rows[i, self.column(i, START, array[i])] = 1.0
        return rows

    def column(self, agent: int, kind: int, value: Array | None, scale: float = 0.0) -> int:
        """A new symbol's column; value (dim,): what it stands for."""
        c, self.count = self.count, self.count + 1
        self.owner[c], self.kind[c], self.scale[c] = agent, kind, scale
        if value is not None:
            if value.shape != (self.dim,):
                raise Unfit(f"its jobs give {value.shape}, no vector of the model's size")
            self.values[c] = value @ self.directions
        return c

    def released(
        self, time: float, agent: int, row: Array, terms: Terms, r: int, noisy: bool
    ) -> int:
        """Note which input a release row (width,) is the first to hold, or holds alone: its column.

        -1 where there is none.
        """
        own = np.flatnonzero((self.owner == agent) & (self.kind == INPUT) & (row != 0.0))
        fresh = own[self.bare[own]]
        if len(fresh) > 1:
            raise Unfit(f"agent {agent} releases several computations at once")
        found = fresh if len(fresh) else own if len(own) == 1 else own[:0]
        column, weight = (int(found[0]), float(row[found[0]])) if len(found) else (-1, 0.0)
        self.bare[fresh] = False
        kind = terms.mechanism if noisy else Mechanism.NONE
        amounts = float(terms.sensitivity[r]), float(terms.scale[r]) if noisy else 0.0
        apart = amounts[0] if terms.chain is None or terms.coupled is None else terms.coupled[r]
        self.priced.append((time, agent, column, abs(weight), int(kind), *amounts, float(apart)))
        return column

    def bounds(self, relation: str, rows: Int | None, end: float) -> tuple[Array, Array]:
        """How far inputs (symbols,) move under a relation, and mu^2 (agents,) of all releases.

        end: of the time s in which these were made.
        """
        bound, local = np.zeros(self.count), np.zeros(self.agents)
        bound[(self.kind[: self.count] == INPUT) & self.bare[: self.count]] = np.inf
        if not self.priced:
            return bound, local
        time, agent, column, weight, kind, sensitivity, scale, moved = map(
            np.array, zip(*self.priced, strict=True)
        )
        table = {
            "agent": agent, "mechanism": Words(kind.astype(np.int8), MECHANISMS),
            "sensitivity": sensitivity, "scale": np.where(scale > 0.0, scale, 1.0),
            "sampling": np.full(len(agent), np.nan),
        }  # fmt: skip
        mu2 = prices(table, rows, relation, amplification=False).mu2
        np.add.at(local, agent, np.where(time <= end, mu2, 0.0))
        if (moved != sensitivity).any():  # of noise that is correlated, by itself
            table["sensitivity"] = moved
            mu2 = prices(table, rows, relation, amplification=False).mu2
        known = column >= 0
        each = np.sqrt(mu2[known]) * np.where(scale > 0.0, scale, 1.0)[known] / weight[known]
        np.maximum.at(bound, column[known], each)
        return bound, local

    def read(self, who: Int, rows: Any) -> None:
        """Jobs of agents who (n,) begin with rows."""
        if np.ndim(rows) != 2 or rows.shape[1] < self.width:
            return
        for low in range(0, rows.shape[1] - self.width + 1, self.width):
            held = rows[:, low : low + self.count] != 0.0
            noise, inputs = (held & (self.kind[: self.count] == one) for one in (NOISE, INPUT))
            owner = self.owner[: self.count]
            others = (owner != who[:, None]) & (self.other[: self.count] != who[:, None])
            bare = (inputs & others)[~(noise & others).any(1)].any(0)
            self.bared[owner[bare]] = True
            self.feedback |= bool(noise.any())

    def heard(self, agent: int, round_: int, time: float, payload: Array | None) -> None:
        """An agent sends."""
        number = len(self.sent[agent])
        self.sent[agent].append(sent := Sent(agent, round_, time, self.to, np.empty((0, 0))))
        if payload is None:
            return
        real = self.seen.sent[agent][number]
        k, c = divmod(len(payload), self.width)
        if len(real) != k * self.dim + c:
            raise Unfit("its messages are no vectors of the model's size")
        vectors, known = self._apart(payload, real, k, c)
        rows = vectors.reshape(k, self.width)[:, : self.count].copy()
        right = known.reshape(k, self.dim) @ self.directions
        found, size = (f(rows) @ f(self.values[: self.count]) for f in (np.asarray, np.abs))
        if k:
            more = np.abs(found - right).max(1) - LINEAR * size.max(1)
            self.apart = max(self.apart, float(more.max()))
            self.worth = max(self.worth, float(np.abs(right).max()))
        self.bytes += rows.nbytes
        if self.bytes > ROOM:
            raise Unfit(f"its messages take more than {ROOM:g} bytes of coefficients")
        sent.vectors = rows

    def _apart(self, payload: Array, real: Array, k: int, c: int) -> tuple[Array, Array]:
        """Vectors of a message, of symbols and as they are; its c numbers stand together."""
        for place in range(k + 1) if self.place < 0 else (self.place,):
            low, below = place * self.width, place * self.dim
            if np.array_equal(payload[low : low + c], real[below : below + c]):
                self.place = place if c else self.place
                rest = np.r_[low : low + c], np.r_[below : below + c]
                return np.delete(payload, rest[0]), np.delete(real, rest[1])
        raise Unfit("numbers beside its vectors depend on data")

    def bits(self, bits: Any) -> Any:
        """Of messages whose vectors are of the model's size."""
        whole = np.asarray(bits)
        found = whole // self.width * self.dim + whole % self.width
        return found if found.ndim else int(found)


class SymbolsScreen(Screen):
    """Computes, releases and sends symbols."""

    def compute(self, job: Job, *inputs: Array, **duration: Any) -> Compute:
        """As Cohort.compute, of a job that gives a new symbol."""
        own: Symbols = self._own
        who = self._us.who
        columns = np.empty(len(who), np.int64)
        for r, (i, n) in enumerate(own.numbers(who, INPUT)):
            value = own.seen.values.get((i, INPUT, n))
            columns[r] = own.column(i, INPUT, value)
            own.numbered[int(columns[r])] = i, INPUT, n
        for rows in inputs:
            own.read(who, rows)
        basis = own.__dict__.setdefault("basis", partial(_basis, own.width))
        request: Compute = self._us.compute(basis, columns[:, None], **duration)
        return request

    def release(self, value: Array, terms: Terms, *more: Any, **also: Any) -> Array:
        """As Cohort.release, of a value with a new symbol for its noise."""
        own: Symbols = self._own
        if terms.mechanism not in LINEAR_IN:
            raise Unfit(f"its noise is {terms.mechanism.name.lower()}, no Gaussian")
        who, out = self._us.who, np.array(value)
        loud = self._us.release(np.zeros((len(who), 1)), terms, *more, **also)[:, 0] != 0.0
        if terms.chain is not None:
            return self._chained(value, out, terms, terms.chain, loud)
        draw = also.get("draw")
        for r, (i, n) in enumerate(own.numbers(who, NOISE)):
            own.released(float(self._us.clock[r]), i, value[r], terms, r, bool(loud[r]))
            if not loud[r]:
                continue
            c = own.columns.get((i, draw)) if draw is not None else None
            if c is None:
                noise = own.seen.values.get((i, NOISE, n))
                c = own.column(i, NOISE, noise, float(terms.scale[r]))
                own.numbered[c] = i, NOISE, n
                if draw is not None:
                    own.columns[i, draw] = c
            out[r, c] += 1.0
        return out

    def _chained(self, value: Array, out: Array, terms: Terms, chain: Any, loud: Mask) -> Array:
        """Value with symbols for the draws of its round, and what is remembered of earlier ones."""
        own: Symbols = self._own
        who, now = self._us.who, int(self._us.round[0])
        fresh = np.zeros((chain.factor.draws(now), *out.shape))
        for draw in fresh:
            for r, (i, n) in enumerate(own.numbers(who, NOISE)):
                if loud[r]:
                    noise = own.seen.values.get((i, NOISE, n))
                    c = own.column(i, NOISE, noise, float(terms.scale[r]))
                    own.numbered[c], draw[r, c] = (i, NOISE, n), 1.0
        for r, i in enumerate(who.tolist()):
            time = float(self._us.clock[r])
            if (c := own.released(time, i, value[r], terms, r, bool(loud[r]))) >= 0:
                own.part[c] = (now - 1) % int(chain.apart[r])
            if loud[r]:
                empty = np.zeros((chain.factor.memory, out.shape[1]))
                memory = own.memory.setdefault(i, empty)
                out[r] += chain.factor.noise(now, memory, fresh[:, r])
        return out

    def send(self, payload: Array, *, bits: Any = None, to: Any = None, **more: Any) -> None:
        """As Cohort.send, of messages as long as those of numbers."""
        own: Symbols = self._own
        own.to = None if to is None else np.asarray(to)
        size = own.bits(64 * payload.shape[1] if bits is None else bits)
        self._us.send(payload, bits=size, to=to, **more)

    def coded(self, value: Array) -> Array:
        """As it is."""
        if not self._us._world.settings.codecs.plain:
            raise Unfit("its messages are coded")
        return np.asarray(value)

    def report(self, models: Array) -> None:
        """Show nothing."""
        self._us.report(np.zeros((len(models), self._own.dim)))


class SharedSymbols:
    """Noise that the ends of links share, with a symbol for each link and round."""

    def __init__(self, own: Symbols, noise: Any) -> None:
        self.own, self.noise = own, noise

    def of(self, us: Any, k: int) -> Array:
        """What agents `us` add in round k."""
        own, rows = self.own, np.zeros((len(us.who), self.own.width))
        for r, *ends in zip(*(each.tolist() for each in self.noise.links(us)), strict=True):
            key = (*ends, k)
            if key not in own.columns:
                value = self.noise.drawn(us.noise_seed, *map(np.array, ends), k)
                own.columns[key] = own.column(ends[0], NOISE, value, self.noise.scale)
                own.other[own.columns[key]] = ends[1]
            rows[r, own.columns[key]] = 1.0 if us.who[r] == ends[0] else -1.0
        return rows


def _basis(width: int, us: Any, columns: Array) -> Array:
    rows = np.zeros((len(columns), width))
    rows[np.arange(len(columns)), columns[:, 0].astype(np.int64)] = 1.0
    return rows


def symbols_of(simulation: Simulation) -> tuple[Symbols, dict[str, Array]]:
    """Messages of a simulation as symbols, and what was delivered, in the order of time.

    That is columns time s, agent, peer, round, seconds. Unfit where messages are not linear,
    or nobody can say.
    """
    method, settings = simulation.method, simulation.settings
    if method.kind != "graph":
        raise Unfit("a coordinator hears from all agents")
    if not vars(type(method)).get("linear", False):
        raise Unfit(f"{method.name} is not linear in gradients and noise")
    if settings.targets or settings.budget is not None or not settings.codecs.plain:
        raise Unfit("codecs, budgets and metrics that end a run are not replayed with symbols")
    seen = Seen()
    hears, engine = seen_in(simulation, seen), _engine(simulation)
    settings = replace(settings, log="messages")
    agents, dim = settings.problem.agents, settings.problem.dim
    asked = set[str]()

    def initial(name: str) -> Array:
        asked.add(name)
        return settings.initial(name)

    type(method)(Ingredients(method.parameters, replace(settings, initial=initial), method.noise))
    width = agents * len(asked) + sum(seen.counts.values())
    if (shared := method.shared) is not None:
        width += len(shared.graph.source) // 2 * max(seen.counts.values(), default=0)
    width += width % 2 + 4096  # numbers of a message's bits are fewer
    own, wide = Symbols(agents, dim, width, seen), copy(settings.problem)
    wide.__dict__["dim"] = width
    starts = {name: own.start(settings.initial(name)) for name in sorted(asked)}
    ours = replace(settings, problem=wide, initial=lambda name: starts[name].copy())
    listens = Heard(own.heard)
    try:
        twin = type(method)(Ingredients(method.parameters, ours, method.noise))
        if shared is not None:
            twin.shared = SharedSymbols(own, shared)
        _play(Watched(twin, SymbolsScreen, own), settings, engine, listens)
    except Unfit:
        raise
    except Exception as error:  # whatever a program does with what has another size
        raise Unfit(f"symbols do not fit into its program: {error}") from error
    one, other = (_joined(each.delivered) for each in (hears, listens))
    if any(not np.array_equal(one[name], other[name]) for name in one):
        raise Unfit("its clocks depend on values")
    if not own.apart <= ROUNDING * own.worth:
        raise Unfit(f"its messages are not linear: symbols miss them by {own.apart:.2g}")
    return own, one


def seen_in(simulation: Simulation, seen: Seen) -> Heard:
    """Play a simulation with its numbers, which `seen` is to hold; what was heard."""
    settings = replace(simulation.settings, log="messages")
    hears = Heard(lambda agent, _, __, row: seen.sent.setdefault(agent, []).append(row))
    watched = Watched(simulation.method, NumbersScreen, seen)
    _play(watched, settings, _engine(simulation), hears)
    return hears


def _engine(simulation: Simulation) -> Any:
    return "agents" if simulation.engine == "agents" else "cohort"


def _play(method: Any, settings: Any, engine: Any, listener: Listener) -> Outcome:
    played = Simulation(method, settings, BLIND, engine, "").play(Discard(), listeners=[listener])
    if played.error is not None:
        raise played.error
    return played


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    nothing = [] if parts else [np.empty(0, int)]
    return {name: np.concatenate([one[name] for one in parts] or nothing) for name in DELIVERED}
