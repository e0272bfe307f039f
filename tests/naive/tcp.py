"""Slow start written out as events in a heap: the oracle of `desim.network.timeline.tcp`."""

import heapq
import itertools


def arrivals(times, sizes, latency, rate, back, window=10, segment=1448, header=52):
    """When messages of sizes (bytes) sent at times s on one kept connection are there, in s.

    Nothing is lost, idleness is forgotten by nobody, the window grows by one for each segment that
    is acknowledged as long as it is below twice the most that were under way.
    """
    events, number, found = [], itertools.count(), {}
    for k, (time, size) in enumerate(zip(times, sizes, strict=True)):
        heapq.heappush(events, (time, next(number), "message", (k, size)))
    waiting, under_way, free, most = [], 0, 0.0, 0
    while events:
        now, _, kind, what = heapq.heappop(events)
        if kind == "message":
            k, size = what
            full, rest = divmod(size, segment)
            parts = [segment] * full + ([rest] if rest else [])
            waiting += [(k, part) for part in parts]
        else:
            under_way -= 1
            if window < 2 * most or under_way + 1 >= window:
                window += 1
        while waiting and under_way < window:
            k, part = waiting.pop(0)
            free = max(free, now) + 8 * (part + header) / rate
            found[k] = free + latency
            under_way += 1
            most = max(most, under_way)
            acked = free + latency + back + 8 * 52 / rate
            heapq.heappush(events, (acked, next(number), "ack", None))
    return [found[k] for k in range(len(times))]
