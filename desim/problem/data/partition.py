"""How rows are dealt to agents: iid, in order, by label (Dirichlet, or so many each), by column.

Partitioners of flwr-datasets are in `flower_partitioners`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.distributions import GAMMA, Distribution, draw
from desim.numerics.keys import Stream
from desim.problem.data.flower_partitioners import flower_shares
from desim.problem.data.table import Draw
from desim.problem.losses.layers import CLASS_LIMIT

Rows = NDArray[np.int64]
ATTEMPTS = 1000


class Deal(NamedTuple):
    """How rows are dealt: kind and value, and what it may go by (relative sizes, rows' classes).

    columns: by name, what a partitioner of flwr-datasets may go by, (rows,) each.
    """

    kind: str
    value: Any
    seed: int
    sizes: tuple[int, ...] = ()
    classes: Rows | None = None
    groups: NDArray[Any] | None = None
    columns: Mapping[str, NDArray[Any]] = MappingProxyType({})


def deal(rows: int, agents: int | None, how: Deal) -> list[Rows]:
    """The row numbers of each agent; InputError where one gets none.

    Every row has one agent, but that partitioners of flwr-datasets may leave out rows.
    """
    if how.kind == "by":
        return _by_group(agents, how)
    if how.kind == "flwr":
        return flower_shares(how.value.name, how.value.arguments, how.columns, agents, how.seed)
    agents = len(how.sizes) if agents is None and how.sizes else agents
    if agents is None:
        raise InputError("problem.agents: missing; say how many agents the rows are dealt to")
    if rows < agents:
        raise InputError(f"problem.agents: {agents} agents for {rows} training rows; use fewer")
    if how.kind == "dirichlet":
        return _by_dirichlet(agents, how)
    if how.kind == "labels":
        return _by_labels(agents, how)
    order = np.arange(rows)
    if how.kind == "iid":
        order = keys.permutation(how.seed, Stream.DATA, rows, round=Draw.SHUFFLE)
    return np.split(order, _ends(rows, agents, how.sizes)[:-1])


def held_out(shares: Sequence[Rows], share: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Of the row numbers of each agent those to train on, and those that are its own test rows.

    share: of its rows, to the nearest row (half a row to the even number), and at least one on each
    side; drawn uniformly.
    InputError where agents have a row only.
    """
    few = [agent for agent, rows in enumerate(shares) if len(rows) < 2]
    if few:
        others = f" and {len(few) - 1} others" if len(few) > 1 else ""
        raise InputError(
            f"problem.data.test: found own, and agent {few[0]}{others} with 1 row; allowed: at "
            "least 2 rows for every agent, one to train on and one to be tested on"
        )
    trained, tested = list[Rows](), list[Rows]()
    for agent, rows in enumerate(shares):
        size, place = own_size(len(rows), share), {"round": Draw.OWN_TEST, "agent": agent}
        drawn = np.zeros(len(rows), bool)
        drawn[keys.subset(seed, Stream.DATA, len(rows), size, **place)] = True
        trained.append(rows[~drawn])
        tested.append(rows[drawn])
    return trained, tested


def own_size(rows: int, share: float) -> int:
    """How many of an agent's rows it is tested on: a share, but neither none nor all of them."""
    return min(max(1, round(share * rows)), rows - 1)


def _ends(rows: int, agents: int, sizes: tuple[int, ...]) -> Rows:
    """Where each agent's share of the rows ends, to the nearest row; nobody gets none."""
    if sizes and len(sizes) != agents:
        raise InputError(f"problem.sizes: found {len(sizes)} sizes for {agents} agents")
    relative = np.array(sizes or [1] * agents, float)
    if sum(sizes) == rows:
        ends = np.cumsum(relative)
    else:
        ends = np.floor(np.cumsum(relative) / relative.sum() * rows + 0.5)
    for agent in np.flatnonzero(np.diff(ends, prepend=0.0) < 1.0)[:1]:
        raise InputError(f"problem.sizes: agent {agent} is left with none of the {rows} rows")
    return ends.astype(np.int64)


def _classes(how: Deal) -> list[Rows]:
    """The rows of each class, in a random order."""
    if how.classes is None:
        raise InputError(
            f"problem.partition.{how.kind}: the labels are no classes (more than {CLASS_LIMIT} "
            "values); allowed here: iid, contiguous, {by: column}"
        )
    order = keys.permutation(how.seed, Stream.DATA, len(how.classes), round=Draw.SHUFFLE)
    return [order[how.classes[order] == c] for c in range(how.classes.max() + 1)]


def _by_dirichlet(agents: int, how: Deal) -> list[Rows]:
    """Each class split in proportions ~ Dirichlet(value); drawn again until nobody is left out.

    (Yurochkin et al. 2019, arXiv 1905.12022.) A Dirichlet draw is gammas over their sum.
    """
    members = _classes(how)
    gamma, peer = Distribution(GAMMA, how.value, how.value), np.arange(len(members))[:, None]
    for attempt in range(ATTEMPTS):
        place = {"agent": np.arange(agents), "peer": peer, "round": Draw.SHARES, "step": attempt}
        shares = draw(gamma, how.seed, Stream.DATA, **place)
        if shares.sum(axis=1).min() < 1e-290:  # all gammas of a class underflow
            continue
        parts = []
        for rows, share in zip(members, shares, strict=True):
            cuts = np.cumsum(share)[:-1] / share.sum() * len(rows)
            parts.append(np.split(rows, np.rint(cuts).astype(np.int64)))
        dealt = [np.concatenate(mine) for mine in zip(*parts, strict=True)]
        if min(len(mine) for mine in dealt) > 0:
            return dealt
    raise InputError(
        f"problem.partition.dirichlet: {how.value:g} leaves an agent without rows in {ATTEMPTS} "
        f"draws; use a larger value or fewer agents than {agents}"
    )


def _by_labels(agents: int, how: Deal) -> list[Rows]:
    """Each agent holds `value` classes, dealt round; a class is split equally among its owners."""
    members = _classes(how)
    kinds, each = len(members), int(how.value)
    if each > kinds or each * agents < kinds:
        wrong = "more than the data have" if each > kinds else "so that some belong to nobody"
        raise InputError(
            f"problem.partition.labels: {each} labels for each of {agents} agents, {wrong}; "
            f"allowed: {-(-kinds // agents)} to {kinds}"
        )
    name = keys.permutation(how.seed, Stream.DATA, kinds, round=Draw.OWNERS)
    seat = keys.permutation(how.seed, Stream.DATA, agents, round=Draw.OWNERS, step=1)
    owned = name[(seat[:, None] * each + np.arange(each)) % kinds]
    dealt: list[list[Rows]] = [[] for _ in range(agents)]
    for label, rows in enumerate(members):
        owners = np.flatnonzero((owned == label).any(axis=1))
        for owner, part in zip(owners, np.array_split(rows, len(owners)), strict=True):
            if not len(part):
                raise InputError(
                    f"problem.partition.labels: {len(rows)} rows of a label are too few for its "
                    f"{len(owners)} agents; use fewer agents or labels"
                )
            dealt[owner].append(part)
    return [np.concatenate(parts) for parts in dealt]


def _by_group(agents: int | None, how: Deal) -> list[Rows]:
    """One agent for each value of the column, in the order of the values."""
    groups = np.asarray(how.groups)
    try:
        found, number = np.unique(groups, return_inverse=True)
    except TypeError:
        raise InputError(
            f"problem.partition.by: {how.value!r} has missing or mixed values"
        ) from None
    if agents is not None and agents != len(found):
        raise InputError(
            f"problem.agents: found {agents}; allowed: {len(found)}, the values of {how.value!r}"
        )
    return [np.flatnonzero(number == g) for g in range(len(found))]
