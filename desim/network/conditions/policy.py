"""A scenario's policy: kind and numbers, to which the rule of `waiting_rule` is applied."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.network.timeline.messages import Calls
from desim.network.timeline.waiting_rule import (
    ALL,
    BUFFER,
    DEADLINE,
    FIXED,
    QUORUM,
    UNWEIGHED,
    Rule,
    Staleness,
    closed_at,
    counts,
    enough,
    heard,
    least,
    limited,
    needed,
    over_now,
)

CODES = {
    "all": ALL, "deadline": DEADLINE, "adaptive": DEADLINE, "quorum": QUORUM, "buffer": BUFFER,
    "each": BUFFER,
}  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """How a collection closes.

    all: every reply is in. deadline: the same, `value` seconds after the call at the latest.
    quorum: `value` replies to the latest call are in. buffer: `value` replies to any call are in.
    adaptive: a deadline that follows what was seen, by `law` (kind of law, level, times).
    each: on a graph only, where an agent never waits for anything; a coordinator's is buffer 1.
    Replies that arrive at the very instant of closing belong to the collection.
    at_least: without so many replies no limit closes it; at_most s: no limit is longer.
    late: discard (a late reply counts as if its agent had been inactive, a new call interrupts its
    computation) or carry (it is used at the collection during which it arrives; until then its
    agent is not called again). staleness: what a reply to an older model weighs.
    """

    kind: Literal["all", "deadline", "quorum", "buffer", "adaptive", "each"] = "all"
    value: float = 0.0
    late: Literal["discard", "carry"] = "discard"
    at_least: int = 0
    at_most: float = np.inf
    law: tuple[int, float, float] = (FIXED, 0.0, 0.0)
    staleness: Staleness = UNWEIGHED

    @cached_property
    def rule(self) -> Rule:
        """What closes a wait, as the rule of `desim.network.timeline.waiting_rule` has it."""
        most = self.value if self.kind == "deadline" else self.at_most
        return Rule(CODES[self.kind], float(self.value), most, self.at_least, *self.law)

    @property
    def adaptive(self) -> bool:
        """Whether the limit of a wait follows what was seen so far."""
        return self.law[0] != FIXED

    @cached_property
    def limited(self) -> bool:
        """Whether a wait may close before all that it needs is there."""
        return bool(limited(self.rule))

    def number(self, awaited: float) -> float:
        """How many of so many awaited replies close a collection before its limit."""
        return min(self.value, awaited) if self.kind in ("quorum", "buffer") else awaited

    def least(self, awaited: float) -> float:
        """Without how many of so many awaited replies a collection never closes."""
        return min(self.at_least, awaited) if self.limited else self.number(awaited)

    def training(self, invited: float) -> float:
        """How many of so many invited agents train for a collection: all, or those of a buffer."""
        return self.number(invited) if self.kind == "buffer" else invited

    def until(self, opened: float, calls: Calls) -> float:
        """When, s, the limit of a collection of replies to calls is, opened at `opened` s."""
        if not self.adaptive:
            return opened + self.rule.limit
        pending = calls.pending > 0
        return until(self.rule, opened, calls.seen, calls.due[pending] - calls.sent[pending])

    def close(
        self, now: float, until: float, due: NDArray[np.float64], fresh: NDArray[np.bool_]
    ) -> float:
        """Return the closing time s of a collection opened at `now` s with its limit at `until` s.

        due (n,) s: arrival times of the awaited replies; fresh (n,): the reply answers the latest
        call. inf: it never closes. What came before it was opened is there from then on.
        """
        rule = self.rule
        if not counts(rule, False):
            due = due[fresh]
        some = _nth(due, least(rule, len(due))) if until < np.inf else np.inf
        return float(closed_at(now, _nth(due, needed(rule, len(due))), until, some))

    def closed(
        self, pending: NDArray[np.bool_], here: set[int], fresh: NDArray[np.bool_], over: bool
    ) -> bool:
        """Say whether the replies that are here close a collection, whose limit may be over.

        pending, fresh (agents,): whose reply is awaited, and whether it answers the latest call.
        """
        counted = counts(self.rule, fresh)
        awaited = int(np.count_nonzero(pending & counted))
        return enough(self.rule, awaited, sum(counted[i] for i in here), over)

    def missing(self, here: NDArray[np.bool_], fresh: NDArray[np.bool_]) -> int:
        """How many replies lack of those that close a collection before its limit.

        here, fresh (n,): which awaited replies are in, and answer the latest call.
        """
        awaited = counts(self.rule, fresh)
        came = int(np.count_nonzero(here & awaited))
        return int(needed(self.rule, int(np.count_nonzero(awaited))) - came)

    @property
    def interrupts(self) -> bool:
        """Whether a new call may meet an agent that still computes for an older one."""
        return self.kind != "all" and self.late == "discard"


def until(rule: Rule, opened: float, seen: Array, times: Array) -> float:
    """When, s, the limit of a wait is that was opened at `opened` s.

    seen (n, 2): what is known of senders, see `heard`; times (m,): how many s each message of this
    wait took, inf where it is not in yet: what counts while no sender is known.
    """
    if rule.law == FIXED:
        return opened + rule.limit
    room = np.empty(len(seen))
    known = heard(seen, room)
    found = room[:known] if known else times.copy()
    return float(over_now(tuple(rule), opened, found, not known))


def _nth(times: NDArray[np.float64], n: int) -> float:
    """When the n-th of times (m,) s is; long ago for none."""
    if n in (0, len(times)):
        return float(np.maximum.reduce(times[:n], initial=-np.inf))
    return float(np.minimum.reduce(times) if n == 1 else np.partition(times, n - 1)[n - 1])
