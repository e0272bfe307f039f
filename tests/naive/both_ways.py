"""Two ends of a line that send to each other, as packets in a heap: the oracle of `duplex`."""

import heapq
import itertools
import math


def crossed(
    times, sizes, latency, rate, window=10, segment=1448, header=52, queued=True, quick=None
):
    """When messages of sizes (2,) bytes, sent at times (2,) s from the two ends, are there, in s.

    Connections are in slow start, and nothing is lost. Each end has one queue for its data and for
    its acknowledgements of what came from the other: of each segment on new connections, otherwise
    of the first `quick` ones each, then of every second one, or of one alone after 40 ms. queued:
    acknowledgements wait in it.
    """
    events, number, there = [], itertools.count(), [0.0, 0.0]
    waiting, out, most, free = [[], []], [0, 0], [0, 0], [0.0, 0.0]
    cwnd, unanswered = [window, window], [[], []]
    quick = [math.inf if quick is None else quick] * 2

    def later(time, kind, end, what=None):
        heapq.heappush(events, (time, next(number), kind, end, what))

    def transmit(end, now, size):
        free[end] = max(free[end], now) + 8 * size / rate
        return free[end] + latency

    def pour(end, now):
        while waiting[end] and out[end] < cwnd[end]:
            there[end] = transmit(end, now, waiting[end].pop(0) + header)
            later(there[end], "data", end)
            out[end] += 1
        most[end] = max(most[end], out[end])

    def answer(end, now):
        """The other end acknowledges what it has of the message from `end`."""
        covered = len(unanswered[end])
        unanswered[end].clear()
        back = transmit(1 - end, now, 52) if queued else now + 8 * 52 / rate + latency
        later(back, "ack", end, covered)

    for end in range(2):
        later(times[end], "message", end)
    while events:
        now, _, kind, end, what = heapq.heappop(events)
        if kind == "message":
            full, rest = divmod(sizes[end], segment)
            waiting[end] = [segment] * full + ([rest] if rest else [])
            pour(end, now)
        elif kind == "data":
            unanswered[end].append(mark := object())
            if quick[end] > 0 or len(unanswered[end]) == 2:
                quick[end] -= 1
                answer(end, now)
            else:
                later(now + 0.04, "alone", end, mark)
        elif kind == "alone" and what in unanswered[end]:
            answer(end, now)
        elif kind == "ack":
            for _ in range(what):
                out[end] -= 1
                if cwnd[end] < 2 * most[end] or out[end] + 1 >= cwnd[end]:
                    cwnd[end] += 1
                pour(end, now)
    return there
