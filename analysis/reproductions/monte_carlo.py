"""Studies over many data sets: one number per data set and case, in two processes.

A data set is a seed: it draws rows, start, participation and noise. Seeds 1, 2, ... are reported;
what is tuned is tuned on seeds from 1001 on.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import desim
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.methods.shared.declarations import Ingredients
from desim.scenario.build import build

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios" / "papers"
SETS = 100
TUNING = range(1001, 1011)
WINDOW = (1e-2, 1e-10)  # of e_k / e_0, where the rate is measured
CHUNK = 10  # data sets that a process plays at a time
SETTLED = 16  # rounds, the last of a run, whose mean error is the floor of a noisy method


@dataclass(frozen=True)
class Case:
    """scenarios/papers/`file`.yaml with dotted overrides, but for the seed.

    step: the step of local training as a function of the method's LocalTraining on the data set.
    """

    file: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    step: Callable[[Any], float] | None = None


Measure = Callable[[Simulation], float | tuple[float, ...]]


def share_of_auto(share: float) -> Callable[[Any], float]:
    """A step that is `share` times the automatic one of the data set."""
    return partial(_times, share)


def _times(share: float, local: Any) -> float:
    return float(share * np.max(local.gamma))


def one_over_smoothness(local: Any) -> float:
    """The step 1 / smoothness of what the agents minimise, the proximal term included."""
    return float(1.0 / np.max(local.hi))


def simulations(case: Case, seeds: Sequence[int]) -> Iterator[Simulation]:
    """What `case` is on each data set, ready to be played."""
    scenario = desim.load(SCENARIOS / f"{case.file}.yaml", case.overrides)
    for seed in seeds:
        made = build(scenario.model_copy(update={"seed": seed}))
        yield made if case.step is None else _with_step(made, case.step(made.method.local))


def _with_step(made: Simulation, step: float) -> Simulation:
    """The same simulation with another step of local training."""
    method = made.method
    local = method.parameters.local.model_copy(update={"step": step / method.local.unit})
    parameters = method.parameters.model_copy(update={"local": local})
    changed = type(method)(Ingredients(parameters, made.settings, method.noise))
    return replace(made, method=changed)


class Errors(Discard):
    """A sink that keeps the metric `error` of the whole network and nothing else."""

    def __init__(self) -> None:
        self._parts: list[Array] = []

    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Take rows of a table."""
        if name == "metrics":
            network = np.asarray(columns["agent"]) < 0
            self._parts.append(np.asarray(columns["value"], float)[network])

    @property
    def values(self) -> Array:
        """sum_i ||x_i - x*||^2 / ||x*||^2 after rounds 0, 1, ... (rounds + 1,)."""
        return np.concatenate(self._parts)


def rate(made: Simulation) -> float:
    """Convergence rate of a simulation: mean of e_{k+1} / e_k over its tail; inf if it diverges."""
    return float(_tail_of(made).mean())


def both_rates(made: Simulation) -> tuple[float, float]:
    """The rate, and the geometric mean of the same ratios: smaller where the error oscillates."""
    ratio = _tail_of(made)
    return float(ratio.mean()), float(np.exp(np.log(ratio).mean()))


def checked_rates(made: Simulation) -> tuple[float, float, float]:
    """`both_rates`, and the rate over the later half of the tail: near the first if it settled."""
    ratio = _tail_of(made)
    late = ratio[len(ratio) // 2 :]
    return float(ratio.mean()), float(np.exp(np.log(ratio).mean())), float(late.mean())


def _tail_of(made: Simulation) -> Array:
    errors = Errors()
    if made.play(errors).status != "done":
        return np.array([np.inf])
    return tail(np.sqrt(errors.values))


def tail(e: Array) -> Array:
    """Ratios e_{k+1} / e_k of the tail: where WINDOW holds, else the second half of the run.

    e (rounds + 1,) are distances ||x_k - x*|| of all agents' models from the optimum. Runs that do
    not come down to the window's end are slow: their second half is all there is. inf where a
    distance is not finite.
    """
    if not np.isfinite(e).all():
        return np.array([np.inf])
    e = e / e[0]
    ratio = e[1:] / e[:-1]
    if e[-1] > WINDOW[1]:
        return np.asarray(ratio[len(ratio) // 2 :])
    return np.asarray(ratio[(e[:-1] < WINDOW[0]) & (e[1:] > WINDOW[1])])


def floor(made: Simulation) -> float:
    """RMS distance of an agent's model from the optimum, mean of the last SETTLED rounds."""
    errors = Errors()
    if made.play(errors).status != "done":
        return float("inf")
    optimum = np.asarray(made.observation.optimum)
    scale = np.sqrt(optimum @ optimum / made.problem.agents)
    return float(scale * np.sqrt(errors.values[-SETTLED:]).mean())


class MonteCarlo:
    """Plays cases on data sets; a context that owns its processes (1: this one alone)."""

    def __init__(self, processes: int = 2) -> None:
        self.processes = processes
        self._pool: Pool | None = None

    def __enter__(self) -> "MonteCarlo":
        if self.processes > 1:
            os.environ["DESIM_THREADS"] = "1"  # each process has its own core
            self._pool = multiprocessing.get_context("spawn").Pool(self.processes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def values(
        self,
        cases: Mapping[Any, Case],
        seeds: Sequence[int],
        measure: Measure = rate,
        chunk: int = CHUNK,
    ) -> dict[Any, Array]:
        """`measure` (seeds, ...) of every case; no value depends on the number of processes.

        chunk: seeds that a process plays at a time.
        """
        starts = range(0, len(seeds), chunk)
        tasks = [(measure, one, seeds[i : i + chunk]) for one in cases.values() for i in starts]
        played = iter(self._pool.imap(_play, tasks) if self._pool else map(_play, tasks))
        return {name: np.concatenate([next(played) for _ in starts]) for name in cases}


def _play(task: tuple[Measure, Case, Sequence[int]]) -> Array:
    measure, case, seeds = task
    return np.array([measure(made) for made in simulations(case, seeds)])


def reported(sets: int) -> range:
    """The seeds that are reported."""
    return range(1, sets + 1)


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean over data sets, and its standard error (nan for one set or an infinite value)."""
    if len(values) < 2 or not np.isfinite(values).all():
        return float(values.mean()), float("nan")
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
