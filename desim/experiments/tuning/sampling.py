"""Who proposes candidates: at random, all of a grid, or a sampler of Optuna that learns.

A batch has as many candidates as the file says, whatever the number of workers, and a sampler
learns how they fared in their order: so the same file gives the same candidates in the same order.
"""

import itertools
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from desim.arrays import Array
from desim.numerics.later import Later
from desim.scenario.study_file import Tune
from desim.scenario.varied import Range, Vary

TRIES = 1000  # draws in a row that were all known before a sampler has nothing more to say

Values = dict[str, Any]


class Sampler(Protocol):
    """What proposes candidates and is told how they fared."""

    def ask(self, count: int) -> list[Values]:
        """At most so many candidates that were not proposed before; none: there are no more."""

    def tell(self, scores: Sequence[Array | None]) -> None:
        """What the latest candidates needed (goals,) each, in order; None where none could be."""


def size(vary: Vary) -> float:
    """How many candidates there are; inf where a range has no steps."""
    total = 1.0
    for one in vary.values():
        if isinstance(one, Range):
            total *= one.high - one.low + 1 if one.kind == "integer" else np.inf
        else:
            total *= len(one)
    return total


def at(vary: Vary, shares: Mapping[str, float]) -> Values:
    """The values at a share in [0, 1) of each key's list or range."""
    return {
        key: one.at(shares[key]) if isinstance(one, Range) else one[int(shares[key] * len(one))]
        for key, one in vary.items()
    }


class Random:
    """Candidates drawn alike and independently; the n-th depends on seed, n and its keys alone.

    again: whether one that was drawn before is proposed once more.
    """

    def __init__(self, vary: Vary, seed: int, again: bool = False) -> None:
        self.vary, self.seed, self.again = vary, seed, again
        self.drawn = 0
        self.known: set[str] = set()

    def ask(self, count: int) -> list[Values]:
        """New candidates."""
        found: list[Values] = []
        tries = 0
        while len(found) < count and tries < TRIES and len(self.known) < size(self.vary):
            values = at(self.vary, self._shares())
            tries += 1
            if repr(values) not in self.known:
                self.known |= set() if self.again else {repr(values)}
                found.append(values)
                tries = 0
        return found

    def _shares(self) -> dict[str, float]:
        draws = {
            key: np.random.default_rng([self.seed, self.drawn, zlib.crc32(key.encode())])
            for key in self.vary
        }
        self.drawn += 1
        return {key: float(rng.random()) for key, rng in draws.items()}

    def tell(self, scores: Sequence[Array | None]) -> None:
        """Nothing is learnt."""


class Grid:
    """All combinations of lists and of ranges of whole numbers."""

    def __init__(self, vary: Vary) -> None:
        self.left: Iterator[tuple[Any, ...]] = itertools.product(*map(steps, vary.values()))
        self.keys = list(vary)

    def ask(self, count: int) -> list[Values]:
        """The next combinations, in the order of the file."""
        some = itertools.islice(self.left, count)
        return [dict(zip(self.keys, values, strict=True)) for values in some]

    def tell(self, scores: Sequence[Array | None]) -> None:
        """Nothing is learnt."""


def steps(one: Any) -> Sequence[Any]:
    """Every value of a list or of a range of whole numbers."""
    if isinstance(one, Range):
        return [one.written(number) for number in range(int(one.low), int(one.high) + 1)]
    return tuple(one)


# Samplers of Optuna, which no other module names.
optuna: Any = Later("optuna")
KNOWN = 20  # proposals that were known before, for each new one, until candidates are drawn
WORST = 10.0  # times the largest finite number so far: what was never reached, for Optuna


class Learning:
    """A sampler of Optuna that is asked for a batch, then told how it fared."""

    def __init__(self, tune: Tune) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.vary, goals = tune.vary, len(tune.least)
        self.study = optuna.create_study(
            sampler=_sampler(tune), directions=["minimize"] * goals, study_name="desim"
        )
        self.scores: dict[str, Array | None] = {}
        self.asked: list[tuple[Any, str]] = []
        self.spare = Random(tune.vary, tune.seed or 0)
        self.largest = np.ones(goals)

    def ask(self, count: int) -> list[Values]:
        """New candidates; where the sampler has none left to say, drawn at random."""
        found: list[Values] = []
        tries = 0
        while len(found) < count and tries < KNOWN * count:
            trial = self.study.ask()
            values = self._values(trial)
            tries += 1
            name = repr(values)
            if name in self.spare.known:
                self._learn(trial, self.scores.get(name))
                continue
            self.spare.known.add(name)
            self.asked.append((trial, name))
            found.append(values)
        more = self.spare.ask(count - len(found))
        for values in more:
            self.study.enqueue_trial({key: self._number(key, one) for key, one in values.items()})
            self._values(trial := self.study.ask())
            self.asked.append((trial, repr(values)))
        return found + more

    def _number(self, key: str, value: Any) -> Any:
        one = self.vary[key]
        if not isinstance(one, Range):
            return one.index(value)
        return float(value.split()[0]) if isinstance(value, str) else value

    def tell(self, scores: Sequence[Array | None]) -> None:
        """What the candidates of the latest batch needed."""
        for (trial, name), score in zip(self.asked, scores, strict=True):
            self.scores[name] = score
            self._learn(trial, score)
        self.asked = []

    def _learn(self, trial: Any, score: Array | None) -> None:
        if score is None:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        finite = np.isfinite(score)
        self.largest = np.where(finite, np.maximum(self.largest, np.where(finite, score, 0)),
                                self.largest)  # fmt: skip
        self.study.tell(trial, [float(x) for x in np.where(finite, score, WORST * self.largest)])

    def _values(self, trial: Any) -> Values:
        return {key: _suggested(trial, key, one) for key, one in self.vary.items()}


def _suggested(trial: Any, key: str, one: Any) -> Any:
    """A value of a key; of a list of numbers in order, neighbours are taken for similar."""
    if isinstance(one, Range):
        if one.kind == "integer":
            return one.written(trial.suggest_int(key, int(one.low), int(one.high)))
        log = one.kind == "log_uniform"
        return one.written(trial.suggest_float(key, one.low, one.high, log=log))
    if ordered(one):
        return one[trial.suggest_int(key, 0, len(one) - 1)]
    return one[trial.suggest_categorical(key, range(len(one)))]


def ordered(values: Sequence[Any]) -> bool:
    """Whether values are numbers that rise or fall."""
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return False
    return list(values) in (sorted(values), sorted(values, reverse=True))


def _sampler(tune: Tune) -> Any:
    samplers = optuna.samplers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if tune.sampler == "tpe":
            return samplers.TPESampler(seed=tune.seed, constant_liar=True, multivariate=True,
                              n_startup_trials=2 * tune.batch)  # fmt: skip
        if tune.sampler == "nsga2":
            return samplers.NSGAIISampler(seed=tune.seed, population_size=2 * tune.batch)
        return samplers.CmaEsSampler(seed=tune.seed, n_startup_trials=tune.batch,
                            warn_independent_sampling=False)  # fmt: skip
