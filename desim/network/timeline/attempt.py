"""What one attempt to send meets on a link, or on both hops of one: how late, and whether lost."""

from desim.network.timeline.bursts import in_burst
from desim.numerics.distributions import sample
from desim.numerics.jit import lean_inline
from desim.numerics.keys import Stream, address, counter, uniform

ATTEMPTS = 1 << 8  # sub-counters that the attempts of one message may use
LOSS_INDEX = 32  # the jitter draw of an attempt uses indices below
ONWARD = 2  # added to an index for what the second hop of a message draws
HUB = -1  # the node in the middle of two hops
LINK = int(Stream.LINK)


@lean_inline
def trial(links, e, begin, round_, exchange, attempt):
    """The latency s of an attempt on link e that begins at `begin` s, and whether it is lost."""
    source, target = links.ends[0, e], links.ends[1, e]
    k1, c0 = address(LINK, source, target), counter(round_, exchange * ATTEMPTS + attempt)
    kind, a, b = links.jitter
    latency = links.wires[0, e] * sample(kind, a, b, links.seed, k1, c0, 0)
    share, inside = links.loss
    other = target if links.onward.shape[0] == 0 else HUB
    if share != inside and in_burst(links.seed, source, other, links.bursts, begin):
        share = inside
    lost = share > 0.0 and uniform(links.seed, k1, c0, LOSS_INDEX) < share
    if links.onward.shape[0] > 0:
        later, gone = second_hop(links, e, begin, k1, c0)
        latency, lost = latency + later, lost or gone
    return latency, lost


@lean_inline
def second_hop(links, e, begin, k1, c0):
    """What an attempt meets after the node in the middle: latency s, and whether it is lost."""
    law, bursts = links.onward, (links.onward[5], links.onward[6])
    factor = sample(int(law[0]), law[1], law[2], links.seed, k1, c0, ONWARD)
    latency, share, inside = links.wires[3, e] * factor, law[3], law[4]
    if share != inside and in_burst(links.seed, links.ends[1, e], HUB, bursts, begin):
        share = inside
    return latency, share > 0.0 and uniform(links.seed, k1, c0, LOSS_INDEX + ONWARD) < share
