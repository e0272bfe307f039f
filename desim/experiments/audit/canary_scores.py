"""One run on canaries, and for every canary how much the run looks like its first record.

With r what the run shows less what reference data would have shown, D (m, numbers) the effect of
every canary on it and s the noise, the scores are the best linear guess of the coins, each worth
-1/2 or 1/2: (D D' / s^2 + 4 I)^-1 D r / s^2. Any score is sound; this one is good where canaries
are not orthogonal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.errors import InputError, RunError
from desim.experiments.audit.canaries import Canaries, Coins, fair_coins, planted, seed_of
from desim.experiments.audit.evidence import rounded
from desim.experiments.audit.pairs import completed, noised, unobserved
from desim.experiments.audit.transcript import Transcript, said_last

Reading = Literal["all", "some", "model"]
Tell = Callable[[int, int], None]
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
    parts = [*_releases(game, transcript), *_messages(game, transcript)]
    joined = (np.concatenate([np.zeros(0), *(part[k] for part in parts)]) for k in range(3))
    return transcript, Shown(*joined)


def _releases(game: Game, transcript: Transcript) -> list[tuple[Array, Array, Array]]:
    return [
        (batch.output[r], batch.value[r], np.full(batch.output.shape[1], batch.scale[r]))
        for batch in transcript.releases
        for r in np.flatnonzero((batch.who == game.canaries.agent) & (batch.release >= 0))
        if (game.reading == "all" or int(batch.release[r]) in game.seen)
        and int(batch.release[r]) not in transcript.kept
    ]


def _messages(game: Game, transcript: Transcript) -> list[tuple[Array, Array, Array]]:
    if game.reading != "all":
        return []
    return [
        (batch.payload[r], batch.payload[r], np.zeros(batch.payload.shape[1]))
        for batch in transcript.messages
        for r in np.flatnonzero(batch.who == game.canaries.agent)
    ]


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
