"""How long bits take at rates that are constant from one sample to the next, segment by segment."""

from itertools import pairwise


def fluid(times, rates, begin, bits, end="loop"):
    """Seconds from `begin` until `bits` have left; the last rate lasts as long as the one before.

    times (k,) s from 0 on, rates (k,) bit/s; end: loop (from the first sample again) or hold.
    """
    lasts = [b - a for a, b in pairwise(times)]
    lasts.append(lasts[-1] if lasts else 1.0)
    period = sum(lasts)
    start, k, left = 0.0, 0, bits
    if end == "loop":
        start = begin // period * period
    while True:
        stop = start + lasts[k]
        if end == "hold" and k == len(rates) - 1:
            stop = float("inf")
        if stop > begin:
            first = max(start, begin)
            if rates[k] * (stop - first) >= left and rates[k] > 0:
                return first + left / rates[k] - begin
            left -= rates[k] * (stop - first)
        start, k = stop, (k + 1) % len(rates)
