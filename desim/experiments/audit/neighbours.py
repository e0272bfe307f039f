"""Neighbouring problems for audits: which records are replaced, and how well runs tell them apart.

Each side is what a run of its own data would be: steps from the curvature of the data, the noise
that a target asks for and the scaling of features are those of its own records.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.errors import InputError, RunError, refusal
from desim.experiments.audit.pairs import (
    PairReleases,
    Transcript,
    completed,
    costs,
    play_pair,
    recorded,
    unobserved,
)
from desim.methods.shared.declarations import Ingredients
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.ledger.ledger import Mechanism
from desim.problem.losses.model_loss import ModelLoss
from desim.problem.models.user_model import GRADIENT_NUMBERS, Rows
from desim.problem.problem import Problem

# The log-likelihood ratio of a pair of data sets, given what one play has released.
EXACT = frozenset({"GAUSSIAN", "CLIPPED_GAUSSIAN", "DISCRETE_GAUSSIAN"} | {"LAPLACE", "L2_LAPLACE"})
NORMAL = frozenset({"GAUSSIAN", "CLIPPED_GAUSSIAN", "DISCRETE_GAUSSIAN", "NOISY_GRADIENT"})
VARIANCE = {"GAUSSIAN": 1.0, "CLIPPED_GAUSSIAN": 1.0, "LAPLACE": 2.0}  # of noise of scale 1


def likelihood_ratio(pair: PairReleases) -> tuple[float, bool]:
    """(log-likelihood ratio of the data played to their neighbour, whether it is exact).

    The sum over the releases o of log p - log p', where log p is -|o - m|^2 / (2 s^2) - d ln s for
    Gaussian noise and -|o - m| / s - d ln s, in L1 or L2, for Laplace noise, with the mean m given
    the past and the scale s under one side's data and d numbers. Noise inside a kernel is scored as
    if it were Gaussian at the end: a score, but not exact; so is discrete noise of two scales.
    Infinite where something tells the two apart for certain.
    """
    if pair.apart:
        return np.inf, True
    total, exact = 0.0, not pair.partial
    moved = (pair.mean != pair.other).any(axis=1) | (pair.scale != pair.other_scale)
    for code in np.unique(pair.mechanism[moved]):
        name = Mechanism(int(code)).name
        rows = moved & (pair.mechanism == code)
        scales = pair.scale[rows], pair.other_scale[rows]
        exact &= name in EXACT
        exact &= name != "DISCRETE_GAUSSIAN" or bool((scales[0] == scales[1]).all())
        if not (scales[0] > 0.0).all() or not (scales[1] > 0.0).all():
            return np.inf, exact
        total += _sum(name, pair.output[rows], pair.mean[rows], pair.other[rows], *scales)
        if (scales[0] != scales[1]).any():
            total += float((pair.size[rows] * np.log(scales[1] / scales[0])).sum())
    return (0.0, False) if np.isnan(total) else (total, exact)


def _sum(name: str, output: Array, mean: Array, other: Array, s: Array, t: Array) -> float:
    """What the distances of output (n, dim) to mean and other say, at scales s and t (n,)."""
    if name == "LAPLACE":
        one, two = (np.abs(output - m).sum(axis=1) for m in (mean, other))
        return float((two / t - one / s).sum())
    if name == "L2_LAPLACE":
        one, two = (np.linalg.norm(output - m, axis=1) for m in (mean, other))
        return float((two / t - one / s).sum())
    if name not in NORMAL:
        return 0.0
    if (s == t).all():
        middle = output - (mean + other) / 2
        return float((middle * (mean - other) / s[:, None] ** 2).sum())
    one, two = (np.square(output - m).sum(axis=1) for m in (mean, other))
    return float((0.5 * two / t**2 - 0.5 * one / s**2).sum())


def noise_drawn(pair: PairReleases) -> tuple[int, float]:
    """How many noisy numbers there are, and the sum of their squares over declared variance."""
    squares = [
        ((pair.output - pair.mean)[rows] / pair.scale[rows, None]) ** 2 / variance
        for name, variance in VARIANCE.items()
        if (rows := (pair.mechanism == Mechanism[name]) & (pair.scale > 0.0)).any()
    ]
    noise = np.concatenate([np.zeros(0), *(part.ravel() for part in squares)])
    return noise.size, float(noise.sum())


def divergence(pair: PairReleases) -> tuple[bool, float]:
    """(Whether a play tells two data sets apart for certain, how far apart its releases are).

    The sum over releases of |m - m'|^2 / s^2 where there is one scale, else of the two relative
    entropies of normal laws, which come to the same; without noise s is the sensitivity.
    """
    moved = np.linalg.norm(pair.other - pair.mean, axis=1)
    noisy = (pair.scale > 0.0) & (pair.other_scale > 0.0)
    s, t = (np.where(noisy, one, pair.sensitivity) for one in (pair.scale, pair.other_scale))
    fit = np.isfinite(s) & (s > 0.0)
    s, t = np.where(fit, s, 1.0), np.where(fit, t, 1.0)
    far = 0.5 * moved**2 * (1.0 / s**2 + 1.0 / t**2)
    wide = 0.5 * pair.size * ((s / t) ** 2 + (t / s) ** 2 - 2.0)
    return bool(pair.apart), float(np.where(fit, far + wide, 0.0).sum())


# Records for a user's model: opposite labels turn its gradients, whatever the layers are.
FAR = 1e2  # labels that are numbers, in units of what the data have
SPREAD = (1.0, 3.0, 10.0, 30.0)  # of canaries
LONG = (1.0, 10.0)  # lengths of inputs, in those of the longest row


def opposite_labels(problem: Problem) -> tuple[Array, Array]:
    """Two labels, of the shape and type of the data's, as far apart as can be."""
    shape, kind = problem.b.shape[1:], problem.b.dtype
    if kind.kind == "f":
        far = FAR * (1.0 + float(np.abs(problem.b).max()))
        return np.full(shape, far, kind), np.full(shape, -far, kind)
    return np.zeros(shape, kind), np.ones(shape, kind)


def pairs_of_inputs(problem: Problem) -> list[Any]:
    """Records (*shape) that differ in their labels, or in the sign of their inputs."""
    A, (one, other) = problem.A, opposite_labels(problem)
    some = np.array(A[: min(len(A), 256)])
    if some.dtype.kind != "f":
        return [((a, one), (a, other)) for a in (some[0], some[-1])]
    norms = np.linalg.norm(some.reshape(len(some), -1), axis=1)
    longest = some[int(np.argmax(norms))]
    inputs = [length * longest for length in LONG] + [np.full_like(longest, longest.std())]
    turned = [((a, one), (-a, one)) for a in inputs]
    return [*(((a, one), (a, other)) for a in inputs), *turned]


def canary_records(problem: Problem, place: slice, seed: int) -> tuple[Array, Array, Array, Array]:
    """Two opposite records for each row of `place`: inputs (m, *shape) and labels of both.

    Of inputs of several lengths, with opposite labels or signs, those whose clipped gradients at
    the start differ most in directions that no other canary has. Whole numbers, such as tokens,
    have no directions: they are the rows that are there.
    """
    rows = np.array(problem.A[place])
    one, other = (np.array([label] * len(rows)) for label in opposite_labels(problem))
    if rows.dtype.kind != "f":
        return rows, rows.copy(), one, other
    flat = rows.reshape(len(rows), -1)
    drawn = np.asarray(
        keys.normals(seed, Stream.USER, agent=np.arange(len(rows)), size=flat.shape[1])
    )
    drawn *= np.linalg.norm(flat, axis=1).max() / np.linalg.norm(drawn, axis=1, keepdims=True)
    inputs = [(length * drawn).astype(rows.dtype).reshape(rows.shape) for length in SPREAD]
    tried = [(a, a.copy(), one, other) for a in inputs] + [(a, -a, one, one) for a in inputs]
    return max(tried, key=lambda records: _own_room(problem, *records))


def _own_room(problem: Problem, first: Array, second: Array, one: Array, other: Array) -> float:
    """Sum of how far each canary's effect (dim,) is from what all others span."""
    effects = _cut(problem, first, one) - _cut(problem, second, other)
    gram = effects @ effects.T
    ridge = 1e-6 * float(np.trace(gram)) / len(gram) + 1e-300
    own = 1.0 / np.diag(np.linalg.inv(gram + ridge * np.eye(len(gram))))
    return float(np.sqrt(np.maximum(own, 0.0)).sum())


def _cut(problem: Problem, inputs: Array, labels: Array) -> Array:
    """Clipped gradients (m, dim) of rows at the start of the model."""
    loss: Any = problem.loss
    x, found = loss.start.astype(loss.facts.precision), np.empty((len(labels), len(loss.start)))
    many = max(1, GRADIENT_NUMBERS // len(x))
    with loss.model.computing():
        for low in range(0, len(labels), many):  # as of agents with a row each, who go together
            one = slice(low, low + many)
            rows = Rows(inputs[one, None], labels[one, None], np.zeros(len(labels[one]), np.uint64))
            found[one] = loss.model.gradients(np.tile(x, (len(rows.labels), 1)), rows, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(found, axis=1, keepdims=True)
    found, norms = (np.where(np.isfinite(norms), one, 0.0) for one in (found, norms))
    return np.asarray(found * np.minimum(1.0, problem.clip / np.maximum(norms, 1e-300)))


# Pairs of records that the search for the worst neighbours tries.
Record = tuple[Array, Any] | tuple[Array, float, float]  # features, label, protected or not
Pair = tuple[Record, Record]
SHORT = 0.01  # of the longer record, where one is to curve the loss and the other is not
TURNING = 10.0  # times the longest row: how long one is whose gradient is to turn
SIZES = (1e4, 1e30, 1e100)  # of numbers without measure; too large ones for a type are refused


def longest_row(problem: Problem, parameters: object) -> float:
    """The public bound on the norm of a row, of the problem or of the method; inf for none."""
    bounds = [getattr(problem, "row_norm", None), getattr(parameters, "norm", None)]
    return min((float(one) for one in bounds if isinstance(one, float | int)), default=np.inf)


def candidates_for(
    problem: Problem, models: Array, most: float = np.inf, curved: bool = True
) -> list[Pair]:
    """Pairs of records, none longer than `most`.

    models (rounds + 1, dim): of the agent whose record it is, along and across which they point.
    curved: with pairs of a short and a long record, too, that tell curvatures apart.
    """
    if isinstance(problem.loss, ModelLoss):
        return pairs_of_inputs(problem)
    if not problem.loss.linear:
        return _of_classes(problem, most)
    _, _, directions = np.linalg.svd(models, full_matrices=True)
    even = np.full(len(directions), 1.0 / np.sqrt(len(directions)))  # the longest in L1
    norm = float(np.linalg.norm(problem.A, axis=1).max()) or 1.0
    clip = problem.clip if problem.clipped else 1.0
    far = 1e2 * (1.0 + np.abs(problem.b).max() + clip)
    lengths = [min(length, most) for length in (2.5 * clip, 10.0 * clip, norm)]
    pairs: list[Pair] = []
    for length in dict.fromkeys(lengths):
        for direction in (directions[-1], directions[0], even):
            a = length * direction
            if problem.loss.classification:
                pairs += [((a, 1.0), (a, -1.0)), ((a, 1.0), (-a, 1.0))]
            else:
                pairs.append(((a, far), (a, -far)))
    label, other = (1.0, 1.0) if problem.loss.classification else (far, -far)
    for direction in (directions[0], directions[-1]) if curved else ():
        a = max(lengths) * direction
        pairs.append(((SHORT * a, label), (a, other)))
    pairs = pairs if problem.protected is None else _grouped(pairs)
    return pairs + turning(problem, models, most)


def extremes(a: Any, b: Any, labels: str, most: float = np.inf) -> list[tuple[Any, Any]]:
    """Records like (a, b) of numbers without measure, none longer than `most`, in their types.

    a (*shape), b (...); labels: as a model says it, or of a loss "numbers" where they are such.
    """
    a, b, found = np.asarray(a), np.asarray(b), list[tuple[Any, Any]]()
    if a.dtype.kind == "f":
        numbers = np.arange(a.size).reshape(a.shape)
        for size in SIZES:
            length = min(size, most / np.sqrt(a.size), 0.1 * float(np.finfo(a.dtype).max))
            for far in (np.where(numbers % 2, -length, length), np.where(numbers, 0.0, length)):
                found.append((far.astype(a.dtype), b))
    if b.dtype.kind == "f" and labels == "numbers":
        lengths = (min(size, 0.1 * float(np.finfo(b.dtype).max)) for size in SIZES)
        found += [(a, np.full_like(b, length)) for length in lengths]
    return found


def extreme_pairs(problem: Problem, most: float = np.inf) -> list[Pair]:
    """Pairs of a row as it is and one of `extremes`, none longer than `most`."""
    a, b = np.array(problem.A[0]), np.array(problem.b[0])
    rest = () if problem.protected is None else (float(problem.protected[0]),)
    labels = "classes" if problem.loss.classifies else "numbers"
    return [((a, b, *rest), (*one, *rest)) for one in extremes(a, b, labels, most)]


def turning(problem: Problem, models: Array, most: float = np.inf) -> list[Pair]:
    """Pairs of one row with labels on both sides of a model, none longer than `most`.

    Its own row pulls a model past the label, so that the row's gradient turns from step to step.
    Agents that go on with what they do not release then release more than one record's change: the
    record's, and in the same direction what the model remembers of it. None where labels are signs:
    such gradients do not turn.
    """
    if isinstance(problem.loss, ModelLoss) or not problem.loss.linear or problem.loss.classifies:
        return []
    direction = np.linalg.svd(models, full_matrices=True)[2][-1]
    longest = float(np.linalg.norm(problem.A, axis=1).max()) or 1.0
    size = min(TURNING * longest, most)
    a, side = size * direction, (problem.clip if problem.clipped else 1.0) / size
    ends = (float(a @ models[k]) for k in (0, len(models) // 2, -1))
    pairs: list[Pair] = [((a, u + side), (a, u - side)) for u in dict.fromkeys(ends)]
    return pairs if problem.protected is None else _grouped(pairs)


def _grouped(pairs: list[Pair]) -> list[Pair]:
    """The pairs, and with the other label, of records in either group."""
    pairs = pairs + [((x, -b), (u, -c)) for (x, b, *_), (u, c, *_) in pairs]
    groups = [(z, v) for z in (0.0, 1.0) for v in (0.0, 1.0)]
    return [((x, b, z), (u, c, v)) for (x, b, *_), (u, c, *_) in pairs for z, v in groups]


def _of_classes(problem: Problem, most: float) -> list[Pair]:
    """Pairs of records of a layered model: opposite ones, one row in two classes, a short one."""
    norms = np.linalg.norm(problem.A, axis=1)
    longest, clip = problem.A[np.argmax(norms)], problem.clip if problem.clipped else 1.0
    even = np.full(problem.A.shape[1], 1.0 / np.sqrt(problem.A.shape[1]))
    pairs: list[Pair] = []
    for row in (longest, 2.5 * clip * even, 10.0 * clip * even):
        a = row * min(1.0, most / max(float(np.linalg.norm(row)), 1e-300))
        pairs += [((a, 0.0), (a, 1.0)), ((a, 0.0), (-a, 0.0))]
    return [*pairs, ((SHORT * a, 0.0), (a, 1.0))]


# Two simulations that differ in one record, and the search for the worst of them.
ROWS = 8  # how many rows of an agent a search tries
ROUNDING = 1e-9  # of the bound on a row's norm


@dataclass(frozen=True)
class Neighbours:
    """Two simulations that differ in record `row` (counted from 0) of agent `agent`."""

    first: Simulation
    second: Simulation
    agent: int
    row: int


def replaced(problem: Problem, agent: int, row: int, record: Record) -> Problem:
    """The problem with record `row` of `agent` replaced by (features, label).

    A third entry says whether it is in the protected group, 1 or 0; without it that stays.
    InputError for a record that is longer than the problem's rows may be.
    """
    A, b, place = np.array(problem.A), np.array(problem.b), _place(problem, agent, row)
    A[place], b[place] = record[:2]
    most = float(getattr(problem, "row_norm", np.inf))
    found = float(np.linalg.norm(np.ravel(A[place]))) if most < np.inf else 0.0
    if found > most * (1.0 + ROUNDING):
        raise InputError(f"record: norm: {refusal(found, f'at most {most:g}, problem.row_norm')}")
    z = None if problem.protected is None else problem.protected.copy()
    if z is not None and len(record) > 2:
        z[place] = record[2]
    return problem.with_rows(agent, A, b, z)


def _place(problem: Problem, agent: int, row: int) -> int:
    if not 0 <= agent < problem.agents:
        raise InputError(f"agent: {refusal(agent, f'0 to {problem.agents - 1}')}")
    if not 0 <= row < problem.rows[agent]:
        raise InputError(f"row: {refusal(row, f'0 to {problem.rows[agent] - 1}, its records')}")
    return int(problem.start[agent]) + row


def on(simulation: Simulation, problem: Problem) -> Simulation:
    """The simulation, its method and noise made anew, on another problem of the same shape.

    InputError where a run of that problem would be refused.
    """
    method, settings = simulation.method, replace(simulation.settings, problem=problem)
    if simulation.origin is not None:
        again = simulation.origin.method(type(method), settings)
    else:
        again = type(method)(Ingredients(method.parameters, settings, method.noise))
    return replace(simulation, settings=settings, method=again)


def altered(
    simulation: Simulation, agent: int, row: int, record: Record, moduli: Any = None
) -> Simulation:
    """The simulation as it would be with record `row` of `agent` replaced.

    record: as in `replaced`, with features as the data at hand would be prepared. Where a scaling
    is estimated from all rows, it is estimated anew. moduli: to be taken for those of its rows.
    """
    problem, origin = simulation.problem, simulation.origin
    if origin is not None and origin.estimated:  # preparation keeps all rows within their bound
        place = _place(problem, agent, row)
        problem = replaced(problem, agent, row, (problem.A[place], *record[1:]))
        origin, problem = origin.prepared(problem, place, np.asarray(record[0], float))
    else:
        problem = replaced(problem, agent, row, record)
    if moduli is not None:
        problem.__dict__["moduli"] = moduli
    return on(replace(simulation, origin=origin), problem)


def neighbours(
    simulation: Simulation, agent: int = 0, row: int = 0, record: Record | None = None
) -> Neighbours:
    """The simulation and its neighbour with record `row` of `agent` replaced.

    record: features (features,), label and perhaps group; default: the negated features with the
    same label.
    """
    problem = simulation.problem
    if record is None:
        place = _place(problem, agent, row)
        record = _opposite(problem, place)
    return Neighbours(simulation, altered(simulation, agent, row, record), agent, row)


def _opposite(problem: Problem, place: int) -> Record:
    """The negated features with the same label; of a model, the same inputs with another label."""
    if not isinstance(problem.loss, ModelLoss):
        return -problem.A[place], float(problem.b[place])
    one, other = opposite_labels(problem)
    return problem.A[place], one if np.array_equal(problem.b[place], other) else other


def worst_pair(
    simulation: Simulation, agent: int | None = None, row: int | None = None, pinned: bool = False
) -> Neighbours:
    """Search the pair that tells the two data sets apart best: both records are chosen.

    agent: by default the one whose releases cost most; row: by default one of its first, which
    matters where rows are sampled. Candidates point where the models move least (so that opposite
    gradients stay opposite) and most, with norms that saturate the clip; or one is very short, so
    that curvatures differ. The one with the largest sum of (difference / scale)^2 wins, or of
    (difference / sensitivity)^2 without noise; or one that tells the two apart for certain. So
    may, where the row is searched, records of numbers without measure, which a clip has to bear.
    pinned: the second has the moduli of the first, as if steps that follow from them were public.
    """
    models, transcript = _trajectory(simulation)
    total = np.zeros(simulation.problem.agents)
    for batch in transcript.releases:
        out = batch.release >= 0
        total += costs(len(total), batch.who[out], batch.sensitivity[out], batch.scale[out])
    who = int(np.argmax(total)) if agent is None else agent
    most = longest_row(simulation.problem, simulation.method.parameters)
    candidates = candidates_for(simulation.problem, models[:, who], most, curved=not pinned)
    searched = row is None
    if row is None:
        first = _admitted(simulation, who, candidates)
        rows = range(min(ROWS, int(simulation.problem.rows[who])))
        row = max((_try(simulation, who, r, first, pinned)[0], -r) for r in rows)[1] * -1
    (certain, _), worst = _try(simulation, who, row, candidates, pinned)
    if not searched or certain or not simulation.problem.clipped:
        return worst
    with suppress(RunError):  # all of them refused
        (certain, _), extreme = _try(
            simulation, who, row, extreme_pairs(simulation.problem, most), pinned
        )
        return extreme if certain else worst
    return worst


def turned(simulation: Simulation, agent: int, row: int) -> Iterator[Neighbours]:
    """Pairs whose gradients turn from step to step, as `turning` has them."""
    models, _ = _trajectory(simulation)
    most = longest_row(simulation.problem, simulation.method.parameters)
    for one, other in turning(simulation.problem, models[:, agent], most):
        with suppress(RunError, InputError):
            first, second = (altered(simulation, agent, row, record) for record in (one, other))
            yield Neighbours(first, second, agent, row)


def _try(
    simulation: Simulation, agent: int, row: int, candidates: list[Pair], pinned: bool
) -> tuple[tuple[bool, float], Neighbours]:
    """The best of the candidates and its `divergence`, the first one of equals."""
    found: list[tuple[tuple[bool, float], Neighbours]] = []
    seed, played = simulation.settings.seed, dict[bytes, tuple[Simulation, Transcript]]()
    for one, other in candidates:
        with suppress(RunError, InputError):  # with which the method diverges, or is refused
            if (key := np.hstack([np.ravel(part) for part in one]).tobytes()) not in played:
                first = altered(simulation, agent, row, one)
                played[key] = first, recorded(first, seed)
            first, transcript = played[key]
            moduli = first.problem.moduli if pinned else None
            second = altered(simulation, agent, row, other, moduli)
            apart = divergence(play_pair(first, second, seed, agent, first=transcript))
            sides = (second, first) if transcript.failed else (first, second)  # one that ends
            found.append((apart, Neighbours(*sides, agent, row)))
    if not found:
        text = "the run diverges, or is refused, with every record tried"
        raise RunError(f"{text} as row {row} of agent {agent}")
    return max(found, key=lambda one: one[0])


def _admitted(simulation: Simulation, agent: int, candidates: list[Pair]) -> list[Pair]:
    """The first of the candidates with which a run is possible; all of them if none is."""
    for pair in candidates:
        with suppress(RunError):
            _try(simulation, agent, 0, [pair], pinned=False)
            return [pair]
    return candidates


def _trajectory(simulation: Simulation) -> tuple[Array, Transcript]:
    """Models (rounds + 1, agents, dim) of one play, and its transcript."""
    bare, transcript = unobserved(simulation), Transcript()
    observed = replace(bare, observation=replace(bare.observation, iterates=True))
    outcome = completed(observed.play(Discard(), listeners=[transcript]))
    assert outcome.iterates is not None
    return outcome.iterates, transcript
