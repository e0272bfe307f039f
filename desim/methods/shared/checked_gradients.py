"""Gradients as methods call them: arguments are checked before compiled code sees them.

A row that is missing would be read beyond the end of an array.
"""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.problem.kernels import gradients
from desim.problem.kernels.plan import WHOLE
from desim.shapes import all_between, refuse, rows_given, whole_given
from desim.unplayed import of_unplayed

STEPS = 1 << 32  # what an address has room for: the next one is another round's


@of_unplayed(1)
def gradient(
    who: Any, x: Any, data: Any, out: Array | None = None, *, round: Any = 0, seed: Any = 0
) -> Array:
    """Gradients of f_i at x[r], i = who[r] (n,), x (n, dim): an (n, dim) array, `out` if given.

    round (n,) or one for all, seed: from which random layers and changes of rows of a model draw,
    which else are the same in every round; no other gradient depends on them.
    """
    x = models_given("gradient", who, x, data, out)
    round = _whole("gradient: round", round, len(who), STEPS)
    _refuse_no_seed("gradient: seed", seed)
    return np.asarray(gradients.batch_gradient(who, x, WHOLE, round, seed, data, out))


@of_unplayed(1)
def batch_gradient(
    who: Any, x: Any, count: Any, round: Any, seed: Any, data: Any, out: Array | None = None, *,
    step: Any = 0,
) -> Array:  # fmt: skip
    """Unbiased gradients on fresh uniform batches of count[r] rows without replacement.

    Address (seed, BATCH, agent who[r], round[r], step): local steps of one round need numbers of
    their own, or all of them see one batch. The same batch at two points is one call that names an
    agent twice. count and round (n,) or one for all, whole numbers >= 0; step from 0 to 2^32 - 1. A
    count of at least m_i is the full gradient, bit for bit; 0 gives zeros, no regulariser. data:
    that of the problem. ValueError for what is none of that.
    """
    what = "batch_gradient"
    x = models_given(what, who, x, data, out)
    n = len(who)
    count = _whole(f"{what}: count", count, n, 1 << 63)
    round = _whole(f"{what}: round", round, n, STEPS)
    step = _whole(f"{what}: step", step, 0, STEPS)
    _refuse_no_seed(f"{what}: seed", seed)
    return np.asarray(gradients.batch_gradient(who, x, count, round, seed, data, out, step=step))


def _refuse_no_seed(what: str, seed: Any) -> None:
    if not isinstance(seed, int | np.integer):
        refuse(what, seed, "a whole number, such as settings.seed")


def models_given(what: str, who: Any, x: Any, data: Any, out: Any = None, name: str = "x") -> Array:
    """Models (n, dim) of agents who (n,); ValueError unless both are of the data.

    what: the function that got them, as name.
    """
    try:
        agents, dim, _ = len(data.start) - 1, data.dim, data._fields
    except (AttributeError, TypeError):
        refuse(f"{what}: data", data, "that of the problem, self.problem.data")
    named = np.asarray(who)
    if named.ndim != 1 or (named.dtype.kind not in "iu" and named.size):
        refuse(f"{what}: who", who, "numbers of agents (n,), such as us.who")
    if not all_between(named, 0, agents):
        found = f"agents from {named.min()} to {named.max()}"
        raise ValueError(f"{what}: who: found {found}; allowed: from 0 to {agents - 1}")
    x = x if isinstance(x, np.ndarray) else np.asarray(x)
    rows = rows_given(f"{what}: {name}", x, len(named), dim)
    if out is not None and not (
        isinstance(out, np.ndarray) and out.shape == x.shape and out.dtype == x.dtype == float
    ):
        text = f"None, or a float array of shape {x.shape}; a step is given by its name, step=1"
        refuse(f"{what}: out", out, text)
    return rows


def _whole(what: str, value: Any, n: int, end: int) -> Any:
    """Whole numbers below `end`, one or (n,)."""
    if type(value) is int and 0 <= value < end:
        return value
    whole = isinstance(value, np.ndarray) and value.dtype == int and value.ndim == 1
    rows = np.asarray(value if whole or type(value) is int else whole_given(what, value, n))
    if rows.shape not in ((), (n,)) or not all_between(rows, 0, end):
        several = f"whole numbers from 0 to {end - 1}, one for all or ({n},)"
        refuse(
            what, value, several if n else f"one whole number from 0 to {end - 1} for all agents"
        )
    return rows if rows.ndim else int(rows)
