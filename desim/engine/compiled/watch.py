"""What compiled rounds keep for whoever observes them: no more than is looked at."""

from typing import NamedTuple

import numpy as np

from desim.numerics.jit import lean_inline
from desim.problem.kernels.tally import Tally, moved

KEPT, INSTANT = range(2)  # columns of Watch.counts


class Watch(NamedTuple):
    """What is observed of a block of rounds, apart from times and the coordinator's models.

    copies (most or 0, agents, dim): the agents' models before each round in whose course an
    observation was due; places (most,): those rounds' places in the block; counts (2,): copies
    made, and the next observation's number; limits (every s, observations at most, norm, goal): the
    block ends once the error, the tally's sum by norm, is at most the goal; tally: a plain tuple;
    errors (rounds or 0,): after each round.
    """

    copies: np.ndarray
    places: np.ndarray
    counts: np.ndarray
    limits: tuple[float, int, float, float]
    tally: tuple[np.ndarray, ...] | Tally
    errors: np.ndarray


@lean_inline
def due(k, close, watch_):
    """Round k of the block closes at `close` s: the place of the copy of models before it, or -1.

    There is one if an observation is due by then.
    """
    watch = Watch(*watch_)
    counts, every = watch.counts, watch.limits[0]
    if watch.copies.shape[0] == 0 or counts[INSTANT] * every > close:
        return -1
    place = counts[KEPT]
    watch.places[place] = k
    counts[KEPT] += 1
    while counts[INSTANT] * every < close and counts[INSTANT] <= watch.limits[1]:
        counts[INSTANT] += 1
    return place


@lean_inline
def full(watch_):
    """Whether no further copy can be made, or no further observation is wanted: a block ends."""
    watch = Watch(*watch_)
    room, counts = watch.copies.shape[0], watch.counts
    return room > 0 and (counts[KEPT] == room or counts[INSTANT] > watch.limits[1])


@lean_inline
def copied(place, x, watch_):
    """Keep models x (agents, dim) as copy number `place`; -1: no copy is due."""
    watch = Watch(*watch_)
    if place < 0:
        return
    copy = watch.copies[place]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            copy[i, j] = x[i, j]


@lean_inline
def met(k, who, x, watch_):
    """Agents who (n,) have models x anew in round k: note the error; return if it is the goal."""
    watch = Watch(*watch_)
    if watch.errors.shape[0] == 0:
        return False
    error = moved(who, who.shape[0], x, watch.tally) / watch.limits[2]
    watch.errors[k] = error
    return error <= watch.limits[3]


@lean_inline
def sound(x, y):
    """Whether all numbers of models x (agents, dim) and y (dim,) are finite."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if not np.isfinite(x[i, j]):
                return False
    for j in range(y.shape[0]):
        if not np.isfinite(y[j]):
            return False
    return True
