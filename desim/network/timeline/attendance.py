"""Computations of agents that come and go: what is lost when its agent leaves is begun again.

An attempt begins when its agent is up, and is done if the agent stays for so long; one that ends
at the very time at which its agent leaves is done. Those that absences have ended are noted here,
and written to the log afterwards: there may be any number of them.
"""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.phases import ALWAYS, Calendar, presence
from desim.network.timeline.record import UPLINK, Kind, Rows, write
from desim.network.timeline.speed import Speeds, seconds_for
from desim.numerics.jit import lean_inline, lean_kernel

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
