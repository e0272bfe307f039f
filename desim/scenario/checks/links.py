"""What links, and devices that slow down, leave and forget, owe the rest of a scenario."""

from desim.fields.numbers import LARGEST
from desim.methods.shared.method import Kind
from desim.numerics.distributions import Distribution
from desim.scenario import registry
from desim.scenario.sections.devices import Churn, Compute
from desim.scenario.sections.measured import SpeedTrace
from desim.scenario.sections.method import Algorithm, Policy
from desim.scenario.sections.network import Network
from desim.scenario.sections.privacy import Privacy
from desim.scenario.tree import Found


def losses_fit(
    algorithm: Algorithm, policy: Policy, network: Network, kind: Kind, churn: Churn | None
) -> Found:
    """Whoever waits for everybody waits for ever for a message that is dropped.

    Methods of plugins may have a deadline of their own.
    """
    if policy.kind != "all" or algorithm.name not in registry.OWN:
        return
    for which in network.sides(kind):
        sent = "uplink" if kind == "graph" and network.two_hops else which  # by whom it is repeated
        missing = churn is not None and churn.messages == "lost" and which != "uplink"
        lossy = missing or (max(network.along(which).losses) > 0 and not network.by_tcp(which))
        if lossy and network.along(sent).on_loss == "drop":
            other = "deadline" in algorithm.method.policies
            text = "found drop, but with policy all everybody waits for every message"
            more = ", or policy: {deadline: ...}" if other else ""
            yield ("network", "link", "on_loss"), f"{text}; allowed: resend{more}"
            return


def contention_fits(network: Network, kind: Kind, engine: str) -> Found:
    """When a message that queues arrives depends on the others: the engine of processes knows."""
    for which in network.sides(kind):
        shared = network.shared(which)
        if shared != "none" and engine not in ("auto", "agents"):
            text = f"found {engine} with contention {shared}"
            yield ("engine",), f"{text}; allowed with it: agents, auto"
            return


def medium_fits(algorithm: Algorithm, network: Network, kind: Kind) -> Found:
    """One transmission for all neighbours takes agents that send them all the same."""
    if network.medium == "shared" and kind != "graph":
        text = f"found shared with {algorithm.name}, whose agents talk to a coordinator"
        yield ("network", "medium"), f"{text}; allowed: links, or shared on a graph of agents"


def differing_fit(algorithm: Algorithm, network: Network, kind: Kind) -> Found:
    """Links that differ are of agents, and have a bandwidth of their own that could differ."""
    for index, one in enumerate(network.links):
        place = ("network", "links", index)
        for key in ("sender", "receiver"):
            if kind == "graph" and -1 in (getattr(one, key) or ()):
                yield (*place, key), f"found coordinator with {algorithm.name}; allowed: agents"
        traced = [
            which
            for which in network.sides(kind)
            if not isinstance(network.along(which).bandwidth, Distribution)
        ]
        if one.bandwidth is not None and traced:
            text = f"found beside a trace in network.{traced[0]}.bandwidth"
            yield (*place, "bandwidth"), f"{text}; allowed: beside a value or a distribution"


def ends_exist(network: Network, agents: int | None) -> Found:
    """Links that differ are those of agents that there are."""
    most = LARGEST if agents is None else agents - 1
    for index, one in enumerate(network.links):
        for key, nodes in (("sender", one.sender), ("receiver", one.receiver)):
            for odd in [node for node in nodes or () if node > most][:1]:
                yield ("network", "links", index, key), f"found agent {odd}; allowed: 0 to {most}"


def hops_fit(algorithm: Algorithm, network: Network, kind: Kind) -> Found:
    """Two hops between agents have one rate, and nobody who would share out the second."""
    if kind != "graph" or not network.two_hops:
        return
    why = f"with {algorithm.name}, between whose agents a message takes an uplink and a downlink"
    for key in ("uplink", "downlink"):
        own = getattr(network, key).bandwidth
        if not isinstance(network.along(key).bandwidth, Distribution):
            allowed = "a value or a distribution, or only link, where the sender's trace holds"
            place = ("network", "link" if own is None else key, "bandwidth")
            yield place, f"found a trace {why}; allowed: {allowed}"
            return
    if network.downlink.contention is not None:
        text = f"found {network.downlink.contention} {why}; allowed: network.contention"
        yield ("network", "downlink", "contention"), f"{text}, for the messages that an agent sends"


def meetings_fit(network: Network) -> Found:
    """What waits for its link to come would hold up all that shares a port with it."""
    topology = network.topology
    if not (topology.timed or topology.per_round):
        return
    how = "changes in time" if topology.timed else "changes from round to round"
    for key in ("contention", "medium"):
        found = network.shared("link") if key == "contention" else network.medium
        if found in ("fifo", "fair") or (found == "shared" and topology.timed):
            allowed = "none" if key == "contention" else "links"
            text = f"found {found} on a graph that {how}; allowed with it: {allowed}"
            yield ("network", key), text


def rounds_alike(policy: Policy, network: Network, privacy: Privacy | None) -> Found:
    """Neighbours of one round must all be heard in it: they may not meet again."""
    if not network.topology.per_round:
        return
    why = "on a graph that changes from round to round, where nobody waits for older messages"
    if policy.kind != "all":
        yield ("policy",), f"found {policy.kind} {why}; allowed with it: all"
    if privacy is not None and privacy.budget is not None:
        text = "found on a graph that changes from round to round, where agents cannot retire"
        yield ("privacy", "budget"), f"{text}; allowed: leave it out"


def meddling(kind: Kind, policy: Policy, churn: Churn | None) -> str:
    """Why churn needs the engine of processes, in words; empty where it does not."""
    if churn is None:
        return ""
    if kind != "coordinator":
        return "churn interrupts computations"
    if churn.memory == "lost":
        return "agents that leave lose their state"
    if policy.kind != "all" and policy.late != "carry":
        return "both churn and newer calls interrupt computations"
    return ""


def churn_fits(kind: Kind, policy: Policy, churn: Churn | None, engine: str) -> Found:
    """Agents whose computations end in more ways than one need the engine of processes."""
    why = meddling(kind, policy, churn)
    if why and engine not in ("agents", "auto"):
        yield ("engine",), f"found {engine}, but {why}; allowed with this churn: agents, auto"


def messages_fit(kind: Kind, network: Network, churn: Churn | None) -> Found:
    """Whether a message is missed is known when it is sent only if nothing holds it up."""
    if churn is None or churn.messages == "queued":
        return
    shared = network.shared("link" if kind == "graph" else "downlink")
    if shared != "none":
        text = f"found lost with contention {shared}, where messages arrive when others let them"
        yield ("churn", "messages"), f"{text}; allowed with it: queued"


def memory_fits(
    algorithm: Algorithm, policy: Policy, kind: Kind, churn: Churn | None, privacy: Privacy | None
) -> Found:
    """An agent that begins anew must not leave the others with what only it could undo."""
    if churn is None or churn.memory == "kept":
        return
    method, name, here = algorithm.method, algorithm.name, ("churn", "memory")
    admitted = method.restarts
    if policy.kind not in admitted and (kind == "graph" or not admitted):
        reason = method.forgetting or "nothing is known of an agent of it that begins anew"
        with_ = f"; with {name}: policy {', '.join(admitted)}" if admitted else ""
        yield here, f"found lost with {name}: {reason}; allowed: kept{with_}"
    elif privacy is not None and privacy.budget is not None:
        yield here, "found lost with privacy.budget, which an agent must not forget; allowed: kept"


def coordinator_exists(algorithm: Algorithm, kind: Kind, compute: Compute) -> Found:
    """Only a coordinator takes replies in."""
    if compute.coordinator is not None and kind != "coordinator":
        text = f"found with {algorithm.name} ({kind} method), which has no coordinator"
        yield ("compute", "coordinator"), f"{text}; allowed: leave it out, or compute.overhead"


def paces_fit(algorithm: Algorithm, compute: Compute) -> Found:
    """A number of samples that fits a deadline is planned from the speed of a round."""
    if not algorithm.method.timed:
        return
    timed = isinstance(compute.speed, SpeedTrace) and compute.speed.order == "time"
    if timed or compute.spells is not None:
        key = "speed" if timed else "spells"
        text = f"found a speed that changes in time, but {algorithm.name} plans its samples by it"
        yield ("compute", key), f"{text}; allowed: a speed that holds for a round"
