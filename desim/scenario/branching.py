"""A tree of coordinators as engines take it: who talks to whom, and how, at each level."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from re import sub
from typing import Any

import numpy as np

from desim.arrays import Int
from desim.engine.settings import Settings
from desim.errors import InputError
from desim.network.conditions.hierarchy import CLOUD, Tier, Tree, parents, regular
from desim.network.conditions.participation import Drawn
from desim.scenario.checks.attack_consistency import lacking
from desim.scenario.conditions import Conditions, policy_of
from desim.scenario.schema import Scenario
from desim.scenario.sections.algorithm import Participation, Policy
from desim.scenario.sections.network import Level

DEEPEST = 32  # levels of edges: a call goes down all of them within one stack of Python's


def owners_of(scenario: Scenario, agents: int) -> list[Int]:
    """Which edge each node talks to, tier after tier from the agents up; InputError for no tree."""
    said = scenario.network.topology.tree
    owners = regular(said) if isinstance(said, tuple) else parents(said, agents)  # type: ignore[arg-type]
    if len(owners) > DEEPEST:
        text = f"found {len(owners)} levels of edges; allowed: at most {DEEPEST}"
        raise InputError(f"network.topology.tree: {text}")
    return owners


def branched(scenario: Scenario, settings: Settings) -> Settings:
    """The settings with the edges of a tree, as they are where there is none."""
    if scenario.network.topology.tree is None:
        return settings
    owners = owners_of(scenario, settings.problem.agents)
    levels = scenario.network.levels or (Level(),) * len(owners)
    if len(levels) != len(owners):
        text = f"found {len(levels)} of a tree with {len(owners)} of edges"
        raise InputError(f"network.levels: {text}; allowed: one for each, or none")
    if problems := [*_unfit(scenario, owners, levels)]:
        raise InputError(problems)
    tiers, first = list[Tier](), settings.problem.agents
    for t, (owner, level) in enumerate(zip(owners, reversed(levels), strict=True)):
        number = int(owner.max()) + 1
        above = np.full(number, CLOUD)
        if t + 1 < len(owners):
            above = first + number + owners[t + 1]
        with _at_level(len(owners) - 1 - t):
            tiers.append(_tier(scenario, level, owner, first, above))
        first += number
    return replace(settings, tree=Tree(tuple(tiers)))


@contextmanager
def _at_level(k: int) -> Iterator[None]:
    """What is wrong with a file that level k names stands there."""
    try:
        yield
    except InputError as error:
        found = [sub(r"^(network\.)?", f"network.levels[{k}].", one) for one in error.problems]
        raise InputError(found) from None


def _tier(scenario: Scenario, level: Level, owner: Int, first: int, above: Int) -> Tier:
    """The edges of one level, with links to and from what is `above` (number,)."""
    ids, network = first + np.arange(len(above)), scenario.network
    changes: dict[str, Any] = {"link": level.link, "links": (), "latency_matrix": None}
    changes |= {"uplink": level.uplink, "downlink": level.downlink, "contention": "none"}
    same = {"policy": level.policy, "participation": level.participation, "churn": level.churn}
    own = scenario.model_copy(update={"network": network.model_copy(update=changes), **same})
    conditions = Conditions(own, len(ids))
    drawn, rule = conditions.participation(), level.aggregate.rule if level.aggregate else None
    assert isinstance(drawn, Drawn)
    return Tier(
        first, owner, len(ids), level.rounds, conditions.links(ids, above, "uplink"),
        conditions.links(above, ids, "downlink"), policy_of(own), drawn,
        conditions.calendar_from(first), level.codec.codecs(known=False),
        () if rule is None else (rule.feature,),
    )  # fmt: skip


def _unfit(scenario: Scenario, owners: Sequence[Int], levels: Sequence[Level]) -> Iterator[str]:
    """What asks for more agents, or edges, than a coordinator has."""
    sizes = [np.bincount(owner) for owner in owners]  # of stars, from those of agents up
    own, few = scenario.algorithm.aggregate, int(sizes[0].min())
    yield from _more(scenario.participation, scenario.policy, few, "")
    if text := lacking(own, scenario.participation, scenario.policy, few):
        yield f"algorithm.aggregate: {text}"
    last = int(owners[-1].max()) + 1
    fewest = [*(int(one.min()) for one in sizes[1:]), last]
    for k, level in enumerate(levels):
        few = fewest[len(levels) - 1 - k]
        yield from _more(level.participation, level.policy, few, f"network.levels[{k}].")
        if text := lacking(level.aggregate, level.participation, level.policy, few):
            yield f"network.levels[{k}].aggregate: {text.replace('agents', 'edges')}"


def _more(way: Participation, policy: Policy, few: int, where: str) -> Iterator[str]:
    """The same of one level, the smallest of whose stars has so `few`."""
    if way.uniform is not None and way.uniform > few:
        text = f"found {way.uniform}, but a coordinator of the tree has {few}"
        yield f"{where}participation.uniform: {text}; allowed: at most {few}"
        return
    few = way.uniform or few
    wanted = {policy.kind: policy.value} if policy.kind in ("quorum", "buffer") else {}
    wanted |= {} if policy.at_least is None else {"at_least": policy.at_least}
    for key, number in wanted.items():
        if number > few:
            text = f"found {number} replies, but a coordinator of the tree invites {few}"
            yield f"{where}policy.{key}: {text}; allowed: 1 to {few}"


def in_turn(scenario: Scenario, settings: Settings, method: Any) -> Settings:
    """The settings, whose edges know what rounds in turn come to where they play several."""
    tree = settings.tree
    if tree is None or all(tier.rounds == 1 for tier in tree.tiers):
        return settings
    known = method.in_turn()
    if known is None:
        name = scenario.algorithm.name
        text = f"found rounds of edges with {name} as it is here, whose coordinator remembers more "
        text += "than sums of several rounds say"
        raise InputError(f"network.levels: {text}; allowed: rounds: 1")
    return replace(settings, tree=replace(tree, in_turn=known))
