"""What sums with correlated noise tell of each agent, from their rows of the ledger alone."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.columns import Columns, Words, rows_of
from desim.errors import InputError
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.correlated.factors import most_times, of_columns, of_nodes
from desim.privacy.ledger.mechanisms import MECHANISMS, Mechanism

if TYPE_CHECKING:
    from desim.privacy.accounting.accountants import Account

TREE, TOEPLITZ = MECHANISMS[Mechanism.TREE_SUM], MECHANISMS[Mechanism.TOEPLITZ_SUM]
ONE_RELEASE = (
    "noise is correlated over rounds: all sums are one Gaussian release, also where what "
    "agents add follows from earlier ones (Denisov, McMahan, Rush, Smith, Thakurta 2022, Thm 2.1)"
)


def correlated(sums: Columns) -> bool:
    """Whether the noise of these sums is."""
    return bool((sums["mechanism"].equal(TREE) | sums["mechanism"].equal(TOEPLITZ)).any())


def chained(held: Columns, sums: Columns) -> Columns:
    """For the sums that hold replies of agents, rows of all sums that tell of these replies.

    Sensitivities are such that squares up to any round add up to that of what is released by then.
    InputError where a round has no sum, or two.
    """
    sums = rows_of(sums, np.argsort(sums["round"], kind="stable"))
    if not np.array_equal(sums["round"], np.arange(1, len(sums["round"]) + 1)):
        text = "found sums of correlated noise that leave out rounds, or have them twice"
        raise InputError(f"releases: {text}; allowed: one of each round")
    parts = [*_steps(held, sums)]
    who, place, step = (np.concatenate(one) for one in zip(_nobody(), *parts, strict=True))
    found = rows_of(sums, place)
    found["agent"], found["release"] = who, found["release"] + who
    found["sensitivity"] = found["sensitivity"] * np.sqrt(step)
    name = MECHANISMS[Mechanism.SUM]
    return {**found, "mechanism": Words(np.zeros(len(who), np.int8), [name])}


def at_worst(known: Sequence[Any] | None, happened: "Account") -> tuple[str, ...]:
    """What all sums cost whoever contributes as often as it may, which holds before a run.

    known: rounds, how many from one contribution to the next, sensitivity, and scale; or nothing.
    """
    if not known or np.isinf(happened.worst):
        return ()
    rounds, apart, moved, scale = known
    half = 0.5 if happened.relation == "add-or-remove-agent" else 1.0
    epsilon = float(epsilon_of(half * moved / scale, happened.delta))
    text = f"epsilon is that of the rounds each agent was in; {epsilon:.4g} holds before the run, "
    text += f"of {most_times(rounds, apart)} contributions at most, {apart} rounds apart at least"
    return (text,)


def _nobody() -> tuple[Int, Int, Array]:
    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)


def _steps(held: Columns, sums: Columns) -> Iterator[tuple[Int, Int, Array]]:
    """Of each agent: itself, places of sums, and by how much the square of what they tell grows."""
    share, rounds = np.asarray(sums["sampling"], float), len(sums["round"])
    trees = bool(sums["mechanism"].equal(TREE).any())
    order = np.argsort(held["agent"], kind="stable")
    bounds = np.flatnonzero(np.diff(held["agent"][order], prepend=-2, append=-2))
    for first, end in pairwise(bounds.tolist()):
        own = order[first:end]
        taken = np.unique(held["round"][own]).tolist()
        if trees:
            growth = of_nodes(round(1.0 / share[0]), rounds, taken)
        else:
            growth = of_columns(share, rounds, taken)
        step = np.diff(growth, prepend=0.0)
        place = np.flatnonzero(step > 0.0)
        yield np.full(len(place), held["agent"][own[0]]), place, step[place]
