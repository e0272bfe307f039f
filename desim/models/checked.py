"""The first look at a model: whether it is a pure function of parameters and rows, in words."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, raised
from desim.models.model import Facts, Model, Rows

T = TypeVar("T")
NEAR = 1e-3  # relative, of a row's loss alone to its loss beside others, in float32
LOOKED_AT = 8  # rows


def first_look(of: type[Model], given: Any, facts: Facts, rows: Rows) -> tuple[Model, Array]:
    """The model of class `of`, and where it starts (dim,); InputError for what it gets wrong.

    rows: some of one agent, with a key.
    """
    where = f"problem.model: {of.name}"
    rows = rows.part(0, LOOKED_AT)
    model: Model = _called(f"{where}: making it", lambda: of(given, facts))
    model.sample = rows
    with model.computing():
        try:
            return model, _start_of(where, model, facts, rows)
        except InputError as error:
            if rows.inputs.dtype.kind not in "iu":
                raise
            text = f"inputs are {rows.inputs.dtype}, as the data have them"
            cure = "problem.data.scale: pixel makes real numbers of them"
            raise InputError(f"{error} ({text}; {cure})") from error


def _start_of(where: str, model: Model, facts: Facts, rows: Rows) -> Array:
    start = _start(where, model, facts)
    x = start.astype(facts.precision)
    still = rows._replace(key=None)
    losses = _array(f"{where}: loss", lambda: model.loss(x, still), (len(rows.labels),))
    first = _gradients(where, model, x, rows)
    _array(f"{where}: loss", lambda: model.loss(-x, still), losses.shape)
    again = _gradients(where, model, x, rows)
    model.settled()
    if not np.array_equal(first, again):
        text = "its gradient is another one when it is asked for twice"
        allowed = "a function of x and rows alone: no state between calls, random numbers from"
        raise InputError(f"{where}: {text}; allowed: {allowed} rows.key")
    for what, found in (("loss", losses), ("gradient", first)):
        if not np.isfinite(found).all():
            raise InputError(
                f"{where}: {what}: found numbers that are not finite at the start; allowed: finite "
                "ones (another `initial`, or problem.data.scale)"
            )
    alone = _array(f"{where}: loss", lambda: model.loss(x, still.part(0, 1)), (1,))
    if abs(alone[0] - losses[0]) > NEAR * (1.0 + abs(losses[0])):
        text = f"the loss of a row is {alone[0]:.6g} alone and {losses[0]:.6g} beside others"
        allowed = "rows that do not mix, as batch normalisation mixes them (GroupNorm does not)"
        raise InputError(f"{where}: {text}; allowed: {allowed}")
    return start


def _start(where: str, model: Model, facts: Facts) -> Array:
    start = _called(f"{where}: initial", lambda: np.asarray(model.initial(facts.seed)))
    if start.ndim != 1 or start.dtype.kind != "f" or not len(start):
        found = f"found {start.dtype} of shape {start.shape}"
        raise InputError(f"{where}: initial: {found}; allowed: a float array (dim,)")
    if not np.isfinite(start).all():
        raise InputError(f"{where}: initial: found numbers that are not finite; allowed: finite")
    return np.asarray(start, float)


def _gradients(where: str, model: Model, x: Array, rows: Rows) -> Array:
    whole = f"{where}: gradient"
    return _array(whole, lambda: model.gradient(x, rows), (len(x),))


def _array(where: str, ask: Callable[[], Any], shape: tuple[int, ...]) -> Array:
    found = np.asarray(_called(where, ask))
    if found.shape != shape or found.dtype.kind not in "fiu":
        text = f"found {found.dtype} of shape {found.shape}"
        raise InputError(f"{where}: {text}; allowed: numbers of shape {shape}")
    return np.asarray(found, float)


def _called(where: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{where} raised {raised(error)}") from error
