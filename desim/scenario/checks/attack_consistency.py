"""What rules in place of a mean, and attackers, owe the rest of a scenario."""

from desim.methods.shared.declarations import Kind
from desim.scenario import registry
from desim.scenario.sections.algorithm import Algorithm, Participation, Policy
from desim.scenario.sections.attackers import Aggregate, Attackers
from desim.scenario.sections.network import Network
from desim.scenario.sections.observe_and_stop import Stop
from desim.scenario.sections.privacy import Privacy
from desim.scenario.tree import Found

RULE = ("algorithm", "aggregate")
WHY = {
    "coordinator": "whose noise is that of a sum: a reply moves a sum by 2 clip at most, and other "
    "rules by what nobody knows",
    "secure-sum": "where nobody sees single replies, which a rule has to compare",
}


def rule_fits(algorithm: Algorithm, privacy: Privacy | None, kind: Kind) -> Found:
    """A rule takes the place of hub.total: who sums up elsewhere, or by others' hands, has none."""
    rule = algorithm.aggregate
    if rule is None:
        return
    name, plain, gossip = algorithm.name, rule.kind == "mean", rule.kind == "clipped-gossip"
    if gossip != (kind == "graph") and not (plain and rule.rule is None):
        place = "on a star" if gossip else f"with {name}, which has no coordinator here"
        allowed = "median, krum, ..." if gossip else "{clipped-gossip: ...}"
        yield RULE, f"found {rule.kind} {place}; allowed: {allowed}, or leave it out"
        return
    if gossip and not vars(algorithm.method).get("mixes", False):
        known = ", ".join(one for one in registry.names() if vars(registry.get(one)).get("mixes"))
        text = f"found {rule.kind} with {name}, which does not average models alone"
        yield RULE, f"{text}; allowed with: {known}"
    noise = None if privacy is None else privacy.noise
    correlated = None if noise is None else noise.correlated
    if gossip and correlated is not None and correlated.kind == "workload":
        text = f"found {rule.kind} with noise for a workload, which is that of a plain average"
        yield RULE, f"{text}; allowed: banded, buffered, root, tree"
    if rule.rule is None:
        return
    needs = algorithm.method.totals()
    if needs is False:
        known = ", ".join(one for one in registry.names() if registry.get(one).totals())
        text = f"found {rule.kind} with {name}, whose coordinator does not add replies up"
        yield RULE, f"{text}; allowed with: {known}"
    for key, value in ({} if isinstance(needs, bool) else needs).items():
        if (found := getattr(algorithm.parameters, key)) != value:
            text = f"found {found} with algorithm.aggregate, which stands for the sum of replies"
            yield ("algorithm", key), f"{text}; allowed: {value}"
    if privacy is not None and privacy.trusted:
        text = f"found {rule.kind} with privacy.trust: {privacy.trust}, {WHY[str(privacy.trust)]}"
        yield RULE, f"{text}; allowed: the mean, or noise of the agents (trust: local)"


def rule_has_replies(
    algorithm: Algorithm, participation: Participation, policy: Policy, network: Network,
    agents: int | None,
) -> Found:  # fmt: skip
    """A rule needs so many replies, of which a round has no more than policy and invitations."""
    if network.topology.tree is None and agents is not None:  # of a tree: see `branched`
        if text := lacking(algorithm.aggregate, participation, policy, agents):
            yield RULE, text


def lacking(
    said: Aggregate | None, participation: Participation, policy: Policy, agents: int
) -> str:
    """What of so many agents a rule lacks; empty for nothing."""
    if said is None or (rule := said.rule) is None:
        return ""
    here, why = replies_expected(participation, policy, agents)
    if rule.least <= here:
        return ""
    text = f"found {rule.kind}, which needs {rule.least} replies, where a round has {here}{why}"
    return f"{text}; allowed: rules that need fewer, or more replies"


def replies_expected(participation: Participation, policy: Policy, agents: int) -> tuple[int, str]:
    """How many replies a round has at most, and by what, in words."""
    here, why = agents, " agents"
    invited = participation.uniform or participation.invite
    if invited is not None and invited < here:
        here, why = invited, " invited agents (participation)"
    awaited = 1 if policy.kind == "each" else policy.value
    if policy.kind in ("each", "quorum", "buffer") and awaited < here:
        here, why = int(awaited), f" by policy {policy.kind}"
    return here, why


def attackers_exist(attackers: Attackers | None, agents: int | None) -> Found:
    """Some agents attack, and some do not."""
    if attackers is None or agents is None:
        return
    number = attackers.number(agents)
    key = "share" if attackers.agents is None else "agents"
    if attackers.agents is not None and max(attackers.agents, default=0) >= agents:
        text = f"found {max(attackers.agents)}; allowed: 0 to {agents - 1}"
        yield ("attackers", "agents"), text
    elif not 0 < number < agents:
        text = f"found {number} of {agents} agents"
        yield ("attackers", key), f"{text}; allowed: some that attack, and some that do not"


def attack_is_possible(attackers: Attackers | None, policy: Policy, kind: Kind) -> Found:
    """What an attack needs: others' replies, a deadline."""
    if attackers is None:
        return
    attack, place = attackers.attack, ("attackers", "attack")
    if kind == "central":
        yield ("attackers",), "found with a method of one agent; allowed: leave it out"
        return
    if attack.colludes and kind == "graph":
        text = f"found {attack.kind} on a graph, where no attacker sees what others send"
        yield place, f"{text}; allowed: on a star; here sign-flip, gaussian, label-flip, silence"
    if attack.delay == "deadline" and policy.deadline is None:
        text = f"found deadline with policy {policy.kind}"
        yield (*place, "delay"), f"{text}; allowed: a duration, or policy: {{deadline: ...}}"


def silence_ends(
    attackers: Attackers | None,
    policy: Policy,
    participation: Participation,
    network: Network,
    agents: int | None,
) -> Found:
    """Who waits for all waits for ever for one that is silent."""
    if attackers is None or attackers.attack.kind != "silence" or agents is None:
        return
    honest = agents - attackers.number(agents)
    awaited = {"all": agents, "each": 1}.get(policy.kind, policy.value)
    if policy.kind in ("deadline", "adaptive") or policy.at_most is not None:
        awaited = policy.at_least or 0
    if participation.kind != "all" and policy.kind == "all":
        awaited = honest + 1  # sooner or later one of them is invited
    invited, share = participation.uniform or participation.invite, participation.bernoulli
    if policy.kind == "each" or network.topology.tree is not None:
        pass  # in a tree each edge invites and waits, see `heard`
    elif invited is not None:  # sooner or later as many of them as can be
        honest = min(honest, max(invited - attackers.number(agents), 0))
    elif share is not None:  # about
        honest = int(share * honest)
    if awaited > honest:
        text = f"found silence with policy {policy.kind}, which waits for an agent that is silent"
        cure = "policy: {deadline: ...}"
        cure += f", or {{quorum: {honest}}} or fewer" * (honest > 0)
        yield ("attackers", "attack"), f"{text} for ever; allowed with it: {cure}"


def silent_graphs_end(attackers: Attackers | None, stop: Stop, kind: Kind) -> Found:
    """On a graph rounds are done once every agent's are, and those of a silent one never are."""
    if attackers is None or attackers.attack.kind != "silence" or kind != "graph":
        return
    if stop.rounds is not None or stop.time is None:
        text = f"found silence on a graph with stop: {stop.limits()}, where every agent counts, the"
        cure = "stop: {time: ...} alone"
        yield ("attackers", "attack"), f"{text} silent one, too; allowed with it: {cure}"


def lies_are_seen(attackers: Attackers | None, privacy: Privacy | None) -> Found:
    """Masked numbers are no messages that a lie could take the place of."""
    if attackers is None or privacy is None or not attackers.attack.of_messages:
        return
    if privacy.trust == "secure-sum":
        text = f"found {attackers.attack.kind} with privacy.trust: secure-sum, whose messages are "
        text += "masked: who lies there lies before the mask"
        yield ("attackers", "attack"), f"{text}; allowed: label-flip, {{delay: ...}}"
