"""What transport by TCP and shared access lines owe the rest of a scenario."""

from desim.methods.shared.method import Kind
from desim.numerics.distributions import Distribution
from desim.scenario.sections.method import Algorithm
from desim.scenario.sections.network import Network
from desim.scenario.tree import Found

HERE = ("network", "link", "transport")


def connections_fit(network: Network, kind: Kind) -> Found:
    """A connection leads from one node to another, and does not outlast a link that goes."""
    if not any(network.by_tcp(which) for which in network.sides(kind)):
        return
    if network.medium == "shared":
        text = "found tcp with medium shared, where one transmission reaches all neighbours"
        yield HERE, f"{text}; allowed with it: ideal"
    if network.topology.timed:
        text = "found tcp on a graph whose links come and go in time, which breaks connections"
        yield HERE, f"{text}; allowed with it: ideal"
    for which in network.sides(kind):
        others = [one.transport for one in network.links if one.transport is not None]
        kinds = {one.kind for one in (network.along(which).transport, *others)}
        if network.shared(which) != "none" and len(kinds) > 1:
            text = f"found ideal and tcp on links with contention {network.shared(which)}"
            yield ("network", "links"), f"{text}; allowed: one of them"
            return


def lines_fit(algorithm: Algorithm, network: Network, kind: Kind) -> Found:
    """Access lines lead to a coordinator, and are what messages share."""
    behind, here = network.behind, ("network", "behind")
    if behind is None:
        return
    if kind != "coordinator":
        text = f"found with {algorithm.name}, whose agents talk to each other"
        yield here, f"{text}; allowed: with a coordinator"
        return
    given = [key for key in ("uplink", "downlink") if getattr(network, key).contention is not None]
    if network.contention != "none" or given:
        key = (given[0], "contention") if given else ("contention",)
        text = "found beside network.behind, whose lines are what messages share"
        yield ("network", *key), f"{text}; allowed: behind.contention, or no lines"
    for which in ("uplink", "downlink"):
        if not isinstance(network.along(which).bandwidth, Distribution):
            text = f"found beside a trace in network.{which}.bandwidth"
            yield here, f"{text}; allowed: beside a value or a distribution"
            return


def homes_exist(network: Network, agents: int | None) -> Found:
    """Agents behind a line are those that there are."""
    if network.behind is None or agents is None:
        return
    for index, home in enumerate(network.behind.agents or ()):
        for odd in [agent for agent in home if agent >= agents][:1]:
            text = f"found agent {odd}; allowed: 0 to {agents - 1}"
            yield ("network", "behind", "agents", index), text
