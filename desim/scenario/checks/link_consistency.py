"""What codecs, links, transport, the graph and the devices owe the rest of a scenario."""

from desim.fields.numbers import MAX_WHOLE
from desim.methods.shared.declarations import Kind
from desim.network.conditions.codec import LOSSY, Codecs
from desim.scenario import registry
from desim.scenario.sections.algorithm import Algorithm, Policy
from desim.scenario.sections.data import Npz
from desim.scenario.sections.devices import Churn, Compute, SpeedTrace
from desim.scenario.sections.links import Codec
from desim.scenario.sections.network import Network
from desim.scenario.sections.privacy import Privacy
from desim.scenario.sections.problem import Problem
from desim.scenario.tree import Found

# How messages are coded.


def codec_fits(algorithm: Algorithm, codec: Codec, kind: Kind) -> Found:
    """A method says with which codecs it works, and why not with others."""
    method, written = algorithm.method, codec.up.kind
    if written != "none" and kind != method.kind:
        text = f"found {written} with {algorithm.name} on a graph, where its duals need the whole"
        yield ("codec",), f"{text}; allowed there: none"
    elif written != "none" and written not in method.codecs:
        yield ("codec",), _refused(algorithm, written)


def downlink_fits(
    algorithm: Algorithm, codec: Codec, kind: Kind, policy: Policy, network: Network,
    churn: Churn | None,
) -> Found:  # fmt: skip
    """A coordinator's models may be rounded; more where both ends know what was sent before."""
    method, down, place = algorithm.method, codec.down.kind, ("codec", "downlink")
    if codec.word or down == "none":
        return
    if kind != "coordinator":
        text = f"found {down}, but {algorithm.name} has no coordinator here; allowed: none"
        yield place, text
    elif down not in method.codecs:
        yield place, _refused(algorithm, down)
    elif down in LOSSY and method.messages != "changes":
        reason = "differences of what it sends are of use only where replies are changes of it"
        yield (
            place,
            f"found {down}, but {reason}; allowed with {algorithm.name}: none, float32, float16",
        )
    elif down in LOSSY and policy.kind != "all" and (policy.late or "discard") == "discard":
        reason = f"with policy {policy.kind} a call may be void, and both ends know it differently"
        yield place, f"found {down}, but {reason}; allowed: none, float32, float16"
    elif down in LOSSY and _dropped(network, kind, churn):
        reason = "an agent may miss a call for good, and both ends know it differently"
        yield place, f"found {down}, but with on_loss: drop {reason}; allowed: on_loss: resend"
    elif down in LOSSY and churn is not None and churn.memory == "lost":
        reason = "an agent that has lost its memory has lost what differences are added to"
        yield place, f"found {down}, but {reason}; allowed: none, float32, float16"


def _dropped(network: Network, kind: Kind, churn: Churn | None) -> bool:
    """Whether calls may be lost that nobody sends again."""
    absent = churn is not None and churn.messages == "lost"
    for which in network.sides(kind):
        link = network.along(which)
        lossy = absent or (max(link.losses) > 0 and not network.by_tcp(which))
        if which != "uplink" and lossy and link.on_loss == "drop":
            return True
    return False


def differences_fit(algorithm: Algorithm, codec: Codec, churn: Churn | None) -> Found:
    """Differences to what a receiver knows mean nothing to an agent that has forgotten it."""
    known = algorithm.method.messages == "models"
    if churn and churn.memory == "lost" and codec.up.codec(known).memory == "known":
        reason = "an agent that has lost its memory does not know what the receiver has"
        yield (
            ("codec",),
            f"found {codec.up.kind}, but {reason}; allowed: churn.memory: kept",
        )


def _refused(algorithm: Algorithm, kind: str) -> str:
    """Why a method's messages are not coded so, and how they may be."""
    method = algorithm.method
    allowed = ", ".join(["none", *method.codecs])
    return f"found {kind}, but {method.uncoded}; allowed with {algorithm.name}: {allowed}"


def biased(codecs: Codecs) -> list[str]:
    """A warning where what top-k leaves out is lost for good."""
    if codecs.up.kind != "top-k" or codecs.up.memory != "none":
        return []
    lost = "what top-k leaves out is lost for good, and a limit may be far from the optimum"
    return [f"codec.error_feedback: {lost} without it"]


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
        traced = [which for which in network.sides(kind) if network.along(which).varies]
        if one.bandwidth is not None and traced:
            text = f"found beside a trace in network.{traced[0]}.bandwidth"
            yield (*place, "bandwidth"), f"{text}; allowed: beside a value or a distribution"


def ends_exist(network: Network, agents: int | None) -> Found:
    """Links that differ are those of agents that there are."""
    most = MAX_WHOLE if agents is None else agents - 1
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
        if network.along(key).varies:
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


# Transport by TCP, and shared access lines.

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
    keys = [key for key in ("uplink", "downlink") if getattr(network, key).contention is not None]
    if network.contention != "none" or keys:
        key = (keys[0], "contention") if keys else ("contention",)
        text = "found beside network.behind, whose lines are what messages share"
        yield ("network", *key), f"{text}; allowed: behind.contention, or no lines"
    for which in ("uplink", "downlink"):
        if network.along(which).varies:
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


# The graph: a method that runs on it, and as many agents as it has.

GRAPHS = "ring, complete, path, {regular: ...}, {erdos_renyi: ...} or another graph"


def topology_fits(algorithm: Algorithm, network: Network, kind: Kind) -> Found:
    """A coordinator sits in a star; a graph method needs to be told its graph."""
    name, topology = algorithm.name, network.topology
    if kind == "coordinator" and topology.kind not in ("star", "tree"):
        text = f"found {topology.kind}, but the agents of {name} talk to a coordinator only"
        yield ("network", "topology"), f"{text}; allowed: star, or {{tree: ...}}"
    if kind == "central" and topology.kind != "star":
        text = f"found {topology.kind}, but {name} is a method for one agent, which has no network"
        yield ("network", "topology"), f"{text}; allowed: leave it out"
    if kind == "graph" and topology.per_round and not algorithm.method.changing:
        text = f"found another graph in every round, but the agents of {name} keep "
        allowed = "one graph, or links that come and go in time, for which messages wait"
        key = "redraw" if topology.redraw else topology.kind
        text += algorithm.method.keeping
        yield ("network", "topology", key), f"{text}; allowed with it: {allowed}"
    if topology.directed and not algorithm.method.directed:
        text = f"found directed, but the agents of {name} need answers from those they tell"
        bear = [name for name in registry.names() if registry.get(name).directed]
        allowed = f"undirected, or {', '.join(bear)}"
        yield ("network", "topology", "directed"), f"{text}; allowed: {allowed}"
    if kind == "graph" and "topology" not in network.model_fields_set:
        text = f"missing; {name} runs on a graph of agents and has no default"
        yield ("network", "topology"), f"{text}; allowed: {GRAPHS}"


def agents_known(
    problem: Problem, algorithm: Algorithm, network: Network, kind: Kind, agents: int | None
) -> Found:
    """Something has to say how many agents there are."""
    stated = isinstance(problem.data, Npz) or problem.partition.counts or problem.sizes
    drawn = network.topology.kind in ("edges", "grid", "graph", "switching", "contacts")
    central = kind == "central"
    missing = kind == "graph" and "topology" not in network.model_fields_set
    if agents is None and not (stated or drawn or missing or central):
        allowed = "allowed: a number of agents >= 1 (neither the data nor the graph says it)"
        yield ("problem", "agents"), f"missing; {allowed}"
    if central and agents not in (None, 1):
        text = f"found {agents}, but {algorithm.name} is a method for one agent"
        yield ("problem", "agents"), f"{text}; allowed: 1"
    shared = problem.sizes or problem.partition.kind not in ("iid", "contiguous")
    if central and shared:
        key = "sizes" if problem.sizes else "partition"
        text = f"found {key}, but all rows are with the one agent of {algorithm.name}"
        yield ("problem", key), f"{text}; allowed: leave it out"


def graph_fits_agents(network: Network, agents: int | None) -> Found:
    """A graph is made for the number of agents."""
    place, topology = ("network", "topology"), network.topology
    if agents is None or topology.word:
        return
    kind, value = topology.kind, topology.value
    if kind == "grid" and value[0] * value[1] != agents:
        text = f"found {value[0]} x {value[1]} = {value[0] * value[1]} agents"
        yield (*place, "grid"), f"{text}; allowed: problem.agents = {agents}"
    if kind == "regular" and (value >= agents or value * agents % 2):
        text = f"found {value} neighbours of each of {agents} agents"
        yield (*place, "regular"), f"{text}; allowed: fewer than agents, and an even product"
    if kind == "small_world" and value[0] >= agents:
        text = f"found {value[0]} neighbours of each of {agents} agents"
        yield (*place, "small_world"), f"{text}; allowed: fewer than agents"
    if kind == "random_tree_plus" and not agents - 1 <= value <= agents * (agents - 1) // 2:
        bounds = f"{agents - 1} to {agents * (agents - 1) // 2}"
        yield (*place, kind), f"found {value} edges; allowed with {agents} agents: {bounds}"
    turns = value if kind == "switching" else [value] if kind == "edges" else []
    for turn, edges in enumerate(turns):
        for index, edge in enumerate(edges):
            if max(edge) >= agents:
                text = f"found agent {max(edge)} in {list(edge)}; allowed: 0 to {agents - 1}"
                within = (turn, index) if kind == "switching" else (index,)
                yield (*place, kind, *within), text
