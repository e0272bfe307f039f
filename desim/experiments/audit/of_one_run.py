"""`desim audit --one-run`: claims about a scenario are tested by a single run on canaries.

An adversary knows both records of every slot, all other data and everything but the noise and the
coins. Its scores come from what the run shows and from plays on reference data that no coin has
touched, with noise of their own: guesses from them are post-processing of the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.errors import InputError, RunError, refusal
from desim.experiments.audit.neighbours import FAR, canary_records, longest_row, on
from desim.experiments.audit.one_run import judge_one_run
from desim.experiments.audit.pairs import (
    Transcript,
    completed,
    costs,
    noised,
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
from desim.experiments.audit.verdict import AuditedPlay, claims_of, rounded
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.views import Adversary, adversary
from desim.problem.losses.model_loss import ModelLoss
from desim.problem.problem import Problem
from desim.scenario.build import build
from desim.scenario.check import explained
from desim.scenario.load import loaded
from desim.scenario.schema import Scenario

# Canaries: rows of one agent that hold one of two opposite records, by coins, in a single run.
Coins = NDArray[np.bool_]
Role = Literal["coins", "noise", "reference", "records"]
ROLES: dict[Role, int] = {"coins": 0, "noise": 1, "reference": 2, "records": 3}
LONGER = 2.5  # times the clip: gradients of the records reach it


@dataclass(frozen=True)
class Canaries:
    """Two records for each of the first m rows of `agent`.

    first, second (m, features): rows; labels, other_labels (m,): those that go with them.
    """

    agent: int
    first: Array
    second: Array
    labels: Array
    other_labels: Array

    def __len__(self) -> int:
        return len(self.first)


def seed_of(seed: int, role: Role) -> int:
    """Seed of one part of the game, none of which says anything about another."""
    source = np.random.SeedSequence([seed, 7919, ROLES[role]])
    return int(source.generate_state(1, np.uint64)[0] >> 1)


def fair_coins(slots: int, seed: int) -> Coins:
    """(slots,) fair and independent coins: whether a slot holds its first record."""
    return np.asarray(keys.normals(seed_of(seed, "coins"), Stream.USER, size=slots) > 0.0)


def canaries_of(
    problem: Problem, agent: int, slots: int, seed: int, most: float = np.inf
) -> Canaries:
    """Opposite records for `slots` rows of the agent, in directions as far apart as there is room.

    Directions are orthogonal in groups of as many as there are features; lengths reach the clip,
    unless that is beyond `most`, the public bound on the norm of rows.
    Linear models: one row with two labels, so that gradients are opposite; layered ones: one row in
    two classes. InputError where the agent has too few rows.
    """
    rows = int(problem.rows[agent])
    if not 1 <= slots <= rows:
        allowed = f"{MIN_CANARIES} to {rows}, the rows of agent {agent}"
        raise InputError(f"canaries: {refusal(slots, allowed)}")
    if isinstance(problem.loss, ModelLoss):
        start = int(problem.start[agent])
        place = slice(start, start + slots)
        return Canaries(agent, *canary_records(problem, place, seed_of(seed, "records")))
    features = problem.A.shape[1]
    directions = _directions(slots, features, seed_of(seed, "records"))
    longest = float(np.linalg.norm(problem.A, axis=1).max()) or 1.0
    length = max(longest, LONGER * problem.clip) if problem.clipped else longest
    length = min(length, most)
    first = length * directions
    ones = np.ones(slots)
    if not problem.loss.linear:
        return Canaries(agent, first, first.copy(), 0.0 * ones, ones)
    if problem.loss.classification:
        return Canaries(agent, first, first.copy(), ones, -ones)
    clip = problem.clip if problem.clipped else 0.0
    far = FAR * (1.0 + float(np.abs(problem.b).max()) + clip)
    return Canaries(agent, first, first.copy(), far * ones, -far * ones)


def _directions(count: int, features: int, seed: int) -> Array:
    """(count, features) unit vectors, orthogonal within every group of `features`."""
    groups = -(-count // features)
    draws = np.asarray(keys.normals(seed, Stream.USER, size=groups * features * features))
    blocks = np.linalg.qr(draws.reshape(groups, features, features))[0]
    return np.asarray(blocks.reshape(-1, features)[:count])


def planted(simulation: Simulation, of: Canaries, coins: Coins) -> Simulation:
    """The simulation, its method made anew, on data with the canaries that the coins (m,) say.

    Nothing is carried over: what the method takes from data it takes from these.
    """
    problem = simulation.problem
    A, b = np.array(problem.A), np.array(problem.b)
    start = int(problem.start[of.agent])
    A[start : start + len(of)] = _chosen(coins, of.first, of.second)
    b[start : start + len(of)] = _chosen(coins, of.labels, of.other_labels)
    return on(simulation, problem.with_rows(of.agent, A, b, problem.protected))


def _chosen(coins: Coins, one: Array, other: Array) -> Array:
    """Rows (m, ...) of one where the coin is true, else of the other."""
    return np.where(coins.reshape(-1, *[1] * (one.ndim - 1)), one, other)


# The run on canaries, and a score for each: how much the run looks like its first record.
Reading = Literal["all", "some", "model"]
ROUNDING = 1e-9  # of the numbers shown: effects below it are how doubles are rounded
NUMBERS = 50_000_000  # canaries times numbers shown, kept in memory


@dataclass(frozen=True)
class Game:
    """A simulation, the canaries of one agent, and what of a run is read.

    all: the view shows every release of the agent, so that reference data are replayed under the
    same past; its messages count too, where they are no functions of its releases. some: releases
    whose ids are in `seen`. model: the final model only. The last two compare with a play on
    reference data and noise of its own.
    """

    simulation: Simulation
    canaries: Canaries
    reading: Reading = "all"
    seen: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Guessable:
    """Scores (m,): the larger, the more like the first record; coins (m,): what the slots held."""

    scores: Array
    coins: Coins


@dataclass(frozen=True)
class Shown:
    """What an adversary reads of one play: numbers (n,), without noise too, and its size, 0: none.

    mean is what is computed from data, given the past.
    """

    output: Array
    mean: Array
    scale: Array


def play_once(game: Game, *, seed: int = 0, tell: Tell | None = None) -> Guessable:
    """Play one run on coins of `seed`, and score every canary.

    Takes one play for each canary and four more, of reference data. RunError where a play fails.
    """
    slots = len(game.canaries)
    coins = fair_coins(slots, seed)
    past, shown = _run(game, coins, seed_of(seed, "noise"), None)
    if game.reading != "all":
        past, _ = _run(game, np.ones(slots, bool), seed_of(seed, "reference"), None)
    residual, effects = _reference(game, shown, past, seed_of(seed, "reference"), tell)
    spread = _spread(shown, residual, effects)
    return Guessable(rounded(likeness(residual, effects, spread)), coins)


def likeness(residual: Array, effects: Array, spread: Array) -> Array:
    """Best linear guess (m,) of coins worth -1/2 or 1/2 (Gauss, Markov; prior variance 1/4).

    residual (n,); effects (m, n): what the first record adds over the second; spread (n,): size of
    the noise, infinite for numbers that are left out.
    """
    weighed = effects / spread
    gram = weighed @ weighed.T + 4.0 * np.eye(len(effects))
    return np.asarray(np.linalg.solve(gram, weighed @ (residual / spread)))


def _reference(
    game: Game, shown: Shown, past: Transcript, noise_seed: int, tell: Tell | None
) -> tuple[Array, Array]:
    """Residual (n,) of what was shown from the middle of two references, and effects (m, n).

    All canaries hold their first record in one reference and their second one in the other.
    """
    slots = len(game.canaries)
    if slots * len(shown.output) > NUMBERS:
        most = max(1, NUMBERS // len(shown.output))
        raise InputError(
            f"canaries: found {slots}, and a run that shows {len(shown.output)} numbers; allowed: "
            f"at most {most} canaries"
        )
    first, last = (
        _mean(game, np.full(slots, which), noise_seed, past, shown) for which in (True, False)
    )
    effects = np.empty((slots, len(first)))
    for slot in range(slots):
        coins = np.ones(slots, bool)
        coins[slot] = False
        effects[slot] = first - _mean(game, coins, noise_seed, past, shown)
        if tell is not None:
            tell(slot + 1, slots)
    return shown.output - 0.5 * (first + last), effects


def _mean(game: Game, coins: Coins, noise_seed: int, past: Transcript, shown: Shown) -> Array:
    mean = _run(game, coins, noise_seed, past)[1].mean
    if mean.shape != shown.output.shape:
        raise RunError(
            f"agent {game.canaries.agent}: how much it reveals depends on its data; one run cannot "
            "be compared with another (desim check --contract says more)"
        )
    return mean


def _run(
    game: Game, coins: Coins, noise_seed: int, past: Transcript | None
) -> tuple[Transcript, Shown]:
    """One play of data with these coins, under a recorded past or free, and what is read of it."""
    own = noised(unobserved(planted(game.simulation, game.canaries, coins)), noise_seed)
    transcript = Transcript(past if game.reading != "model" else None)
    outcome = completed(own.play(Discard(), listeners=[transcript]))
    if game.reading == "model":
        return transcript, _final(transcript, outcome.model)
    parts = [*_seen(game, transcript)]
    joined = (np.concatenate([np.zeros(0), *(part[k] for part in parts)]) for k in range(3))
    return transcript, Shown(*joined)


def _seen(game: Game, transcript: Transcript) -> Iterator[tuple[Array, Array, Array]]:
    """Of each release and message its numbers, these without noise, and the noise's size."""
    agent, every = game.canaries.agent, game.reading == "all"
    for batch in transcript.releases:
        for r in np.flatnonzero((batch.who == agent) & (batch.release >= 0)):
            number = int(batch.release[r])
            if (every or number in game.seen) and number not in transcript.unsent:
                size = np.full(batch.output.shape[1], batch.scale[r])
                yield batch.output[r], batch.value[r], size
    for sent in transcript.messages if every else ():
        for r in np.flatnonzero(sent.who == agent):
            yield sent.payload[r], sent.payload[r], np.zeros(sent.payload.shape[1])


def _final(transcript: Transcript, model: Array | None) -> Shown:
    """The final model: the coordinator's, or on a graph what every agent sent last."""
    if model is not None and len(model):
        numbers = np.asarray(model[-1], float)
    else:
        last = said_last(transcript)
        numbers = np.concatenate([np.zeros(0), *(last[i] for i in sorted(last))])
    if not len(numbers):
        raise InputError("view: final-model shows nothing of this run; allowed: eavesdropper")
    return Shown(numbers, numbers, np.zeros_like(numbers))


def _spread(shown: Shown, residual: Array, effects: Array) -> Array:
    """Size of the noise of every number (n,): declared, else that of the residuals; inf: left out.

    Numbers without noise of their own that no canary moves are functions of the others.
    """
    bare = shown.scale <= 0.0
    moved = np.abs(effects).max(axis=0, initial=0.0)
    least = ROUNDING * np.abs(shown.output).max(initial=0.0)
    telling = bare & (moved > least)
    size = float(np.sqrt(np.mean(residual[telling] ** 2))) if telling.any() else 1.0
    return np.asarray(np.where(bare, np.where(telling, size or 1.0, np.inf), shown.scale))


# The audit as a whole: how many canaries there are, and what its result says.
MIN_CANARIES, USUAL = 10, 500
NEVER = "`not refuted` is no proof: one run says less than many, and canaries that overlap say less"
KNOWN = (
    "batches are those of the scenario's seed: claims that count on secret batches are not tested"
)
REAL = "the audit is of the mechanism in real numbers; noise in doubles leaks more (Mironov 2012)"


def audit_one_run(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    canaries: int | None = None,
    claims: Sequence[str | float] = ("paper", "rigorous"),
    view: str | None = None,
    delta: float | None = None,
    level: float = 0.01,
    agent: int | None = None,
    seed: int = 0,
    tell: Tell | None = None,
) -> Audit:
    """Try to refute claims about a scenario by one run whose data hold canaries.

    canaries: how many rows of the agent hold one of two opposite records by a coin, by default all,
    500 at most; each costs a play of reference data. claims: paper, rigorous, or an epsilon; view
    and delta: by default the scenario's; agent: by default the one whose releases cost most; level:
    probability of a false alarm for a claim; seed: of coins and noise. InputError for what cannot
    be audited.
    """
    of = loaded(scenario, overrides)
    few = canaries is not None and canaries < MIN_CANARIES
    others = [(few, f"canaries: {refusal(canaries, f'{MIN_CANARIES} to the rows of the agent')}")]
    view, delta = terms(of, view, delta, level, claims, seed, others)
    with explained(of):
        simulation = build(of)
        who = adversary(view, simulation.problem.agents)
        agent = _agent(simulation, agent, who)
        slots = min(USUAL, int(simulation.problem.rows[agent])) if canaries is None else canaries
        most = longest_row(simulation.problem, simulation.method.parameters)
        records = canaries_of(simulation.problem, agent, slots, seed, most)
        game, audited = _staged(simulation, records, who, delta)
        testable, untestable = claims_of(claims, audited)
        guessable = play_once(game, seed=seed, tell=tell)
    scores, coins = guessable.scores, guessable.coins
    findings = tuple(judge_one_run(claim, scores, coins, level) for claim in testable)
    notes = (*untestable, *([KNOWN] if audited.sampled else []), REAL, NEVER)
    return Audit(
        name=of.name, view=audited.view, agent=agent, findings=findings, notes=notes,
        title=f"agent {agent}, {slots} canaries, seen by {audited.view}; one run",
        played={"seed": seed, "runs": 1, "canaries": slots}, scores=guessable,
        arrays={"scores": scores, "coins": coins}, samples=(scores[~coins], scores[coins]),
        of="canaries",
    )  # fmt: skip


def _agent(simulation: Simulation, agent: int | None, who: Adversary) -> int:
    """The agent whose rows hold the canaries: by default whose releases cost most."""
    agents = simulation.problem.agents
    require_agent(agent, agents)
    if agent is None:
        releases, _ = tables_of(simulation)
        numbers = (releases[name].to_numpy(float) for name in ("sensitivity", "scale"))
        cost = costs(agents, releases["agent"].to_numpy(), *numbers)
        cost[list(who.agents)] = -1.0
        agent = int(np.argmax(cost))
    require_other(agent, who)
    if simulation.problem.rows[agent] < MIN_CANARIES:
        rows, enough = int(simulation.problem.rows[agent]), simulation.problem.rows >= MIN_CANARIES
        allowed = f"an agent with {MIN_CANARIES} rows or more, for as many canaries"
        where = "agent" if enough.any() else "problem.data"
        raise InputError(f"{where}: agent {agent} has {rows} rows; allowed: {allowed}")
    return agent


def _staged(
    simulation: Simulation, of: Canaries, who: Adversary, delta: float
) -> tuple[Game, AuditedPlay]:
    """The game, and what claims are about: releases of a play on reference data."""
    reference = planted(simulation, of, np.ones(len(of), bool))
    releases, events = tables_of(reference)
    ids, whole, _ = shown(releases, events, who, of.agent)
    if not ids:
        raise InputError(f"view: {who} sees no release of agent {of.agent}")
    reading: Reading = "model" if who.kind == "final-model" else "all" if whole else "some"
    audited = AuditedPlay(reference, releases, events, of.agent, str(who), delta)
    return Game(simulation, of, reading, ids), audited
