"""Release rows, as compiled code appends and changes them: charge, serve, stamp, let go."""

from typing import Any

import numpy as np

from desim.network.timeline.record import DROPPED, LEAVES, STAYS, Rows, charge, release_id
from desim.numerics.jit import lean_kernel


@lean_kernel
def charge_each(
    charges: Any, time: Any, who: Any, round_: Any, exchange: int, agents: int, terms: Any,
    where: Any, release: Any,
) -> None:  # fmt: skip
    """Append a row for each agent who[r] if where[r]; fill release (n,) with ids, else -1.

    charges: Rows as a plain tuple, here and below.
    """
    rows = Rows(*charges)
    mechanism, view, amounts = terms
    for r in range(who.shape[0]):
        release[r] = -1
        if where[r] and time[r] < np.inf:
            i, k = who[r], round_[r]
            release[r] = release_id(agents, i, k, exchange)
            sensitivity, scale, sampling = amounts[0, r], amounts[1, r], amounts[2, r]
            charge(
                rows, time[r], i, k, release[r], mechanism, view, 0, sensitivity, scale, sampling
            )  # fmt: skip


@lean_kernel
def deliver(charges: Any, release: Any, delivered: Any) -> bool:
    """Add the recipients of release[r]; both run in one order, the newest rows at the end."""
    ints, _, _, n = charges
    row = n[0] - 1
    for r in range(release.shape[0] - 1, -1, -1):
        if release[r] < 0:
            continue
        while row >= 0 and ints[row, 2] != release[r]:
            row -= 1
        if row < 0:
            return False
        ints[row, 5] += delivered[r]
    return True


@lean_kernel
def stamp(charges: Any, release: Any, time: Any, live: Any) -> None:
    """Rows of noise drawn ahead happen at time[r] s, when what came of it is sent."""
    ints, floats, _, n = charges
    row = n[0] - 1
    for r in range(release.shape[0] - 1, -1, -1):
        if release[r] < 0:
            continue
        while row >= 0 and ints[row, 2] != release[r]:
            row -= 1
        if row >= 0 and live[r]:
            floats[row, 0] = time[r]


@lean_kernel
def let_go(charges: Any, frontier: float, bared: Any, fate: Any) -> None:
    """Say which rows leave, fate (n,): those earlier than `frontier` s.

    bared (views, agents), empty to keep all rows: whom a release without noise has laid open; a
    second one tells nobody anything worse, and its row is dropped.
    """
    ints, floats, _, n = charges
    for row in range(n[0]):
        fate[row] = LEAVES if floats[row, 0] < frontier else STAYS
        exposes = ints[row, 3] == 0 and floats[row, 1] > 0.0 and ints[row, 5] > 0
        if bared.shape[1] and fate[row] == LEAVES and exposes:
            view, agent = ints[row, 4], ints[row, 0]
            if bared[view, agent]:
                fate[row] = DROPPED
            bared[view, agent] = True
