"""How long bits take to leave on a link, at a rate that holds or changes in time."""

from desim.network.timeline.fluid import fluid, sent_by
from desim.numerics.jit import lean_inline


@lean_inline
def time_on_wire(links, e, begin, bits):
    """How long `bits` take to leave on link e from `begin` s on, in s."""
    if links.plays.shape[1] == 0:
        return bits / links.wires[1, e]
    first, last = links.plays[0, e], links.plays[1, e]
    return fluid(links.samples, first, last, links.loops, begin + links.wires[2, e], bits)


@lean_inline
def carried(links, e, begin, end):
    """The bits that leave on link e from `begin` to `end` s if one message has all its rate."""
    if links.plays.shape[1] == 0:
        return links.wires[1, e] * (end - begin)
    first, last, start = links.plays[0, e], links.plays[1, e], links.wires[2, e]
    before = sent_by(links.samples, first, last, links.loops, begin + start)
    return sent_by(links.samples, first, last, links.loops, end + start) - before
