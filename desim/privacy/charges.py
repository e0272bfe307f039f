"""The buffer of release rows, as compiled code fills it: charge, serve, stamp."""

from typing import Any

import numpy as np

from desim.arena import Arena
from desim.jit import lean_kernel
from desim.kernels.clients import Charges, charge, release_id


def empty(capacity: int, arena: Arena | None = None) -> Charges:
    """Room for `capacity` rows."""
    room = np.empty if arena is None else arena.empty
    return Charges(room((capacity, 6), np.int64), room((capacity, 4)), np.zeros(1, np.int64))


@lean_kernel
def charge_each(
    charges: Any, time: Any, who: Any, round_: Any, exchange: int, agents: int, terms: Any,
    where: Any, release: Any,
) -> None:  # fmt: skip
    """Append a row for each agent who[r] if where[r]; fill release (n,) with ids, else -1."""
    mechanism, view, amounts = terms
    for r in range(who.shape[0]):
        release[r] = -1
        if where[r] and time[r] < np.inf:
            i, k = who[r], round_[r]
            release[r] = release_id(agents, i, k, exchange)
            sensitivity, scale, sampling = amounts[0, r], amounts[1, r], amounts[2, r]
            charge(
                charges, time[r], i, k, release[r], mechanism, view, 0, sensitivity, scale, sampling
            )  # fmt: skip


@lean_kernel
def deliver(charges: Any, release: Any, delivered: Any) -> bool:
    """Add the recipients of release[r]; both run in one order, the newest rows at the end."""
    row = charges.n[0] - 1
    for r in range(release.shape[0] - 1, -1, -1):
        if release[r] < 0:
            continue
        while row >= 0 and charges.ints[row, 2] != release[r]:
            row -= 1
        if row < 0:
            return False
        charges.ints[row, 5] += delivered[r]
    return True


@lean_kernel
def stamp(charges: Any, release: Any, time: Any, live: Any) -> None:
    """Rows of noise drawn ahead happen at time[r] s, when what came of it is sent."""
    row = charges.n[0] - 1
    for r in range(release.shape[0] - 1, -1, -1):
        if release[r] < 0:
            continue
        while row >= 0 and charges.ints[row, 2] != release[r]:
            row -= 1
        if row >= 0 and live[r]:
            charges.floats[row, 0] = time[r]


@lean_kernel
def part(charges: Any, frontier: float, told: Any, rest: Any) -> int:
    """Leave the rows earlier than `frontier` s in `charges`, return how many; others go to `rest`.

    told (views, agents), empty to keep all rows: whom a release without noise has laid open; a
    second one tells nobody anything worse, and its row is left out. Both buffers as plain tuples.
    """
    ints, floats, n = charges
    early = late = 0
    for row in range(n[0]):
        to_ints, to_floats, place = ints, floats, early
        if floats[row, 0] >= frontier:
            to_ints, to_floats, place = rest[0], rest[1], late
            late += 1
        else:
            if told.shape[1] and ints[row, 3] == 0 and floats[row, 1] > 0.0 and ints[row, 5] > 0:
                agent, view = ints[row, 0], ints[row, 4]
                if told[view, agent]:
                    continue
                told[view, agent] = True
            early += 1
        for column in range(ints.shape[1]):
            to_ints[place, column] = ints[row, column]
        for column in range(floats.shape[1]):
            to_floats[place, column] = floats[row, column]
    n[0], rest[2][0] = early, late
    return early
