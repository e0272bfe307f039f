"""`desim audit`: a scenario is played thousands of times to contradict what is claimed for it."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.errors import InputError, refusal
from desim.experiments.audit.neighbours import (
    Neighbours,
    likelihood_ratio,
    neighbours,
    noise_drawn,
    worst_pair,
)
from desim.experiments.audit.pairs import (
    KINDS,
    Transcript,
    ended,
    noised,
    play_pair,
    said_last,
    unobserved,
)
from desim.experiments.audit.stored import (
    Audit,
    Tell,
    require_agent,
    require_other,
    shown,
    tables_of,
    terms,
)
from desim.experiments.audit.verdict import (
    DECIMALS,
    AuditedPlay,
    Claim,
    Finding,
    claims_of,
    judge,
    rounded,
)
from desim.experiments.pool import mapped
from desim.log.event_log import Outcome
from desim.numerics.cores import cores
from desim.privacy.accounting.views import Adversary, adversary
from desim.runs.premises import tuned
from desim.scenario.build import build
from desim.scenario.check import explained
from desim.scenario.load import load, loaded
from desim.scenario.schema import Scenario

# The distinguishing game: an adversary sees runs on data D and on its neighbour D', and scores.


Reading = Literal["likelihood", "releases", "model"]
TRAINING = 0.15  # share of the runs that trains a score
SHARES = 40  # of each worker, so that a progress bar moves


@dataclass(frozen=True)
class Stage:
    """A simulation, its neighbour (one record of `agent` replaced), and how a run is read.

    likelihood: the view shows every release of the agent, so the ratio of likelihoods can be told;
    releases: it shows those whose ids are in `seen`, and the messages whose (round, release) are in
    `heard`, None for all; model: it shows the final model only. The last two leave numbers from
    which a score is trained. agents: those whose every release is shown, None for all.
    """

    simulation: Simulation
    neighbour: Simulation
    agent: int
    reading: Reading = "likelihood"
    seen: frozenset[int] = frozenset()
    heard: frozenset[tuple[int, int]] | None = None
    agents: frozenset[int] | None = None

    def numbers(self, side: int, seed: int) -> Array:
        """What a run of a side with noise of `seed` says: a row of `_scores`, or what it shows."""
        return (_ratio if self.reading == "likelihood" else numbers_shown)(self, side, seed)


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


class Game(Protocol):
    """What is played and how it is read, see `Stage`."""

    @property
    def reading(self) -> Reading:
        """As in `Stage`."""

    def numbers(self, side: int, seed: int) -> Array:
        """As Stage.numbers."""


def play_game(
    stage: Game,
    runs: int,
    *,
    seed: int = 0,
    workers: int = 1,
    again: Callable[[], tuple[Scenario, Game]] | None = None,
    tell: Tell | None = None,
) -> Scores:
    """Play `runs` runs on each side and score them.

    again: makes the stage in another process (it must pickle), needed for workers > 1, of a
    scenario that explains its errors; tell hears how many runs of how many are done.
    """
    size = max(1, min(50, -(-2 * runs // (SHARES * workers))))
    tasks = [
        (side, seed, range(runs)[n : n + size]) for side in (0, 1) for n in range(0, runs, size)
    ]
    scores: tuple[list[Array], list[Array]] = [], []
    played: Iterator[list[Array]] = map(partial(_play, stage), tasks)
    if workers > 1 and again is not None:
        played = mapped(again, _elsewhere, tasks, workers)
    done = 0
    for (side, *_), rows in zip(tasks, played, strict=True):
        scores[side].extend(rows)
        done += len(rows)
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


Task = tuple[int, int, range]  # side, seed, runs


def _play(stage: Game, task: Task) -> list[Array]:
    side, seed, runs = task
    return [stage.numbers(side, noise_seed(seed, side, n)) for n in runs]


def _elsewhere(known: tuple[Scenario, Game], task: Task) -> list[Array]:
    with explained(known[0]):
        return _play(known[1], task)


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


def numbers_shown(stage: Stage, side: int, seed: int) -> Array:
    """Whether a run fails or shows what is no number, as every view does; then its numbers (n,)."""
    transcript = Transcript()
    simulation = noised(unobserved((stage.simulation, stage.neighbour)[side]), seed)
    outcome = ended(simulation, transcript)
    read = _model(outcome, transcript) if stage.reading == "model" else _outputs(stage, transcript)
    numbers = np.concatenate([*read, np.zeros(0)])
    sound = np.isfinite(numbers)
    failed = outcome.status == "failed" or not sound.all()
    return np.concatenate([[float(failed)], np.where(sound, numbers, 0.0)])


def _outputs(stage: Stage, transcript: Transcript) -> list[Array]:
    """All that the agent released and sent, and when and how large, as far as the view shows it."""
    released = [
        batch.output[r]
        for batch in transcript.releases
        for r in np.flatnonzero(batch.who == stage.agent)
        if int(batch.release[r]) in stage.seen
    ]
    sent = [
        np.concatenate([one.payload[r], *([float(part[r])] for part in one.traffic)])
        for one in transcript.messages
        for r in np.flatnonzero(one.who == stage.agent)
        if stage.heard is None or (int(one.round[r]), int(one.release[r])) in stage.heard
    ]
    return [*released, *sent]


def _model(outcome: Outcome, transcript: Transcript) -> list[Array]:
    """The final model: the coordinator's, or on a graph what every agent released and sent last."""
    if outcome.model is not None and len(outcome.model):
        return [np.asarray(outcome.model[-1], float)]
    last = {(1, i): payload for i, payload in said_last(transcript).items()}
    for batch in transcript.releases:
        visible = [one >= 0 and int(one) not in transcript.unsent for one in batch.release]
        last.update({(0, int(i)): batch.output[r] for r, i in enumerate(batch.who) if visible[r]})
    return [last[one] for one in sorted(last)]


def trained(old: Array, new: Array) -> tuple[Array, Array]:
    """Scores of the runs (n, p) that did not train them: a linear discriminant, column by column.

    Columns are taken as independent: with hundreds of them and as many runs, a full covariance
    would be noise (Bickel, Levina 2004).
    """
    first = np.unique(np.concatenate([old, new]), axis=1, return_index=True)[1]
    distinct = np.sort(first)  # a column may say again what an earlier one says
    old, new = old[:, distinct], new[:, distinct]
    cut = int(np.ceil(TRAINING * len(old)))
    both = np.concatenate([old[:cut], new[:cut]])
    least = 1e-9 * np.abs(both).max(axis=0, initial=0.0)  # of what no noise was added to
    spread = np.maximum(0.5 * (old[:cut].var(axis=0) + new[:cut].var(axis=0)), least**2)
    apart = new[:cut].mean(axis=0) - old[:cut].mean(axis=0)
    weight = np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0.0)
    return (old[cut:] - both.mean(axis=0)) @ weight, (new[cut:] - both.mean(axis=0)) @ weight


def _padded(rows: list[Array]) -> Array:
    """Vectors as the rows of one array: shorter ones, of runs in which less was said, end in zeros.

    A last column has their lengths.
    """
    sizes = [len(row) for row in rows]
    out = np.zeros((len(rows), max(sizes, default=0) + 1))
    for place, row in enumerate(rows):
        out[place, : len(row)], out[place, -1] = row, len(row)
    return out


LEAST_RUNS = 20
REAL = (
    f"scores are rounded to 1e-{DECIMALS}: the audit is of the mechanism in real numbers; noise in "
    "doubles leaks more (Mironov 2012)"
)
HIDDEN = ("none", "objective-perturbation", "objective-laplace")  # no release of its own to score
NEVER = "`not refuted` is no proof: another record, score or number of runs may still refute"


def audit(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    runs: int = 1000,
    claims: Sequence[str | float] = ("paper", "rigorous"),
    view: str | None = None,
    delta: float | None = None,
    level: float = 0.01,
    agent: int | None = None,
    row: int | None = None,
    seed: int = 0,
    workers: int = 1,
    tell: Tell | None = None,
) -> Audit:
    """Try to refute claims about a scenario by simulating `runs` runs on each of two data sets.

    claims: paper, rigorous, or an epsilon; view and delta: by default the scenario's; agent: by
    default the one whose releases cost most; row: the record that is replaced by its opposite, by
    default a worst pair of records is searched; level: probability of a false alarm for a claim;
    seed: of the noise of all runs. InputError for what cannot be audited.
    """
    of = loaded(scenario, overrides)
    view, delta = terms(of, view, delta, level, claims, seed, numbers_wrong(runs, workers))
    with explained(of):
        pair, stage, audited = _staged(of, view, delta, agent, row)
        testable, untestable = claims_of(claims, audited)
        again = partial(_again, of.written(), str(of.folder), view, delta, agent, row)
        workers = min(workers, cores())
        scores = play_game(stage, runs, seed=seed, workers=workers, again=again, tell=tell)
    old, new, findings = scores.old, scores.new, findings_of(testable, scores, level)
    notes = (*untestable, *reservations(of, scores, audited), REAL, NEVER)
    who = f"agent {pair.agent}, record {pair.row} replaced, seen by {audited.view}"
    sizes = [len(old), len(new)]
    played = {"row": pair.row, "seed": seed, "runs": sizes, "exact_likelihood": scores.exact}
    return Audit(
        name=of.name, view=audited.view, agent=pair.agent, findings=findings, notes=notes,
        title=f"{who}; {sizes[0]} + {sizes[1]} runs", played=played, scores=scores,
        arrays={"old": old, "new": new}, samples=(old, new), of="runs",
    )  # fmt: skip


def numbers_wrong(runs: int, workers: int) -> tuple[tuple[bool, str], ...]:
    """Whether so many runs or processes are too few, and what to say then."""
    return (
        (workers < 1, f"workers: {refusal(workers, 'a whole number, at least 1')}"),
        (runs < LEAST_RUNS, f"runs: {refusal(runs, f'at least {LEAST_RUNS}')}"),
    )


def findings_of(claims: Sequence[Claim], scores: Scores, level: float) -> tuple[Finding, ...]:
    """What the scores say of each claim."""
    exact = scores.exact and scores.as_declared
    return tuple(
        judge(one, scores.old, scores.new, exact=exact, level=level, ratio=scores.ratio)
        for one in claims
    )


def reading_of(
    releases: pd.DataFrame, events: pd.DataFrame, adversary: Adversary, pair: Neighbours
) -> Stage:
    """The stage of a pair, of whose first simulation the tables are; InputError if nothing is seen.

    A ratio of likelihoods needs all releases of the agent, and their noise: noise inside an
    objective, or a method's own, leaves messages that are no function of what was released.
    """
    agent = pair.agent
    ids, whole, hiding = shown(releases, events, adversary, agent)
    own = releases["agent"] == agent
    silent = not own.any() and adversary.kind == "eavesdropper"  # who hears that nothing is said
    if not ids and not silent:
        raise InputError(f"view: {adversary} sees no release of agent {agent}")
    whole &= not (own & releases["mechanism"].isin(HIDDEN)).any()
    reading = "model" if adversary.kind == "final-model" else "likelihood" if whole else "releases"
    agents = frozenset(range(pair.first.problem.agents)) - hiding if hiding else None
    heard = _heard(events, adversary, agent)
    return Stage(pair.first, pair.second, agent, reading, ids, heard, agents)  # type: ignore[arg-type]


def _heard(
    events: pd.DataFrame, adversary: Adversary, agent: int
) -> frozenset[tuple[int, int]] | None:
    """(Round, release) of the agent's messages that the adversary sees; None for all of them."""
    if adversary.kind == "eavesdropper":
        return None
    came = (events["kind"] == "deliver") & (events["peer"] == agent)
    if adversary.kind == "coordinator":
        came &= events["agent"] < 0
    if adversary.kind == "direct":
        came &= np.isin(events["agent"], adversary.agents)
    rows = events[came]
    return frozenset(zip(rows["round"].tolist(), rows["release"].tolist(), strict=True))


def _staged(
    scenario: Scenario, view: str, delta: float, agent: int | None, row: int | None
) -> tuple[Neighbours, Stage, AuditedPlay]:
    """The pair of simulations, what is read of each run, and what claims are about."""
    simulation = build(scenario)
    agents = simulation.problem.agents
    who = adversary(view, agents)
    require_agent(agent, agents)
    if row is None:
        pair = worst_pair(simulation, agent)
    elif agent is None:
        raise InputError(f"row: found {row} without agent; allowed: both, agent alone, or neither")
    else:
        pair = neighbours(simulation, agent, row)
    require_other(pair.agent, who)
    releases, events = tables_of(pair.first)
    stage = reading_of(releases, events, who, pair)
    audited = AuditedPlay(pair.first, releases, events, pair.agent, str(who), delta)
    return pair, stage, audited


def _again(
    written: Mapping[str, Any], folder: str, view: str, delta: float, agent: int | None,
    row: int | None,
) -> tuple[Scenario, Stage]:  # fmt: skip
    """The same stage in another process, where relative names count from the same folder."""
    os.chdir(folder)
    scenario = load(written)
    with explained(scenario):
        return scenario, _staged(scenario, view, delta, agent, row)[1]


def reservations(of: Scenario, scores: Scores, audited: AuditedPlay) -> list[str]:
    """What speaks against reading too much into the scores."""
    runs = len(scores.old) + len(scores.new)
    notes = [
        f"in {number} of {runs} runs the ratio is infinite: {what}" for what, number in scores.apart
    ]
    if not np.isnan(scores.noise) and not scores.as_declared:
        notes.append(
            f"the noise that was drawn is {scores.noise:.4g} times what the ledger declares: "
            "likelihood ratios are not exact, the hockey-stick and the mean bound are left out"
        )
    if audited.sampled:
        notes.append(
            "batches are those of the scenario's seed in every run: only claims that do not count "
            "on secret batches can be tested"
        )
    public = bool(np.isfinite(audited.simulation.problem.row_norm))
    return [*notes, *(f"tuned on data, not charged: {text}" for text in tuned(of, public))]
