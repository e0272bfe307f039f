"""How messages are carried over links: by an ideal transport in no time, or by TCP connections.

A connection belongs to a directed link and remembers from message to message what Linux remembers
of one: the congestion window, the times of round trips, when it was used last.
"""

from typing import NamedTuple

import numpy as np

from desim.numerics.jit import lean_inline

IDEAL, RENO, CUBIC, BBR = range(4)
KIND, SEGMENT, HEADER, INITIAL, UNDER_WAY, NEW, RESTARTS, QUEUE = range(8)  # rows of Transport.law
HANDSHAKE = 60 * 8  # bits of a SYN and of its answer, both with options
ACK = 52 * 8  # bits of an acknowledgement: IPv4, TCP, timestamps
CLOSED = -1.0  # OPEN of a connection that was given up
INFINITE = 1e18  # a threshold of slow start that no window reaches

# What a connection remembers: columns of Transport.memory
(
    OPEN, CWND, SSTHRESH, COUNT, LIMITED, PEAK_FLIGHT, USAGE_END, SENT, ACKED, FREE, ARRIVED, LAST,
    SRTT, MDEV, MDEV_MAX, RTTVAR, RTT_END, DELAY_MIN, FOUND, ROUND_END, ROUND_START, LAST_ACK,
    ROUND_RTT, SAMPLES, TOP, EPOCH, KNEE, ORIGIN, FRIENDLY, TALLY, RUNS,
) = range(31)  # fmt: skip
RATE, FULL, FULL_RATE, STALLED, PACED, PACE = TOP, FOUND, KNEE, SAMPLES, EPOCH, ORIGIN  # of BBR
RUN = 5  # numbers of each of two runs of segments under way, from RUNS on: see `remembered`
FIELDS = RUNS + 2 * RUN


class Transport(NamedTuple):
    """How messages are carried.

    law (8, links), (8, 0) where all are ideal: KIND IDEAL or the congestion control, bytes of
    payload in a SEGMENT, of its HEADER, INITIAL window and segments UNDER_WAY at most, whether each
    message opens a NEW connection, whether a window RESTARTS after idleness, and packets that may
    QUEUE for the line. back (2, links): latency s and bandwidth bit/s of the way of
    acknowledgements. memory (links + 1, FIELDS): of each connection; the last row is scratch, for
    messages that are only asked about. flight (9, UNDER_WAY + 2) and task (33,): scratch, of the
    segments under way and of the message.
    """

    law: np.ndarray
    back: np.ndarray
    memory: np.ndarray
    flight: np.ndarray
    task: np.ndarray

    @property
    def ideal(self) -> bool:
        """Whether nothing but latency and bandwidth takes time on any link."""
        return bool(self.law.shape[1] == 0)

    @property
    def forgotten(self) -> "Transport":
        """The same with connections that have carried nothing yet."""
        return self._replace(memory=np.zeros_like(self.memory))


NOTHING_BETWEEN = Transport(
    np.zeros((8, 0)), np.zeros((2, 0)), np.zeros((0, FIELDS)), np.zeros((9, 0)), np.zeros(33)
)


@lean_inline
def by_tcp(links, e):
    """Whether a connection of TCP carries what link e is given."""
    return links.transport.law.shape[1] > 0 and links.transport.law[KIND, e] != IDEAL
