"""The lines of a deployment on one machine, as the scenario has its links."""

from math import isfinite
from typing import Any

import numpy as np

from desim.deployments.ground import Transport
from desim.deployments.lines import COORDINATOR, Line, Link, Plan, Site
from desim.engine.play import Simulation
from desim.errors import InputError
from desim.timeline.messages import NONE, Links

PACKETS = "packets in its stead, which TCP sends again"


def refused(simulation: Simulation) -> list[str]:
    """What the lines of one machine cannot do, one text each."""
    found = []
    for where, links in sides(simulation).items():
        if links.plays.shape[1]:
            text = "lines of one machine have one rate each"
            found.append(f"{where}.bandwidth: found a trace; {text}; allowed: a rate, or a law")
        if links.contention != NONE and not links.lines.shape[1]:
            text = "each link has a line of its own"
            found.append(f"{where}.contention: found one; {text}; allowed: none, or network.behind")
    return found


def remarks(simulation: Simulation) -> list[str]:
    """What lines do otherwise than the scenario's links, one text each."""
    found = []
    for where, links in sides(simulation).items():
        if links.jitter[0] != 0:
            found.append(f"deploy: {where}.jitter is a law of messages; the lines have none")
        if max(links.loss) > 0.0 and links.transport.ideal:
            found.append(f"deploy: {where}.loss: the lines lose {PACKETS}")
    return found


def sides(simulation: Simulation) -> dict[str, Links]:
    """The scenario's links by where it says them."""
    settings = simulation.settings
    named = {"link": settings.links, "uplink": settings.uplinks, "downlink": settings.downlinks}
    return {f"network.{name}": links for name, links in named.items() if links is not None}


def plan_of(simulation: Simulation, transport: Transport) -> Plan:
    """A pair of hosts for each link; InputError for what lines cannot do."""
    if found := refused(simulation):
        raise InputError(found)
    settings = simulation.settings
    lines: dict[tuple[int, int], Line] = {}
    for links in sides(simulation).values():
        for e in range(links.ends.shape[1]):
            lines[int(links.ends[0, e]), int(links.ends[1, e])] = _line(links, e)
    pairs = {(max(pair), min(pair)) for pair in lines}
    made = [
        Link(one, other, _either(lines, one, other), _either(lines, other, one))
        for one, other in sorted(pairs)
    ]
    congestion = transport.congestion or "cubic"
    return Plan(tuple(made), _sites(simulation), congestion, settings.seed)


def _sites(simulation: Simulation) -> tuple[Site, ...]:
    """Access lines that agents share; their latency is in that of the links."""
    up, down = simulation.settings.uplinks, simulation.settings.downlinks
    if up is None or down is None or not up.lines.shape[1]:
        return ()
    found = []
    for number in np.unique(up.lines[0]):
        hosts = np.flatnonzero(up.lines[0] == number)
        if len(hosts) > 1:
            own = (Line(rate=float(links.lines[1, hosts[0]])) for links in (up, down))
            found.append(Site(tuple(hosts.tolist()), *own))
    return tuple(found)


def _either(lines: dict[tuple[int, int], Line], one: int, other: int) -> Line:
    """The line of a direction, or of the other where the graph has no link this way: for ACKs."""
    return lines.get((one, other)) or lines[other, one]


def _line(links: Links, e: int) -> Line:
    rate = float(links.wires[1, e])
    outside, inside = links.loss
    share = links.bursts[1]
    loss = outside * (1.0 - share) + inside * share
    return Line(float(links.latency[e]), rate, loss=float(loss))


def told(plan: Plan) -> dict[str, Any]:
    """What the manifest says of the lines."""
    lines = [line for link in plan.links for line in (link.there, link.back)]
    rates = sorted(line.rate for line in lines if isfinite(line.rate))
    return {
        "kind": "user-space lines between network namespaces",
        "lines": len(lines),
        "latency": [min(one.latency for one in lines), max(one.latency for one in lines)],
        "rate": [rates[0], rates[-1]] if rates else [],
        "queue": max(one.queue for one in lines),
        "congestion": plan.congestion,
        "hub": COORDINATOR in plan.hosts,
    }
