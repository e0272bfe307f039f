"""When a wait for others closes: the one rule of all policies, for every engine.

It closes when as many messages as it needs are in, at its limit at the latest, but never at a limit
before the least number is in. `all`, `deadline`, `quorum`, `buffer` and `adaptive` are corners of
it. Functions of numbers; `counts` and `lost` of arrays, too.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from desim.arrays import Array, Int
from desim.numerics.elementary import exp_, log_
from desim.numerics.jit import LEAN, kernel, lean_inline, lean_kernel

# Replies by the time at which they are due: a binary heap in arrays, and ascending agents.


@lean_inline
def push(times, agents, n, time, agent):
    """Add (time, agent) to a heap of n entries, in place."""
    place = n
    while place > 0:
        parent = (place - 1) // 2
        if times[parent] <= time:
            break
        times[place], agents[place] = times[parent], agents[parent]
        place = parent
    times[place], agents[place] = time, agent


@lean_inline
def pop(times, agents, n):
    """Remove the earliest of a heap of n entries, in place; return its agent."""
    first, time, agent = agents[0], times[n - 1], agents[n - 1]
    place, last = 0, n - 1
    while 2 * place + 1 < last:
        child = 2 * place + 1
        if child + 1 < last and times[child + 1] < times[child]:
            child += 1
        if time <= times[child]:
            break
        times[place], agents[place] = times[child], agents[child]
        place = child
    times[place], agents[place] = time, agent
    return first


@lean_inline
def ascending(who, n):
    """Sort who[:n] in place: by insertion where it is short, as a heap where it is long."""
    if n <= 32:
        for k in range(1, n):
            agent, place = who[k], k
            while place > 0 and who[place - 1] > agent:
                who[place] = who[place - 1]
                place -= 1
            who[place] = agent
        return
    for start in range(n // 2 - 1, -1, -1):
        _sink(who, start, n)
    for last in range(n - 1, 0, -1):
        who[0], who[last] = who[last], who[0]
        _sink(who, 0, last)


@lean_inline
def _sink(who, start, n):
    agent, place = who[start], start
    while 2 * place + 1 < n:
        child = 2 * place + 1
        if child + 1 < n and who[child + 1] > who[child]:
            child += 1
        if agent >= who[child]:
            break
        who[place] = who[child]
        place = child
    who[place] = agent


# What a reply weighs that answers an older model: s(t) of its staleness t, for every engine.
# Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization" (arXiv 1903.03934), Section 5.2.
# Staleness is the number of rounds that were published between a call and its collection: 0 of a
# reply to the latest model, for which the paper's t - tau is 1, so that a fresh reply weighs 1.

CONSTANT, POLYNOMIAL, HINGE = range(3)


class Staleness(NamedTuple):
    """The kind of s(t) and its numbers; a plain tuple is what compiled code takes."""

    kind: int = CONSTANT
    a: float = 0.0
    b: float = 0.0

    def weights(self, staleness: Int) -> Array:
        """Return s (n,) of staleness (n,)."""
        if self.kind == CONSTANT:
            return np.ones(len(staleness))
        return np.asarray(_weights(tuple(self), staleness))


UNWEIGHED = Staleness()


@lean_inline
def weight(rule: Any, t: Any) -> Any:
    """s(t): 1; (t + 1)^-a; or 1 up to t = b, and 1 / (a (t - b) + 1) above it."""
    kind, a, b = rule
    if kind == POLYNOMIAL:
        return exp_(-a * log_(t + 1.0))
    if kind == HINGE and t > b:
        return 1.0 / (a * (t - b) + 1.0)
    return 1.0


@kernel
def _weights(rule, staleness):
    out = np.empty(staleness.shape[0])
    for r in range(out.size):
        out[r] = weight(rule, staleness[r])
    return out


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


def enough(rule: Any, awaited: int, here: int, over: bool) -> bool:
    """Whether so many of the awaited messages that count close the wait; over: so is its limit."""
    number = needed(rule, awaited)
    return bool(here >= (min(number, least(rule, awaited)) if over else number))


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


# When agents of a graph stop waiting for their neighbours: arrivals of a round, and a rule.


@lean_kernel
def close(incoming, arrival, clock):
    """Barrier: clock[i] s becomes the latest of itself and arrivals incoming[i]:incoming[i+1]."""
    for i in range(clock.shape[0]):
        latest = clock[i]
        for e in range(incoming[i], incoming[i + 1]):
            latest = max(latest, arrival[e])
        clock[i] = latest


@lean_kernel
def close_by(rule, incoming, arrival, seen, room, clock):
    """As `close`, where rule closes each wait, of which seen (links, 2) is kept.

    Messages that came before the wait began took no time; arrival -inf: none is awaited. room
    (links,) is scratch.
    """
    for i in range(clock.shape[0]):
        low, high, opened = incoming[i], incoming[i + 1], clock[i]
        if not opened < np.inf:
            continue
        times, until = room[low:high], opened + rule[2]
        if rule[4] != FIXED:
            known = heard(seen[low:high], times)
            live = known == 0
            for e in range(low, high if live else low):
                if arrival[e] > -np.inf:
                    times[known] = max(opened, arrival[e]) - opened
                    known += 1
            until = over_at(rule, opened, times[:known], live)
        for e in range(low, high):
            times[e - low] = max(opened, arrival[e])
        some, few = needed(rule, high - low), least(rule, high - low)
        enough = ranked(times, some - 1) if some > 0 else opened
        at_least = ranked(times, few - 1) if few > 0 else opened
        clock[i] = closed_at(opened, enough, until, at_least)
        for e in range(low, high):
            if rule[4] != FIXED and arrival[e] > -np.inf:
                came = arrival[e] <= clock[i]
                learn(seen, e, (max(opened, arrival[e]) if came else clock[i]) - opened, came)
