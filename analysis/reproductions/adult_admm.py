"""Private ADMM on Adult: settings of methods, their noise for an epsilon, and what they reach.

A data set is a seed: it splits the rows, deals them to five agents and draws the noise. It is built
once, and all settings are played on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from analysis.reproductions.monte_carlo import (
    Case,
    MonteCarlo,
    mean_and_error,
    simulations,
)
from desim.arrays import Array
from desim.columns import columns_of
from desim.engine.play import Simulation
from desim.methods.shared.declarations import Ingredients
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.accounting.loss_distribution import epsilon_pld
from desim.privacy.accounting.prices import epsilon_of_divergences, prices, tallies
from desim.privacy.ledger.ledger import MECHANISMS, Terms
from desim.privacy.ledger.mechanisms import Gaussian, L2Laplace
from desim.scenario import registry

DELTA = 1e-4
ETAS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # tried on data sets of their own
TUNED_ON = range(1001, 1002)
TOLERANCE = 1e-7
ETA = 0.5  # as printed
BASELINES: dict[str, dict[str, float]] = {
    "dvp": {"rho": ETA}, "m-admm": {"eta": ETA, "growth": 1.02},
    "r-admm": {"eta": ETA, "gamma": 0.1},
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One method with all that it needs; sigma 0: no noise, nan: to be found for `epsilon`."""

    figure: str
    variant: str
    method: str
    epsilon: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    schedule: Mapping[str, Any] = field(default_factory=dict)
    sigma: float = float("nan")
    varied: str = ""

    def made(self, base: Simulation, sigma: float | None = None) -> Simulation:
        """This method on the data set of `base`."""
        kind = registry.get(self.method)
        rough = {} if self.method in ("pp-admm", "ipp-admm") else {"tolerance": TOLERANCE}
        parameters = kind.Parameters.model_validate({**rough, **self.parameters})
        deviation = self.sigma if sigma is None else sigma
        law = L2Laplace if self.method in ("dvp", "m-admm", "r-admm") else Gaussian
        noise = law(deviation, **self.schedule) if deviation > 0.0 else None
        method = kind(Ingredients(parameters, base.settings, noise))
        watched = replace(base.observation, metrics=(), iterates=True)
        return replace(base, method=method, observation=watched)


def baselines(figure: str, variant: str, epsilon: float) -> list[Setting]:
    """The methods without a chapter of their own; their noise is always found."""
    return [
        Setting(figure, variant, method, epsilon, {**own, "norm": 1.0})
        for method, own in BASELINES.items()
    ]


def releases(method: Any, rounds: int) -> list[Terms]:
    """What every agent releases in a run, at most."""
    everybody = np.arange(method.problem.agents)
    if method.name not in ("pp-admm", "ipp-admm"):
        return [method.planned(k) for k in range(1, rounds + 1)]
    objective, solution = (f(everybody, 1) for f in (method.cost.objective, method.cost.solution))
    if method.name == "pp-admm":
        return [objective, solution] * rounds
    c, every = method.parameters.c, rounds
    asked, threshold = method.svt.terms(everybody)
    answer = replace(asked, scale=np.maximum(asked.scale, threshold))  # each of the two would do
    return [answer] * every + [objective] * (c if method.fresh else every) + [solution] * c


def rigorous(method: Any, rounds: int) -> float:
    """Epsilon at DELTA of all that agent 0 may release; all agents have as many rows and edges."""
    if method.noise is None:
        return np.inf
    terms = releases(method, rounds)
    table = pd.DataFrame(
        {
            "agent": 0,
            "mechanism": pd.Categorical([str(MECHANISMS[one.mechanism]) for one in terms]),
            "sensitivity": [one.sensitivity[0] for one in terms],
            "scale": [one.scale[0] if one.scale[0] > 0.0 else 1.0 for one in terms],
            "sampling": np.nan,
        }
    )
    table["mechanism"] = table["mechanism"].astype(str).where(table.sensitivity > 0.0, "gaussian")
    paid = prices(columns_of(table), method.problem.rows)
    if paid.gaussian.all():
        return float(epsilon_of(np.sqrt(paid.mu2.sum()), DELTA))
    bound = epsilon_of_divergences(paid.divergences().sum(axis=0), DELTA)
    sharp = epsilon_pld(tallies(paid, np.zeros(len(table), np.int64)).get(0), DELTA)
    return float(np.fmin(bound, sharp))  # nan: not known


def calibrated(base: Simulation, setting: Setting) -> Setting:
    """The setting with the least noise for which epsilon holds."""
    rounds = int(base.settings.rounds)

    def excess(logarithm: float) -> float:
        method = setting.made(base, float(np.exp(logarithm))).method
        return float(np.log(max(rigorous(method, rounds), 1e-300) / setting.epsilon))

    return replace(setting, sigma=float(np.exp(brentq(excess, -14.0, 9.0, xtol=1e-4))))


def outcomes(settings: Sequence[Setting], base: Simulation) -> tuple[float, ...]:
    """For each setting: accuracy on test and training rows, average loss after each round."""
    found: list[float] = []
    for setting in settings:
        made = setting.made(base)
        iterates = np.asarray(made.play(cast(Any, _Nowhere())).iterates)
        found += reached(made.problem, iterates)
    return tuple(found)


class _Nowhere:
    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Keep nothing."""


def reached(problem: Any, iterates: Array) -> list[float]:
    """Accuracy on test and training rows of the last of iterates (n, agents, dim), loss of each."""
    last = iterates[-1].T  # (dim, agents)
    test = np.mean((problem.test_A @ last >= 0.0) == (problem.test_b[:, None] > 0.0))
    train = np.mean((problem.A @ last >= 0.0) == (problem.b[:, None] > 0.0))
    loss = np.zeros(len(iterates))
    for i in range(problem.agents):
        rows = slice(problem.start[i], problem.start[i + 1])
        margins = problem.b[rows, None] * (problem.A[rows] @ iterates[:, i].T)
        loss += np.logaddexp(0.0, -margins).mean(axis=0) / problem.agents
    return [float(test), float(train), *loss.tolist()]


def study(
    monte_carlo: MonteCarlo, file: str, settings: Sequence[Setting], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """One row for each setting: means over data sets with standard errors, and what holds."""
    base = next(simulations(Case(file), [1]))
    rounds = int(base.settings.rounds)
    due = [calibrated(base, one) if np.isnan(one.sigma) else one for one in settings]
    measure = cast(Any, partial(outcomes, due))
    values = monte_carlo.values({"all": Case(file)}, seeds, measure, 1)["all"]
    values = values.reshape(len(seeds), len(due), -1)
    rows = []
    for number, one in enumerate(due):
        mine, holds = values[:, number], rigorous(one.made(base).method, rounds)
        row = {
            "figure": one.figure, "variant": one.variant, "method": one.method,
            "varied": one.varied, "epsilon": one.epsilon, "rigorous": holds,
            "eta": one.parameters[_letter(one)], "sigma": one.sigma,
        }  # fmt: skip
        for place, name in ((0, "test"), (1, "train"), (-1, "loss")):
            row[name], row[f"{name}_se"] = mean_and_error(mine[:, place])
        row["losses"] = " ".join(f"{one:.9g}" for one in mine[:, -1])
        curve = {f"loss_{k}": float(mine[:, 2 + k].mean()) for k in range(rounds + 1)}
        rows.append({**row, "sets": len(seeds), **curve})
    return rows


def tuned(
    monte_carlo: MonteCarlo, file: str, settings: Sequence[Setting], etas: Sequence[float] = ETAS
) -> list[Setting]:
    """Every setting with that penalty of `etas` whose loss at the end is least, on other data sets.

    Its noise is still to be found for its epsilon.
    """
    tried = [
        replace(one, parameters={**one.parameters, _letter(one): eta})
        for one in settings
        for eta in etas
    ]
    rows = study(monte_carlo, file, tried, TUNED_ON)
    losses = np.array([row["loss"] for row in rows]).reshape(len(settings), len(etas))
    best = losses.argmin(axis=1)
    return [tried[n * len(etas) + int(k)] for n, k in enumerate(best)]


def _letter(setting: Setting) -> str:
    return "rho" if setting.method == "dvp" else "eta"
