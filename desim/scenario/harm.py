"""What attackers are built into: labels, late work, a listener; and what rules are: a feature."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from desim.agent_names import numbers
from desim.arrays import Int, Mask
from desim.engine.settings import Settings
from desim.engine.signals import Listener
from desim.errors import InputError
from desim.methods.shared import attacks
from desim.problem.problem import Problem
from desim.scenario.checks.attack_consistency import replies_expected
from desim.scenario.schema import Scenario
from desim.scenario.sections.algorithm import Participation, Policy
from desim.scenario.sections.attackers import Aggregate
from desim.scenario.sections.network import Level


def attacking(scenario: Scenario, agents: int) -> Int:
    """Agents (n,) that attack, ascending."""
    said = scenario.attackers
    if said is None:
        return np.empty(0, np.int64)
    if said.agents is not None:
        return np.array(sorted(said.agents), np.int64)
    return attacks.drawn_attackers(scenario.seed, agents, said.number(agents))


def mislabelled(scenario: Scenario, problem: Problem) -> Problem:
    """The problem with the labels of attackers that flip theirs: -b, or C - 1 - b of C classes."""
    said = scenario.attackers
    if said is None or said.attack.kind != "label-flip":
        return problem
    loss = problem.loss
    if not loss.classifies:
        text = f"found label-flip with loss {loss.name}, whose labels are no classes"
        raise InputError(f"attackers.attack: {text}; allowed: with logistic, hinge, softmax, ...")
    b = problem.b.copy()
    signs = set(np.unique(b).tolist()) <= {-1.0, 1.0}
    classes = getattr(loss, "classes", 0)  # which a softmax knows, whatever these labels are
    last = float(classes - 1) if classes else 0.0 if signs else float(b.max())
    who = attacking(scenario, problem.agents)
    for i in who[who < problem.agents].tolist():  # others are refused with the rest, in words
        rows = slice(int(problem.start[i]), int(problem.start[i + 1]))
        b[rows] = last - b[rows]
    return replace(problem, b=b)


def harmed(scenario: Scenario, settings: Settings) -> Settings:
    """The settings with late attackers, and with a rule in place of the mean."""
    own = scenario.algorithm.aggregate
    if own is not None and (rule := own.rule) is not None:
        settings = replace(settings, hung=(*settings.hung, rule.feature))
    said = scenario.attackers
    if said is None or not said.attack.late:
        return settings
    seconds = np.inf
    if said.attack.delay is not None:
        seconds = float(
            (scenario.policy.deadline or 0.0)
            if said.attack.delay == "deadline"
            else said.attack.delay
        )
    devices = settings.speeds.devices.copy()
    devices[2, attacking(scenario, settings.problem.agents)] += seconds
    return replace(settings, speeds=settings.speeds._replace(devices=devices))


def heard(scenario: Scenario, settings: Settings) -> Settings:
    """The settings; InputError where somebody honest waits for ever for who is silent."""
    said = scenario.attackers
    if said is None or said.attack.kind != "silence":
        return settings
    silent = np.zeros(settings.problem.agents, bool)
    silent[attacking(scenario, len(silent))] = True
    if settings.tree is not None:
        text = _stuck_in_tree(settings, silent, scenario.participation.uniform)
    else:
        text = _stuck_on_graph(settings, silent)
    if text:
        text = f"found silence where {text}"
        raise InputError(f"attackers.attack: {text}; allowed: a deadline, or a lower quorum")
    return settings


def _stuck_on_graph(settings: Settings, silent: Mask) -> str:
    """Which honest agent waits for neighbours that are silent; empty for none."""
    graph, policy = settings.graph, settings.policy
    if graph is None or settings.changing is not None:
        return ""
    speaking = np.bincount(graph.target[~silent[graph.source]], minlength=graph.agents)
    awaited = np.array([policy.least(float(one)) for one in graph.degree])
    for i in np.flatnonzero((awaited > speaking) & ~silent)[:1].tolist():
        text = f"agent {i} waits for {awaited[i]:.0f} of its {graph.degree[i]} neighbours"
        return f"{text}, of whom {speaking[i]} speak"
    return ""


def _stuck_in_tree(settings: Settings, silent: Mask, invited: int | None) -> str:
    """How many edges, and agents, the cloud of a tree waits for in vain; empty where it does not.

    An edge that waits for ever is silent to whom it talks to. Of so many invited clients of an edge
    sooner or later as many are silent as can be.
    """
    speaks, policy = ~silent, settings.policy
    assert settings.tree is not None
    for tier in settings.tree.tiers:
        below = np.bincount(tier.owner, minlength=tier.number)
        heard = np.bincount(tier.owner[speaks], minlength=tier.number)
        if invited is not None:
            heard = np.minimum(heard, invited - np.minimum(below - heard, invited))
            below = np.minimum(below, invited)
        awaited = np.array([policy.least(float(one)) for one in below])
        speaks, policy, invited = heard >= awaited, tier.policy, None
    if (number := int(np.count_nonzero(speaks))) >= policy.least(len(speaks)):
        return ""
    return f"{len(speaks) - number} of {len(speaks)} edges below the cloud wait for ever"


def clipping(scenario: Scenario, method: Any) -> Any:
    """The method of a graph, whose averages clip what is heard where the scenario asks for it."""
    own = scenario.algorithm.aggregate
    if own is not None and own.clipped_gossip is not None:
        method.averages.tau = own.clipped_gossip
    return method


def listening(scenario: Scenario, agents: int) -> tuple[Callable[[], Listener], ...]:
    """What makes the listener that lies, and says in the end who attacked."""
    said = scenario.attackers
    if said is None:
        return ()
    attack = attacks.Attack(said.attack.kind, said.attack.amount, attacking(scenario, agents))
    return (partial(attacks.listener, attack, said.attack.text),)


def unborne(scenario: Scenario, settings: Settings) -> list[str]:
    """A warning where more attack than the rule bears."""
    said, own, agents = scenario.attackers, scenario.algorithm.aggregate, settings.problem.agents
    if said is None or said.attack.late or scenario.kind != "coordinator":
        return []
    lies, levels = np.zeros(agents, bool), scenario.network.levels or ()
    lies[attacking(scenario, agents)] = True
    whole = f"{said.number(agents)} of {agents} agents attack"
    way, policy = scenario.participation, scenario.policy
    for t, tier in enumerate(settings.tree.tiers if settings.tree else ()):
        sizes = np.bincount(tier.owner).tolist()
        bears = np.array([_bears(own, way, policy, size)[2] for size in sizes])
        lies = np.bincount(tier.owner, lies) > bears
        level = levels[-1 - t] if levels else Level()
        own, way, policy = level.aggregate, level.participation, level.policy
        whole += f", {int(lies.sum())} of {len(lies)} edges of theirs bear less" * (t == 0)
    name, here, most = _bears(own, way, policy, len(lies))
    if int(lies.sum()) <= most:
        return []
    return [f"attackers: {whole}, and {name} of {here} replies bears {most or 'none'}"]


def _bears(
    own: Aggregate | None, way: Participation, policy: Policy, size: int
) -> tuple[str, int, int]:
    """The rule of a coordinator of so many, how many replies it has, and how many lies it bears."""
    here, _ = replies_expected(way, policy, size)
    rule = None if own is None else own.rule
    return ("mean", here, 0) if rule is None else (rule.kind, here, rule.borne(here))


def in_words(scenario: Scenario, agents: int) -> list[str]:
    """Lines: what stands for the mean of replies, and who attacks."""
    said, lines = scenario.attackers, list[str]()
    levels = enumerate(scenario.network.levels or ())
    rules = {f"network.levels[{k}].aggregate": level.aggregate for k, level in levels}
    for key, own in {"aggregate": scenario.algorithm.aggregate, **rules}.items():
        if own is None or (rule := own.rule) is None:
            continue
        before = f", of means of {rule.bucket} replies" * (rule.bucket > 1)
        before += f", of replies mixed with their n - {rule.nearest} nearest" * (rule.nearest > 0)
        lines.append(f"{key}: {own.kind}{before}; it needs {rule.least} replies")
    if said is not None:
        who = attacking(scenario, agents)
        lines.append(f"attackers: {numbers(who)} of {agents} agents: {said.attack.text}")
    return lines


def uncounted(scenario: Scenario) -> list[str]:
    """What whoever states terms of privacy must know of messages that are lies."""
    said = scenario.attackers
    if said is None or scenario.privacy is None or not said.attack.of_messages:
        return []
    text = "epsilon is that of what the method releases, which attackers do not send; it holds for "
    return [f"attackers: {text}the others, towards whom attackers see no more than its view"]


def compiled_not(scenario: Scenario) -> str:
    """Why compiled rounds cannot play it; empty where they can."""
    own, said = scenario.algorithm.aggregate, scenario.attackers
    if (own is not None and own.kind != "mean") or (own is not None and own.rule is not None):
        return f"{own.kind} is computed in Python"
    if said is not None and said.attack.of_messages:
        return "what attackers send is computed in Python"
    return ""
