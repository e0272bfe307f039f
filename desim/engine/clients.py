"""What a coordinator's agents do when they are called: `us` of a job, what was asked, the answers.

A reply may come after later calls to others, which ask for another job or charge another price.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.engine.arguments import result_given, set_state
from desim.engine.at_work import PROGRAM, Rounds, refused
from desim.engine.requests import Job
from desim.engine.world import World
from desim.errors import InputError, RunError
from desim.memory import Tree
from desim.network.timeline.record import release_id
from desim.privacy.ledger.ledger import AMOUNTS, Mechanism, Terms, View, plain
from desim.shapes import is_ascending, rows_given

NOISED = "; an agent that is called returns us.noised(value), with the charge of hub.call"


class Clients:
    """`us` of a client's job: rows of the agents' state for `who` (n,), called in `round` (n,)."""

    who: Int
    round: Rounds
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
        own["who"], own["round"] = who, round_.view(Rounds)
        own["_world"], own["_terms"] = world, terms
        own["_whole"] = len(who) == world.settings.problem.agents
        own["_drawn"] = False

    def __getattr__(self, name: str) -> Array:
        try:
            rows = self._world.state[name]
        except KeyError:
            if name in PROGRAM:
                raise refused(f"us.{name}") from None
            hint = NOISED if name == "release" else "; a coordinator gives it by hub.start"
            raise AttributeError(f"the agents have no state {name!r}{hint}") from None
        return np.array(rows) if self._whole else np.asarray(rows[self.who])

    def __setattr__(self, name: str, value: Array) -> None:
        set_state(self, name, value)

    @property
    def noise_key(self) -> np.uint64:
        """The key of noise drawn inside a kernel; only a call that was charged has one, once.

        Its draws are addressed by `us.address`: exchanges of one round share the key.
        """
        self._draw_once()
        return self._world.ledger.noise_key(self._terms)

    def _draw_once(self) -> None:
        if self._drawn:
            raise RuntimeError("a call asks twice for its noise, which may serve one value only")
        self.__dict__["_drawn"] = True

    @property
    def owing(self) -> bool:
        """Whether the call was charged for noise that has not been asked for."""
        terms = self._terms
        if terms is None or terms.mechanism is Mechanism.NONE or self._drawn:
            return False
        return bool((terms.scale[self.who] > 0.0).any())

    def noised(self, value: Array) -> Array:
        """Return value (n, dim) with the noise of the call's charge, which may serve it only."""
        terms, world = self._terms, self._world
        value = rows_given("us.noised: value", value, len(self.who))
        if terms is None or terms.mechanism is Mechanism.NONE:
            return value
        self._draw_once()
        exchange = int((self.address[0] - self.round[0]) >> 24)
        noisy = world.ledger.noise(self.who, np.asarray(self.round), exchange, value, terms)
        return self.released(noisy, lambda: value)

    def released(self, output: Array, value: Callable[[], Array]) -> Array:
        """Return what a kernel with noise inside gave, output (n, dim), to be used in its place.

        value(): the same (n, dim) without noise, asked for only where somebody listens.
        """
        world = self._world
        if not world.signals.releasing:
            return output
        rounds, agents = np.asarray(self.round), world.settings.problem.agents
        exchange = (self.address - rounds) >> 24
        ids = release_id(agents, self.who, rounds, exchange)
        terms = self._terms or plain(agents, View.COORDINATOR)
        return world.signals.released(self.who, rounds, ids, value(), output, terms, self.who)


def hear_news(world: World, who: Int, round_: int, job: Job, payload: Array) -> None:
    """Agents who (n,) run a job on news (p,) of a round."""
    us = Clients(world, who, np.full(len(who), round_), None)
    world.work(job, us, np.broadcast_to(payload, (len(who), len(payload))))


# Assignments: what was asked of each agent. A reply is computed, and noised, as its call said.


def ascending(who: Int, payload: Array) -> tuple[Int, Array]:
    """Agents who (n,) in the order of their numbers, and payload (p,) or (n, p) in theirs."""
    if is_ascending(who):
        return who, payload
    order = np.argsort(who)
    return who[order], payload if payload.ndim == 1 else payload[order]


def job_name(job: Any) -> str:
    """The name of a job's function."""
    while isinstance(job, partial):
        job = job.func
    return getattr(job, "__name__", "")


class Assignment(NamedTuple):
    """job(us, payload rows), terms (agents,) of its reply, and the number of the call in its round.

    job: None of a call that an earlier process made; all calls have one job then.
    """

    job: Any
    terms: Terms
    exchange: int

    def alike(self, other: "Assignment") -> bool:
        """Whether one batch can answer both, each agent with its own amounts."""
        one, two = self.terms, other.terms
        return (self.job, self.exchange) == (other.job, other.exchange) and (
            one is two or _kind(one) == _kind(two)
        )


class Assignments:
    """The latest call of each agent: `latest` (agents,) is its number among `calls`."""

    def __init__(self, agents: int) -> None:
        self.latest, self.number = np.zeros(agents, np.int64), 0
        self.calls: dict[int, Assignment] = {}
        self.job: Any = None  # the first one
        self.single = True  # whether all calls had that job: no checkpoint can hold one
        self.before = ""  # the name of the job of calls that an earlier process made
        self._room = 2

    def note(self, rows: Any, new: Assignment, pending: Mask) -> None:
        """Agents `rows` are called; pending (agents,): who owed a reply before."""
        self.job = self.job or new.job
        self.single = self.single and new.job == self.job
        newest = self.calls.get(self.number)
        same = newest is not None and newest.terms is new.terms and newest.alike(new)
        if not same:
            self.number += 1
            self.calls[self.number] = new
        self.latest[rows] = self.number
        if len(self.calls) > self._room:
            used = {*self.latest[pending > 0].tolist(), self.number}
            self.calls = {number: self.calls[number] for number in sorted(used)}
            self._room = 2 * len(self.calls) + 2

    @property
    def ready(self) -> bool:
        """Whether a job is known."""
        return self.number in self.calls

    def exchange(self, agent: int) -> int:
        """Which call of its round the agent's latest one is."""
        return self.calls[int(self.latest[agent])].exchange

    def one(self, who: Int) -> Assignment | None:
        """What is asked of agents who (n,) in one call, None where they were not called at once."""
        numbers = self.latest[who]
        number = int(numbers[0])
        return self._of(number) if np.logical_and.reduce(numbers == number) else None

    def groups(self, who: Int) -> Iterator[tuple[Assignment, Int]]:
        """What is asked of agents who (n,), with the places in `who` of those it is asked of."""
        numbers, batches = self.latest[who], list[tuple[Assignment, list[int]]]()
        for number in np.unique(numbers).tolist():
            one = self._of(number)
            for first, alike in batches:
                if one.alike(first):
                    alike.append(number)
                    break
            else:
                batches.append((one, [number]))
        for first, alike in batches:
            rows = np.flatnonzero(np.isin(numbers, alike))
            yield first._replace(terms=self._terms(alike, who[rows])), rows

    def remembered(self, owing: Int) -> Tree:
        """What a checkpoint needs of the calls of agents owing (n,): a row of numbers for each."""
        calls = [self.calls[number] for number in self.latest[owing].tolist()]
        rows = [
            [one.exchange, int(one.terms.mechanism), int(one.terms.view), one.terms.resolution]
            + [float(amount[i]) for amount in _amounts(one.terms)]
            for one, i in zip(calls, owing.tolist(), strict=True)
        ]
        return {
            "number": self.number,
            "single": int(self.single),
            "job": job_name(self.job),
            "rows": np.array(rows, float).reshape(len(owing), 8),
        }

    def recall(self, owing: Int, tree: Tree) -> None:
        """Go on from a checkpoint."""
        self.number, agents = int(tree["number"]), len(self.latest)
        self.single, self.before = bool(tree["single"]), str(tree["job"])
        rows = tree["rows"]
        kinds, which = np.unique(rows[:, :4], axis=0, return_inverse=True)
        for place, (exchange, mechanism, view, resolution) in enumerate(kinds.tolist()):
            mine, number = which.ravel() == place, place - len(kinds)
            amounts = np.zeros((4, agents))
            amounts[:, owing[mine]] = rows[mine, 4:].T
            terms = Terms(
                Mechanism(int(mechanism)), View(int(view)), amounts[0], amounts[1], amounts[2],
                resolution, coupled=amounts[3],
            )  # fmt: skip
            self.calls[number] = Assignment(None, terms, int(exchange))
            self.latest[owing[mine]] = number

    def _of(self, number: int) -> Assignment:
        """The call of that number; one of an earlier process has a job of the same name."""
        one, job = self.calls[number], self.calls[self.number].job
        if one.job is not None:
            return one
        if job_name(job) != self.before:
            job = getattr(getattr(job, "__self__", None), self.before, None)
        if job is None:
            found = f"found replies to a job {self.before} of before the run was stopped"
            raise RunError(f"algorithm: {found}; allowed: jobs that are methods of one object")
        return one._replace(job=job)

    def _terms(self, numbers: list[int], who: Int) -> Terms:
        """Terms (agents,) that have each of agents who (n,) at what its call is charged."""
        terms = [self.calls[number].terms for number in numbers]
        if all(one is terms[0] for one in terms):
            return terms[0]
        amounts = np.array(_amounts(terms[0]), float)
        for number, one in zip(numbers, terms, strict=True):
            rows = who[self.latest[who] == number]
            amounts[:, rows] = np.array(_amounts(one), float)[:, rows]
        named = dict(zip((*AMOUNTS, "coupled"), amounts, strict=True))
        return replace(terms[0], **named)


def _kind(terms: Terms) -> tuple[Any, ...]:
    return terms.mechanism, terms.view, terms.resolution


def _amounts(terms: Terms) -> tuple[Array, ...]:
    """Sensitivity, scale, sampling and coupled (agents,)."""
    coupled = terms.sensitivity if terms.coupled is None else terms.coupled
    return terms.sensitivity, terms.scale, terms.sampling, coupled


# Answers: the jobs of calls are run, in as few batches as possible.


class Blank:
    """Stands for a job: zeros in the shape of its results, which running it once has told."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.shape: tuple[int, ...] | None = None

    def __call__(self, us: Any, *inputs: Array) -> Array:
        """Zeros (n, ...) for agents `us`."""
        if self.shape is None:
            self.shape = result_given(self.job, self.job(us, *inputs), len(us.who)).shape[1:]
        return np.zeros((len(us.who), *self.shape))


def answers(hub: Any, who: Int, rounds: Int) -> tuple[Array, Int]:
    """Replies (n, dim) to the calls of agents who (n,) in rounds (n,), and their exchanges."""
    limit = hub.world.settings.batch_limit
    if 0 < len(who) <= limit and (one := hub.assignments.one(who)) is not None:
        return reply_of(hub, one, who, rounds), np.zeros(len(who), np.int64) + one.exchange
    replies, exchange = np.empty((0, hub.payloads.width)), np.zeros_like(who)
    for asked, rows in hub.assignments.groups(who):
        exchange[rows] = asked.exchange
        for low in range(0, len(rows), limit):
            part = rows[low : low + limit]
            reply = reply_of(hub, asked, who[part], rounds[part])
            width = reply.shape[1]
            if not len(replies):
                replies = hub.leases.matrix(len(who), width)
            if width != replies.shape[1]:
                found = f"replies of {replies.shape[1]} and {width} numbers"
                raise RunError(f"algorithm: found {found} at once; allowed: one width")
            replies[part] = reply
    return replies, exchange


def reply_of(hub: Any, asked: Assignment, who: Int, rounds: Int) -> Array:
    """What agents who (n,), called in rounds (n,), answer: rows (n, dim), noised, coded."""
    us = Clients(hub.world, who, rounds, asked.terms, asked.exchange)
    payload = hub.payloads.of(who)
    result = hub.world.work(asked.job, us, payload)
    if us.owing and not isinstance(asked.job, Blank):
        raise InputError(
            "algorithm: a call is charged for noise that its job does not draw; "
            "return us.noised(value)"
        )
    reply = result_given(asked.job, result, len(who), flat=False)
    for one in () if isinstance(asked.job, Blank) else hub.features:
        reply = one.replied(us, reply)
    return reply
