"""What a step of an agent costs: rows, operations and memory, and how long it takes here."""

import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError, refusal, show
from desim.numerics.jit import one_blas_thread, one_thread
from desim.numerics.plain import at_once, when
from desim.problem.kernels.gradients import batch_gradient
from desim.problem.losses.layers import LayeredLoss
from desim.problem.losses.model_loss import ModelLoss
from desim.problem.models.user_model import Model, Rows
from desim.problem.problem import Problem

PASS = 2  # operations of a parameter and a row in one pass: a multiplication and an addition


def batch_of(parameters: Any) -> int | None:
    """Rows of a batch by a method's parameters; None for all that an agent has."""
    local = getattr(parameters, "local", None)
    found = getattr(parameters if local is None else local, "batch", None)
    return found if isinstance(found, int) else None


def step_rows(problem: Problem, batch: int | None) -> NDArray[np.int64]:
    """Rows (agents,) in a step of each agent."""
    return problem.rows if batch is None else np.minimum(problem.rows, batch)


def operations(problem: Problem) -> float:
    """Floating point operations of the gradient of one row; 0 where nobody counts them.

    Two passes over a first layer, three over later ones, of which one is for what is below. What
    works number by number does not count.
    """
    loss, features = problem.loss, int(np.prod(problem.A.shape[1:]))
    if isinstance(loss, ModelLoss):
        return _number(loss, "flops", loss.model.flops(1))
    if not isinstance(loss, LayeredLoss):
        return 2.0 * PASS * features
    first, later = (loss.hidden, loss.hidden * loss.classes) if loss.hidden else (loss.classes, 0)
    return float(2 * PASS * features * first + 3 * PASS * later)


def memory(problem: Problem, batch: int | None) -> Array:
    """Bytes (agents,) that a step needs at least: parameters, a gradient, and a batch of rows.

    Of a layered model also its units; of a user's model what it tells itself.
    """
    rows = step_rows(problem, batch)
    loss, features = problem.loss, int(np.prod(problem.A.shape[1:]))
    sizes, place = np.unique(rows, return_inverse=True)
    if isinstance(loss, ModelLoss):
        model, cut = loss.model, problem.clipped
        amounts = [_number(loss, "memory", model.memory(int(m), cut)) for m in sizes]
        return np.array(amounts)[place]
    units = loss.hidden + loss.classes if isinstance(loss, LayeredLoss) else 1
    size = np.dtype(problem.precision).itemsize
    return np.asarray(size * (2 * problem.dim + rows * (features + units)), float)


def _number(loss: ModelLoss, what: str, found: Any) -> float:
    """What a model of a user's says; InputError unless that is a number >= 0."""
    real = isinstance(found, int | float | np.integer | np.floating)
    if not real or not 0.0 <= found < np.inf:
        text = f"{what} returned {show(found)}; allowed: a finite number >= 0"
        raise InputError(f"problem.model: {loss.name}: {text}")
    return float(found)


# How fast this machine takes a step: by one thread, compiled, after warming up.
Clock = Callable[[], float]
WARM, LEAST, STEP_LIMIT = 10, 5, 300  # steps that are not timed, and that are, if these are short
LONG = 1.0  # s after which no other step is timed, nor warms up
SHORT = 2e-3  # s that a call of a kernel lasts at least, which takes many steps for that
TOGETHER = 1 << 14  # of them, at most
TO_DEVIATION = 1.4826  # from a median deviation to a standard one, of normal numbers


class Speed(NamedTuple):
    """Gradients of one row per second; the relative spread of a step; its rows; how many; where."""

    rate: float
    spread: float
    batch: int
    steps: int
    machine: str


def speed_here(problem: Problem, batch: int | None, clock: Clock = perf_counter) -> Speed:
    """Time steps of the agent whose rows are the median; batch: rows of a step, None for all.

    InputError for desim's own losses where nothing is compiled: that would be another number.
    """
    rows = step_rows(problem, batch)
    agent = int(np.argsort(rows, kind="stable")[len(rows) // 2])
    model = problem.loss.model if isinstance(problem.loss, ModelLoss) else None
    if model is None and when() == "never":
        allowed = "later or at-once, as what compute.speed: measured times is compiled code"
        raise InputError(f"DESIM_COMPILE: {refusal('never', allowed)}")
    m = int(rows[agent])
    with one_blas_thread(), one_thread(), at_once() if model is None else model.computing():
        if model is None:
            step, many = _kernel_steps(problem, agent, m, clock)
        else:
            step, many = _model_step(problem, model, agent, m), 1
        took = _timed(step, clock)
    middle = float(np.median(took))
    spread = TO_DEVIATION * float(np.median(np.abs(took - middle))) / middle
    rate = m * many / middle
    return Speed(float(f"{rate:.4g}"), float(f"{spread:.2g}"), m, len(took), machine(problem))


def _timed(step: Callable[[], object], clock: Clock) -> np.ndarray:
    """Seconds (n,) of steps."""
    begin = clock()
    for _ in range(WARM):
        step()
        if clock() - begin > LONG:
            break
    took, begin = list[float](), clock()
    while len(took) < LEAST or (len(took) < STEP_LIMIT and clock() - begin < LONG):
        before = clock()
        step()
        took.append(clock() - before)
    return np.maximum(took, 1e-9)


def _model_step(problem: Problem, model: Model, agent: int, m: int) -> Callable[[], object]:
    """The gradient of a user's model at its start, as one agent computes it."""
    low = int(problem.start[agent])
    x = model.initial(model.facts.seed).astype(problem.precision)
    batch = Rows(problem.A[low : low + m], problem.b[low : low + m], np.uint64(0))
    return lambda: model.alone(x, batch, problem.clip)


def _kernel_steps(
    problem: Problem, agent: int, m: int, clock: Clock
) -> tuple[Callable[[], object], int]:
    """So many gradients of desim's own in one call that what a call costs besides is little."""
    many = 1
    while True:
        who = np.full(many, agent)
        x, round_ = np.zeros((many, problem.dim)), np.arange(many)

        def step(who: np.ndarray = who, x: np.ndarray = x, round_: np.ndarray = round_) -> object:
            return batch_gradient(who, x, m, round_, 0, problem.data)

        step()
        before = clock()
        step()
        if clock() - before >= SHORT or many >= TOGETHER:
            return step, many
        many *= 4


def machine(problem: Problem) -> str:
    """The processor, the system, and what computes: a measured number means nothing without."""
    libraries, where = {"numba": version("numba")}, "cpu"
    if isinstance(problem.loss, ModelLoss):
        libraries = problem.loss.recorded["libraries"]
        where = problem.loss.facts.device if problem.loss.facts else where
    by = ", ".join(f"{name} {number}" for name, number in libraries.items())
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    cores = f"{os.cpu_count()} cores"
    return f"{_processor()}, {cores}, {system}; {by}; {problem.precision} on {where}, 1 thread"


def _processor() -> str:
    """Its name, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "a processor without a name"
