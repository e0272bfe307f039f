"""When a wait for others closes: the one rule of all policies, for every engine.

It closes when as many messages as it needs are in, at its limit at the latest, but never at a limit
before the least number is in. `all`, `deadline`, `quorum`, `buffer` and `adaptive` are corners of
it. Functions of numbers; `counts` and `lost` of arrays, too.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from desim.numerics.jit import LEAN, lean_kernel

ALL, DEADLINE, QUORUM, BUFFER = range(4)
FIXED, MEDIAN, QUANTILE = range(3)  # how a limit is found
UNSEEN, KNOWN, WAITED = -1.0, 0.0, 1.0  # of what a sender's latest message took
SLACK = 1.0 + 2.0**-44  # 256 units in the last place
BACKOFF = 2.0  # how much longer than it was waited for a message counts that did not come in time


class Rule(NamedTuple):
    """What closes a wait.

    kind: ALL, DEADLINE, QUORUM or BUFFER; number: of messages that a quorum or buffer needs; limit
    s after the opening (inf: none); least: messages without which it does not close at the limit.
    law: FIXED, or the limit follows what was seen so far, `limit` s at most: times (the median plus
    `level` median absolute deviations), or times the `level`-quantile.
    """

    kind: int
    number: float
    limit: float
    least: int
    law: int
    level: float
    times: float


WAITING = Rule(ALL, np.inf, np.inf, 0, FIXED, 0.0, 0.0)  # for everybody


def until_all(seconds: float) -> Rule:
    """The rule of a wait for everybody, so many s at most."""
    return WAITING._replace(kind=DEADLINE, limit=seconds)


@register_jitable(**LEAN)
def counts(rule: Any, fresh: Any) -> Any:
    """Whether replies count that answer the latest call (fresh), or an older one."""
    return fresh | (rule[0] != QUORUM)


@register_jitable(**LEAN)
def needed(rule: Any, awaited: int) -> Any:
    """How many of the awaited messages that count close the wait."""
    return awaited if rule[0] in (ALL, DEADLINE) else min(int(rule[1]), awaited)


@register_jitable(**LEAN)
def least(rule: Any, awaited: int) -> Any:
    """Without how many of the awaited messages that count it does not close at its limit."""
    return min(rule[3], awaited)


@register_jitable(**LEAN)
def limited(rule: Any) -> Any:
    """Whether a wait may close before all that it needs is there."""
    return rule[2] < np.inf or rule[4] != FIXED


@register_jitable(**LEAN)
def ranked(values: Any, place: int) -> Any:
    """What stands at `place` of values (n,) in order, which are moved about (Hoare 1961)."""
    low, high = 0, values.shape[0] - 1
    while low < high:
        pivot, left, right = values[place], low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while pivot < values[right]:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if right < place:
            low = left
        if place < left:
            high = right
    return values[place]


@register_jitable(**LEAN)
def median(values: Any) -> Any:
    """The median of values (n,), at least one, which are moved about."""
    n = values.shape[0]
    return 0.5 * (ranked(values, (n - 1) // 2) + ranked(values, n // 2))


@register_jitable(**LEAN)
def heard(seen: Any, times: Any) -> Any:
    """How many senders are known; times (n,) begins with what each counts for, s.

    seen (n, 2): how many s the latest message of each sender took, and KNOWN, or WAITED where that
    is only how long it was waited for, so that it counts as BACKOFF times as long: a limit would
    shrink for ever otherwise (as timeouts back off, Karn and Partridge 1987).
    """
    known = 0
    for i in range(seen.shape[0]):
        if seen[i, 1] != UNSEEN:
            times[known] = seen[i, 0] * (BACKOFF if seen[i, 1] == WAITED else 1.0)
            known += 1
    return known


@register_jitable(**LEAN)
def limit(rule: Any, times: Any, live: bool) -> Any:
    """How long, s, a wait may take by times (n,) s of messages, which are moved about.

    Median and median absolute deviation as Hampel 1974. live: times are those of this very wait,
    inf where a message is not in yet; then it lasts until enough are in to know what the law says.
    """
    most, law, level, factor, n = rule[2], rule[4], rule[5], rule[6], times.shape[0]
    if law == FIXED or n == 0:
        return most
    if law == QUANTILE:
        place = int(np.ceil(level * n)) - 1
        found = ranked(times, max(0, min(place, n - 1)))
        return min(most, max(factor * found, found) if live else factor * found)
    middle = median(times)
    if middle == np.inf:
        return most
    known = ranked(times, n // 2)
    for r in range(n):
        times[r] = abs(times[r] - middle)
    found = factor * (middle + level * median(times))
    if level > 0.0:
        known = max(known, middle + ranked(times, n // 2))
    return min(most, max(found, known) if live else found)


@register_jitable(**LEAN)
def over_at(rule: Any, opened: float, times: Any, live: bool) -> Any:
    """When, s, the limit is over of a wait that was opened at `opened` s; times, live: see `limit`.

    A limit that was learnt ends a little later than is computed, by some units in the last place:
    sums round, and a message that takes as long as it did before is in time.
    """
    until = opened + limit(rule, times, live)
    if rule[4] == FIXED:
        return until
    return min(until * SLACK, opened + rule[2])


@lean_kernel
def over_now(rule, opened, times, live):
    """As `over_at`, from Python; the rule comes as a plain tuple."""
    return over_at(rule, opened, times, live)


@register_jitable(**LEAN)
def closed_at(opened: float, enough: float, until: float, some: float) -> Any:
    """When a wait closes that was opened at `opened` s.

    enough, some s: when as many as it needs, and the least number, are in; until s: its limit.
    """
    return min(max(opened, enough), max(until, some))


@register_jitable(**LEAN)
def lost(due: Any, heard: Any, called: Any, finish: Any, now: float) -> Any:
    """Whether an awaited reply has been lost for good by `now` s, on its way or with its call.

    due s at the coordinator; heard, called: rounds of the latest call that arrived and of the
    latest one; finish s of the computation.
    """
    return (due == np.inf) & ((heard != called) | (finish <= now))


@register_jitable(**LEAN)
def learn(seen: Any, i: int, took: float, came: bool) -> None:
    """Note in seen (n, 2) how long, s, the message of sender i took, or has been waited for.

    A wait that is shorter than what is known says nothing.
    """
    if came or took > seen[i, 0] or seen[i, 1] == UNSEEN:
        seen[i, 0], seen[i, 1] = took, KNOWN if came else WAITED


def nothing_seen(senders: int) -> Any:
    """What is known of so many senders before anything came, as `limit` takes it."""
    return np.column_stack([np.zeros(senders), np.full(senders, UNSEEN)])
