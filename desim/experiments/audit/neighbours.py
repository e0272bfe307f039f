"""Neighbouring problems: one record of one agent replaced, and all that follows from the records.

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
from desim.experiments.audit.candidates import (
    Pair,
    Record,
    candidates_for,
    extreme_pairs,
    longest_row,
    turning,
)
from desim.experiments.audit.likelihood import divergence
from desim.experiments.audit.of_models import opposite_labels
from desim.experiments.audit.pairs import completed, play_pair, recorded, unobserved
from desim.experiments.audit.transcript import Transcript
from desim.methods.shared.method import Ingredients
from desim.problem.losses.modelled import ModelLoss
from desim.problem.problem import Problem

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
    return replace(problem, A=A, b=b, protected=z)


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
        made = simulation.origin.method(type(method), settings)
    else:
        made = type(method)(Ingredients(method.parameters, settings, method.noise))
    return replace(simulation, settings=settings, method=made)


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
    who = _costliest(simulation, transcript) if agent is None else agent
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
    """Pairs whose gradients turn from step to step, as `candidates.turning` has them."""
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
                made = altered(simulation, agent, row, one)
                played[key] = made, recorded(made, seed)
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


def _costliest(simulation: Simulation, transcript: Transcript) -> int:
    cost = np.zeros(simulation.problem.agents)
    for batch in transcript.releases:
        out = batch.release >= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.nan_to_num((batch.sensitivity / batch.scale) ** 2, nan=0.0, posinf=0.0)
        np.add.at(cost, batch.who[out], each[out])
    return int(np.argmax(cost))
