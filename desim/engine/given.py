"""What programs give to `hub` and `us`: arrays of the problem's shape, or told in words."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.arguments import agents_given, job_given, terms_given
from desim.engine.at_work import OWNED, PROGRAM
from desim.errors import show, spelling
from desim.privacy.ledger.ledger import Terms, View
from desim.shapes import all_between, as_text, refuse, whole_given


def published(model: Any, state: Mapping[str, Any], agents: int, dim: int) -> Array:
    """The model that hub.publish shows; ValueError unless it is a float array (dim,).

    The agents' models x, which their jobs may have replaced, are float arrays (agents, dim).
    """
    if "x" not in state:
        raise ValueError("hub.publish: the agents have no models; allowed: hub.start(x=...) first")
    for name, found, shape in (("", model, (dim,)), (" us.x:", state["x"], (agents, dim))):
        if not _floats(found, shape):
            allowed = f"a float array of shape {shape}"
            raise ValueError(f"hub.publish:{name} found {as_text(found)}; allowed: {allowed}")
    return np.asarray(model, float)


def started(state: Mapping[str, Any], agents: int, dim: int, owner: type) -> dict[str, Array]:
    """Copies of the arrays of hub.start; ValueError where one is not of the problem's shape.

    Models x are float arrays (agents, dim), others arrays of numbers (agents, ...). owner: whose
    attributes they become.
    """
    for name, rows in state.items():
        refuse_owned(f"hub.start({name}=...)", name, owner)
        if name == "x":
            good = _floats(rows, (agents, dim))
            allowed = f"a float array of shape {(agents, dim)}, a row for each agent"
        else:
            numbers = isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf"
            good = numbers and rows.shape[:1] == (agents,)
            allowed = f"an array of numbers of {agents} rows, one for each agent"
        if not good:
            raise ValueError(f"hub.start: {name}: found {as_text(rows)}; allowed: {allowed}")
    return {name: np.array(rows, float) for name, rows in state.items()}


def refuse_owned(what: str, name: str, owner: type) -> None:
    """AttributeError where state of this name would hide what `us`, an `owner`, has under it."""
    names = [{**vars(one), **vars(one).get("__annotations__", {})} for one in owner.__mro__]
    if name[:1] == "_" or name in OWNED or any(name in own for own in names):
        allowed = "another one, that does not begin with _"
        raise AttributeError(f"{what}: found a name that is the engine's; allowed: {allowed}")


def unknown(name: str) -> AttributeError:
    """The error for an attribute of `us` that is neither a verb nor state."""
    hint = spelling(name, PROGRAM)
    return AttributeError(f"the agents have no state {name!r}; set it first{hint}")


def state_rows(name: str, value: Any, agents: int, known: Array | None) -> Array:
    """What `us.NAME = value` sets, as floats; ValueError unless it has a row for each agent.

    known: the state of all agents, whose rows keep their shape; None where there is none yet.
    """
    rows = np.asarray(value)
    shape = (agents, *(rows.shape[1:] if known is None else known.shape[1:]))
    if rows.shape != shape or rows.dtype.kind not in "biuf":
        allowed = f"numbers of shape {shape}, a row for each agent"
        raise ValueError(f"us.{name}: found {as_text(value)}; allowed: {allowed}")
    return rows.astype(float, copy=False)


def called(
    who: Any, job: Any, payload: Any, work: Any, charge: Terms | None, agents: int
) -> tuple[Int, Array, Array]:
    """What hub.call asks for; ValueError unless of agents that there are, for work that ends.

    who (n,): their numbers, each once; payload (p,) or (n, p); work (agents,): gradients of one
    row, finite and not negative.
    """
    job_given("hub.call", job)
    rows = isinstance(payload, np.ndarray) and payload.ndim in (1, 2)
    if (
        not rows
        or payload.dtype.kind not in "biuf"
        or payload.shape[:-1] not in ((), np.shape(who))
    ):
        number = f"{np.size(who)} rows, one for each agent that is called"
        refuse("hub.call: payload", payload, f"an array of numbers: one row for all, or {number}")
    if charge is not None:
        terms_given("hub.call: charge", charge, agents, "all")
        if charge.view is View.NEIGHBOURS:
            refuse("hub.call: charge: view", charge.view.name, "View.COORDINATOR or View.PUBLIC")
    who, effort = agents_given("hub.call", who, agents), np.asarray(work)
    if effort.dtype.kind not in "biuf" or effort.shape != (agents,):
        refuse("hub.call: work", work, f"({agents},) numbers, one for each of all agents")
    if not all_between(effort, 0.0, np.inf):
        raise ValueError(f"hub.call: found work {show(effort.tolist())}; allowed: finite, >= 0")
    return who, np.asarray(payload, float), np.asarray(effort, float)


def sizes(size: int, bits: Any, reply_bits: Any) -> tuple[int, int]:
    """Bits of a call of so many numbers, and of the reply to it; ValueError for wrong ones."""
    down = 64 * size if bits is None else whole_given("hub.call: bits", bits)
    return down, down if reply_bits is None else whole_given("hub.call: reply_bits", reply_bits)


def check_owing(hub: Any, who: Int, size: int) -> None:
    """ValueError if agents who (n,) owe a reply, or others one to a payload of another size.

    Where a call interrupts, older ones than those since the latest collection are void. size:
    numbers of the new payload.
    """
    pending, width = hub.calls.pending, hub.payloads.width
    if hub.world.settings.policy.interrupts:
        owed = len(hub.called) > 0
    elif owed := bool(pending.any()):
        if len(busy := who[pending[who] > 0]):
            text = "which owes a reply; allowed: agents that owe none, as hub.invite() names them"
            raise ValueError(f"hub.call: found agent {busy[0]}, {text}")
    if owed and width != size:
        found = f"found {size} numbers while agents owe replies to {width}"
        raise ValueError(f"hub.call: payload: {found}; allowed: {width} numbers until then")


def _floats(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == shape
