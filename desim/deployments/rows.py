"""Rows of events and of releases from one process's buffers to those of another, as they are."""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.deployments.wire import Torn
from desim.log.rows import EventLog
from desim.network.timeline.appended import Appended
from desim.network.timeline.record import EVENT, RELEASED, Kind, part
from desim.privacy.ledger.ledger import Ledger


def raw_rows(appended: Appended, frontier: float) -> tuple[Int, Array]:
    """Remove and return the rows earlier than `frontier` s as they are in their buffer."""
    appended._over(frontier)
    fate, gone = appended._fate(frontier), appended.rows
    rest = appended._empty(len(gone.ints))._replace(brief=gone.brief)
    rest.n[1] = gone.n[1]
    early = int(part(tuple(gone), fate, tuple(rest)))
    appended.rows = rest
    return gone.ints[:early].copy(), gone.floats[:early].copy()


def released_by(agents: int, release: Any) -> Any:
    """The agent whose release has that id, see `timeline.record.release_id`."""
    return (release & ((1 << 48) - 1)) % agents


def require_own(agent: int, agents: int, ints: Int, floats: Array, whole: Int, real: Array) -> None:
    """Torn where rows of the log or of the ledger are not an agent's own."""
    for numbers, others, width in ((ints, floats, EVENT), (whole, real, RELEASED)):
        if (numbers.shape, others.shape) != tuple((len(numbers), one) for one in width):
            raise Torn(f"found rows of shapes {numbers.shape} and {others.shape}")
    who = [ints[:, 1] // (1 << 32) - 1, whole[:, 0], released_by(agents, whole[:, 2])]
    if any((one != agent).any() for one in who):
        raise Torn(f"found rows of others than agent {agent}, which says them")
    kinds = ints[:, 3] & 255
    if not (np.isin(kinds, [*Kind]).all() and np.isfinite(floats[:, 0]).all()):
        raise Torn("found rows of no kind, or of no time")
    if not np.isfinite(real[:, 0]).all():
        raise Torn("found a release at no time")


def take_in(appended: EventLog | Ledger, ints: Int, floats: Array) -> None:
    """Append rows that `raw_rows` gave, those that are not kept to be counted only."""
    kept = np.ones(len(ints), bool)
    if isinstance(appended, EventLog):
        kept = (int(appended.kept) >> (ints[:, 3] & 255) & 1).astype(bool)
    appended.reserve(len(ints))
    rows: Any = appended.rows
    first, more = int(rows.n[0]), int(kept.sum())
    rows.ints[first : first + more], rows.floats[first : first + more] = ints[kept], floats[kept]
    rows.n[0] = first + more
    if more < len(ints):
        brief, number = int(rows.n[1]), len(ints) - more
        rows.brief[brief : brief + number, 0] = floats[~kept, 0]
        rows.brief[brief : brief + number, 1] = ints[~kept, 3]
        rows.n[1] = brief + number
