"""When agents of a graph stop waiting for their neighbours: arrivals of a round, and a rule."""

import numpy as np

from desim.network.timeline.waiting_rule import (
    FIXED,
    closed_at,
    heard,
    learn,
    least,
    needed,
    over_at,
    ranked,
)
from desim.numerics.jit import lean_kernel


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
