"""Timeline of clients that a coordinator calls: downlink, computation, uplink in one pass."""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.computations import (
    Attendance,
    Speeds,
    leaves,
    overhead_of,
    seconds_for,
    undisturbed,
)
from desim.network.timeline.messages import DELIVER, SEND, Links, transmit
from desim.network.timeline.record import UPLINK, Kind, Rows, charge, release_id, write
from desim.network.timeline.together import DOWN, PACE, TOGETHER, UP, draw_calls, lawful, plain
from desim.network.timeline.waiting_rule import learn, nothing_seen
from desim.numerics.jit import lean_inline, lean_kernel

ACTIVATE, COMPUTE, ABORT, RELEASE = (
    int(k) for k in (Kind.ACTIVATE, Kind.COMPUTE, Kind.ABORT, Kind.RELEASE)
)
PENDING, CALLED, LOGGED, ROUND, EXCHANGE, BITS, MECHANISM, SEEN_BY = range(8)
SENT, BEGIN, FINISH, DUE, SENSITIVITY, SCALE, SAMPLING, TAKEN = range(8)


class Calls(NamedTuple):
    """The latest call of every agent: few arrays, so that compiled calls stay cheap.

    An agent's numbers are side by side: it is called and replies alone, where nobody waits. whole
    (agents, 8): PENDING a reply is awaited, CALLED round of the latest call; of the latest one that
    arrived: LOGGED its rows are written, ROUND, EXCHANGE, BITS of the reply, MECHANISM, SEEN_BY of
    its release. real (agents, 8): SENT s of the latest call, BEGIN, FINISH s of the computation,
    DUE s of the awaited reply at the coordinator, SENSITIVITY, SCALE, SAMPLING, and when s the call
    was TAKEN: the computation begins then, or when its agent is up for long enough. seen (agents,
    2): how long the latest reply TOOK, see `limit` of timeline.collection.
    """

    whole: np.ndarray
    real: np.ndarray
    seen: np.ndarray

    @property
    def pending(self) -> np.ndarray:
        """Agents (agents,) whose reply is awaited."""
        return np.asarray(self.whole[:, PENDING])

    @property
    def round_(self) -> np.ndarray:
        """Round (agents,) of the latest call."""
        return np.asarray(self.whole[:, CALLED])

    @property
    def due(self) -> np.ndarray:
        """When (agents,) s the replies arrive."""
        return np.asarray(self.real[:, DUE])

    @property
    def sent(self) -> np.ndarray:
        """When (agents,) s the latest calls were sent."""
        return np.asarray(self.real[:, SENT])

    @property
    def took(self) -> np.ndarray:
        """How long (agents,) s the latest reply took from its call, or was waited for; or 0."""
        return np.asarray(self.seen[:, 0])

    def traffic(self, who: np.ndarray) -> tuple[np.ndarray, ...]:
        """When replies of agents who (n,) were sent, s, and bits; by cohort and compiled engine."""
        return self.real[who, FINISH], self.whole[who, BITS]


def no_calls(agents: int) -> Calls:
    """Return the state before any call."""
    calls = Calls(np.zeros((agents, 8), np.int64), np.zeros((agents, 8)), nothing_seen(agents))
    calls.whole[:, LOGGED] = 1
    calls.real[:, DUE] = np.inf
    return calls


@lean_inline
def carry(links, e, time, round_, exchange, bits, release, side, jitter, rows):
    """As `transmit`, logged; jitter: what the only attempt draws, nan where it is not known yet."""
    if jitter != jitter:
        return transmit(links, e, time, round_, exchange, bits, release, side, True, rows)
    source, target, size = links.ends[0, e], links.ends[1, e], (bits + 7) // 8
    wire = bits / links.wires[1, e]
    delay = links.wires[0, e] * jitter + wire
    arrival = time + delay
    write(rows, SEND, side, source, target, round_, size, release, time, wire, 0)
    write(rows, DELIVER, side, target, source, round_, size, release, arrival, delay, 0)
    return arrival


@lean_inline
def settle(calls, i, cut, uplinks, jitter, rows, charges):
    """Write what became of agent i's call, interrupted at `cut` s if it still computed then.

    jitter: of its reply, nan where it is not known yet. Return when the reply arrives, s; inf if it
    never does.
    """
    whole, real = calls.whole, calls.real
    if whole[i, LOGGED]:
        return np.inf
    whole[i, LOGGED] = 1
    begin, finish, round_ = real[i, BEGIN], real[i, FINISH], whole[i, ROUND]
    if not begin < cut:
        return np.inf
    if cut < finish:
        write(rows, ABORT, UPLINK, i, -1, round_, 0, -1, cut, cut - begin, 0.0)
        return np.inf
    if finish == np.inf:
        return np.inf
    write(rows, COMPUTE, UPLINK, i, -1, round_, 0, -1, finish, finish - begin, 0.0)
    exchange = whole[i, EXCHANGE]
    release = release_id(whole.shape[0], i, round_, exchange)
    write(rows, RELEASE, UPLINK, i, -1, round_, 0, release, finish, 0.0, 0.0)
    bits = whole[i, BITS]
    arrival = carry(uplinks, i, finish, round_, exchange, bits, release, UPLINK, jitter, rows)
    delivered = 1 if arrival < np.inf else 0
    mechanism, seen_by = whole[i, MECHANISM], whole[i, SEEN_BY]
    sensitivity, scale, sampling = real[i, SENSITIVITY], real[i, SCALE], real[i, SAMPLING]
    charge(
        charges, finish, i, round_, release, mechanism, seen_by, delivered, sensitivity, scale,
        sampling,
    )  # fmt: skip
    return arrival


@lean_inline
def noted(calls, i, round_, exchange, reply_bits, terms):
    """Note what agent i has been asked for, the call having arrived."""
    (mechanism, seen_by, amounts), whole, real = terms, calls.whole, calls.real
    whole[i, LOGGED] = 0
    whole[i, ROUND], whole[i, EXCHANGE], whole[i, BITS] = round_, exchange, reply_bits
    whole[i, MECHANISM], whole[i, SEEN_BY] = mechanism, seen_by
    real[i, SENSITIVITY], real[i, SCALE] = amounts[0, i], amounts[1, i]
    real[i, SAMPLING] = amounts[2, i]


@lean_inline
def compute(i, begin, seconds, jitter, defer, up, calls, rows, charges):
    """Agent i computes from `begin` s on, for so many s, and replies; see `call`."""
    real, whole = calls.real, calls.whole
    real[i, BEGIN], real[i, FINISH] = begin, begin + seconds
    if not defer:
        real[i, DUE] = settle(calls, i, np.inf, up, jitter, rows, charges)
    elif real[i, FINISH] < np.inf:
        real[i, DUE] = transmit(
            up, i, real[i, FINISH], whole[i, ROUND], whole[i, EXCHANGE], whole[i, BITS], -1,
            UPLINK, False, rows,
        )  # fmt: skip


@lean_inline
def call(who, now, round_, exchange, bits, reply_bits, work, defer, terms, devices, book):
    """The coordinator calls agents who (n,) at `now` s with `bits`; fills calls and the log.

    work (agents,): per-example gradient evaluations; terms (mechanism, seen by, (3, agents)).
    defer: a later call interrupts this one, so its rows wait until what became of it is known.
    Calls to one agent are taken in the order in which they were sent, as in a TCP stream. devices
    (Speeds, Links down, Links up, memory of `draw_calls`, Attendance) and book (Calls, Rows of
    events, Rows of releases) come as plain tuples.
    """
    speeds, down, up = Speeds(*devices[0]), Links(*devices[1]), Links(*devices[2])
    calls, rows, charges = Calls(*book[0]), Rows(*book[1]), Rows(*book[2])
    whole, real, drawn, attendance = calls.whole, calls.real, devices[3][0], Attendance(*devices[4])
    early = not defer and plain(down) and plain(up) and lawful(speeds)
    there = back = np.nan
    for r in range(who.shape[0]):  # all of one kind in a row: almost the order of the log
        write(rows, ACTIVATE, 0, who[r], -1, round_, 0, -1, now, 0.0, 0.0)
    for r in range(who.shape[0]):
        i, place = who[r], r % TOGETHER
        if early and place == 0:
            some = who[r : min(r + TOGETHER, who.shape[0])]
            draw_calls(speeds, down, up, some, round_, exchange, devices[3])
        if early:
            there, back = drawn[DOWN, place], drawn[UP, place]
        begin = carry(down, i, now, round_, exchange, bits, -1, 0, there, rows)
        whole[i, PENDING], whole[i, CALLED] = 1, round_
        real[i, SENT], real[i, DUE] = now, np.inf
        if begin < np.inf:
            begin = real[i, TAKEN] = max(begin, real[i, TAKEN])
            settle(calls, i, begin, up, np.nan, rows, charges)
            noted(calls, i, round_, exchange, reply_bits, terms)
            if leaves(attendance):
                begin, seconds = undisturbed(i, begin, round_, work[i], speeds, attendance)
            elif early:
                seconds = overhead_of(speeds, i, round_) + work[i] / drawn[PACE, place]
            else:
                seconds = seconds_for(speeds, i, round_, begin, work[i])
            compute(i, begin, seconds, back, defer, up, calls, rows, charges)


@lean_kernel
def post(who, now, round_, exchange, bits, down, calls, log):
    """Send agents who (n,) a message of `bits` at `now` s that asks for no reply.

    Its receiver takes later calls after it. down (Links), calls and log come as plain tuples.
    """
    downlinks, rows, real = Links(*down), Rows(*log), Calls(*calls).real
    for r in range(who.shape[0]):
        i = who[r]
        arrival = transmit(downlinks, i, now, round_, exchange, bits, -1, 0, True, rows)
        if arrival < np.inf:
            real[i, TAKEN] = max(real[i, TAKEN], arrival)


@lean_inline
def learned(who, now, calls_):
    """Note how long replies took of agents who (n,), here at `now` s, and how long others may.

    Whose reply is still awaited takes at least as long as it has been waited for.
    """
    calls = Calls(*calls_)
    pending, sent, due = calls.whole[:, PENDING], calls.real[:, SENT], calls.real[:, DUE]
    for i in range(pending.shape[0]):
        if pending[i] and due[i] > now:
            learn(calls.seen, i, now - sent[i], False)
    for r in range(who.shape[0]):
        learn(calls.seen, who[r], due[who[r]] - sent[who[r]], True)


@lean_inline
def settle_due(until, devices, book):
    """Write the rows of the calls whose computation was over by `until` s: nothing stops them."""
    uplinks = Links(*devices[2])
    calls, rows, charges = Calls(*book[0]), Rows(*book[1]), Rows(*book[2])
    for i in range(calls.real.shape[0]):
        if calls.real[i, FINISH] <= until:
            settle(calls, i, np.inf, uplinks, np.nan, rows, charges)
