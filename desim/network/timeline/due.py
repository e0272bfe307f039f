"""Replies by the time at which they are due: a binary heap in arrays, and ascending agents."""

from desim.numerics.jit import lean_inline


@lean_inline
def push(times, agents, n, time, agent):
    """Add (time, agent) to a heap of n entries, in place."""
    place = n
    while place > 0:
        parent = (place - 1) // 2
        if times[parent] <= time:
            break
        times[place], agents[place] = times[parent], agents[parent]
        place = parent
    times[place], agents[place] = time, agent


@lean_inline
def pop(times, agents, n):
    """Remove the earliest of a heap of n entries, in place; return its agent."""
    first, time, agent = agents[0], times[n - 1], agents[n - 1]
    place, last = 0, n - 1
    while 2 * place + 1 < last:
        child = 2 * place + 1
        if child + 1 < last and times[child + 1] < times[child]:
            child += 1
        if time <= times[child]:
            break
        times[place], agents[place] = times[child], agents[child]
        place = child
    times[place], agents[place] = time, agent
    return first


@lean_inline
def ascending(who, n):
    """Sort who[:n] in place: by insertion where it is short, as a heap where it is long."""
    if n <= 32:
        for k in range(1, n):
            agent, place = who[k], k
            while place > 0 and who[place - 1] > agent:
                who[place] = who[place - 1]
                place -= 1
            who[place] = agent
        return
    for start in range(n // 2 - 1, -1, -1):
        _sink(who, start, n)
    for last in range(n - 1, 0, -1):
        who[0], who[last] = who[last], who[0]
        _sink(who, 0, last)


@lean_inline
def _sink(who, start, n):
    agent, place = who[start], start
    while 2 * place + 1 < n:
        child = 2 * place + 1
        if child + 1 < n and who[child + 1] > who[child]:
            child += 1
        if agent >= who[child]:
            break
        who[place] = who[child]
        place = child
    who[place] = agent
