"""Two plays on neighbouring data with one transcript, for the check of transcripts and the audit.

The first play is the truth; the second is a replay of it, in which every agent takes what the first
play released for its own releases. Values before noise are then means given the same past.

What an agent sends in a replay is a function of public things, and so are its times, sizes and
silences; where one of them differs, no noise stands between the data and whoever sees it, and the
likelihood ratio is infinite. What was released counts as seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.engine.play import Observation, Simulation
from desim.engine.signals import Sink
from desim.engine.world import Discard
from desim.errors import InputError, RunError
from desim.log.event_log import Outcome
from desim.privacy.ledger.ledger import Mechanism
from desim.signals import Listener, Message, Release

# What a play reveals, kept and replayed: the same transcript on other data shows what moved.


Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Released:
    """One batch of releases of agents who (n,) in round (n,) with ids release (n,), -1 for none.

    value (n, dim): what noise was added to (of noise in a kernel: the result without it); output
    (n, dim): with noise, as computed; sensitivity, scale, coupled (n,): as in Terms.
    """

    who: Int
    round: Int
    release: Int
    value: Array
    output: Array
    mechanism: Mechanism
    sensitivity: Array
    scale: Array
    coupled: Array | None


class Transcript(Listener):
    """Releases and messages of one play in their order; with `recorded`, a replay of that one.

    apart: releases or messages came in another order or number than recorded; unsent: ids of the
    releases that no message has told of; failed: whether the play ended before its time.
    """

    def __init__(self, recorded: "Transcript | None" = None) -> None:
        self.releases: list[Released] = []
        self.messages: list[Message] = []
        self.recorded = recorded
        self.apart = self.failed = False
        self.unsent: set[int] = set()

    def releasing(self, batch: Release) -> Array:
        """Keep a batch of releases; return what goes out (n, dim)."""
        release, output, terms, rows = batch.release, batch.output, batch.terms, batch.rows
        value, coupled = batch.value, None if terms.coupled is None else terms.coupled[rows]
        if terms.resolution > 0.0:  # discrete noise is centred on the level next to the value
            value = terms.resolution * np.rint(value / terms.resolution)
        spread = terms.sensitivity[rows], terms.scale[rows], coupled
        found = Released(batch.who, batch.round, release, value, output, terms.mechanism, *spread)
        self.releases.append(found)
        if self.recorded is None:
            return output
        theirs = _counterpart(self.recorded.releases, len(self.releases) - 1)
        if theirs is None or theirs.output.shape != output.shape:
            self.apart = True
            return output
        same = theirs.release == release
        self.apart |= not same.all()
        return np.where((same & (release >= 0))[:, None], theirs.output, output)

    def waiting(self, ids: Int, waits: bool) -> None:
        """Note that releases ids (n,), -1 for none, wait for a message, or do so no more."""
        if waits or self.unsent:
            named = set(ids[ids >= 0].tolist())
            self.unsent = self.unsent | named if waits else self.unsent - named

    def sending(self, message: Message) -> Array:
        """Keep a batch of messages; return what is received (n, dim)."""
        self.messages.append(message)
        if self.recorded is None:
            return message.payload
        theirs = _counterpart(self.recorded.messages, len(self.messages) - 1)
        if (
            theirs is None
            or theirs.payload.shape != message.payload.shape
            or not np.array_equal(theirs.who, message.who)
            or not np.array_equal(theirs.round, message.round)
        ):
            self.apart = True
            return message.payload
        return theirs.payload


def said_last(transcript: Transcript) -> dict[int, Array]:
    """The last message (dim,) of every agent that has said something; a null says nothing."""
    found = {}
    for sent in transcript.messages:
        silent = sent.traffic[-1]
        spoken = ~silent if silent.dtype == bool else np.ones(len(sent.who), bool)
        found.update({int(sent.who[r]): sent.payload[r] for r in np.flatnonzero(spoken)})
    return found


def _counterpart(batches: list[Batch], place: int) -> Batch | None:
    return batches[place] if place < len(batches) else None


# In what the two plays differ beyond what noise covers.
Bool = NDArray[np.bool_]
ROUNDING = 1e-12  # of the numbers compared
TOGETHER = 64  # batches of messages that are compared at once
RELEASES = "releases or messages that are made with one and not with the other data"
TRAFFIC = "times, sizes or silences that depend on data"
MESSAGES = "messages that are no function of what was released"
ENDS = "runs that fail, or tell what is no number, with one and not with the other data"
BARE = "sums without the noise that is declared"
KINDS = (RELEASES, TRAFFIC, MESSAGES, ENDS, BARE)


def apart(first: Transcript, second: Transcript, agents: Bool) -> str:
    """What of `agents` (agents,) tells a play from its replay on other data; empty if nothing.

    Who sees a run sees whether it fails, whatever the view.
    """
    if first.failed != second.failed or any(
        _unlike(*one, agents) for one in aligned(first, second)
    ):
        return ENDS
    if len(first.releases) != len(second.releases) or second.apart:
        return RELEASES
    if len(first.messages) != len(second.messages):
        return TRAFFIC
    pairs = list(zip(first.messages, second.messages, strict=True))
    found = ""
    for begin in range(0, len(pairs), TOGETHER):
        block = pairs[begin : begin + TOGETHER]
        if _same(block):
            continue
        if any(_moved(*one, agents) for one in block):
            return TRAFFIC
        if any((beyond(*one) & agents[one[0].who]).any() for one in block):
            found = MESSAGES
    return found


def _same(block: list[tuple[Message, Message]]) -> bool:
    """Whether messages are the same to the last bit, and in all that is seen of them."""
    if any(mine.payload.shape != theirs.payload.shape for mine, theirs in block):
        return False
    sides = zip(*block, strict=True)
    mine, theirs = (
        [(one.who, *one.traffic, one.payload.ravel()) for one in side] for side in sides
    )
    columns = zip(zip(*mine, strict=True), zip(*theirs, strict=True), strict=True)
    return all(np.array_equal(np.concatenate(a), np.concatenate(b)) for a, b in columns)


def _moved(mine: Message, theirs: Message, agents: Bool) -> bool:
    """Whether messages of `agents` go out at other times, in another size, or not at all."""
    if mine.payload.shape != theirs.payload.shape or not np.array_equal(mine.who, theirs.who):
        return True
    seen = zip(mine.traffic, theirs.traffic, strict=True)
    return any(bool(((a != b) & agents[mine.who]).any()) for a, b in seen)


def _unlike(mine: Released, theirs: Released, agents: Bool) -> bool:
    """Whether values of `agents` that noise is added to are numbers in one play only."""
    one, other = (np.isfinite(batch.value).all(axis=1) for batch in (mine, theirs))
    out = (mine.release >= 0) & (theirs.release >= 0) & agents[mine.who]
    return bool(((one != other) & out).any())


def beyond(mine: Message, theirs: Message) -> Bool:
    """Which messages (n,) of two batches of one shape differ by more than rounding."""
    a, b = mine.payload, theirs.payload
    if a is b or np.array_equal(a, b):
        return np.zeros(len(a), bool)
    moved = np.linalg.norm(b - a, axis=1)
    return np.asarray(~(moved <= rounding(a)))


def rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What rounding may move vectors (n, dim) by, (n,) in L2."""
    return np.asarray(ROUNDING * np.linalg.norm(values, axis=1))


def aligned(first: Transcript, second: Transcript) -> Iterator[tuple[Released, Released]]:
    """Batches of releases of the same agents and ids in both plays, up to where they part."""
    for mine, theirs in zip(first.releases, second.releases, strict=False):
        same = mine.output.shape == theirs.output.shape
        if not (same and np.array_equal(mine.who, theirs.who)):
            return
        yield mine, theirs


@dataclass(frozen=True)
class PairReleases:
    """Releases in one play, in their order, and what they would have been on other data.

    round (n,); release (n,) ids; output (n, dim): what went out; mean (n, dim): its value
    before noise under the data that were played; other (n, dim): under the neighbouring data, given
    the same transcript; sensitivity, scale (n,) as in the ledger, other_scale (n,) as in that of
    the neighbour; mechanism (n,) of Mechanism. Of noise inside a kernel, mean and other are the
    results without noise: exact means for quadratics only. size (n,): how many numbers a value has,
    after which it ends in zeros. Agents other than the changed one are there where their releases
    moved.

    apart: what tells the two plays apart whatever the noise, empty for nothing; partial: whether
    releases moved that the view does not show.
    """

    round: Int
    release: Int
    output: Array
    mean: Array
    other: Array
    sensitivity: Array
    scale: Array
    mechanism: Int
    other_scale: Array
    size: Int
    apart: str = ""
    partial: bool = False


def unobserved(simulation: Simulation, rounds: int | None = None, log: str = "all") -> Simulation:
    """The simulation without what depends on data, metrics and targets; of `rounds` at most.

    log: what its log keeps, by default everything.
    """
    settings = simulation.settings
    most = settings.rounds if rounds is None else min(rounds, settings.rounds)
    if most == settings.horizon == np.inf:
        raise InputError("stop: found metric alone, which depends on data; allowed: rounds or time")
    settings = replace(settings, targets=(), rounds=most, log=log)
    nothing = Observation((), 0.0, False, None, judged=False)
    return replace(simulation, settings=settings, observation=nothing)


def noised(simulation: Simulation, seed: int | None) -> Simulation:
    """The simulation with noise of its own seed, apart from every other stream of draws."""
    return replace(simulation, settings=replace(simulation.settings, noise_seed=seed))


def costs(agents: int, who: Int, sensitivity: Array, scale: Array) -> Array:
    """What releases of agents who (n,) cost each (agents,): squares of sensitivity over scale."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.nan_to_num((sensitivity / scale) ** 2, nan=0.0, posinf=0.0)
    return np.asarray(np.bincount(who, each, agents), float)


def completed(outcome: Outcome) -> Outcome:
    """The outcome, if its play came to its end; RunError if not."""
    if outcome.status == "failed":
        raise outcome.error or RunError(outcome.reason)
    return outcome


def ended(simulation: Simulation, transcript: Transcript, sink: Sink | None = None) -> Outcome:
    """What a play comes to; one in which a user's code raises has failed like any other."""
    try:
        outcome = simulation.play(Discard() if sink is None else sink, listeners=[transcript])
    except Exception as error:
        outcome = Outcome("failed", str(error), error=error)
    transcript.failed = outcome.status == "failed"
    return outcome


def recorded(simulation: Simulation, noise_seed: int) -> Transcript:
    """What one play with noise of `noise_seed` reveals, which may have failed."""
    ended(noised(unobserved(simulation, log="rounds"), noise_seed), transcript := Transcript())
    return transcript


def play_pair(
    simulation: Simulation,
    neighbour: Simulation,
    noise_seed: int,
    agent: int = 0,
    seen: frozenset[int] | None = None,
    first: Transcript | None = None,
) -> PairReleases:
    """Play `simulation` with noise of `noise_seed`, replay it on `neighbour`; what was released.

    agent: whose record was changed; seen: the agents whose every release is seen, by default all;
    first: what `recorded` has of the simulation with that noise, which is then not played again.
    Participation, links, speeds and batches stay those of the scenario's seed: both plays and all
    noise seeds share them, as an adversary does who knows everything but the noise. RunError where
    both plays fail and nothing else tells them apart: that one fails alone tells them apart.
    """
    first = recorded(simulation, noise_seed) if first is None else first
    second = Transcript(first)
    outcome = ended(noised(unobserved(neighbour, log="rounds"), noise_seed), second)
    scored = np.ones(simulation.problem.agents, bool)
    if seen is not None:
        scored[:] = False
        scored[[*seen, agent]] = True
    difference = apart(first, second, scored)
    if not difference:
        completed(outcome)
    return _of_pair(first, second, agent, scored, difference)


def _of_pair(
    first: Transcript, second: Transcript, agent: int, scored: Any, difference: str
) -> PairReleases:
    rows, seen, partial = list[tuple[Released, Released, int]](), set[int](), False
    for mine, theirs in aligned(first, second):
        keep = mine.who == agent
        if not keep.all():
            keep |= (mine.value != theirs.value).any(axis=1) | (mine.scale != theirs.scale)
        keep &= (mine.release >= 0) & (theirs.release >= 0)
        if first.unsent:  # which nobody sees
            keep &= ~np.isin(mine.release, list(first.unsent))
        for r in keep.nonzero()[0].tolist():
            if not scored[mine.who[r]]:
                partial = True
            elif mine.release[r] not in seen:  # one draw of noise may go out again and again
                seen.add(int(mine.release[r]))
                rows.append((mine, theirs, r))
    sizes = [mine.output.shape[1] for mine, _, _ in rows]

    def vectors(of: Any) -> Array:
        out = np.zeros((len(rows), max(sizes, default=0)))
        for place, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            out[place, :size] = of(*row)
        return out

    def numbers(of: Any, dtype: Any = float) -> Any:
        return np.array([of(*row) for row in rows], dtype)

    return PairReleases(
        round=numbers(lambda mine, _, r: mine.round[r], np.int64),
        release=numbers(lambda mine, _, r: mine.release[r], np.int64),
        output=vectors(lambda mine, _, r: mine.output[r]),
        mean=vectors(lambda mine, _, r: mine.value[r]),
        other=vectors(lambda _, theirs, r: theirs.value[r]),
        sensitivity=numbers(lambda mine, _, r: mine.sensitivity[r]),
        scale=numbers(lambda mine, _, r: mine.scale[r]),
        mechanism=numbers(lambda mine, _, r: mine.mechanism, np.int64),
        other_scale=numbers(lambda _, theirs, r: theirs.scale[r]),
        size=np.array(sizes, np.int64),
        apart=difference,
        partial=partial,
    )
