"""What an agent's process consents to, whoever asks: calls that its own method makes, once each.

A coordinator that somebody has changed may write anything into a call. So an agent that keeps its
state takes from calls what it cannot know, the numbers to go on from. Which rounds and calls there
are, what a reply costs, which function is asked for with which options: that it has from its own
method on its own copy of the scenario, and from a rehearsal of the program before the run. All else
is `Declined`, in words that cross the connection and say nothing of rows.

Round and exchange of a call are the address of its reply's noise, which may serve one value only:
of two values with the same noise the difference has none. No message is ever sent a second time
(TCP sees to what is lost, and no deployment is resumed), so that no address has to serve again.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.deployments.formats import Declined, Message
from desim.engine.arguments import terms_given
from desim.engine.world import World
from desim.errors import InputError, show
from desim.privacy.ledger.ledger import MECHANISMS, Mechanism, Terms, View, plain

# Jobs as messages name them: by a method's name, with bound numbers, words and arrays.

Arrays = dict[str, NDArray[Any]]
PLAIN = (int, float, str, bool, type(None))
WANTED = "a function of the method, or a partial of one with numbers, words and arrays"


def named(job: Any, method: Any, prefix: str) -> tuple[dict[str, Any], Arrays]:
    """A job as fields and arrays, whose names begin with `prefix`; InputError if it has no name."""
    positional: list[Any] = []
    options: dict[str, Any] = {}
    while isinstance(job, partial):
        positional, options = [*job.args, *positional], {**job.keywords, **options}
        job = job.func
    name = getattr(job, "__name__", "")
    if getattr(job, "__self__", None) is not method or getattr(method, name, None) != job:
        raise InputError(f"algorithm: its job {name or job!r} cannot be sent; allowed: {WANTED}")
    arrays: Arrays = {}
    bound = {str(place): value for place, value in enumerate(positional)} | options
    fields = {key: _field(value, f"{prefix}{key}", arrays) for key, value in bound.items()}
    return {"name": name, "given": len(positional), "bound": fields}, arrays


def _field(value: Any, name: str, arrays: Arrays) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        arrays[name] = value
        return {"array": name}
    if not isinstance(value, PLAIN):
        found = f"its job is bound to {type(value).__name__}"
        raise InputError(f"algorithm: {found}, which cannot be sent; allowed: {WANTED}")
    return value


def found(fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], method: Any) -> Any:
    """The job that `named` has named."""
    bound = {
        key: arrays[value["array"]] if isinstance(value, dict) else value
        for key, value in fields["bound"].items()
    }
    positional = [bound.pop(str(place)) for place in range(fields["given"])]
    name = str(fields["name"])
    job: Callable[..., Array] | None = getattr(method, name, None)
    if name.startswith("__") or getattr(job, "__self__", None) is not method:
        raise InputError(f"algorithm: found no job {show(name)}; allowed: a function of the method")
    assert job is not None
    return partial(job, *positional, **bound) if positional or bound else job


def terms_for(terms: Terms, agent: int) -> list[float | None]:
    """What an agent must know of the terms of its reply; None for nan, which equals nothing."""
    coupled = terms.sensitivity if terms.coupled is None else terms.coupled
    amounts = terms.sensitivity, terms.scale, terms.sampling, coupled
    own = [None if (one := float(amount[agent])) != one else one for amount in amounts]
    return [float(terms.mechanism), float(terms.view), terms.resolution, *own]


def terms_of(numbers: list[Any], agent: int, agents: int) -> Terms:
    """Terms (agents,) whose row of that agent `terms_for` has told; others know none."""
    mechanism, view, resolution, *own = numbers
    rows = np.zeros((4, agents))
    rows[:, agent] = [np.nan if one is None else one for one in own]
    kind = Mechanism(int(mechanism)), View(int(view))
    return Terms(*kind, rows[0], rows[1], rows[2], resolution, coupled=rows[3])


# Consent: what a call may say, the rehearsal, and the calls that were answered.

ByName = Mapping[str, NDArray[Any]]
ROUNDS = (1 << 24) - 1  # the next one has the addresses of another exchange, see Clients
EXCHANGES = 256  # calls in a round, as Hub has it
NEAR = 1e-9  # by which terms may differ, relatively, that two machines have computed
MORE = 4.0  # times as large as in the rehearsal numbers may be that are bound to a job
FINE = 2.0**42  # numbers of so many sensitivities are rounded to 2^-10 of one, at 2^-52 of each


def largest(terms: Terms | None, agent: int, dim: int) -> float:
    """The largest number that an agent goes on from whose release of `dim` numbers has these terms.

    Beyond it numbers are rounded so coarsely that a record may move a release by more than its
    sensitivity, or overflow for some records and not for others. None: terms that nobody knows, as
    if the sensitivity were 1; inf where nothing is hidden.
    """
    reach = 1.0 if terms is None else float(terms.sensitivity[agent])
    noisy = terms is None or (terms.mechanism is not Mechanism.NONE and terms.scale[agent] > 0.0)
    return FINE * reach / np.sqrt(dim) if noisy and 0.0 < reach < np.inf else np.inf


def beyond(array: NDArray[Any], most: float) -> bool:
    """Whether an array has numbers beyond `most`, if that is finite, or what is no number."""
    return most < np.inf and not np.abs(array.astype(float)).max(initial=0.0) <= most


def form(job: Mapping[str, Any]) -> str:
    """A job as a message names it, without the values of its arrays."""
    bound = {key: {} if isinstance(one, dict) else one for key, one in job["bound"].items()}
    return json.dumps([job["name"], job["given"], bound], sort_keys=True)


def own_terms(method: Any, round_: int, number: int) -> Terms:
    """Terms (agents,) of the reply to an agent's call of this number in a round; or Declined."""
    agents, known = method.settings.problem.agents, method.charges(round_)
    if number >= len(known):
        text = f"found call {number + 1} of one agent in round {round_}"
        raise Declined(f"algorithm: {text}; allowed: {len(known)}, as {method.name} calls agents")
    terms = known[number]
    if terms is None:
        return plain(agents, View.COORDINATOR)
    return terms_given(f"{method.name}.charges", terms, agents)


def _alike(one: list[Any], other: list[Any]) -> bool:
    """Whether terms as messages have them are the same; `coupled`, the last, costs nothing."""
    first, second = (np.array(each[:-1], float) for each in (one, other))
    return first.shape == second.shape and np.allclose(first, second, NEAR, 0.0, equal_nan=True)


def _described(terms: list[Any]) -> str:
    """Terms as messages have them in words."""
    mechanism, _, _, sensitivity, scale, *_ = terms
    return f"{MECHANISMS[int(mechanism)]} of scale {scale}, sensitivity {sensitivity}"


@dataclass(frozen=True)
class Opening:
    """The first call that a program makes: agents who (n,), job, terms, work (agents,) and state.

    payload: (p,), or (n, p), a row for each; state: of all agents, arrays (agents, ...).
    """

    who: NDArray[np.int64]
    job: Any
    payload: NDArray[Any]
    terms: Terms
    work: NDArray[Any]
    round_: int
    exchange: int
    state: ByName

    def payload_of(self, agent: int) -> NDArray[Any]:
        """What that agent is called with; another one's if it is not called."""
        if self.payload.ndim == 1:
            return self.payload
        return np.asarray(self.payload[int(np.argmax(self.who == agent))])


@dataclass
class Asked:
    """What a method's program asks of agents: jobs by number of the call in its round; on news.

    often: news in a round at most; bound: the largest number in arrays that are bound to a job;
    amiss: where it charges something else than the method's `charges` say; opening: its first call.
    """

    calls: set[tuple[int, str]] = field(default_factory=set)
    news: set[str] = field(default_factory=set)
    often: int = 0
    bound: dict[str, float] = field(default_factory=dict)
    amiss: str = ""
    opening: Opening | None = None

    def named(self, job: Any, method: Any) -> str:
        """The form of a job that was asked for."""
        fields, arrays = named(job, method, "")
        found = form(fields)
        largest = max((float(np.abs(one).max(initial=0.0)) for one in arrays.values()), default=0.0)
        self.bound[found] = max(self.bound.get(found, 0.0), largest)
        return found


class Rehearsed:
    """`method`, as an engine plays it; what its coordinator asks for gathers in `asked`."""

    def __init__(self, method: Any) -> None:
        self.method, self.asked = method, Asked()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def coordinator(self, hub: Any) -> Any:
        """The coordinator's program; exchanges of secret sums are around what it asks for."""
        trust = self.method.settings.trust

        def program(hub: Any) -> Any:
            return type(self.method).coordinator(
                self.method, Rehearsal(hub, self.method, self.asked)
            )

        return (program if trust is None else trust.program(program))(hub)


class Rehearsal:
    """`hub` for a program that is rehearsed."""

    def __init__(self, hub: Any, method: Any, asked: Asked) -> None:
        self._hub, self._method, self._asked = hub, method, asked
        self._round, self._times = 0, np.zeros(hub.agents, np.int64)
        self._news = 0, 0  # round of the latest news, how many there were

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)

    def call(self, who: Any, job: Any, payload: Any, **more: Any) -> None:
        """As Hub.call."""
        round_ = int(self._hub.round)
        if round_ != self._round:
            self._round, self._times[:] = round_, 0
        charge = more.get("charge") or plain(self._hub.agents, View.COORDINATOR)
        asked, found = self._asked, self._asked.named(job, self._method)
        if asked.opening is None:
            place, state = (round_, int(self._hub.exchange)), dict(self._hub.world.state)
            numbers = np.asarray(payload, float), charge, np.asarray(more["work"], float)
            asked.opening = Opening(np.asarray(who), job, *numbers, *place, state)
        for number in np.unique(self._times[who]).tolist():
            asked.calls.add((number, found))
            asked.amiss = asked.amiss or self._amiss(charge, round_, number, who)
        self._times[who] += 1
        self._hub.call(who, job, payload, **more)

    def _amiss(self, charge: Terms, round_: int, number: int, who: Any) -> str:
        """How a charge differs from what the method says beforehand, if it does."""
        try:
            own = own_terms(self._method, round_, number)
        except Declined as error:
            return str(error)
        for i in np.asarray(who)[self._times[who] == number].tolist():
            one, other = terms_for(charge, i), terms_for(own, i)
            if not _alike(one, other):
                where = f"algorithm: {self._method.name} charges {_described(one)}"
                return f"{where} in round {round_}; allowed: {_described(other)}, as it has planned"
        return ""

    def tell(self, who: Any, job: Any, payload: Any) -> None:
        """As Hub.tell."""
        self._note(job)
        self._hub.tell(who, job, payload)

    def inform(self, who: Any, job: Any, payload: Any) -> None:
        """As Hub.inform."""
        self._note(job)
        self._hub.inform(who, job, payload)

    def _note(self, job: Any) -> None:
        round_, (before, number) = int(self._hub.round), self._news
        self._news = round_, number + 1 if round_ == before else 1
        self._asked.news.add(self._asked.named(job, self._method))
        self._asked.often = max(self._asked.often, self._news[1])


class Consent:
    """What agent `agent` holds calls to, on its part of `world`; asked: of the rehearsal."""

    def __init__(self, world: World, method: Any, agent: int, asked: Asked) -> None:
        self.method, self.agent, self.asked = method, agent, asked
        self.dim, self.filter = world.settings.problem.dim, world.filter
        rounds = 1 if method.once else world.settings.rounds
        self.rounds = int(min(rounds, ROUNDS))
        self.latest = 0, 0  # round and exchange of the latest call
        self.number = 0  # of the next call in that round
        self.heard = 0, 0  # round of the latest news, how many there were
        self.price = np.zeros((3, 1))  # of the latest call

    def to_start(self, state: ByName) -> None:
        """Declined unless these are numbers to begin with, before any call."""
        if self.latest > (0, 0):
            raise Declined("hub.start: found a state after a call; allowed: before the first one")
        self._require_numbers(state, largest(own_terms(self.method, 1, 0), self.agent, self.dim))

    def to_news(self, round_: int, order: Message) -> None:
        """Declined unless a message of a round has jobs on news as the program tells of them."""
        jobs, arrays = order.fields["told"], order.arrays
        if not arrays and not jobs:
            return
        known = own_terms(self.method, max(1, min(round_, self.rounds)), 0)
        if (most := largest(known, self.agent, self.dim)) < np.inf:
            for one in jobs:
                self._require_job(form(one["job"]) in self.asked.news, one["job"], arrays)
                self._require_seldom(int(one["round"]))
        self._require_numbers(arrays, most)

    def to_call(self, round_: int, order: Message, payload: NDArray[Any]) -> Terms:
        """Terms (agents,) of the reply to a call, whose address is used from now on; or Declined.

        payload: the numbers to go on from.
        """
        said = order.fields
        self._require_round(round_)
        number = self._require_unused(round_, int(said["exchange"]))
        terms = own_terms(self.method, round_, number)
        self._require_terms(round_, said["terms"], terms_for(terms, self.agent))
        most = largest(terms, self.agent, self.dim)
        if most < np.inf:
            known = (number, form(said["job"])) in self.asked.calls
            self._require_job(known, said["job"], order.arrays)
        self._require_numbers({"payload": payload}, most)
        self._require_budget(terms)
        self.latest, self.number = (round_, int(said["exchange"])), number + 1
        return terms

    def replied(self) -> None:
        """The reply to the latest call leaves the agent."""
        if self.filter is not None:
            self.filter.spend(self.agent, self.price[:, 0])

    def _require_round(self, round_: int) -> None:
        if not 1 <= round_ <= self.rounds:
            raise Declined(f"a call: found round {round_}; allowed: 1 to {self.rounds}")

    def _require_unused(self, round_: int, exchange: int) -> int:
        """The number of a call in its round, whose address must not have been used."""
        (before, latest), found = self.latest, f"found exchange {exchange} of round {round_}"
        if not 0 <= exchange < EXCHANGES:
            raise Declined(f"a call: {found}; allowed: 0 to {EXCHANGES - 1}")
        if (round_, exchange) <= self.latest:
            text = "whose noise serves one reply"
            raise Declined(f"a call: {found}, {text}; allowed: after {latest} of round {before}")
        return self.number if round_ == before else 0

    def _require_terms(self, round_: int, said: list[Any], own: list[Any]) -> None:
        if not _alike(said, own):
            found = f"a call of round {round_}: found terms {_described(said)}"
            raise Declined(f"{found}; allowed: {_described(own)}, as {self.method.name} has them")

    def _require_seldom(self, round_: int) -> None:
        before, number = self.heard
        self.heard = round_, number + 1 if round_ == before else 1
        if not before <= round_ <= self.rounds + 1 or self.heard[1] > self.asked.often:
            text = f"a message: found news {self.heard[1]} of round {round_}, after round {before}"
            raise Declined(f"{text}; allowed: {self.asked.often} in a round, in their order")

    def _require_job(self, known: bool, job: Mapping[str, Any], arrays: ByName) -> None:
        if known:
            most = MORE * self.asked.bound.get(form(job), 0.0)
            names = [one["array"] for one in job["bound"].values() if isinstance(one, dict)]
            self._require_numbers({name: arrays[name] for name in names}, most)
        else:
            text = "with the numbers that are bound to it there, at that place in a round"
            found = f"a call: found the job {form(job)}"
            raise Declined(f"{found}; allowed: those of {self.method.name}'s program, {text}")

    def _require_numbers(self, arrays: ByName, most: float) -> None:
        for name, array in arrays.items():
            if beyond(array, most):
                text = f"found what is no number up to {most:.3g}"
                why = "beyond it rounding tells of rows what no noise hides"
                raise Declined(f"a call: {name}: {text}; {why}")

    def _require_budget(self, terms: Terms) -> None:
        if self.filter is None:
            return
        who = np.array([self.agent])
        self.price = self.filter.price(who, terms, who)
        if not self.filter.fits(who, self.price)[0]:
            cost = self.filter.cost(self.agent, self.price[:, 0])
            allowed = f"{self.filter.budget.epsilon:g} in all"
            raise Declined(
                f"privacy.budget: found a call that would cost {cost}; allowed: {allowed}"
            )
