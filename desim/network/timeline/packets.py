"""Which packets of a message are lost, and how much later that makes a handshake."""

import numpy as np

from desim.network.timeline.attempt import HUB
from desim.network.timeline.bursts import in_burst
from desim.network.timeline.transport import QUEUE
from desim.numerics.jit import lean_inline
from desim.numerics.keys import Stream, address, counter, uniform

PACKET = int(Stream.PACKET)
SYN_TIMEOUT, SYNS, EVEN = 1.0, 11, 4  # s until a SYN is repeated; how many; pauses before doubling
TRIES = 15  # timeouts in a row, after which a connection is given up


@lean_inline
def lossy(links, e):
    """Whether packets may be lost on link e, or find the queue of its line full."""
    if links.transport.law[QUEUE, e] < np.inf:
        return True
    first = max(links.loss[0], links.loss[1])
    return first > 0.0 or (
        links.onward.shape[0] > 0 and max(links.onward[3], links.onward[4]) > 0.0
    )


@lean_inline
def packet_lost(links, e, time, round_, message, number):
    """Whether a packet that leaves on link e at `time` s is lost; number: of the message's.

    message: which of the round, counted with its attempts.
    """
    source, target = links.ends[0, e], links.ends[1, e]
    k1, c0 = address(PACKET, source, target), counter(round_, message)
    share, inside = links.loss
    second = links.onward.shape[0] > 0
    other = HUB if second else target
    if share != inside and in_burst(links.seed, source, other, links.bursts, time):
        share = inside
    if share > 0.0 and uniform(links.seed, k1, c0, 2 * number) < share:
        return True
    if not second:
        return False
    share, inside = links.onward[3], links.onward[4]
    bursts = links.onward[5], links.onward[6]
    if share != inside and in_burst(links.seed, target, HUB, bursts, time):
        share = inside
    return share > 0.0 and uniform(links.seed, k1, c0, 2 * number + 1) < share


@lean_inline
def shaken(links, e, time, round_, message):
    """How much later a handshake ends, s, since its packets are lost, the packets it took, whether.

    As Linux repeats a SYN since 6.5: after five times a second, then after twice as long each time.
    """
    late, pause = 0.0, SYN_TIMEOUT
    for n in range(SYNS):
        lost = packet_lost(links, e, time + late, round_, message, 2 * n)
        if not lost and not packet_lost(links, e, time + late, round_, message, 2 * n + 1):
            return late, 2 * n + 2, True
        late += pause
        pause = 2.0 * pause if n >= EVEN else pause
    return late, 2 * SYNS, False
