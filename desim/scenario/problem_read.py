"""The problem of a scenario, with its rows read, bounded and dealt, and where iterates start."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from desim.arrays import Array
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.problem.data import Change, Shards, read
from desim.problem.data.table import bounded, guaranteed, shortened
from desim.problem.losses.model_loss import ModelLoss, loss_of
from desim.problem.losses.scalar import Loss
from desim.problem.models.augment import Augmentation, refuse_unsuited
from desim.problem.models.user_model import Facts, Rows
from desim.problem.problem import Problem, largest
from desim.readers import NUMBERS, npz_arrays, reading
from desim.scenario.harm import mislabelled
from desim.scenario.schema import Scenario
from desim.scenario.sections.data import Npz

INITIAL = ("x0", "z0")


def read_problem(
    scenario: Scenario, nodes: int | None, change: Change | None = None, known: Loss | None = None
) -> tuple[Problem, list[str]]:
    """The problem, and a warning where it is not that of the agents whose rows it has.

    nodes: agents of the topology, if it says so; change: as `desim.problem.data.read` has it;
    known: the loss of this problem without the change, whose model need not be made again.
    """
    section, method = scenario.problem, scenario.algorithm.method
    agents, precision = section.agents, arithmetic(scenario)
    if nodes is not None and agents is not None and agents != nodes:
        raise InputError(
            f"problem.agents: found {agents}; allowed: {nodes}, the agents of network.topology"
        )
    here, there = section.regularizers(method.has_prox)
    loss, merged = _loss(section), list[str]()
    central = method.kind == "central"
    if central:
        agents = None if isinstance(section.data, Npz) else 1
    shards = read(
        section.data,
        agents=agents if agents is not None else nodes,
        partition=section.partition,
        sizes=section.sizes,
        seed=scenario.seed,
        loss=loss,
        change=change,
    )
    if central:
        shards, merged = _merged(shards, section.average)
    shards, row_norm = _bounded(section, shards)
    if section.model is not None:
        kind = np.dtype(precision)
        shards = shards._replace(A=_typed(shards.A, kind), test_A=_typed(shards.test_A, kind))
    wanted = not (method.values_only or method.trains_itself)
    wanted = wanted or "gradient" in scenario.observe.metrics
    loss = _told(loss, section, shards, scenario.seed, precision, wanted, known)
    clip = np.inf if section.clip is None else section.clip
    problem = Problem(
        shards.A, shards.b, shards.start, loss, section.average, here, there, clip,
        shards.test_A, shards.test_b, shards.names, shards.protected, shards.test_protected,
        precision, shards.sites, row_norm, _changes(section, shards), shards.test_start,
    )  # fmt: skip
    if nodes is not None and problem.agents != nodes:
        raise InputError(
            f"problem.data: {problem.agents} agents hold data; allowed: {nodes}, the agents of "
            "network.topology"
        )
    return mislabelled(scenario, problem), merged


def arithmetic(scenario: Scenario) -> Literal["float64", "float32"]:
    """The type in which gradients are computed: with noise IEEE doubles, whatever is asked for.

    A parameter of size 1 is rounded by 6e-8 in singles, which decides by the data whether it goes
    up or down: the sensitivity of what noise is added to would be that of these steps, and of sums.
    """
    terms, local = scenario.privacy, getattr(scenario.algorithm.parameters, "local", None)
    noise = terms is not None and (terms.noise is not None or terms.target is not None)
    noise |= scenario.participation.losses is not None
    noise |= local is not None and "noisy" in local.solvers
    return "float64" if noise else scenario.problem.precision


def _loss(section: Any) -> Loss:
    """What is minimised, as far as the scenario says it."""
    if section.model is None:
        simple: Loss = section.loss.made()
        return simple
    return loss_of(section.model.of, section.model.parameters)


def _told(
    loss: Loss, section: Any, shards: Shards, seed: int, precision: Any, gradients: bool,
    known: Loss | None,
) -> Loss:  # fmt: skip
    """The loss once the data have told what they can: classes, and the shape of a row.

    gradients: whether anybody wants those of a user's model; known: as it may be already.
    """
    if not isinstance(loss, ModelLoss):
        return loss.with_classes(shards.b, shards.test_b)
    classes = 0
    if shards.b.dtype.kind in "iu" and shards.b.size:
        tested = () if shards.test_b is None else (shards.test_b,)
        classes = shards.classes or 1 + int(max(largest(one) for one in (shards.b, *tested)))
    facts = Facts(shards.A.shape[1:], classes, precision, section.device, seed)
    rows = Rows(shards.A[:8], shards.b[:8], np.uint64(seed))
    clip = np.inf if section.clip is None else section.clip
    if isinstance(known, ModelLoss) and known == replace(loss, facts=facts):
        return known.on_others(rows, clip, gradients)
    return loss.of_data(facts, rows, clip, gradients)


def _changes(section: Any, shards: Shards) -> tuple[Augmentation, ...]:
    """What is done to rows while they are trained on; InputError where they do not bear it."""
    changes = tuple(Augmentation(one.kind, float(one.value or 0)) for one in section.augment)
    refuse_unsuited(changes, shards.A.shape[1:], shards.A.dtype, int(np.diff(shards.start).max()))
    return changes


def _typed(A: Any, kind: Any) -> Any:
    """Inputs in the type of the model's arithmetic, but for whole numbers, such as tokens."""
    with np.errstate(over="ignore"):  # what becomes infinite is refused where all rows are
        return A if A is None or A.dtype.kind != "f" else A.astype(kind, copy=False)


def _merged(shards: Shards, average: str) -> tuple[Shards, list[str]]:
    """All rows as one agent's, and a warning where that makes it another objective."""
    blocks, warnings = len(shards.start) - 1, []
    if blocks > 1 and average == "mean":
        warnings.append(
            f"problem.average: mean over all rows, of {blocks} blocks as one agent's; the sum "
            "of the blocks' means is another objective wherever there is a regulariser"
        )
    whole = None if shards.test_start is None else shards.test_start[[0, -1]]
    return shards._replace(start=shards.start[[0, -1]], test_start=whole, sites=()), warnings


def _bounded(section: Any, shards: Shards) -> tuple[Shards, float]:
    """The rows as problem.row_norm wants them, and the bound that holds for every data set."""
    norm, intercept = section.row_norm, bool(getattr(section.data, "intercept", False))
    if section.model is not None:
        return shards, np.inf
    bound = guaranteed(section.data, shards.A.shape[1])
    if norm is None:
        return shards, bound
    if norm.clip is not None:
        test = shards.test_A
        shards = shards._replace(
            A=shortened(shards.A, norm.clip, intercept),
            test_A=None if test is None else shortened(test, norm.clip, intercept),
        )
    return shards, min(bound, norm.value)


def initial(scenario: Scenario, problem: Problem) -> Callable[[str], Array]:
    """Return what gives initial arrays by name: x0, and z0 = x0 unless a file has it.

    langevin: standard normals, which the method scales by its noise; model: where the model says,
    in memory once for all agents.
    """
    init = getattr(scenario.algorithm.parameters, "init", None)
    agents, dim = shape = problem.agents, problem.dim

    @cache
    def arrays() -> dict[str, Array]:
        if init is None or init.kind == "zeros":
            return {"x0": np.zeros(shape)}
        if init.kind == "model":
            assert isinstance(problem.loss, ModelLoss)
            return {"x0": np.broadcast_to(problem.loss.start, shape)}
        if init.kind in ("normal", "langevin", "common"):
            who = np.full(agents, -1) if init.kind == "common" else np.arange(agents)
            drawn = keys.normals(scenario.seed, Stream.INIT, agent=who, size=dim)
            return {"x0": (1.0 if init.word else init.value) * drawn}
        return _initial_file(init.value, shape)

    if init is None and isinstance(problem.loss, ModelLoss):  # of a method without that parameter
        start = np.broadcast_to(problem.loss.start, shape)
        return lambda _name: start
    arrays()
    return lambda name: arrays().get(name, arrays()["x0"])


def _initial_file(path: Path, shape: tuple[int, int]) -> dict[str, Array]:
    where = "algorithm.init.npz"
    with reading(path, where, "npz", NUMBERS):
        read = npz_arrays(path, where)
        for name, rows in read.items():
            if rows.dtype.kind not in "fiub":
                raise ValueError(f"{name} holds {rows.dtype}")
        found = {name: rows.astype(float) for name, rows in read.items()}
    if "x0" not in found:
        raise InputError(f"{where}: {path} holds no array x0; found {', '.join(found) or 'none'}")
    for name, array in found.items():
        if name in INITIAL and array.shape != shape:
            raise InputError(f"{where}: {name} has shape {array.shape}; allowed: {shape}")
        if name in INITIAL and not np.isfinite(array).all():
            raise InputError(f"{where}: {name} is not finite")
        if name in INITIAL:
            bounded(array, f"{where}: {name}")
    return found
