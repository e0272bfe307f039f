"""Whom a coordinator waits for: when a collection closes, from the times of its replies."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Policy:
    """How a collection closes.

    all: every reply is in. deadline: the same, `value` seconds after the call at the latest.
    quorum: `value` replies to the latest call are in. buffer: `value` replies to any call are in.
    each: on a graph only, where an agent never waits for anything; a coordinator's is buffer 1.
    Replies that arrive at the very instant of closing belong to the collection.
    late: discard (a late reply counts as if its agent had been inactive, a new call interrupts its
    computation) or carry (it is used at the collection during which it arrives; until then its
    agent is not called again).
    """

    kind: Literal["all", "deadline", "quorum", "buffer", "each"] = "all"
    value: float = 0.0
    late: Literal["discard", "carry"] = "discard"

    def close(self, now: float, due: NDArray[np.float64], fresh: NDArray[np.bool_]) -> float:
        """Return the closing time s of a collection opened at `now` s.

        due (n,) s: arrival times of the awaited replies; fresh (n,): the reply answers the latest
        call. With nobody awaited the collection closes at once; inf: it never closes.
        """
        if due.size == 0:
            return now
        if self.kind == "all":
            return float(due.max())
        if self.kind == "deadline":
            return min(float(due.max()), now + self.value)
        counted = due[fresh] if self.kind == "quorum" else due
        if counted.size == 0:
            return now
        needed = min(int(self.value), counted.size)
        return float(np.partition(counted, needed - 1)[needed - 1])

    @property
    def interrupts(self) -> bool:
        """Whether a new call may meet an agent that still computes for an older one."""
        return self.kind != "all" and self.late == "discard"

    def counts(self, fresh: bool) -> bool:
        """Say whether a reply counts towards the number that closes the collection."""
        return fresh or self.kind != "quorum"
