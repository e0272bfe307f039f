"""Messages over TCP: one that loses no packets, or a flow that has its line to itself."""

import numpy as np

from desim.network.timeline.flow import begun, closed, moved, over, put_on, sent
from desim.network.timeline.mending import GIVEN_UP, LAST_LEFT, NOW, ONLINE, TAIL, THERE
from desim.network.timeline.packets import lossy
from desim.network.timeline.segments import asked_about, streamed
from desim.network.timeline.transport import FREE
from desim.numerics.jit import lean_inline, lean_kernel


@lean_inline
def recovered(links, e, time, bits, latency, round_, message, asked):
    """As `streamed`, where packets may be lost; the connection may be given up, at the first time.

    message: which of the round, counted with its attempts.
    """
    transport = links.transport
    flight, q = transport.flight, transport.task
    m = transport.memory[asked_about(transport, e, asked)]
    if begun(links, e, time, (bits, latency, round_, message), flight, q, m):
        free = max(m[FREE], time)
        while not over(q):
            if sent(links, e, flight, q, m):
                while q[ONLINE] < q[TAIL]:
                    free = put_on(links, e, flight, q, free)
            else:
                moved(links, e, flight, q, m)
    closed(flight, q, m)
    if q[GIVEN_UP] > 0.0:
        return q[NOW], np.inf
    return q[LAST_LEFT], q[THERE]


@lean_kernel
def carried(links, e, time, bits, latency, round_, message, asked):
    """When, in s, the last bit of a message has left on link e by TCP, and when all is there.

    inf: never, since the connection is given up at the first of these times.
    """
    if lossy(links, e):
        return recovered(links, e, time, bits, latency, round_, message, asked)
    return streamed(links, e, time, bits, latency, asked)
