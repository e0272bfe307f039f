"""How long computations take on agents that are slow at times, leave and come back."""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.link_laws import fluid, last_below
from desim.network.timeline.record import UPLINK, Kind, Rows, write
from desim.numerics.distributions import CONSTANT, sample
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import Stream, address, counter, integer

# States that agents change in the course of time: up or down, at full speed or slowed. What holds
# at a time s is a pure function of seed, agent and time, whoever asks and in which order. Turns of
# an alternation are drawn one after the other at addresses of their own, so that their ends are
# sums; where the last question of an agent was answered is kept only to go on from there.

ALTERNATING, DAILY, TRACED = range(3)
CHURN = int(Stream.CHURN)
SECOND = 64  # index of the draw of a second state, whose turn has the address of the first's


@lean_inline
def alternation(seed, stream, step, laws, agent, time, memory):
    """Whether an agent is in the first of two states at `time` s, and until when, s.

    laws: (kind, a, b) s of a turn of the first state, with which all begin, and of the second.
    memory (3, agents): turns begun, begin s and end s of the latest one; zeros before any question.
    """
    turns, begin, end = int(memory[0, agent]), memory[1, agent], memory[2, agent]
    if time < begin:
        turns, begin, end = 0, 0.0, 0.0
    k1 = address(stream, agent, -1)
    while end <= time:
        first = turns % 2 == 0
        kind, a, b = laws[0] if first else laws[1]
        c0 = counter(turns // 2, step)
        begin, end = end, end + sample(kind, a, b, seed, k1, c0, 0 if first else SECOND)
        turns += 1
    memory[0, agent], memory[1, agent], memory[2, agent] = turns, begin, end
    return turns % 2 == 1, end


class Calendar(NamedTuple):
    """When agents are up.

    kind ALTERNATING: laws (kind, a, b) s of the times up and down. DAILY: up each day from starts
    (agents,) s on, for a time drawn from the first law, at most the whole day s. TRACED: samples
    (2, n): time s and 1 (up) or 0 from then on; agent i plays columns plays[0, i] to plays[1, i],
    the last of which is the end, from starts[i] s on; loops: and then again from the first, else
    its last state stays. memory (3, agents): see `alternation`.
    """

    kind: int
    seed: np.uint64
    laws: tuple[tuple[int, float, float], tuple[int, float, float]]
    day: float
    starts: np.ndarray
    plays: np.ndarray
    samples: np.ndarray
    loops: bool
    memory: np.ndarray


ALWAYS = Calendar(  # of no agent: whoever is asked for does not leave
    ALTERNATING, np.uint64(0), ((0, 1.0, 0.0), (0, 1.0, 0.0)), 1.0, np.zeros(0),
    np.empty((2, 0), np.int64), np.empty((2, 0)), False, np.zeros((3, 0)),
)  # fmt: skip


@lean_inline
def _daily(calendar, agent, time):
    """Day n of an agent begins at starts + n day, n = -1, 0, 1, ..."""
    start, day = calendar.starts[agent], calendar.day
    n = int(np.floor((time - start) / day))
    if start + n * day > time:
        n -= 1
    if start + (n + 1) * day <= time:
        n += 1
    kind, a, b = calendar.laws[0]
    c0 = counter(n + 1, 0)
    lasts = sample(kind, a, b, calendar.seed, address(CHURN, agent, -1), c0, 0)
    begin, end = start + n * day, start + (n + 1) * day
    leaves = min(begin + lasts, end)
    return (True, leaves) if time < leaves else (False, end)


@lean_inline
def _traced(calendar, agent, time):
    first, last = calendar.plays[0, agent], calendar.plays[1, agent]
    times, up, start = calendar.samples[0], calendar.samples[1], calendar.starts[agent]
    period = times[last]
    base = np.floor((time + start) / period) * period - start if calendar.loops else -start
    k = last_below(times, first, last, time - base)
    while k + 1 < last and base + times[k + 1] <= time:
        k += 1
    if k + 1 == last and not calendar.loops:
        return up[k] > 0.0, np.inf
    end = base + times[k + 1]
    if end <= time:  # by a rounding of the laps
        k, end = first, base + period + times[first + 1]
    return up[k] > 0.0, end


@lean_inline
def presence(calendar, agent, time):
    """Whether an agent is up at `time` s, and until when (s, inf: for good) that stays so.

    What follows may be the same state again.
    """
    if calendar.kind == ALTERNATING:
        return alternation(calendar.seed, CHURN, 0, calendar.laws, agent, time, calendar.memory)
    if calendar.kind == DAILY:
        return _daily(calendar, agent, time)
    return _traced(calendar, agent, time)


@lean_kernel
def is_up(calendar, agent, time):
    """As `presence`, from Python."""
    return presence(calendar, agent, time)


# Speeds of agents, drawn at addresses inside compiled timelines, and what computations take.

SPEED = int(Stream.SPEED)
DRAWN, IN_TURN, OVER_TIME = range(3)  # how an agent goes through measured speeds
SPELL = 3  # sub-counter of the draws of slow spells, apart from those of speeds and devices
OVERHEAD = 4  # sub-counter of those of overheads
INTAKE = 5  # and of those of what the coordinator needs for a reply


class Speeds(NamedTuple):
    """Speed model: law (kind, a, b) in 1/s (inverse: of one gradient, in s); redraw every round.

    devices (3, agents): what a speed is divided by, where in its trace an agent begins, s, and how
    much longer each of its computations takes whatever its speed, s.
    measured (r, n) takes the place of the law where n > 0. Row 0 holds speeds 1/s: agent i draws
    one of those from spans[0, i] up to spans[1, i] (order DRAWN), or goes through them round by
    round (IN_TURN) and then begins again (loops) or stays at the last. OVER_TIME its three rows are
    a trace, columns spans[0, i] to spans[1, i], as `fluid` takes it: the speed changes during a
    computation. spells: (factor, laws in s): at times an agent is slower by the factor, as
    `alternation` says, which also explains memory (3, agents). overhead: law (kind, a, b) in s of
    what each computation of a round takes before its first gradient, whatever the speed.
    """

    seed: np.uint64
    law: tuple[int, float, float]
    inverse: bool
    devices: np.ndarray
    redraw: bool
    measured: np.ndarray
    spans: np.ndarray
    order: int
    loops: bool
    spells: tuple[float, tuple[tuple[int, float, float], tuple[int, float, float]]]
    memory: np.ndarray
    overhead: tuple[int, float, float]

    @property
    def steady(self) -> bool:
        """Whether a speed stays the same during a round."""
        return self.order != OVER_TIME and self.spells[0] == 1.0

    @property
    def settled(self) -> bool:
        """Whether the same work takes an agent as long in every round, if that is steady."""
        return not self.redraw and self.overhead[0] == CONSTANT


@lean_inline
def paced(speeds, drawn, agent):
    """Speed 1/s of an agent for which the law of speeds has drawn that."""
    return (1.0 / drawn if speeds.inverse else drawn) / speeds.devices[0, agent]


@lean_inline
def speed_of(speeds, agent, round_):
    """Speed 1/s of `agent` in `round_`; the same in all rounds unless the model redraws.

    Where speeds change in the course of time, the one of full speed, or the mean of the trace.
    """
    k1 = address(SPEED, agent, -1)
    c0 = counter(round_ if speeds.redraw else 0, 0)
    if speeds.measured.shape[1] > 0:
        factor = speeds.devices[0, agent]
        first, last = speeds.spans[0, agent], speeds.spans[1, agent]
        if speeds.order == OVER_TIME:
            return speeds.measured[2, last] / speeds.measured[0, last] / factor
        turn = max(round_ - 1, 0)
        if speeds.order == DRAWN:
            turn = integer(speeds.seed, k1, c0, 0, last - first)
        elif speeds.loops:
            turn = turn % (last - first)
        return speeds.measured[0, first + min(turn, last - first - 1)] / factor
    kind, a, b = speeds.law
    return paced(speeds, sample(kind, a, b, speeds.seed, k1, c0, 0), agent)


@lean_inline
def overhead_of(speeds, agent, round_):
    """What a computation of `agent` in `round_` takes before its first gradient, s."""
    kind, a, b = speeds.overhead
    c0 = counter(round_, OVERHEAD)
    drawn = sample(kind, a, b, speeds.seed, address(SPEED, agent, -1), c0, 0)
    return drawn + speeds.devices[2, agent]


@lean_inline
def _with_spells(speeds, agent, begin, seconds):
    """How long what takes `seconds` s at full speed takes from `begin` s on, in s."""
    factor, laws = speeds.spells
    now, left = begin, seconds
    while True:
        full, until = alternation(speeds.seed, SPEED, SPELL, laws, agent, now, speeds.memory)
        pace = 1.0 if full else factor
        if now + left * pace <= until:
            return now + left * pace - begin
        left = max(left - (until - now) / pace, 0.0)
        now = until


@lean_inline
def seconds_for(speeds, agent, round_, begin, work):
    """How long `work` gradients of `round_` take an agent from `begin` s on, in s.

    The overhead comes first. Spells stretch it like the rest, slow devices do not.
    """
    overhead = overhead_of(speeds, agent, round_)
    if speeds.order == OVER_TIME and begin < np.inf:
        first, last = speeds.spans[0, agent], speeds.spans[1, agent]
        factor, place = speeds.devices[0, agent], speeds.devices[1, agent]
        start = begin + overhead + place
        return overhead + fluid(speeds.measured, first, last, speeds.loops, start, work * factor)
    seconds = overhead + work / speed_of(speeds, agent, round_)
    if speeds.spells[0] == 1.0 or begin == np.inf or not seconds < np.inf:
        return seconds
    return _with_spells(speeds, agent, begin, seconds)


@lean_kernel
def speeds_into(speeds, who, round_, out):
    """Fill out[r] with the speed 1/s of agent who[r] in round_[r]."""
    for r in range(who.shape[0]):
        out[r] = speed_of(speeds, who[r], round_[r])


@lean_kernel
def overheads_into(speeds, who, round_, out):
    """Fill out[r] with the overhead s of agent who[r] in round_[r]."""
    for r in range(who.shape[0]):
        out[r] = overhead_of(speeds, who[r], round_[r])


@lean_kernel
def seconds_into(speeds, who, round_, begin, work, out):
    """Fill out[r] with how long work[r] gradients take agent who[r] from begin[r] s on, in s."""
    for r in range(who.shape[0]):
        out[r] = seconds_for(speeds, who[r], round_[r], begin[r], work[r])


def fitting(speed, seconds):
    """How many gradient evaluations (n,) fit into seconds s, at least 0, at speeds (n,) 1/s.

    seconds: a number, or (n,), what an overhead leaves: less than 0 where that is longer.
    """
    most = np.fmin(speed * seconds * (1.0 + 1e-12), float(1 << 40))  # of no time at no end: all
    return np.maximum(np.floor(most), 0.0).astype(np.int64)


# What it takes a coordinator to take replies in: one after the other, once a collection closes.

NUMBER = 64.0  # bits
AT_WORK = int(Kind.ACTIVATE - Kind.COMPUTE)  # side: at its end the coordinator may call agents


class Intake(NamedTuple):
    """The coordinator's work: law (kind, a, b) of s for every reply, and s for every number of it.

    A draw has the address of the agent that replies, and of the call that it answers.
    """

    seed: np.uint64
    reply: tuple[int, float, float]
    number: float


AT_ONCE = Intake(np.uint64(0), (CONSTANT, 0.0, 0.0), 0.0)


@lean_inline
def takes(intake):
    """Whether the coordinator's work takes any time."""
    kind, a, _ = intake.reply
    return kind != CONSTANT or a > 0.0 or intake.number > 0.0


@lean_inline
def taken_in(intake, agent, round_, exchange, bits, since):
    """When the reply of an agent to the call of (round, exchange) is taken in, s, begun `since`."""
    kind, a, b = intake.reply
    c0 = counter(round_, INTAKE)
    reply = sample(kind, a, b, intake.seed, address(SPEED, -1, agent), c0, exchange)
    return since + (reply + intake.number * (bits / NUMBER))


@lean_kernel
def all_taken_in(intake, who, round_, exchange, bits, since):
    """When the replies (n,) of agents who (n,), ascending, are taken in, one after the other, s."""
    for r in range(who.shape[0]):
        since = taken_in(intake, who[r], round_[r], exchange[r], bits[r], since)
    return since


# Computations of agents that come and go: what is lost when its agent leaves is begun again.
# An attempt begins when its agent is up, and is done if the agent stays for so long; one that ends
# at the very time at which its agent leaves is done. Those that absences have ended are noted here,
# and written to the log afterwards: there may be any number of them.

DOWN, UP, ABORT = int(Kind.DOWN), int(Kind.UP), int(Kind.ABORT)
HORIZON, TURNS, PACE, MANY, ROUNDING = range(5)  # columns of Attendance.limits
NEVER, OFTEN, ENDLESS = range(3)  # no presence is as long; one attempt of many; too many turns


class Attendance(NamedTuple):
    """When agents are up, and the computations whose first attempt an absence has ended.

    calendar: of no agent where nobody leaves. limits (5,): horizon s; turns up and down after each
    so many of which it is looked whether they are too many, turns per s that are; attempts at one
    computation that are many; 1 and a rounding. longest (agents,) s that each is ever up. ints
    (room, 2): agent and round of such a computation; floats (room, 2): since when s it was asked
    for, and its work in gradients. n (1,): how many these are.
    """

    calendar: Calendar
    limits: np.ndarray
    longest: np.ndarray
    ints: np.ndarray
    floats: np.ndarray
    n: np.ndarray


def nobody_leaves() -> Attendance:
    """Attendance where there is no churn."""
    ints, floats = np.empty((0, 2), np.int64), np.empty((0, 2))
    return Attendance(ALWAYS, np.zeros(5), np.zeros(0), ints, floats, np.zeros(1, np.int64))


@lean_inline
def leaves(attendance):
    """Whether any agent ever leaves."""
    return attendance.calendar.starts.shape[0] > 0


@lean_inline
def attempt(agent, time, round_, work, turns, speeds, attendance):
    """The first attempt at a computation of `work` gradients from `time` s on.

    turns: of the agent since it was asked. Return when the attempt begins, s (inf: not yet, or
    never), how long it takes, s, when an absence ends it, s (inf: none does), and the turns by
    then; minus those where it is given up: after the horizon, or after too many turns.
    """
    begin, seconds, limits = np.inf, np.inf, attendance.limits
    here, until = presence(attendance.calendar, agent, time)
    while True:
        if here and begin == np.inf:
            begin = time
            seconds = seconds_for(speeds, agent, round_, begin, work)
        if (here and begin + seconds <= until) or until == np.inf:
            return begin, seconds, np.inf, turns
        time, turns = until, turns + 1
        far = turns % limits[TURNS] == 0.0 and turns > limits[PACE] * time
        if far or time > limits[HORIZON]:
            return begin, seconds, time, -turns
        here, until = presence(attendance.calendar, agent, time)
        if begin < np.inf and not here:
            return begin, seconds, time, turns


@lean_kernel
def undisturbed(agent, asked, round_, work, speeds, attendance):
    """When the attempt that counts begins, s, and how long it takes, s; asked for at `asked` s.

    (inf, inf) if the agent never comes back. What absences ended before is noted.
    """
    time, turns, left = asked, 0, 0.0
    begin = seconds = np.inf
    while left < np.inf and turns >= 0:
        begin, seconds, left, turns = attempt(agent, time, round_, work, turns, speeds, attendance)
        time = left
    if begin != asked or left < np.inf:
        n = attendance.n[0]
        attendance.ints[n, 0], attendance.ints[n, 1] = agent, round_
        attendance.floats[n, 0], attendance.floats[n, 1] = asked, work
        attendance.n[0] = n + 1
    return (begin, seconds) if left == np.inf else (left, np.inf)


@lean_kernel
def write_aborts(k, state, speeds, attendance, notes, log):
    """Write the attempts that noted computation k has lost; return whether that is all of them.

    state (5,): time s to go on from, attempts, turns, s of the latest that no presence is as long
    as, and notes; as at the start: since when it was asked for, 0, 0, -1, 0. notes (NOTES, 4): what
    is noted of an attempt, its begin s, seconds and turns. All else comes as plain tuples.
    """
    speeds_, rows, who = Speeds(*speeds), Rows(*log), Attendance(*attendance)
    agent, round_, work = who.ints[k, 0], who.ints[k, 1], who.floats[k, 1]
    while max(rows.n[0], rows.n[1]) < rows.ints.shape[0]:
        begin, seconds, left, turns = attempt(
            agent, state[0], round_, work, int(state[2]), speeds_, who
        )
        if begin < np.inf:
            state[1] += 1.0
            never = who.longest[agent] * who.limits[ROUNDING] < seconds and seconds < np.inf
            if never and seconds != state[3]:
                noted(NEVER, begin, seconds, turns, state, notes)
                state[3] = seconds
            if state[1] == who.limits[MANY]:
                noted(OFTEN, begin, seconds, turns, state, notes)
        if left == np.inf:
            return True
        if turns < 0:
            if left <= who.limits[HORIZON]:
                noted(ENDLESS, left, seconds, -turns, state, notes)
            return True
        write(rows, ABORT, UPLINK, agent, -1, round_, 0, -1, left, left - begin, 0.0)
        state[0], state[2] = left, turns
    return False


@lean_inline
def noted(what, time, seconds, turns, state, notes):
    """Note what is to be told of a computation at `time` s; room is kept for OFTEN and ENDLESS."""
    if state[4] < notes.shape[0] - (2 if what == NEVER else 0):
        note = notes[int(state[4])]
        note[0], note[1], note[2], note[3] = what, time, seconds, turns
        state[4] += 1.0


@lean_kernel
def write_turns(first, calendar, limits, turns, following, until, log):
    """Write who leaves and who comes back before `until` s, from agent `first` on.

    turns (2, agents): how often each turned, and 1 if it is up; following (agents,): when s it
    turns next; limits as Attendance has them. Return the agent to go on with when there is room
    again, or `agents`, and whether that one turns too often to go on at all.
    """
    rows = Rows(*log)
    for i in range(first, following.shape[0]):
        while following[i] < until:
            if max(rows.n[0], rows.n[1]) >= rows.ints.shape[0]:
                return i, False
            time = following[i]
            if time > 0.0:
                turns[0, i] += 1
                often = turns[0, i] % limits[TURNS] == 0.0 and limits[HORIZON] < np.inf
                if often and turns[0, i] > limits[PACE] * time:
                    return i, True
            here, following[i] = presence(calendar, i, time)
            if here != (turns[1, i] == 1):
                turns[1, i] = 1 if here else 0
                write(rows, UP if here else DOWN, 0, i, -1, 0, 0, -1, time, 0.0, 0.0)
    return following.shape[0], False
