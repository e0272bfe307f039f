"""What a Mahimahi trace lets through, stamp by stamp, and when a client of FedScale is active."""

from collections import Counter


def departure(stamps, begin, bits):
    """When s the last of so many bits has left that are there from `begin` ms on.

    stamps: ms, each an opportunity for 1500 bytes, and again from the last one on; what is there at
    0 ms is none yet. Opportunities of one time follow each other within the ms before it.
    """
    period = stamps[-1]
    laps = range(3 + begin // period + bits // 12_000)  # each lets one packet go at least
    for time, number in Counter(lap * period + stamp for lap in laps for stamp in stamps).items():
        if time > begin:
            if bits <= 12_000 * number:
                return (time - 1 + bits / (12_000 * number)) / 1000
            bits -= 12_000 * number


def gone(stamps, time):
    """How many packets of 1500 bytes may have left by `time` s since the trace began."""
    period, ms = stamps[-1], time * 1000
    laps = int(ms // period)
    rest = ms - laps * period
    return laps * len(stamps) + sum(min(1.0, max(0.0, rest + 1 - (s or period))) for s in stamps)


def active(trace, time):
    """Whether a client is active at `time` s, as FedScale's spans have it, ends left out."""
    now = time % trace["finish_time"]
    spans = zip(trace["active"], trace["inactive"], strict=True)
    return any(first <= now < last for first, last in spans)
