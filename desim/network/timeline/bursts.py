"""Losses that come in bursts: the channel of Gilbert (1960) and Elliott (1963) in continuous time.

A channel is good for exponential times of mean g, bad for exponential times of mean b. The same
process: at the points of a Poisson process of rate 1/g + 1/b the state is drawn anew, bad with
share g^-1 / (g^-1 + b^-1) = b / (g + b), whatever it was, so that the state at any time is that of
the last point before it, and stretches of time may be drawn apart from each other.
"""

import numpy as np

from desim.numerics.elementary import log_
from desim.numerics.jit import lean_inline
from desim.numerics.keys import Stream, address, counter, open_unit, threefry, uniform

BURST = int(Stream.BURST)
START = 1  # sub-counter of the state before the first point


@lean_inline
def in_burst(seed, source, target, bursts, time):
    """Whether the channel between two nodes, the same in both directions, is bad at `time` s.

    bursts: rate 1/s of the points, and the share of time that is bad. Points are drawn in windows
    of 1 / rate, the state before the first one from the stationary law: a pure function of time.
    """
    rate, share = bursts
    k1 = address(BURST, max(source, target), min(source, target))
    place = time * rate
    window = np.int64(np.floor(place))
    phase = place - window
    while window >= 0:
        point, state, i = 0.0, -1.0, 0
        while True:
            gap, mark = threefry(seed, k1, counter(window, 0), i)
            point -= log_(open_unit(gap))
            if point > phase:
                break
            state = open_unit(mark)
            i += 1
        if state >= 0.0:
            return state < share
        window -= 1
        phase = 1.0
    return uniform(seed, k1, counter(0, START), 0) < share
