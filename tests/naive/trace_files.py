"""What a Mahimahi trace lets through, stamp by stamp, and when a client of FedScale is active."""


def departure(stamps, begin, bits):
    """When s the last of so many bits has left that are there from `begin` ms on.

    stamps: ms, each an opportunity for 1500 bytes, and again after the last one; those of 0 ms are
    of the first ms. Opportunities of one ms follow each other within it.
    """
    lap, period = 0, stamps[-1]
    while True:
        for place, stamp in enumerate(stamps):
            time = lap * period + max(stamp, 1)
            if time <= begin:
                continue
            if bits <= 12_000:
                same = [k for k, one in enumerate(stamps) if max(one, 1) == max(stamp, 1)]
                share = (same.index(place) + bits / 12_000) / len(same)
                return (time - 1 + share) / 1000
            bits -= 12_000
        lap += 1


def gone(stamps, time):
    """How many packets of 1500 bytes may have left by `time` s since the trace began."""
    period, ms = stamps[-1], time * 1000
    laps = int(ms // period)
    rest = ms - laps * period
    return laps * len(stamps) + sum(min(1.0, max(0.0, rest - max(s, 1) + 1)) for s in stamps)


def active(trace, time):
    """Whether a client is active at `time` s, as FedScale's spans have it, ends left out."""
    now = time % trace["finish_time"]
    spans = zip(trace["active"], trace["inactive"], strict=True)
    return any(first <= now < last for first, last in spans)
