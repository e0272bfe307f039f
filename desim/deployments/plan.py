"""The lines of a deployment on one machine, as the scenario has its links."""

from collections.abc import Iterator
from math import inf, isfinite
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.deployments.ground import Transport
from desim.deployments.lines import COORDINATOR, Line, Link, Plan, Site
from desim.engine.play import Simulation
from desim.errors import InputError
from desim.network.timeline.messages import FAIR, NONE, Links
from desim.network.timeline.transport import (
    HEADER,
    IDEAL,
    INITIAL,
    KIND,
    MOST,
    NEW,
    QUEUE,
    RESTARTS,
    SEGMENT,
)
from desim.scenario.sections.transport import Tcp

PACKETS = "packets in its stead, which TCP sends again"


def refused(simulation: Simulation) -> list[str]:
    """What the lines of one machine cannot do, one text each."""
    found = []
    for where, links in sides(simulation).items():
        if links.plays.shape[1]:
            text = "lines of one machine have one rate each"
            found.append(f"{where}.bandwidth: found a trace; {text}; allowed: a rate, or a law")
        if links.transport.law.shape[1]:
            found += _unlike(where, links.transport.law)
        if links.contention != NONE and not links.lines.shape[1]:
            text = "each link has a line of its own"
            found.append(f"{where}.contention: found one; {text}; allowed: none, or network.behind")
    return found


def _unlike(where: str, law: Array) -> Iterator[str]:
    """What connections of the scenario have that those of this machine's kernel have not."""
    usual = Tcp()
    fixed = {
        "segment": (SEGMENT, usual.segment, "bytes"),
        "header": (HEADER, usual.header, "bytes"),
        "initial_window": (INITIAL, usual.initial_window, "segments"),
        "buffer": (MOST, usual.most, "segments under way at most"),
    }
    played = law[:, law[KIND] != IDEAL]
    for key, (row, own, unit) in fixed.items():
        for odd in played[row][played[row] != own][:1]:
            text = f"found {odd:g} {unit}; the system's own connections have {own:g}"
            yield f"{where}.transport.tcp.{key}: {text}; allowed: leave it out"
    for key, row in {"congestion": KIND, "connection": NEW, "idle_restart": RESTARTS}.items():
        if np.unique(law[row]).size > 1:
            text = "found links that differ; all connections of one machine have the same"
            yield f"{where}.transport.tcp.{key}: {text}; allowed: one of them"


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
    laws = [links.transport.law for links in sides(simulation).values()]
    restarts = all((law[RESTARTS] != 0.0).all() for law in laws)
    return Plan(tuple(made), _sites(simulation), congestion, settings.seed, bool(restarts))


def _sites(simulation: Simulation) -> tuple[Site, ...]:
    """Access lines that agents share; their latency is in that of the links."""
    up, down = simulation.settings.uplinks, simulation.settings.downlinks
    if up is None or down is None or not up.lines.shape[1]:
        return ()
    found = []
    for number in np.unique(up.lines[0]):
        hosts = np.flatnonzero(up.lines[0] == number)
        if len(hosts) > 1:
            there, back = (Line(rate=float(one.lines[1, hosts[0]])) for one in (up, down))
            found.append(Site(tuple(hosts.tolist()), there, back, up.contention == FAIR))
    return tuple(found)


def _either(lines: dict[tuple[int, int], Line], one: int, other: int) -> Line:
    """The line of a direction, or of the other where the graph has no link this way: for ACKs."""
    return lines.get((one, other)) or lines[other, one]


def _line(links: Links, e: int) -> Line:
    rate = float(links.wires[1, e])
    law, (outside, inside), (often, share) = links.transport.law, links.loss, links.bursts
    ahead = float(law[QUEUE, e]) if law.shape[1] else inf  # beside the one on the wire
    bursts = (often, share, inside) if often > 0.0 and inside != outside else None
    return Line(float(links.latency[e]), rate, queue=ahead + 1, loss=outside, bursts=bursts)


def told(plan: Plan) -> dict[str, Any]:
    """What the manifest says of the lines."""
    lines = [line for link in plan.links for line in (link.there, link.back)]
    rates = sorted(line.rate for line in lines if isfinite(line.rate))
    return {
        "kind": "user-space lines between network namespaces",
        "lines": len(lines),
        "latency": [min(one.latency for one in lines), max(one.latency for one in lines)],
        "rate": [rates[0], rates[-1]] if rates else [],
        "queue": most if isfinite(most := max(one.queue for one in lines)) else None,
        "congestion": plan.congestion,
        "hub": COORDINATOR in plan.hosts,
    }
