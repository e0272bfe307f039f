"""Messages that share a line, as fluids that divide its rate or as packets that queue for it."""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.flow import (
    ANSWERED,
    BY_TWO,
    GIVEN_UP,
    HEAD,
    HOLES,
    LINE_RATE,
    LOST,
    NOW,
    ONLINE,
    OWN_RATE,
    QUICK,
    SIZE,
    STATE,
    TAG,
    TAIL,
    THERE,
    WIDENS,
    begun,
    closed,
    let_out,
    moved,
    news,
    over,
    put_on,
    sent,
)
from desim.network.timeline.link_laws import carried, time_on_wire, trial
from desim.network.timeline.messages import DELIVER, SEND, Links
from desim.network.timeline.messages import LOST as LOST_ROW
from desim.network.timeline.record import UPLINK, Rows, write
from desim.network.timeline.tcp import ACKS, RTO_MIN, way_back
from desim.network.timeline.transport import (
    ACK,
    ARRIVED,
    CWND,
    DELAY_MIN,
    FREE,
    LAST,
    NEW,
    OPEN,
    QUEUE,
    SENT,
    SRTT,
    SSTHRESH,
)
from desim.numerics.jit import lean_inline, lean_kernel

FREE_AT, VIRTUAL = range(2)  # of a line: when it is free, s, and its virtual time


@lean_kernel
def rate_shares(links, edges, shares):
    """Fill shares (n,) bit/s with what messages on links edges (n,) of one line get of it.

    The line's rate in equal parts, but to none more than its own link carries, and what that leaves
    to the others (max-min fairness). links come as a plain tuple.
    """
    own, line = Links(*links).wires[1], Links(*links).lines
    n = edges.shape[0]
    left, waiting = line[1, edges[0]], n
    for r in range(n):
        shares[r] = -1.0
    while waiting > 0:
        part, before = left / waiting, waiting
        for r in range(n):
            if shares[r] < 0.0 and own[edges[r]] <= part:
                shares[r] = own[edges[r]]
                left, waiting = left - shares[r], waiting - 1
        if waiting == before:
            for r in range(n):
                shares[r] = part if shares[r] < 0.0 else shares[r]
            waiting = 0


@lean_kernel
def share_out(links, edges, bits, begin, end):
    """Take off bits (n,) what leaves on links edges (n,) until `end` s, at 1/n of each one's rate.

    links come as a plain tuple.
    """
    links_, n = Links(*links), edges.shape[0]
    for r in range(n):
        bits[r] = max(bits[r] - carried(links_, edges[r], begin, end) / n, 0.0)


@lean_kernel
def shared_ends(links, edges, bits, now, ends):
    """When bits (n,) would have left on links edges (n,), s, as long as all n of them are there.

    links come as a plain tuple.
    """
    links_, n = Links(*links), edges.shape[0]
    for r in range(n):
        ends[r] = now + time_on_wire(links_, edges[r], now, bits[r] * n)


@lean_inline
def queued(links, e, flight, q, m, line):
    """Send what may be sent; a flow that had nothing there begins at the line's virtual time."""
    if q[ONLINE] == q[TAIL]:
        q[TAG] = max(q[TAG], line[VIRTUAL])
    while sent(links, e, flight, q, m):
        pass


@lean_kernel
def entered(links, e, time, what, flight, q, line):
    """A message is handed over at `time` s to its connection on link e; what: see `begun`.

    links come as a plain tuple.
    """
    links_ = Links(*links)
    m = links_.transport.memory[e]
    if begun(links_, e, time, what, flight, q, m):
        if links_.lines.shape[1] > 0:
            q[OWN_RATE], q[LINE_RATE] = links_.wires[1, e], links_.lines[1, e]
        queued(links_, e, flight, q, m, line)


@lean_inline
def next_on_line(slots, flights, states, line, fair):
    """Whose packet the line takes next (-1: none waits), when, s, and its virtual end there."""
    room, first = flights.shape[2], np.inf
    for f in slots:
        if states[f, ONLINE] < states[f, TAIL]:
            first = min(first, flights[f, ACKS, int(states[f, ONLINE]) % room])
    if first == np.inf:
        return -1, np.inf, 0.0
    time, chosen, least = max(line[FREE_AT], first), -1, np.inf
    for r in range(slots.shape[0]):
        f = slots[r]
        at = int(states[f, ONLINE]) % room
        if states[f, ONLINE] < states[f, TAIL] and flights[f, ACKS, at] <= time:
            key = flights[f, ACKS, at]
            if fair:
                key = states[f, TAG] + flights[f, SIZE, at]
            if key < least:
                chosen, least = r, key
    return chosen, time, least


@lean_kernel
def flowing(links, edges, slots, flights, states, line, fair, until):
    """Let flows (n,) on one line go on until `until` s, or until one is over.

    edges, slots (n,): their links and their places in flights (slots, rows, room) and states
    (slots, STATE), see `flow`; line (2,). The line takes packets as they come, or in turn (fair:
    self-clocked fair queueing, Golestani 1994). Return which is over (-1: none), when its message
    is there, s, and when the next thing happens, s.
    """
    links_ = Links(*links)
    memory = links_.transport.memory
    while True:
        r, time, tag = next_on_line(slots, flights, states, line, fair)
        heard, own = -1, np.inf
        for g in range(edges.shape[0]):
            news_at = news(flights[slots[g]], states[slots[g]], memory[edges[g]])
            if news_at < own:
                heard, own = g, news_at
        if min(time, own) > until or min(time, own) == np.inf:
            return -1, np.inf, min(time, own)
        r = r if time <= own else heard
        e, flight, q, m = edges[r], flights[slots[r]], states[slots[r]], memory[edges[r]]
        if time <= own:
            line[VIRTUAL] = q[TAG] = tag
            line[FREE_AT] = put_on(links_, e, flight, q, line[FREE_AT])
        else:
            moved(links_, e, flight, q, m)
            queued(links_, e, flight, q, m, line)
        if over(q):
            closed(flight, q, m)
            return r, q[THERE], q[NOW]


# Messages both ways on one line: what one way sends waits with the acknowledgements of the other. A
# line has a transmitter at each end, with a queue of its own: segments of one direction and
# acknowledgements of what came from the other (Heusse, Merritt, Brown, Duda 2011). Receivers answer
# as Linux does: at once what a new connection sends in slow start, the first segments after
# idleness, and all while something lacks, otherwise every second segment, or one that stays alone
# after 40 ms (RFC 1122, 5681). An acknowledgement takes its place in the queue and is not dropped:
# the next one says the same.

AT_ONCE = 16.0  # segments that are answered one by one after idleness, in Linux
DELAY = 0.04  # s until one that stays alone is answered
LINE_FREE, FIRST, NEXT = range(3)  # of a line's end: when it is free, s; who waits: from, before
LINE = 3
QUEUE_LIMIT = 1 << 16  # packets: no two windows fill a longer queue


class Desk(NamedTuple):
    """Where messages both ways on one line are worked out.

    flows (links, links back, sides, slots), each (n,): which link every flow is on and which its
    acknowledgements are, which end it is sent from, and its place in flights (slots, rows, room)
    and states (slots, STATE), see `flow`. ends (2, LINE) and leaving (2, packets): of each end,
    when it is free and when what is in its queue will have left, s.
    """

    flows: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    flights: np.ndarray
    states: np.ndarray
    ends: np.ndarray
    leaving: np.ndarray


def desk_for(links: Links, flows: int = 2) -> Desk:
    """A desk for so many flows on lines of `links`."""
    longest = links.transport.law[QUEUE]
    packets = int(longest[longest < np.inf].max(initial=1.0).clip(max=QUEUE_LIMIT))
    which = np.zeros(flows, np.int64), np.zeros(flows, np.int64), np.arange(flows), np.arange(flows)
    flights = np.zeros((flows, *links.transport.flight.shape))
    return Desk(which, flights, np.zeros((flows, STATE)), np.zeros((2, LINE)),
                np.zeros((2, packets)))  # fmt: skip


@lean_inline
def answer(flight, q):
    """When the next acknowledgement is sent, s (inf: not yet known), and for how many segments."""
    room = flight.shape[1]
    while q[ANSWERED] < q[ONLINE] and flight[ACKS, int(q[ANSWERED]) % room] == np.inf:
        q[ANSWERED] += 1.0
    if q[ANSWERED] == q[ONLINE]:
        return np.inf, 0
    there = flight[ACKS, int(q[ANSWERED]) % room]
    if q[QUICK] + q[HOLES] + q[LOST] > 0.0:
        return there, 1
    if q[ANSWERED] + 1.0 < q[ONLINE]:
        second = flight[ACKS, int(q[ANSWERED] + 1.0) % room]
        if second <= there + DELAY:
            return second, 2
    return there + DELAY, 1


@lean_inline
def queued_for(end, leaving, time):
    """How many packets wait for an end of the line, or are on their way onto it, at `time` s."""
    while end[FIRST] < end[NEXT] and leaving[int(end[FIRST]) % leaving.shape[0]] <= time:
        end[FIRST] += 1.0
    return end[NEXT] - end[FIRST]


@lean_inline
def takes(end, leaving, left):
    """The end of the line takes a packet that has left at `left` s."""
    end[LINE_FREE] = left
    if end[NEXT] - end[FIRST] < leaving.shape[0]:
        leaving[int(end[NEXT]) % leaving.shape[0]] = left
        end[NEXT] += 1.0


@lean_inline
def segment_out(links, e, flight, q, end, leaving):
    """The end of the line takes the next segment that waits, unless that found its queue full."""
    waits = flight[ACKS, int(q[ONLINE]) % flight.shape[1]]
    number, most = queued_for(end, leaving, waits), links.transport.law[QUEUE, e]
    crowded = most < np.inf and number >= most
    left = let_out(links, e, flight, q, end[LINE_FREE], crowded)
    if not crowded:
        takes(end, leaving, left)


@lean_inline
def own_way(back, e):
    """How long an acknowledgement takes on a line of its own before it reaches the shared one."""
    return ACK / back.wires[1, e] if back.lines.shape[1] > 0 else 0.0


@lean_inline
def answer_out(links, e, back, b, flight, q, end, leaving):
    """The end of the line takes the next acknowledgement of a flow on link e, whose way is b."""
    time, number = answer(flight, q)
    time += own_way(back, b)
    queued_for(end, leaving, time)
    begin = max(end[LINE_FREE], time)
    wire = ACK / back.lines[1, b] if back.lines.shape[1] > 0 else time_on_wire(back, b, begin, ACK)
    takes(end, leaving, begin + wire)
    for _ in range(number):
        at = int(q[ANSWERED]) % flight.shape[1]
        flight[ACKS, at] = begin + wire + links.transport.back[0, e]
        q[ANSWERED] += 1.0
    q[QUICK] = max(q[QUICK] - number, 0.0)


@lean_inline
def next_out(side, both, flows, flights, states, end):
    """Whose packet an end takes next, and when, s: flow r's segment r, or its answer n + r."""
    _, backs, sides, slots = flows
    first, chosen, n = np.inf, -1, slots.shape[0]
    for r in range(n):
        flight, q = flights[slots[r]], states[slots[r]]
        if sides[r] == side:
            if q[ONLINE] < q[TAIL]:
                time = flight[ACKS, int(q[ONLINE]) % flight.shape[1]]
                if time < first:
                    first, chosen = time, r
        else:
            time, _ = answer(flight, q)
            time += own_way(both[side], backs[r])
            if time < first:
                first, chosen = time, n + r
    return chosen, max(end[LINE_FREE], first)


@lean_inline
def next_heard(flows, flights, states, memories, resting):
    """Which flow hears something next, and when, s; resting: those that are over hear nothing."""
    edges, _, sides, slots = flows
    heard, first = -1, np.inf
    for r in range(slots.shape[0]):
        flight, q = flights[slots[r]], states[slots[r]]
        time = np.inf
        if not over(q):
            time = news(flight, q, memories[sides[r]][edges[r]])
        elif not resting and q[HEAD] < q[ANSWERED] and q[GIVEN_UP] == 0.0:
            time = max(flight[ACKS, int(q[HEAD]) % flight.shape[1]], q[NOW])
        if time < first:
            heard, first = r, time
    return heard, first


@lean_inline
def poured(links, e, flight, q, m):
    """Send what may be sent, and note when.

    What a new connection sends in slow start lets the receiver's window grow: as long as that does,
    Linux answers segments one by one.
    """
    before, grows = m[SENT], q[WIDENS] > 0.0 and m[CWND] < m[SSTHRESH]
    while sent(links, e, flight, q, m):
        m[LAST] = q[NOW]
    if grows:
        q[QUICK] += m[SENT] - before


@lean_inline
def rested(links, e, time, latency, m):
    """Whether what is sent at `time` s comes after the receiver's timeout, which knew no queue."""
    trip = latency + way_back(links, e)
    return time + latency - m[ARRIVED] > trip + max(2.0 * trip, RTO_MIN)


@lean_inline
def joined(links, e, time, what, flight, q):
    """A message is handed over at `time` s to its connection on link e; what: see `begun`."""
    m, opens = links.transport.memory[e], links.transport.law[NEW, e] > 0.0
    before, rests = m[OPEN], rested(links, e, time, what[1], m)
    if begun(links, e, time, what, flight, q, m):
        q[BY_TWO], q[WIDENS] = 1.0, 1.0 if opens or before <= 0.0 else 0.0
        if q[WIDENS] == 0.0 and rests:
            q[QUICK] = AT_ONCE
        if before == 0.0 and not opens:  # since before the run: who opened it has said who it is
            m[DELAY_MIN] = m[SRTT]
        if links.lines.shape[1] > 0:
            q[OWN_RATE], q[LINE_RATE] = links.wires[1, e], links.lines[1, e]
        poured(links, e, flight, q, m)


@lean_inline
def step(both, flows, flights, states, ends, leaving, until, resting):
    """What happens next by `until` s: when, s (inf: nothing), and the flow that moved, or -1."""
    edges, backs, sides, slots = flows
    memories = both[0].transport.memory, both[1].transport.memory
    n = slots.shape[0]
    which, time = next_out(0, both, flows, flights, states, ends[0])
    side = 0
    other, later = next_out(1, both, flows, flights, states, ends[1])
    if later < time:
        which, time, side = other, later, 1
    heard, heard_at = next_heard(flows, flights, states, memories, resting)
    if min(time, heard_at) > until or min(time, heard_at) == np.inf:
        return min(time, heard_at), -1
    if heard_at < time:
        links, e, m = both[sides[heard]], edges[heard], memories[sides[heard]][edges[heard]]
        flight, q = flights[slots[heard]], states[slots[heard]]
        moved(links, e, flight, q, m)
        poured(links, e, flight, q, m)
        return heard_at, heard
    r = which if which < n else which - n
    flight, q = flights[slots[r]], states[slots[r]]
    if which < n:
        segment_out(both[side], edges[r], flight, q, ends[side], leaving[side])
    else:
        links, back = both[sides[r]], both[side]
        answer_out(links, edges[r], back, backs[r], flight, q, ends[side], leaving[side])
    return time, r


@lean_inline
def crossing(both, flows, flights, states, ends, leaving, until, alone):
    """Let two flows go on until `until` s; alone: what is not there by then never comes."""
    slots = flows[3]
    while True:
        resting = alone and over(states[slots[0]]) and over(states[slots[1]])
        free, other = ends[0, LINE_FREE], ends[1, LINE_FREE]
        _, r = step(both, flows, flights, states, ends, leaving, until, resting)
        if resting:  # an answer that is late goes with what is sent next, and holds nothing up
            ends[0, LINE_FREE], ends[1, LINE_FREE] = free, other
        if r < 0:
            return


@lean_inline
def exchanged(links, times, bits, latencies, rounds, desk, there):
    """Two messages that are handed over at times (2,) s on the two ways of a line, inf: none.

    desk: a `Desk`, whose flows are these two, bits, latencies s and rounds (2,) theirs. there (4,)
    is filled with when each has come, s, inf: never, and when their connections were given up then.
    What is known at a time does not hang on what comes later.
    """
    flows, flights, states, ends, leaving = desk
    edges, both, memory = flows[0], (links, links), links.transport.memory
    flows[1][0], flows[1][1] = edges[1], edges[0]
    for r in range(2):
        there[r] = np.inf
        ends[r, LINE_FREE], ends[r, FIRST], ends[r, NEXT] = memory[edges[r], FREE], 0.0, 0.0
        for field in range(STATE):
            states[r, field] = 0.0
    first = 0 if times[0] <= times[1] else 1
    for k in range(2):
        r = first if k == 0 else 1 - first
        until = times[1 - first] if k == 0 else np.inf
        if times[r] < np.inf:
            what = bits[r], latencies[r], rounds[r], 0.0
            joined(links, edges[r], times[r], what, flights[r], states[r])
            alone = until == np.inf
            crossing(both, flows, flights, states, ends, leaving, until, alone)
    for r in range(2):
        m, q = memory[edges[r]], states[r]
        there[2 + r] = q[NOW]
        if times[r] < np.inf and q[GIVEN_UP] == 0.0:
            last, there[r] = m[LAST], q[THERE]
            closed(flights[r], q, m)
            m[LAST] = last
        m[FREE] = ends[r, LINE_FREE]


@lean_kernel
def exchange(links, times, bits, latencies, rounds, desk, there):
    """As `exchanged`, from Python; links and desk come as plain tuples."""
    exchanged(Links(*links), times, bits, latencies, rounds, desk, there)


@lean_kernel
def exchange_all(links, pairs, clock, sent, end, desk, work, arrival, delivered, rows):
    """What all agents i send at clock[i] s on links pairs (2, n), two on the two ways of a line.

    sent: round, bits, whether it is a null of one bit, and release, each (agents,). work: scratch,
    four times (2,) and once (4,). Otherwise as `broadcast` of `messages`.
    """
    links_, rows_ = Links(*links), Rows(*rows)
    round_, bits, silent, release = sent
    times, size, latency, number, there = work
    source, target, edges = links_.ends[0], links_.ends[1], desk[0][0]
    for p in range(pairs.shape[1]):
        for r in range(2):
            e = edges[r] = pairs[r, p]
            i = source[e]
            size[r], number[r] = 1.0 if silent[i] else bits[i], round_[i]
            times[r] = clock[i] if clock[i] <= end else np.inf
            latency[r] = 0.0
            if times[r] < np.inf:
                latency[r], _ = trial(links_, e, times[r], round_[i], 0, 0)
        exchanged(links_, times, size, latency, number, desk, there)
        for r in range(2):
            e, time = edges[r], times[r]
            i, j = source[e], target[e]
            arrival[e] = there[r] if time < np.inf else clock[i]
            if time == np.inf:
                continue
            delivered[i] += 1
            bytes_, wire = (int(size[r]) + 7) // 8, time_on_wire(links_, e, time, size[r])
            k, ids = round_[i], release[i]
            write(rows_, SEND, UPLINK, i, j, k, bytes_, ids, time, wire, 0)
            kind, when = (DELIVER, there[r]) if there[r] < np.inf else (LOST_ROW, there[2 + r])
            write(rows_, kind, UPLINK, j, i, k, bytes_, ids, when, when - time, 0)


@lean_kernel
def entered_at_end(links, e, time, what, flight, q):
    """A message is handed over at `time` s to its connection on link e; links come as a tuple."""
    joined(Links(*links), e, time, what, flight, q)


@lean_kernel
def crossing_flows(down, up, desk, until):
    """Let the flows of a desk go on until `until` s, or until one is over that was not before.

    down, up: a Links each as plain tuples, those whose flows are on side 0 and 1 of the line.
    Return which is over (-1: none), when its message is there, s, and when something happens next,
    s. Flows that are over stay until all of their segments are answered.
    """
    both = Links(*down), Links(*up)
    flows, flights, states, ends, leaving = desk
    slots, time = flows[3], 0.0
    while True:
        for r in range(slots.shape[0]):
            q = states[slots[r]]
            if over(q) and q[TAG] == 0.0:
                q[TAG] = 1.0
                return r, q[THERE], time
        time, r = step(both, flows, flights, states, ends, leaving, until, True)
        if r < 0:
            return -1, np.inf, time


@lean_kernel
def let_go(links, e, flight, q):
    """Note what the connection remembers of a message that is over, answered or not.

    What is not will be as if it met nothing. links come as a plain tuple.
    """
    links_ = Links(*links)
    m, late = links_.transport.memory[e], DELAY + way_back(links_, e)
    while q[ANSWERED] < q[ONLINE]:
        flight[ACKS, int(q[ANSWERED]) % flight.shape[1]] += late
        q[ANSWERED] += 1.0
    last = m[LAST]
    closed(flight, q, m)
    m[LAST] = last
