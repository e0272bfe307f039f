"""The distinguishing game: an adversary sees runs on data D and on its neighbour D', and scores.

The noise of every run is drawn from a seed of its own, never shared between D and D' (an audit with
shared noise says nothing); everything else is as the scenario's seed fixes it, and known.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.experiments.audit.neighbours import likelihood_ratio, noise_drawn
from desim.experiments.audit.pairs import KINDS, ended, noised, play_pair, unobserved
from desim.experiments.audit.transcript import Transcript, said_last
from desim.experiments.audit.verdict import rounded
from desim.log.outcome import Outcome

Reading = Literal["likelihood", "releases", "model"]
Tell = Callable[[int, int], None]
TRAINING = 0.15  # share of the runs that trains a score
SHARES = 40  # of each worker, so that a progress bar moves


@dataclass(frozen=True)
class Stage:
    """A simulation, its neighbour (one record of `agent` replaced), and how a run is read.

    likelihood: the view shows every release of the agent, so the ratio of likelihoods can be told;
    releases: it shows those whose ids are in `seen`, and the messages whose (round, release) are in
    `heard`, None for all; model: it shows the final model only. The last two leave numbers from
    which a score is trained. agents: those whose every release is shown, None for all. explained:
    in which other processes play, so that errors are told in words.
    """

    simulation: Simulation
    neighbour: Simulation
    agent: int
    reading: Reading = "likelihood"
    seen: frozenset[int] = frozenset()
    heard: frozenset[tuple[int, int]] | None = None
    agents: frozenset[int] | None = None
    explained: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True)
class Scores:
    """Scores of runs on D and on D', rounded: the larger, the more like D'.

    exact: log-likelihood ratios, given that the noise is what the ledger says. noise: root mean
    square over declared standard deviation in all runs, nan where unknown; draws: how many numbers.
    ratio: likelihood ratios, exact or not, of which infinite ones are certain; apart: what made
    them infinite, and in how many runs.
    """

    old: Array
    new: Array
    exact: bool
    noise: float = np.nan
    draws: int = 0
    ratio: bool = False
    apart: tuple[tuple[str, int], ...] = ()

    @property
    def as_declared(self) -> bool:
        """Whether nothing speaks against the declared scale, to five standard errors.

        A square has variance 2 for Gaussian noise and 5 for Laplace noise, in units of its mean.
        """
        return self.draws == 0 or bool(abs(self.noise**2 - 1.0) <= 5.0 * np.sqrt(5.0 / self.draws))


def play_game(
    stage: Stage,
    runs: int,
    *,
    seed: int = 0,
    workers: int = 1,
    again: Callable[[], Stage] | None = None,
    tell: Tell | None = None,
) -> Scores:
    """Play `runs` runs on each side and score them.

    again: makes the stage in another process (it must pickle), needed for workers > 1; tell is told
    how many runs of how many are done.
    """
    size = max(1, min(50, -(-2 * runs // (SHARES * workers))))
    tasks = [
        (side, seed, first, min(first + size, runs))
        for side in (0, 1)
        for first in range(0, runs, size)
    ]
    scores: tuple[list[Array], list[Array]] = [], []
    done = 0
    for (side, _, first, last), rows in _played(stage, tasks, workers, again):
        scores[side].extend(rows)
        done += last - first
        if tell is not None:
            tell(done, 2 * runs)
    if stage.reading != "likelihood":
        both = _padded([*scores[0], *scores[1]])
        old, new = trained(both[:runs], both[runs:])
        return Scores(rounded(old), rounded(new), exact=False)
    return _scores(np.array(scores[0]), np.array(scores[1]))


def _scores(old: Array, new: Array) -> Scores:
    """What rows of `_ratio` (n, 5) of runs on D and on D' come to."""
    both = np.concatenate([old, new])
    draws, squares, exact = both[:, 1].sum(), both[:, 2].sum(), bool(both[:, 3].all())
    noise = float(np.sqrt(squares / draws)) if draws and exact else np.nan
    kinds = both[:, 4].astype(int)
    counts = [(name, int((kinds == 1 + n).sum())) for n, name in enumerate(KINDS)]
    apart = tuple(one for one in counts if one[1])
    scores = rounded(old[:, 0]), rounded(new[:, 0])
    return Scores(*scores, exact, noise, int(draws), ratio=True, apart=apart)


Task = tuple[int, int, int, int]  # side, seed, first run, run after the last
_again: Callable[[], Stage] | None = None  # of a worker process


def _played(
    stage: Stage, tasks: list[Task], workers: int, again: Callable[[], Stage] | None
) -> Iterator[tuple[Task, list[Array]]]:
    """Tasks and their rows, in the order of the tasks, so that workers change no result."""
    if workers <= 1 or again is None:
        for task in tasks:
            yield task, _play(stage, task)
        return
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(min(workers, len(tasks)), _begin, (again,)) as pool:
        yield from zip(tasks, pool.imap(_work, tasks), strict=True)


def _begin(again: Callable[[], Stage]) -> None:
    global _again
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    os.environ["DESIM_THREADS"] = "1"
    _again = cache(again)  # made by the first task, whose errors are told of


def _work(task: Task) -> list[Array]:
    assert _again is not None
    stage = _again()
    with stage.explained():
        return _play(stage, task)


def _play(stage: Stage, task: Task) -> list[Array]:
    side, seed, first, last = task
    read = {"likelihood": _ratio, "releases": _outputs, "model": _model}[stage.reading]
    return [read(stage, side, noise_seed(seed, side, n)) for n in range(first, last)]


def noise_seed(seed: int, side: int, run: int) -> int:
    """Seed of the noise of one run: an own one for each side, so that no two runs share a draw."""
    return int(np.random.SeedSequence([seed, side, run]).generate_state(1, np.uint64)[0] >> 1)


def _ratio(stage: Stage, side: int, seed: int) -> Array:
    """(log-likelihood ratio of D' to D, noisy numbers, their squares, exact, what is apart)."""
    pair = (stage.simulation, stage.neighbour)
    seen = play_pair(pair[side], pair[1 - side], seed, stage.agent, stage.agents)
    ratio, exact = likelihood_ratio(seen)
    kind = 1 + KINDS.index(seen.apart) if seen.apart else 0
    return np.array([ratio if side else -ratio, *noise_drawn(seen), float(exact), float(kind)])


def _outputs(stage: Stage, side: int, seed: int) -> Array:
    """All that the agent released and sent, and when and how large, as far as the view shows it.

    First whether the run failed, which every view shows.
    """
    transcript = Transcript()
    outcome = ended(_silent(stage, side, seed), transcript)
    shown = [
        batch.output[r]
        for batch in transcript.releases
        for r in np.flatnonzero(batch.who == stage.agent)
        if int(batch.release[r]) in stage.seen
    ]
    sent = [
        np.concatenate([one.payload[r], *([float(part[r])] for part in one.traffic)])
        for one in transcript.messages
        for r in np.flatnonzero(one.who == stage.agent)
        if stage.heard is None or (int(one.round_[r]), int(one.release[r])) in stage.heard
    ]
    return _ended(outcome, np.concatenate([*shown, *sent, np.zeros(0)]))


def _ended(outcome: Outcome, numbers: Array) -> Array:
    """Whether the run failed or shows what is no number, and the numbers (n,), 0 for such."""
    sound = np.isfinite(numbers)
    failed = outcome.status == "failed" or not sound.all()
    return np.concatenate([[float(failed)], np.where(sound, numbers, 0.0)])


def _model(stage: Stage, side: int, seed: int) -> Array:
    """The final model: the coordinator's, or on a graph what every agent released and sent last."""
    transcript = Transcript()
    outcome = ended(_silent(stage, side, seed), transcript)
    if outcome.model is not None and len(outcome.model):
        return _ended(outcome, np.asarray(outcome.model[-1], float))
    last = {(1, i): payload for i, payload in said_last(transcript).items()}
    for batch in transcript.releases:
        visible = [one >= 0 and int(one) not in transcript.kept for one in batch.release]
        last.update({(0, int(i)): batch.output[r] for r, i in enumerate(batch.who) if visible[r]})
    return _ended(outcome, np.concatenate([*(last[one] for one in sorted(last)), np.zeros(0)]))


def _silent(stage: Stage, side: int, seed: int) -> Simulation:
    return noised(unobserved((stage.simulation, stage.neighbour)[side]), seed)


def trained(old: Array, new: Array) -> tuple[Array, Array]:
    """Scores of the runs (n, p) that did not train them: a linear discriminant, column by column.

    Columns are taken as independent: with hundreds of them and as many runs, a full covariance
    would be noise (Bickel, Levina 2004).
    """
    old, new = _distinct(old, new)
    cut = int(np.ceil(TRAINING * len(old)))
    both = np.concatenate([old[:cut], new[:cut]])
    least = 1e-9 * np.abs(both).max(axis=0, initial=0.0)  # of what no noise was added to
    spread = np.maximum(0.5 * (old[:cut].var(axis=0) + new[:cut].var(axis=0)), least**2)
    apart = new[:cut].mean(axis=0) - old[:cut].mean(axis=0)
    weight = np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0.0)
    return (old[cut:] - both.mean(axis=0)) @ weight, (new[cut:] - both.mean(axis=0)) @ weight


def _distinct(old: Array, new: Array) -> tuple[Array, Array]:
    """Runs (n, p) as they are, without the columns that say again what an earlier one says."""
    whole = np.concatenate([old, new])
    first = np.sort(np.unique(whole, axis=1, return_index=True)[1])
    return old[:, first], new[:, first]


def _padded(rows: list[Array]) -> Array:
    """Vectors as the rows of one array: shorter ones, of runs in which less was said, end in zeros.

    A last column has their lengths.
    """
    sizes = [len(row) for row in rows]
    out = np.zeros((len(rows), max(sizes, default=0) + 1))
    for place, row in enumerate(rows):
        out[place, : len(row)], out[place, -1] = row, len(row)
    return out
