"""When messages arrive that lines of TCP carry in turn, for many latencies and rates at once."""

from typing import Any

from desim.arrays import Array
from desim.network.timeline.flow import carried
from desim.numerics.jit import lean_kernel


@lean_kernel
def all_carried(
    links: Any, line: Any, begin: Any, bits: Any, latency: Any, rate: Any, factor: float, out: Array
) -> None:
    """Fill out (k, n) with when messages arrive, s, that are handed over at begin (n,) s, in order.

    line, bits (n,): on which link, and how large; latency s, rate bit/s (k,): of all links, whose
    connections begin anew for each; factor: on the latency of the messages.
    """
    back, memory = links.transport.back, links.transport.memory
    for k in range(latency.shape[0]):
        for e in range(links.wires.shape[1]):
            links.wires[0, e] = back[0, e] = latency[k]
            links.wires[1, e] = back[1, e] = rate[k]
            for field in range(memory.shape[1]):
                memory[e, field] = 0.0
        late = latency[k] * factor
        for n in range(line.shape[0]):
            out[k, n] = carried(links, line[n], begin[n], bits[n], late, n, 0, False)[1]
