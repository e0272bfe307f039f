"""Releases of all agents at once, kept as what their rows follow from until somebody looks at them.

That is a third of the memory of the rows, and whoever stores the ledger writes them, not the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.kernels.clients import Charges
from desim.privacy.charges import charge_each, empty

Int = NDArray[np.int64]
Array = NDArray[np.float64]
RECENT = 8  # releases that one message may carry and find again


@dataclass
class Held:
    """Releases of agents who (n,) at time (n,) s, earliest .. latest, whose rows are not written.

    place: time, who, round, exchange, agents and costs as `charge_each` takes them; ids (n,);
    delivered (n,): once they are sent.
    """

    place: tuple[Any, ...]
    ids: Int
    earliest: float
    latest: float
    delivered: Int | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def write(self, charges: Charges) -> None:
        """Append the rows; there is room for them."""
        first, everybody = int(charges.n[0]), np.ones(len(self), bool)
        charge_each(charges, *self.place, everybody, np.empty_like(self.ids))
        if self.delivered is not None:
            charges.ints[first : first + len(self), 5] = self.delivered


class Shelf:
    """Releases whose rows are not written yet, in the order of their making."""

    def __init__(self) -> None:
        self._held: list[Held] = []

    def put(
        self, time: Array, who: Int, round_: Int, exchange: int, agents: int, costs: Any,
        where: Any, ends: tuple[float, float] | None = None,
    ) -> Int | None:  # fmt: skip
        """Keep releases of all agents; return their ids (n,), None if some may not happen.

        The arrays must not change any more. ends: the earliest and the latest time, if known.
        """
        if len(who) == 1 or np.count_nonzero(where) < len(who):
            return None
        earliest, latest = ends or (np.minimum.reduce(time), np.maximum.reduce(time))
        if latest == np.inf:
            return None
        ids: Int = round_ * agents
        ids += who
        if exchange:
            ids |= exchange << 48
        place = time, who, round_, exchange, agents, costs
        self._held.append(Held(place, ids, float(earliest), float(latest)))
        return ids

    def deliver(self, ids: Int, recipients: Int) -> bool:
        """Note recipients (n,) of releases ids (n,), the array that `put` returned, if still here.

        The recipients must not change any more.
        """
        for one in reversed(self._held[-RECENT:]):
            if one.ids is ids:
                known = one.delivered
                one.delivered = recipients if known is None else known + recipients
                return True
        return False

    def settle(
        self, frontier: float, write: Callable[[Held], None], begun: float | None = None
    ) -> list[Held]:
        """Remove and return what is all earlier than `frontier` s.

        Of the rest, what began before `begun` s, by default then, too, is written.
        """
        over, begun = [], frontier if begun is None else begun
        held, self._held = self._held, []
        for one in held:
            if one.latest < frontier:
                over.append(one)
            elif one.earliest < begun:
                write(one)
            else:
                self._held.append(one)
        return over


def with_held(ints: Int, floats: Array, held: list[Held]) -> tuple[Int, Array]:
    """Rows as `Charges` has them, and after them those that are held."""
    if not held:
        return ints, floats
    used = len(ints)
    charges = empty(used + sum(map(len, held)))
    charges.ints[:used], charges.floats[:used], charges.n[0] = ints, floats, used
    for one in held:
        one.write(charges)
    return charges.ints, charges.floats
