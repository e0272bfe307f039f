"""Canaries: rows of one agent that hold one of two opposite records, by coins, in a single run.

The adversary knows both records of every slot, all other data and everything but the noise and the
coins. Its scores come from what a run shows and from plays on reference data that no coin has
touched, with noise of their own, so that guesses from them are post-processing of the run.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.errors import InputError, refusal
from desim.experiments.audit.neighbours import on
from desim.experiments.audit.of_models import canary_records
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.problem.losses.modelled import ModelLoss
from desim.problem.problem import Problem

Coins = NDArray[np.bool_]
Role = Literal["coins", "noise", "reference", "records"]
ROLES: dict[Role, int] = {"coins": 0, "noise": 1, "reference": 2, "records": 3}
LONGER = 2.5  # times the clip: gradients of the records reach it
FAR = 1e2  # labels of a regression, in units of what the data have


@dataclass(frozen=True)
class Canaries:
    """Two records for each of the first m rows of `agent`.

    first, second (m, features): rows; labels, other_labels (m,): those that go with them.
    """

    agent: int
    first: Array
    second: Array
    labels: Array
    other_labels: Array

    def __len__(self) -> int:
        return len(self.first)


def seed_of(seed: int, role: Role) -> int:
    """Seed of one part of the game, none of which says anything about another."""
    source = np.random.SeedSequence([seed, 7919, ROLES[role]])
    return int(source.generate_state(1, np.uint64)[0] >> 1)


def fair_coins(slots: int, seed: int) -> Coins:
    """(slots,) fair and independent coins: whether a slot holds its first record."""
    return np.asarray(keys.normals(seed_of(seed, "coins"), Stream.USER, size=slots) > 0.0)


def canaries(problem: Problem, agent: int, slots: int, seed: int, most: float = np.inf) -> Canaries:
    """Opposite records for `slots` rows of the agent, in directions as far apart as there is room.

    Directions are orthogonal in groups of as many as there are features; lengths reach the clip,
    unless that is beyond `most`, the public bound on the norm of rows.
    Linear models: one row with two labels, so that gradients are opposite; layered ones: one row in
    two classes. InputError where the agent has too few rows.
    """
    rows = int(problem.rows[agent])
    if not 1 <= slots <= rows:
        raise InputError(f"canaries: {refusal(slots, f'1 to {rows}, the rows of agent {agent}')}")
    if isinstance(problem.loss, ModelLoss):
        return _of_model(problem, agent, slots, seed_of(seed, "records"))
    features = problem.A.shape[1]
    directions = _directions(slots, features, seed_of(seed, "records"))
    longest = float(np.linalg.norm(problem.A, axis=1).max()) or 1.0
    length = max(longest, LONGER * problem.clip) if problem.clipped else longest
    length = min(length, most)
    first = length * directions
    ones = np.ones(slots)
    if not problem.loss.linear:
        return Canaries(agent, first, first.copy(), 0.0 * ones, ones)
    if problem.loss.classification:
        return Canaries(agent, first, first.copy(), ones, -ones)
    clip = problem.clip if problem.clipped else 0.0
    far = FAR * (1.0 + float(np.abs(problem.b).max()) + clip)
    return Canaries(agent, first, first.copy(), far * ones, -far * ones)


def _of_model(problem: Problem, agent: int, slots: int, seed: int) -> Canaries:
    """Inputs in directions of their own, with opposite labels or signs."""
    start = int(problem.start[agent])
    return Canaries(agent, *canary_records(problem, slice(start, start + slots), seed))


def _directions(count: int, features: int, seed: int) -> Array:
    """(count, features) unit vectors, orthogonal within every group of `features`."""
    groups = -(-count // features)
    draws = np.asarray(keys.normals(seed, Stream.USER, size=groups * features * features))
    blocks = np.linalg.qr(draws.reshape(groups, features, features))[0]
    return np.asarray(blocks.reshape(-1, features)[:count])


def planted(simulation: Simulation, of: Canaries, coins: Coins) -> Simulation:
    """The simulation, its method made anew, on data with the canaries that the coins (m,) say.

    Nothing is carried over: what the method takes from data it takes from these.
    """
    problem = simulation.problem
    A, b = np.array(problem.A), np.array(problem.b)
    start = int(problem.start[of.agent])
    A[start : start + len(of)] = _chosen(coins, of.first, of.second)
    b[start : start + len(of)] = _chosen(coins, of.labels, of.other_labels)
    return on(simulation, replace(problem, A=A, b=b))


def _chosen(coins: Coins, one: Array, other: Array) -> Array:
    """Rows (m, ...) of one where the coin is true, else of the other."""
    return np.where(coins.reshape(-1, *[1] * (one.ndim - 1)), one, other)
