"""Fair classification on Adult: which methods, budgets and attributes are played, and how.

A data set is a random split of Adult, 80 % for training, and its noise. The data are prepared once
for each and all settings are played on them. printed: as in the dissertation; corrected: exact
penalty, a public zbar, noise for the sensitivity of the unit ball.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.metrics import Metrics
from desim.engine.play import Simulation
from desim.methods.shared.declarations import Ingredients
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.ledger.ledger import Mechanism
from desim.privacy.ledger.mechanisms import Allotted
from desim.problem.optimum import centralised_optimum
from desim.scenario import registry

EPSILONS = (0.01, 10**-1.5, 0.1, 1.0, 10**0.5, 10.0)
DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
DELTA = 1e-3
LESS = 0.1  # epsilon_s / epsilon, of which the dissertation says nothing
ZBAR = 0.68  # men among the records, taken as public
ATTRIBUTES = ("marital-status", "age", "relationship", "race")
METRICS = ("accuracy", "risk_difference", "positive_rate")
SHIFTED = {"penalty": "shifted", "sensitivity": "printed"}
ROWS = {"penalty": "shifted-rows", "sensitivity": "printed"}
PRINTED = {"penalty": "printed", "sensitivity": "printed"}
CORRECTED = {"zbar": ZBAR}


@dataclass(frozen=True)
class Setting:
    """One method with its budget (epsilon 0: no noise) and special attribute, if it has one."""

    label: str
    method: str
    variant: str
    epsilon: float = 0.0
    delta: float = 0.0
    x_s: str = ""
    keys: tuple[tuple[str, Any], ...] = ()

    @property
    def noise(self) -> Allotted | None:
        """Noise for the budget; printed: n gets what s leaves, as Theorem 18 counts it."""
        if not self.epsilon:
            return None
        delta = self.delta or None
        if not self.x_s:
            return Allotted(epsilon=self.epsilon, delta=delta)
        small, half = LESS * self.epsilon, delta and 0.5 * delta
        if self.variant == "printed":
            return Allotted(epsilon=self.epsilon, epsilon_s=small, delta=delta, delta_s=half)
        return Allotted(epsilon_s=small, epsilon_n=self.epsilon, delta_s=delta, delta_n=delta)

    def on(self, made: Simulation) -> Simulation:
        """The simulation with this method and noise in place of its own."""
        method = registry.get(self.method)
        given = dict(self.keys) | ({"x_s": self.x_s} if self.x_s else {})
        parameters = method.Parameters.model_validate(given)
        return replace(made, method=method(Ingredients(parameters, made.settings, self.noise)))

    def rigorous(self, made: Simulation) -> float:
        """Epsilon that holds, at DELTA where noise is Gaussian."""
        terms = self.on(made).method.planned(1)
        if terms.mechanism is Mechanism.NONE:
            return float("inf")
        ratio = float((terms.sensitivity / terms.scale)[0])
        gaussian = terms.mechanism is Mechanism.GAUSSIAN
        return float(epsilon_of(ratio, self.delta)) if gaussian else ratio


def settings() -> list[Setting]:
    """All that is played, LR first."""
    return [Setting("LR", "", "no privacy"), *_functional(), *_fair()]


def _functional() -> Iterator[Setting]:
    name, printed = "functional-mechanism", (("sensitivity", "printed"),)
    yield Setting("No-Privacy", name, "no privacy")
    for variant, keys in (("printed", printed), ("corrected", ())):
        for epsilon in EPSILONS:
            yield Setting("FM", name, variant, epsilon, keys=keys)
        for epsilon in EPSILONS:
            for delta in DELTAS if epsilon == EPSILONS[0] else DELTAS[:1]:
                yield Setting("relaxed FM", name, variant, epsilon, delta, keys=keys)


def _fair() -> Iterator[Setting]:
    def keys(given: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple(given.items())

    yield Setting("PFLR, no noise", "pflr", "printed", keys=keys(PRINTED))
    yield Setting("PFLR, no noise", "pflr", "corrected", keys=keys(CORRECTED))
    for epsilon in EPSILONS:
        yield Setting("PFLR*", "pflr", "printed", epsilon, keys=keys(SHIFTED))
        yield Setting("PFLR* by rows", "pflr", "printed", epsilon, keys=keys(ROWS))
        yield Setting("PFLR", "pflr", "corrected", epsilon, keys=keys(CORRECTED))
        for x_s in ATTRIBUTES:
            for variant, given in (("printed", PRINTED), ("corrected", CORRECTED)):
                place = variant, epsilon
                yield Setting("PDFC", "pdfc", *place, x_s=x_s, keys=keys(given))
                yield Setting("ADFC", "adfc", *place, DELTA, x_s, keys(given))


class Final:
    """A sink that keeps the last value of each metric."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Take rows of a table, in order of time."""
        if name == "metrics":
            self.values.update(zip(columns["metric"], columns["value"], strict=True))


def outcomes(made: Simulation) -> Array:
    """METRICS (settings, metrics) of the final models on one data set."""
    return np.array([_outcome(one, made) for one in settings()])


def _outcome(setting: Setting, made: Simulation) -> list[float]:
    if not setting.method:
        best = centralised_optimum(made.problem, None).x
        measured = Metrics(made.problem, METRICS, None)
        return [measured.network(name, best[None], best) for name in METRICS]
    kept = Final()
    setting.on(made).play(kept)
    return [kept.values[name] for name in METRICS]
