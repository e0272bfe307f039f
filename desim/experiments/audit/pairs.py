"""Two plays on neighbouring data with one transcript: what the check and the game look at.

The first play is the truth; the second is a replay of it, in which every agent is told that it
released what the first play released. Values before noise are then means given the same past.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.play import Observation, Simulation
from desim.engine.signals import Sink
from desim.engine.world import Discard
from desim.errors import InputError, RunError
from desim.experiments.audit.apart import aligned, apart
from desim.experiments.audit.transcript import Released, Transcript
from desim.log.outcome import Outcome


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
    """The simulation without metrics and targets, which depend on data; of `rounds` at most.

    log: what its log keeps, by default everything.
    """
    settings = simulation.settings
    most = settings.rounds if rounds is None else min(rounds, settings.rounds)
    if most == settings.horizon == np.inf:
        raise InputError("stop: found metric alone, which depends on data; allowed: rounds or time")
    settings = replace(settings, targets=(), rounds=most, log=log)
    return replace(simulation, settings=settings, observation=Observation((), 0.0, False, None))


def noised(simulation: Simulation, seed: int | None) -> Simulation:
    """The simulation with noise of its own seed, apart from every other stream of draws."""
    return replace(simulation, settings=replace(simulation.settings, noise_seed=seed))


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
    transcript = Transcript()
    _played(simulation, noise_seed, transcript)
    return transcript


def _played(simulation: Simulation, noise_seed: int, transcript: Transcript) -> Outcome:
    bare = noised(unobserved(simulation, log="rounds"), noise_seed)
    return ended(bare, transcript)


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
    outcome = _played(neighbour, noise_seed, second)
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
    rows, partial = list[tuple[Released, Released, int]](), False
    for mine, theirs in aligned(first, second):
        keep = mine.who == agent
        if not keep.all():
            keep |= (mine.value != theirs.value).any(axis=1) | (mine.scale != theirs.scale)
        keep &= (mine.release >= 0) & (theirs.release >= 0)
        if first.kept:  # which nobody sees
            keep &= ~np.isin(mine.release, list(first.kept))
        for r in keep.nonzero()[0].tolist():
            if scored[mine.who[r]]:
                rows.append((mine, theirs, r))
            else:
                partial = True
    sizes = [mine.output.shape[1] for mine, _, _ in rows]

    def vectors(of: Any) -> Array:
        out = np.zeros((len(rows), max(sizes, default=0)))
        for place, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            out[place, :size] = of(*row)
        return out

    def numbers(of: Any, dtype: Any = float) -> Any:
        return np.array([of(*row) for row in rows], dtype)

    found = PairReleases(
        round=numbers(lambda mine, _, r: mine.round_[r], np.int64),
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
    return _once(found)


def _once(found: PairReleases) -> PairReleases:
    """Each release once, though its draw of noise has gone out again and again."""
    first = np.unique(found.release, return_index=True)[1]
    if len(first) == len(found.release):
        return found
    first.sort()
    arrays: dict[str, Any] = {k: v[first] for k, v in vars(found).items() if np.ndim(v)}
    return replace(found, **arrays)
