"""The first look at a model: whether it is a pure function of parameters and rows, in words."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from inspect import signature
from traceback import walk_tb
from typing import Any, TypeVar

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, raised, shortened
from desim.problem.models.user_model import Facts, LacksError, Model, Rows

T = TypeVar("T")
NEAR = 1e-3  # relative, of a row's loss alone to its loss beside others, in float32
LOOKED_AT = 8  # rows
FEW = 3  # of them
SEEN = 1e-4  # relative, of a change of the losses that float32 cannot miss
NUDGE = 1e-2  # from a start where a wrong model may look right, such as zeros
APART = "rows that do not mix, as batch normalisation mixes them (GroupNorm does not)"
PLUGGED = "desim_plugin_"  # how the names of modules begin that are plug-ins' files
WORDS = 300  # letters of what a library has to say


def first_look(
    of: type[Model], parameters: Any, facts: Facts, rows: Rows, clip: float = np.inf,
    gradients: bool = True,
) -> tuple[Model, Array]:  # fmt: skip
    """The model of class `of`, and where it starts (dim,); InputError for what it gets wrong.

    rows: some of one agent, with a key; clip: to which norm gradients will be cut; gradients:
    whether any are wanted, else the model need have none.
    """
    where = f"problem.model: {of.name}"
    if facts.device not in of.devices:
        text = f"found {facts.device} with model {of.name}, which does not compute there"
        raise InputError(f"problem.device: {text}; allowed: {', '.join(of.devices)}")
    if np.isfinite(clip) and not of.cuts():
        text = f"found a clip with model {of.name}, which has no example_gradients"
        raise InputError(f"problem.clip: {text}; allowed: no clip, or that function in the model")
    rows = rows.part(0, LOOKED_AT)
    try:
        signature(of).bind(parameters, facts)
    except TypeError as error:
        text = f"__init__: found {signature(of)}"
        allowed = "(self, parameters, facts), or none: all is in self.parameters and self.facts"
        raise InputError(f"{where}: {text}; allowed: {allowed}") from error
    model: Model = answered(f"{where}: making it", lambda: of(parameters, facts))
    with model.computing():
        start = _start(where, model, facts)
        model.sample = rows  # not before: where it starts is no function of rows
        found = _looked(where, model, start, rows, clip, gradients, known=False)
        model.first_sha256 = sha256(b"".join(map(bytes, (start, *found)))).hexdigest()
        return model, start


def second_look(
    model: Model, start: Array, rows: Rows, clip: float = np.inf, gradients: bool = True
) -> None:
    """The same of a model that is known, at rows of the same shape, of which it keeps nothing.

    What a first look tells of a model whatever the rows, which takes most of its time, is left out.
    """
    with model.computing():
        where, few = f"problem.model: {model.name}", rows.part(0, LOOKED_AT)
        _looked(where, model, start, few, clip, gradients, known=True)


def _looked(
    where: str, model: Model, start: Array, rows: Rows, clip: float, gradients: bool, known: bool
) -> tuple[Array, ...]:
    """What the look at rows finds; known: whether the model's state has been looked at."""
    facts, x, cut = model.facts, start.astype(model.facts.precision), bool(np.isfinite(clip))
    look = partial(_of_rows, known=known) if gradients or model.derives() else _values
    try:
        return look(where, model, x, _read_only(rows), cut)
    except InputError as error:
        if error.__cause__ is None:
            raise
        text = f"{facts.classes} classes, " if facts.classes else ""
        text += f"inputs of shape {rows.inputs.shape[1:]} and type {rows.inputs.dtype}"
        if rows.inputs.dtype.kind in "iu":
            text += ", of which problem.data.scale: pixel makes real numbers"
        raise InputError(f"{error} (the data have {text})") from error


def said(model: Model, x: Array, rows: Rows) -> None:
    """InputError where `predict` at x (dim,) does not say something of each row."""
    where = f"problem.model: {type(model).name}: predict"
    if type(model).predict is Model.predict:
        text = f"found accuracy with model {type(model).name}, which has no predict"
        raise InputError(f"observe.metrics: {text}; allowed: loss, or that function in the model")
    with model.computing():
        rows = rows.part(0, LOOKED_AT)
        _array(where, lambda: model.predict(x, rows), rows.labels.shape)


def _read_only(rows: Rows) -> Rows:
    """The rows, so that a model that writes to them is found out."""
    inputs, labels = rows.inputs.copy(), rows.labels.copy()
    for one in (inputs, labels):
        one.flags.writeable = False
    return rows._replace(inputs=inputs, labels=labels)


def _values(where: str, model: Model, x: Array, rows: Rows, _cut: bool) -> tuple[Array, ...]:
    """Losses at x (dim,); InputError where they are none. Of gradients nothing is asked."""
    x.flags.writeable, still, m = False, rows._replace(key=None), len(rows.labels)
    losses, again = (_array(f"{where}: loss", lambda: model.loss(x, still), (m,)) for _ in "12")
    if not np.isfinite(losses).all():
        text = "loss: found numbers that are not finite at the start; allowed: finite ones"
        raise InputError(f"{where}: {text} (another `initial`, or problem.data.scale)")
    if not np.array_equal(again, losses):
        text = "its loss is another one when it is asked for twice"
        raise InputError(f"{where}: {text}; allowed: a function of x and rows alone")
    return (losses,)


def _of_rows(
    where: str, model: Model, x: Array, rows: Rows, cut: bool, known: bool
) -> tuple[Array, Array]:
    """Gradients at x (dim,) and near it; InputError where they or the losses of rows are none."""
    nudged = x + (NUDGE * np.sin(np.arange(len(x)))).astype(x.dtype)
    x.flags.writeable = nudged.flags.writeable = False
    still, m = rows._replace(key=None), len(rows.labels)
    losses = _array(f"{where}: loss", lambda: model.loss(x, still), (m,))
    first = _gradient(where, model, x, rows)
    for what, found in (("loss", losses), ("gradient", first)):
        if not np.isfinite(found).all():
            raise InputError(
                f"{where}: {what}: found numbers that are not finite at the start; allowed: finite "
                "ones (another `initial`, or problem.data.scale)"
            )
    once = _gradient(where, model, nudged, rows)
    near = _array(f"{where}: loss", lambda: model.loss(nudged, still), (m,))
    if not known:
        answered(f"{where}: gradient", model.settled)
    if not all(
        np.array_equal(one, _gradient(where, model, at, rows), equal_nan=True)
        for one, at in ((first, x), (once, nudged))
    ):
        text = "its gradient is another one when it is asked for twice"
        allowed = f"a function of x and rows alone: no state between calls, {model.draws}"
        raise InputError(f"{where}: {text}; allowed: {allowed}")
    again = _array(f"{where}: loss", lambda: model.loss(x, still), (m,))
    if not np.array_equal(again, losses):
        text = "its loss is another one when it is asked for twice"
        raise InputError(f"{where}: {text}; allowed: a function of x and rows alone")
    rise = abs(float((first + once) @ (nudged.astype(float) - x))) / 2.0
    if np.array_equal(near, losses) and rise > SEEN * float(np.abs(losses).sum()):
        text = "its loss is the same where x is another one, but its gradient is not zero"
        allowed = "a function of x, of which nothing is kept between calls"
        raise InputError(f"{where}: {text}; allowed: {allowed}")
    if near.any() and not once.any():
        text = "its loss is not zero, but all of its gradient is"
        raise InputError(f"{where}: {text}; allowed: a loss that can be derived by x")
    if (cut or type(model).gradient is Model.gradient) and model.gives_each():
        each, few = f"{where}: example_gradients", rows.part(0, FEW)
        _array(each, lambda: model.example_gradients(x, few), (len(few.labels), len(x)))
    alone = _array(f"{where}: loss", lambda: model.loss(nudged, still.part(0, 1)), (1,))
    if abs(alone[0] - near[0]) > NEAR * (1.0 + abs(near[0])):
        text = f"the loss of a row is {alone[0]:.6g} alone and {near[0]:.6g} beside others"
        raise InputError(f"{where}: {text}; allowed: {APART}")
    if type(model).clipped is Model.clipped and model.gives_each():
        _refuse_mixed(f"{where}: example_gradients", model, nudged, still.part(0, FEW))
    return first, once


def _refuse_mixed(where: str, model: Model, x: Array, rows: Rows) -> None:
    """InputError where a row's gradient, which is cut alone, depends on the rows beside it."""
    beside, alone = (
        _array(where, partial(model.example_gradients, x, some), (len(some.labels), len(x)))[0]
        for some in (rows, rows.part(0, 1))
    )
    if np.linalg.norm(beside - alone) > NEAR * (np.linalg.norm(beside) + np.linalg.norm(alone)):
        text = "the gradient of a row is another one alone than beside others"
        raise InputError(f"{where}: {text}; allowed: {APART}")


def _start(where: str, model: Model, facts: Facts) -> Array:
    start = answered(f"{where}: initial", lambda: np.asarray(model.initial(facts.seed)))
    if start.ndim != 1 or start.dtype.kind != "f" or not len(start):
        found = f"found {start.dtype} of shape {start.shape}"
        raise InputError(f"{where}: initial: {found}; allowed: a float array (dim,)")
    if not np.isfinite(start).all():
        raise InputError(f"{where}: initial: found numbers that are not finite; allowed: finite")
    return np.asarray(start, float)


def _gradient(where: str, model: Model, x: Array, rows: Rows) -> Array:
    whole = f"{where}: gradient"
    return _array(whole, lambda: model.gradient(x, rows), (len(x),))


def _array(where: str, ask: Callable[[], Any], shape: tuple[int, ...]) -> Array:
    found = np.asarray(answered(where, ask))
    if found.shape != shape or found.dtype.kind not in "fiu":
        text = f"found {found.dtype} of shape {found.shape}"
        raise InputError(f"{where}: {text}; allowed: numbers of shape {shape}")
    return np.asarray(found, float)


def answered(where: str, ask: Callable[[], T]) -> T:
    """What the user's code gives; InputError, of `where`, for whatever it raises."""
    try:
        return ask()
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, LacksError):
            raise InputError(f"{where}: {error}; allowed: a model that defines it") from error
        text = shortened(raised(error), WORDS)
        raise InputError(f"{where}{_line(error)} raised {text}") from error


def _line(error: BaseException) -> str:
    """Where in the plug-in's file the code was that raised, or nothing."""
    at = ""
    for frame, line in walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").startswith(PLUGGED):
            at = f": {frame.f_code.co_filename}, line {line},"
    return at
