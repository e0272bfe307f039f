"""A scenario's policy: its kind and number, to which the rule of timeline.collection is applied."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from desim.timeline.collection import ALL, BUFFER, DEADLINE, QUORUM, counts, limit, needed
from desim.timeline.staleness import UNWEIGHED, Staleness

CODES = {"all": ALL, "deadline": DEADLINE, "quorum": QUORUM, "buffer": BUFFER, "each": BUFFER}


@dataclass(frozen=True)
class Policy:
    """How a collection closes.

    all: every reply is in. deadline: the same, `value` seconds after the call at the latest.
    quorum: `value` replies to the latest call are in. buffer: `value` replies to any call are in.
    each: on a graph only, where an agent never waits for anything; a coordinator's is buffer 1.
    Replies that arrive at the very instant of closing belong to the collection.
    late: discard (a late reply counts as if its agent had been inactive, a new call interrupts its
    computation) or carry (it is used at the collection during which it arrives; until then its
    agent is not called again). staleness: what a reply to an older model weighs.
    """

    kind: Literal["all", "deadline", "quorum", "buffer", "each"] = "all"
    value: float = 0.0
    late: Literal["discard", "carry"] = "discard"
    staleness: Staleness = UNWEIGHED

    @property
    def code(self) -> int:
        """The kind as the rule of `desim.timeline.collection` has it."""
        return CODES[self.kind]

    def close(self, now: float, due: NDArray[np.float64], fresh: NDArray[np.bool_]) -> float:
        """Return the closing time s of a collection opened at `now` s.

        due (n,) s: arrival times of the awaited replies; fresh (n,): the reply answers the latest
        call. inf: it never closes. What came before it was opened is there from then on.
        """
        kind, last = self.code, now
        if not counts(kind, False):
            due = due[fresh]
        n = needed(kind, self.value, len(due))
        if n:
            last = np.maximum.reduce(due) if n == len(due) else np.partition(due, n - 1)[n - 1]
        return float(min(max(now, last), limit(kind, self.value, now)))

    def closed(self, pending: NDArray[np.bool_], here: set[int], fresh: NDArray[np.bool_]) -> bool:
        """Say whether the replies that are here close a collection before its limit.

        pending, fresh (agents,): whose reply is awaited, and whether it answers the latest call.
        """
        counted = counts(self.code, fresh)
        awaited, enough = int(np.count_nonzero(pending & counted)), sum(counted[i] for i in here)
        return bool(enough >= needed(self.code, self.value, awaited))

    @property
    def interrupts(self) -> bool:
        """Whether a new call may meet an agent that still computes for an older one."""
        return self.kind != "all" and self.late == "discard"
