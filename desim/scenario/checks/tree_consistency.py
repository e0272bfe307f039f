"""What a tree of coordinators owes the rest of a scenario."""

import math

from desim.methods.shared.declarations import Kind
from desim.network.conditions.codec import LOSSY
from desim.scenario import registry
from desim.scenario.checks import link_consistency
from desim.scenario.sections.algorithm import Algorithm, Participation, Policy
from desim.scenario.sections.devices import Churn, Compute
from desim.scenario.sections.links import LinkChange
from desim.scenario.sections.network import Level, Network
from desim.scenario.sections.privacy import Privacy
from desim.scenario.tree import Found

HERE = ("network", "topology", "tree")
DRAWN = ("all", "bernoulli", "uniform", "schedule", "trace")  # ways to invite in a tree


def levels_fit(network: Network) -> Found:
    """Levels are those of a tree, one for each of its tiers of edges."""
    tree, levels, here = network.topology.tree, network.levels, ("network", "levels")
    if tree is None:
        if levels:
            yield here, "found without a tree; allowed: with network.topology: {tree: ...}"
        return
    if levels and isinstance(tree, tuple) and len(levels) != len(tree) - 1:
        text = f"found {len(levels)} of a tree with {len(tree) - 1} of edges"
        yield here, f"{text}; allowed: one for each, or none"
    for k, level in enumerate(levels or ()):
        yield from _of_level(level, (*here, k))


def _of_level(level: Level, here: tuple[str | int, ...]) -> Found:
    policy, who = level.policy, level.participation
    if policy.kind not in Policy.words and policy.late == "discard":
        text = "found discard, but nobody interrupts an edge, which goes on with its rounds"
        yield (*here, "policy", "late"), f"{text}; allowed: carry"
    if who.kind not in ("all", "bernoulli", "uniform") or who.separation is not None:
        text = f"found {who.kind if who.separation is None else 'separation'}"
        allowed = "all, {bernoulli: ...}, {uniform: ...}"
        yield (*here, "participation"), f"{text} of edges; allowed: {allowed}"
    if level.churn is not None and level.churn.memory == "lost":
        text = "found lost, but an edge that is back goes on with the round that it was in"
        yield (*here, "churn", "memory"), f"{text}; allowed: kept"
    if level.churn is not None and level.churn.messages == "lost":
        text = "found lost, but what is sent to an edge arrives, and waits until it is back"
        yield (*here, "churn", "messages"), f"{text}; allowed: queued"
    if level.aggregate is not None and level.aggregate.kind == "clipped-gossip":
        text = "found clipped-gossip between edges and what is above, which is no graph"
        yield (*here, "aggregate"), f"{text}; allowed: median, krum, ..."
    for key in ("uplink", "downlink"):
        change: LinkChange = getattr(level, key)
        way = change.applied(level.link)
        if policy.kind == "all" and way.on_loss == "drop" and max(way.losses) > 0.0:
            text = "found drop, but with policy all every edge is waited for"
            yield (*here, "link", "on_loss"), f"{text}; allowed: resend, or another policy"
        if (change.contention or "none") != "none":
            text = f"found {change.contention} between edges and what is above"
            yield (*here, key, "contention"), f"{text}; allowed: none"


def levels_code(algorithm: Algorithm, network: Network, kind: Kind) -> Found:
    """Sums of edges may be coded as replies may; models, where edges go on from these."""
    levels = network.levels or ()
    for k, level in enumerate(levels):
        here, down = ("network", "levels", k), level.codec.down.kind
        for place, text in link_consistency.codec_fits(algorithm, level.codec, kind):
            yield (*here, *place), text
        if level.codec.up.kind in LOSSY and algorithm.method.messages != "changes":
            text = f"found {level.codec.up.kind} with {algorithm.name}, whose sums are no changes"
            yield (*here, "codec"), f"{text}; allowed: none, float32, float16"
        if down in LOSSY:
            text = f"found {down}, which nobody follows through edges"
            yield (*here, "codec", "downlink"), f"{text}; allowed: none, float32, float16"
        elif down != "none" and any(one.rounds > 1 for one in levels[k:]):
            text = (
                f"found {down} above edges with rounds, which go on from what the cloud remembers"
            )
            yield (*here, "codec", "downlink"), f"{text}; allowed: none, or rounds: 1"


def tree_fits(network: Network, agents: int | None) -> Found:
    """There are as many agents as the tree has places for."""
    tree = network.topology.tree
    if not isinstance(tree, tuple):
        if tree is not None and agents is None:
            text = "missing; a csv of parents does not say which of its nodes are agents"
            yield ("problem", "agents"), f"{text}; allowed: a number of agents >= 1"
        return
    places = math.prod(tree)
    if agents is not None and places != agents:
        text = f"found {' x '.join(map(str, tree))} = {places} agents"
        yield HERE, f"{text}; allowed: problem.agents = {agents}"


def tree_adds_up(
    algorithm: Algorithm, network: Network, kind: Kind, privacy: Privacy | None
) -> Found:
    """An edge passes on a sum, so that no coordinator above sees single replies."""
    if network.topology.tree is None or kind != "coordinator":
        return
    needs, name = algorithm.method.totals(), algorithm.name
    if needs is False:
        known = ", ".join(one for one in registry.names() if registry.get(one).totals())
        text = f"found with {name}, whose coordinator reads single replies, and edges reply sums"
        yield HERE, f"{text}; allowed: star, or {known}"
    for key, value in ({} if isinstance(needs, bool) else needs).items():
        if (found := getattr(algorithm.parameters, key)) != value:
            text = f"found {found} in a tree, whose edges reply sums"
            yield ("algorithm", key), f"{text}; allowed: {value}"
    if getattr(algorithm.parameters, "reply", None) == "model":
        text = "found model in a tree, whose edges add up what is sent as it is"
        yield ("algorithm", "reply"), f"{text}; allowed: share, change"
    if privacy is not None and privacy.trusted:
        text = f"found {privacy.trust} in a tree, where nobody says yet whose edge adds noise"
        yield ("privacy", "trust"), f"{text}; allowed: local, or topology: star"
    if privacy is not None and privacy.budget is not None:
        text = "found in a tree, whose calls nobody counts for it before they are made"
        yield ("privacy", "budget"), f"{text}; allowed: leave it out, or topology: star"


def tree_is_played(
    network: Network, participation: Participation, churn: Churn | None, compute: Compute
) -> Found:
    """What no edge does yet."""
    if network.topology.tree is None:
        return
    if compute.coordinator is not None and any(one.churn for one in network.levels or ()):
        text = (
            "found with network.levels' churn, and nobody says what becomes of the work of an edge"
        )
        yield ("compute", "coordinator"), f"{text} that leaves; allowed: one of them"
    if participation.kind not in DRAWN or participation.separation is not None:
        found = participation.choose or "separation"
        text = f"found {found} in a tree, where no edge remembers what was seen"
        yield ("participation",), f"{text}; allowed: {', '.join(DRAWN)}"
    if churn is not None and churn.memory == "lost":
        text = "found lost in a tree, whose edges sum up what agents would forget"
        yield ("churn", "memory"), f"{text}; allowed: kept"
    if network.behind is not None:
        text = "found in a tree, whose edges are where agents' lines meet"
        yield ("network", "behind"), f"{text}; allowed: leave it out"
