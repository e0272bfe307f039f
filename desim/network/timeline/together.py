"""Draws of many agents in loops that vectorise; each has the bits that it has alone."""

import numpy as np

from desim.network.timeline.attempt import ATTEMPTS, LINK
from desim.network.timeline.speed import OVER_TIME, SPEED, paced
from desim.numerics.distributions import CONSTANT, EXPONENTIAL, LOGNORMAL, NORMAL, UNIFORM, sample
from desim.numerics.elementary import exp_, log_, sincos_turn
from desim.numerics.jit import lean_inline
from desim.numerics.keys import address, counter, exponential, open_unit, threefry, uniform

TOGETHER = 256  # agents whose draws are made at once
DOWN, UP, PACE = range(3)  # rows of what `draw_calls` fills


@lean_inline
def normals_apart(seed, keys, c0, out):
    """Fill out (n,) with draw 0 of `keys.normal` at each address (seed, keys[r], c0).

    keys (n,) are used up. One loop for all that a draw takes has more numbers than registers.
    """
    for r in range(out.shape[0]):
        a, b = threefry(seed, keys[r], c0, 0)
        out[r], keys[r] = open_unit(a), b
    for r in range(out.shape[0]):
        _, cosine = sincos_turn(open_unit(keys[r]))
        out[r] = np.sqrt(-2.0 * log_(out[r])) * cosine


@lean_inline
def normal_pairs(seed, places, pairs):
    """Fill pairs (2, n) with `keys.normal_pair` at places (3, n): key, counter and block."""
    for r in range(pairs.shape[1]):
        a, b = threefry(seed, places[0, r], places[1, r], places[2, r])
        pairs[0, r], pairs[1, r] = open_unit(a), open_unit(b)
    for r in range(pairs.shape[1]):
        radius = np.sqrt(-2.0 * log_(pairs[0, r]))
        sine, cosine = sincos_turn(pairs[1, r])
        pairs[0, r], pairs[1, r] = radius * cosine, radius * sine


@lean_inline
def samples_into(law, seed, keys, c0, out):
    """Fill out (n,) with draw 0 of law (kind, a, b) at each address (seed, keys[r], c0).

    keys (n,) may be used up. A loop whose law is known has no branch in it, and vectorises.
    """
    kind, a, b = law
    if kind == CONSTANT:
        for r in range(out.shape[0]):
            out[r] = a
    elif kind == LOGNORMAL:
        normals_apart(seed, keys, c0, out)
        for r in range(out.shape[0]):
            out[r] = a * exp_(b * out[r])
    elif kind == NORMAL:
        normals_apart(seed, keys, c0, out)
        for r in range(out.shape[0]):
            out[r] = max(0.0, a + b * out[r])
    elif kind == EXPONENTIAL:
        for r in range(out.shape[0]):
            out[r] = a * exponential(seed, keys[r], c0, 0)
    elif kind == UNIFORM:
        for r in range(out.shape[0]):
            out[r] = a + (b - a) * uniform(seed, keys[r], c0, 0)
    else:
        for r in range(out.shape[0]):
            out[r] = sample(kind, a, b, seed, keys[r], c0, 0)


@lean_inline
def jitters_into(links, edges, round_, exchange, keys, out):
    """Fill out (n,) with the jitter of the first attempt on links edges (n,)."""
    for r in range(out.shape[0]):
        keys[r] = address(LINK, links.ends[0, edges[r]], links.ends[1, edges[r]])
    samples_into(links.jitter, links.seed, keys, counter(round_, exchange * ATTEMPTS), out)


@lean_inline
def speeds_drawn(speeds, who, round_, keys, out):
    """Fill out (n,) with the speeds 1/s of agents who (n,), which a law gives."""
    for r in range(out.shape[0]):
        keys[r] = address(SPEED, who[r], -1)
    c0 = counter(round_ if speeds.redraw else 0, 0)
    samples_into(speeds.law, speeds.seed, keys, c0, out)
    for r in range(out.shape[0]):
        out[r] = paced(speeds, out[r], who[r])


@lean_inline
def draw_calls(speeds, down, up, who, round_, exchange, memory):
    """Fill drawn (3, n or more) with what calls to agents who (n,) draw; memory (drawn, keys)."""
    drawn, keys, n = memory[0], memory[1], who.shape[0]
    jitters_into(down, who, round_, exchange, keys[:n], drawn[DOWN, :n])
    jitters_into(up, who, round_, exchange, keys[:n], drawn[UP, :n])
    speeds_drawn(speeds, who, round_, keys[:n], drawn[PACE, :n])


def memory_for_draws():
    """The memory of `draw_calls`."""
    return np.empty((3, TOGETHER)), np.empty(TOGETHER, np.uint64)


@lean_inline
def plain(links):
    """As `Links.plain`: every first attempt gets through, at a rate that holds."""
    safe = links.loss[0] == 0.0 and links.loss[1] == 0.0 and links.receivers.starts.shape[0] == 0
    ideal = links.transport.law.shape[1] == 0
    return safe and ideal and not links.once and links.plays.shape[1] == 0


@lean_inline
def lawful(speeds):
    """Whether speeds come from a law and stay the same during a computation."""
    constant = speeds.order != OVER_TIME and speeds.spells[0] == 1.0
    return constant and speeds.measured.shape[1] == 0
