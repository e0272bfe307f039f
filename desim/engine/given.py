"""What programs give to `hub` and `us`: arrays of the problem's shape, or told in words."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.at_work import OWNED
from desim.errors import show
from desim.privacy.ledger.ledger import Terms


def published(model: Any, state: Mapping[str, Any], agents: int, dim: int) -> Array:
    """The model that hub.publish shows; ValueError unless it is a float array (dim,).

    The agents' models x, which their jobs may have replaced, are float arrays (agents, dim).
    """
    if "x" not in state:
        raise ValueError("hub.publish: the agents have no models; allowed: hub.start(x=...) first")
    for name, found, shape in (("", model, (dim,)), (" us.x:", state["x"], (agents, dim))):
        if not _floats(found, shape):
            allowed = f"a float array of shape {shape}"
            raise ValueError(f"hub.publish:{name} found {_as_text(found)}; allowed: {allowed}")
    return np.asarray(model)


def started(state: Mapping[str, Any], agents: int, dim: int) -> dict[str, Array]:
    """Copies of the arrays of hub.start; ValueError where one is not of the problem's shape.

    Models x are float arrays (agents, dim), others arrays of numbers (agents, ...).
    """
    for name, rows in state.items():
        if name == "x":
            good = _floats(rows, (agents, dim))
            allowed = f"a float array of shape {(agents, dim)}, a row for each agent"
        else:
            numbers = isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf"
            good = numbers and rows.shape[:1] == (agents,)
            allowed = f"an array of numbers of {agents} rows, one for each agent"
        if not good:
            raise ValueError(f"hub.start: {name}: found {_as_text(rows)}; allowed: {allowed}")
    return {name: rows.copy() for name, rows in state.items()}


def refuse_owned(what: str, name: str, owner: type) -> None:
    """AttributeError where state of this name would hide what `us`, an `owner`, has under it."""
    names = [{**vars(one), **vars(one).get("__annotations__", {})} for one in owner.__mro__]
    if name[:1] == "_" or name in OWNED or any(name in own for own in names):
        allowed = "another one, that does not begin with _"
        raise AttributeError(f"{what}: found a name that is the engine's; allowed: {allowed}")


def state_rows(name: str, value: Any, agents: int, known: Array | None) -> Array:
    """What `us.NAME = value` sets; ValueError unless it has a row for each of the job's agents.

    known: the state of all agents, whose rows keep their shape; None where there is none yet.
    """
    rows = np.asarray(value)
    shape = (agents, *(rows.shape[1:] if known is None else known.shape[1:]))
    if rows.shape != shape or rows.dtype.kind not in "biuf":
        allowed = f"numbers of shape {shape}, a row for each agent"
        raise ValueError(f"us.{name}: found {_as_text(value)}; allowed: {allowed}")
    return rows


def check_call(who: Any, payload: Any, work: Any, charge: Terms | None, agents: int) -> None:
    """ValueError unless hub.call asks agents that there are, each once, for work that has an end.

    who (n,): their numbers; payload (p,) or (n, p); work (agents,): gradients of one row, finite
    and not negative.
    """
    if np.ndim(payload) != 1 and np.shape(payload)[:-1] != np.shape(who):
        allowed = f"one row for all, or {len(who)} rows, one for each agent that is called"
        raise ValueError(f"hub.call: payload: found {_as_text(payload)}; allowed: {allowed}")
    if charge is not None and len(charge.sensitivity) != agents:
        found = f"terms of {len(charge.sensitivity)} agents"
        raise ValueError(f"charge: found {found}; allowed: those of all {agents}")
    rows, effort = np.asarray(who), np.asarray(work)
    whole = rows.ndim == 1 and (rows.dtype.kind in "iu" or not rows.size)
    known = whole and (not rows.size or (rows.min() >= 0 and rows.max() < agents))
    if not known or not ((rows[1:] > rows[:-1]).all() or len(np.unique(rows)) == len(rows)):
        allowed = f"numbers from 0 to {agents - 1}, each once"
        raise ValueError(f"hub.call: found agents {show(rows.tolist())}; allowed: {allowed}")
    if effort.dtype.kind not in "biuf" or not ((effort >= 0.0) & (effort < np.inf)).all():
        raise ValueError(f"hub.call: found work {show(effort.tolist())}; allowed: finite, >= 0")


def check_owing(who: Int, pending: Int, size: int, width: int) -> None:
    """ValueError if agents who (n,) owe a reply, or others one to a payload of another size.

    pending (agents,): who owes one; size, width: numbers of the new payload and of theirs.
    """
    if not pending.any():
        return
    if len(busy := who[pending[who] > 0]):
        text = "which owes a reply; allowed: agents that owe none, as hub.invite() names them"
        raise ValueError(f"hub.call: found agent {busy[0]}, {text}")
    if width != size:
        found = f"found {size} numbers while agents owe replies to {width}"
        raise ValueError(f"hub.call: payload: {found}; allowed: {width} numbers until then")


def _floats(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == shape


def _as_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    return show(value)
