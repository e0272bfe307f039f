"""Samplers of Optuna: the only module that knows it."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, NSGAIISampler, TPESampler
from optuna.trial import Trial, TrialState

from desim.arrays import Array
from desim.experiments.studies.ranges import Range
from desim.experiments.studies.tuner import Tune
from desim.experiments.tuning.sampling import Random, Values

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
        self.asked: list[tuple[Trial, str]] = []
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
                self._told(trial, self.scores.get(name))
                continue
            self.spare.known.add(name)
            self.asked.append((trial, name))
            found.append(values)
        more = self.spare.ask(count - len(found))
        self.asked += [(self._enqueued(values), repr(values)) for values in more]
        return found + more

    def _enqueued(self, values: Values) -> Trial:
        """A trial with these values."""
        self.study.enqueue_trial({key: self._number(key, one) for key, one in values.items()})
        trial = self.study.ask()
        self._values(trial)
        return trial

    def _number(self, key: str, value: Any) -> Any:
        one = self.vary[key]
        if not isinstance(one, Range):
            return one.index(value)
        return float(value.split()[0]) if isinstance(value, str) else value

    def tell(self, scores: Sequence[Array | None]) -> None:
        """What the candidates of the latest batch needed."""
        for (trial, name), score in zip(self.asked, scores, strict=True):
            self.scores[name] = score
            self._told(trial, score)
        self.asked = []

    def _told(self, trial: Trial, score: Array | None) -> None:
        if score is None:
            self.study.tell(trial, state=TrialState.FAIL)
            return
        finite = np.isfinite(score)
        self.largest = np.where(finite, np.maximum(self.largest, np.where(finite, score, 0)),
                                self.largest)  # fmt: skip
        self.study.tell(trial, [float(x) for x in np.where(finite, score, WORST * self.largest)])

    def _values(self, trial: Trial) -> Values:
        return {key: _suggested(trial, key, one) for key, one in self.vary.items()}


def _suggested(trial: Trial, key: str, one: Any) -> Any:
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


def _sampler(tune: Tune) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if tune.sampler == "tpe":
            return TPESampler(seed=tune.seed, constant_liar=True, multivariate=True,
                              n_startup_trials=2 * tune.batch)  # fmt: skip
        if tune.sampler == "nsga2":
            return NSGAIISampler(seed=tune.seed, population_size=2 * tune.batch)
        return CmaEsSampler(seed=tune.seed, n_startup_trials=tune.batch,
                            warn_independent_sampling=False)  # fmt: skip
