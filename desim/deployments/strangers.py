"""Connections whose other end has not said yet who it is: few from each address, each for a while.

They wait beside everything else and hold nobody up. Where an address has too many, the one that has
been silent for longest has to go: who means it has said so long before.
"""

import time
from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

One = TypeVar("One", bound=Hashable)
HASTE = 10.0  # s in which who connects has to say who it is
EACH = 16  # that may be silent at once from one address
CROWD = 256  # more than that from all
SILENT = "said nothing"


class Strangers(Generic[One]):
    """Connections by age; each: how many one address may have at once."""

    def __init__(self, each: int = EACH) -> None:
        self.each = each
        self._since: dict[One, tuple[str, float]] = {}

    def __contains__(self, one: object) -> bool:
        return one in self._since

    def __len__(self) -> int:
        return len(self._since)

    def enter(self, one: One, address: str) -> list[tuple[One, str]]:
        """Take in a new one; those that must go for it, with their addresses."""
        self._since[one] = address, time.monotonic()
        places = Counter(where for where, _ in self._since.values())
        if places[address] > self.each:
            return [self._oldest(address)]
        return (
            [self._oldest(places.most_common(1)[0][0])]
            if len(self._since) > CROWD + self.each
            else []
        )

    def leave(self, one: One) -> str:
        """Forget one, which is known now or gone; its address, empty if it was none of them."""
        return self._since.pop(one, ("", 0.0))[0]

    def overdue(self) -> list[tuple[One, str]]:
        """Forget and return those whose time is over, with their addresses."""
        until, gone = time.monotonic() - HASTE, []
        for one, (address, since) in self._since.items():
            if since > until:
                break
            gone.append((one, address))
        for one, _ in gone:
            del self._since[one]
        return gone

    def clear(self) -> list[tuple[One, str]]:
        """Forget and return all, with their addresses."""
        gone = [(one, address) for one, (address, _) in self._since.items()]
        self._since.clear()
        return gone

    @property
    def due(self) -> float:
        """When s of time.monotonic the next is overdue; far off where there is none."""
        return next((since + HASTE for _, since in self._since.values()), 1e18)

    def _oldest(self, address: str) -> tuple[One, str]:
        one = next(one for one, (where, _) in self._since.items() if where == address)
        del self._since[one]
        return one, address


def refused(address: str, why: str) -> str:
    """What is said of somebody who was not let in."""
    return f"a stranger at {address} was refused ({why})"
