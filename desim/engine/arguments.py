"""What programs give to the verbs of `us` and `hub`, checked: errors say in words what is wrong.

The shapes and what else is allowed are those of desim.shapes.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.engine.at_work import OWNED, PROGRAM
from desim.errors import ProgramError, show, spelling
from desim.network.timeline.waiting_rule import ALL, WAITING, Rule, until_all
from desim.privacy.ledger.ledger import AMOUNTS, Mechanism, Terms, View
from desim.shapes import (
    FEW,
    REAL,
    all_between,
    amounts_given,
    as_text,
    has_rows,
    is_ascending,
    refuse,
    rows_given,
    wait_given,
    whole_given,
)


def job_given(what: str, job: Any) -> None:
    """ValueError unless it can be run."""
    if not callable(job):
        refuse(f"{what}: job", job, "a function of us and rows, such as self.job")


def inputs_given(job: Any, inputs: tuple[Any, ...], n: int) -> None:
    """ValueError unless a job can be run on inputs, arrays of numbers with a row for each agent."""
    job_given("us.compute", job)
    for place, rows in enumerate(inputs, 1):
        if not has_rows(rows, n):
            what = f"us.compute: input {place} of the job"
            refuse(what, rows, f"an array of numbers of {n} rows, one for each agent")


def result_given(job: Any, result: Any, n: int, flat: bool = True) -> Array:
    """What job gave; ProgramError unless it is numbers with a row for each of its n agents.

    flat: whether it may be (n,), one number of each.
    """
    if has_rows(result, n) and (flat or result.ndim == 2):
        return np.asarray(result)
    allowed = f"an array of numbers of {n} rows, one for each agent"
    allowed = allowed if flat else f"numbers of shape ({n}, dim), a row for each agent"
    raise ProgramError(f"{_place(job)} returns {as_text(result)}; allowed: {allowed}")


def terms_given(what: str, terms: Any, n: int, owners: str = "us.who,") -> Terms:
    """The terms; ValueError unless they are of n agents: D and s >= 0, sampling in [0, 1] or nan.

    Looked at once: from then on they do not change.
    """
    if getattr(terms, "__dict__", {}).get("fixed") == n:
        return terms  # type: ignore[no-any-return]
    if not isinstance(terms, Terms):
        refuse(what, terms, "Terms, such as desim.method.terms makes")
    _kind_given(what, terms)
    rows = [terms.sensitivity, terms.scale, terms.sampling]
    rows += [] if terms.coupled is None else [terms.coupled]
    for name, amounts in zip((*AMOUNTS, "coupled"), rows, strict=False):
        if not isinstance(amounts, np.ndarray) or amounts.dtype.kind not in REAL:
            refuse(f"{what}: {name}", amounts, f"an array of numbers ({n},)")
        if amounts.shape != (n,):
            found = f"terms of {len(amounts)} agents" if amounts.ndim == 1 else as_text(amounts)
            raise ValueError(f"{what}: found {found}; allowed: those of {owners} {n}")
    costs = np.array(rows, float)
    if not good_costs(costs):
        each = zip((*AMOUNTS, "coupled"), costs.tolist(), strict=False)
        found = ", ".join(f"{name} {show(row)}" for name, row in each)
        allowed = "sensitivity, scale, coupled >= 0, sampling from 0 to 1, or nan for all rows"
        raise ValueError(f"{what}: found {found}; allowed: {allowed}")
    terms.fix(costs)
    return terms


def _kind_given(what: str, terms: Terms) -> None:
    """ValueError unless mechanism, view and resolution are what the ledger knows."""
    if not isinstance(terms.mechanism, Mechanism):
        refuse(f"{what}: mechanism", terms.mechanism, "one of desim.method.Mechanism")
    if not isinstance(terms.view, View):
        refuse(f"{what}: view", terms.view, "one of desim.method.View")
    levels = amounts_given(f"{what}: resolution", terms.resolution, 0)
    if levels == 0.0 and terms.mechanism is Mechanism.DISCRETE_GAUSSIAN:
        refuse(f"{what}: resolution", terms.resolution, "a distance of levels > 0")


def good_costs(costs: Array) -> bool:
    """Whether sensitivity, scale, sampling, coupled (3 or 4, n) are good; sampling may be nan."""
    if costs.size <= 3 * FEW and len(costs) == 3:
        each = zip(*costs.tolist(), strict=True)
        return all([D >= 0.0 <= s and not (q < 0.0 or q > 1.0) for D, s, q in each])
    least = np.minimum.reduce(costs[:2], None), np.minimum.reduce(costs[3:], None, initial=0.0)
    if not (least[0] >= 0.0 and least[1] == 0.0):
        return False
    return not (np.fmin.reduce(costs[2]) < 0.0 or np.fmax.reduce(costs[2]) > 1.0)


def effort(work: Any, seconds: Any, n: int) -> tuple[Array, Array | None]:
    """The work (n,) of us.compute and its seconds (n,), None unless they are given."""
    amount, timed = np.empty(n), seconds is not None
    amount[:] = amounts_given("us.compute: work", work, n, unknown=timed)
    if not timed:
        return amount, None
    return amount, np.full(n, amounts_given("us.compute: seconds", seconds, n), float)


def message(us: Any, payload: Any, bits: Any, some: bool) -> tuple[Array, Int]:
    """Payload (n, dim) and bits (n,) of us.send; some: not everybody speaks to all neighbours."""
    n = len(us.who)
    rows = rows_given("us.send: payload", payload, n)
    one_width(us, rows.shape[1], some or us.parting)
    size = np.empty(n, np.int64)
    size[:] = whole_given("us.send: bits", _bits(us, payload, bits), n)
    return rows, size


def _bits(us: Any, payload: Array, bits: Any) -> Any:
    """Bits of messages of which the method says none; ValueError for what is not coded."""
    codec = us._world.settings.codecs.up
    if codec.kind == "none":
        return 64 * payload.shape[1] if bits is None else bits
    if bits is not None:
        refuse("us.send: bits", bits, "none with a codec, which says how long messages are")
    if payload is not us.__dict__.get("_coded"):
        raise ValueError("us.send: found a payload that is not coded; allowed: us.coded(value)")
    return codec.bits(payload.shape[1])


def demand_turn(us: Any, sends: bool) -> None:
    """ValueError unless sends and gathers of a graph's agents alternate, where anybody waits."""
    graph, policy = us._world.settings.graph, us._world.settings.policy
    if sends and policy.kind == "each":
        return
    if graph is None or graph.agents == 1:
        return
    if sends is us._sent:
        found = "a second us.send before us.gather" if sends else "no us.send before it"
        verb = "us.send" if sends else "us.gather"
        allowed = "us.send and us.gather, one of each in turn"
        raise ValueError(f"{verb}: found {found}; allowed: {allowed}")
    us.__dict__["_sent"] = sends


def waiting(us: Any, within: Any) -> Rule:
    """What closes us.gather: the policy, or all messages, after `within` s at most."""
    policy = us._world.settings.policy
    if within is None:
        rule = WAITING if policy.kind == "each" else policy.rule
    elif policy.kind in ("quorum", "adaptive") or policy.at_least:
        found = f"found seconds of the method's own with policy {policy.kind}"
        raise ValueError(f"us.gather: within: {found}; allowed: us.gather(), which follows it")
    else:
        seconds = wait_given("us.gather: within", within)
        rule = WAITING if seconds == np.inf else until_all(seconds)
    one_width(us, some=rule.kind != ALL)
    return rule


def at_once(us: Any) -> Rule:
    """What closes us.arrived: it waits for nothing."""
    one_width(us, some=True)
    return until_all(0.0)


def reported(us: Any, models: Any, dim: int) -> tuple[int, Array]:
    """Round and models (n, dim) of us.report; ValueError unless they are its first."""
    rows = rows_given("us.report", models, len(us.who), dim)
    round_ = int(us.round[0])
    if round_ <= us._reported:
        found = f"a second one in round {round_}" if round_ else "one before us.rounds"
        raise ValueError(f"us.report: found {found}; allowed: one in each round")
    return round_, rows


def unchanged(before: Array, work: Any) -> bool:
    """Whether work, one number or (n,), is what it was before (n,)."""
    alike = type(work) in (int, float) or getattr(work, "shape", None) in ((), before.shape)
    return alike and bool(np.logical_and.reduce(before == work))


def weights_given(weights: Any, links: int) -> Array:
    """Weights (links,) of us.sum as floats; ValueError unless there is one for each message."""
    if isinstance(weights, np.ndarray) and weights.shape == (links,) and weights.dtype.kind in REAL:
        return weights.astype(float, copy=False)
    refuse("us.sum: weights", weights, f"({links},) numbers, one for each message that is heard")


def one_width(us: Any, width: int = 0, some: bool = False) -> None:
    """ValueError where messages of two widths go out, some of which may not be heard in time.

    width: of the message that goes out, if one does; some: not everything is heard at once. What
    is heard is the newest of each neighbour, which are rows of one array.
    """
    own = us.__dict__
    if not some and width in (0, own["_width"]):
        return
    own["_some"] = own["_some"] or some
    if width and width != own["_width"]:
        own["_width"] = -1 if own["_width"] else width
    if own["_some"] and own["_width"] < 0:
        missing = "where one may be missing: after a deadline, with to=, where= or privacy.budget"
        text = f"found messages of different widths {missing}; allowed: one width, as of np.hstack"
        raise ValueError(f"us.send: payload: {text}")


def agents_given(what: str, who: Any, agents: int) -> Int:
    """Agents who (n,) as int64; ValueError unless they are numbers of agents, each once."""
    rows = np.asarray(who)
    whole = rows.ndim == 1 and (rows.dtype.kind in "iu" or not rows.size)
    known = whole and all_between(rows, 0, agents)
    if not known or not (is_ascending(rows) or len(np.unique(rows)) == len(rows)):
        allowed = f"numbers from 0 to {agents - 1}, each once"
        raise ValueError(f"{what}: found agents {show(rows.tolist())}; allowed: {allowed}")
    return rows.astype(np.int64, copy=False)


def _place(job: Any) -> str:
    """Where the function of a job stands."""
    while isinstance(job, partial):
        job = job.func
    job = getattr(job, "__func__", job)
    name, code = getattr(job, "__name__", "the job"), getattr(job, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}, {name}" if code else name


# Arrays of the problem's shape: models, states, and what jobs are called with.


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


def set_state(us: Any, name: str, value: Any, live: Mask | None = None) -> None:
    """Do `us.NAME = value`, as floats; ValueError unless it has a row for each agent.

    Of rows (n, ...) those where `live` (n,) count; all that there are keep their shape.
    """
    state, rows, n = us._world.state, np.asarray(value), len(us.who)
    if (known := state.get(name)) is None:
        refuse_owned(f"us.{name} = ...", name, type(us))
    shape = (n, *(rows.shape[1:] if known is None else known.shape[1:]))
    if rows.shape != shape or rows.dtype.kind not in "biuf":
        allowed = f"numbers of shape {shape}, a row for each agent"
        raise ValueError(f"us.{name}: found {as_text(value)}; allowed: {allowed}")
    if us._whole and live is None:
        state[name] = np.array(rows, float)
        return
    if known is None:
        state[name] = np.zeros((us._world.settings.problem.agents, *rows.shape[1:]))
    where = slice(None) if live is None else live
    state[name][us.who[where]] = rows[where]


def called(
    who: Any, job: Any, payload: Any, work: Any, charge: Terms | None, agents: int, again: bool
) -> tuple[Int, Array, Array]:
    """What hub.call asks for; ValueError unless of agents that there are, for work that ends.

    who (n,): their numbers, each once; payload (p,) or (n, p); work (agents,): gradients of one
    row, finite and not negative; again: it is the array that was looked at before, of which only
    the rows of those that are called are looked at.
    """
    job_given("hub.call", job)
    rows = isinstance(payload, np.ndarray) and payload.ndim in (1, 2)
    if (
        not rows
        or payload.dtype.kind not in "biuf"
        or (payload.ndim == 2 and payload.shape[:-1] != np.shape(who))
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
    if not all_between(effort[who] if again else effort, 0.0, np.inf):
        raise ValueError(f"hub.call: found work {show(effort.tolist())}; allowed: finite, >= 0")
    return who, np.asarray(payload, float), np.asarray(effort, float)


def sizes(
    size: int, bits: Any, reply_bits: Any, who: Int, agents: int
) -> tuple[int | Int, int | Int]:
    """Bits of a call of so many numbers, and of the reply to it; ValueError for wrong ones.

    One number, or of each agent (agents,) where it is said for each of agents who (n,).
    """
    down = 64 * size if bits is None else _size("hub.call: bits", bits, who, agents)
    if reply_bits is None:
        return down, down
    return down, _size("hub.call: reply_bits", reply_bits, who, agents)


def _size(what: str, bits: Any, who: Int, agents: int) -> int | Int:
    rows = np.zeros(agents, np.int64)
    if len(who) or np.shape(bits) != (0,):
        found = whole_given(what, bits, len(who))
        if isinstance(found, int):
            return found
        rows[who] = found
    return rows


def of_one_size(who: Int, down: int | Int, up: int | Int) -> Iterator[tuple[Int, int, int]]:
    """Agents who (n,) whose calls and replies are equally long, with these bits: group by group.

    down, up: as `sizes` has them. All groups are of one exchange.
    """
    if (isinstance(down, int) and isinstance(up, int)) or not len(who):
        yield who, down if isinstance(down, int) else 0, up if isinstance(up, int) else 0
        return
    each = np.empty((len(who), 2), np.int64)
    for column, one in enumerate((down, up)):
        each[:, column] = one if isinstance(one, int) else one[who]
    pairs, which = np.unique(each, axis=0, return_inverse=True)
    for place, (there, back) in enumerate(pairs.tolist()):
        yield who[which.ravel() == place], there, back


def check_owing(hub: Any, who: Int, size: int) -> None:
    """ValueError if agents who (n,) owe a reply, or others one to a payload of another size.

    Where a call interrupts, older ones than those since the latest collection are void. size:
    numbers of the new payload.
    """
    pending, width = hub.pending, hub.payloads.width
    if hub._world.settings.policy.interrupts:
        owed = len(hub.called) > 0
    elif owed := bool(np.count_nonzero(pending)):
        if len(busy := who[pending[who] > 0]):
            text = "which owes a reply; allowed: agents that owe none, as hub.invite() names them"
            raise ValueError(f"hub.call: found agent {busy[0]}, {text}")
    if owed and width != size:
        found = f"found {size} numbers while agents owe replies to {width}"
        raise ValueError(f"hub.call: payload: {found}; allowed: {width} numbers until then")


def _floats(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == shape
