"""Runs that would never end, or parts of them, as far as that is known before they begin.

Who waits for all fails with the reason; a deadline, a quorum or a buffer passes agents and links
over that have been drawn so slow that nothing of theirs ever ends. So it is said before the run.
"""

import numpy as np
from numpy.typing import NDArray

from desim.engine.observer import MAX_OBSERVATIONS
from desim.engine.opening import opening
from desim.engine.patience import cure
from desim.engine.play import Simulation
from desim.engine.presences import ROUNDING, needed, never
from desim.engine.settings import Settings
from desim.errors import InputError
from desim.network.conditions.devices import fastest, speeds_of
from desim.network.timeline.computations import Speeds, takes
from desim.network.timeline.messages import Links
from desim.numerics.distributions import bounds
from desim.scenario import registry
from desim.scenario.check import explained, located
from desim.scenario.schema import Scenario

Flags = NDArray[np.bool_]
MOST_WORK = 2.0**63  # bits of a message, or gradients of a computation
NAMED = 3


def refuse_endless(scenario: Scenario, simulation: Simulation) -> None:
    """InputError for a run without an end; what only makes it useless is told as a warning."""
    found = [*_timeless(scenario, simulation), *_unobservable(scenario)]
    method, settings = simulation.method, simulation.settings
    stuck = _stuck(scenario, simulation)
    if stuck and settings.horizon == np.inf and needed(settings, len(stuck)):
        found.append(f"churn: {stuck[0]}, or {cure(settings.policy)}")
    elif stuck:
        method.warnings += [f"churn: {stuck[0]}"]
    method.warnings += _flat(scenario, simulation)
    if found:
        raise located(scenario, InputError(found))


def _timeless(scenario: Scenario, simulation: Simulation) -> list[str]:
    """What is wrong with a run whose rounds take no time and that only time could end."""
    settings, method, stop = simulation.settings, simulation.method, scenario.stop
    ends = stop.rounds is not None or method.once or settings.budget is not None
    own = scenario.algorithm.name in registry.OWN and not method.timed
    hub = method.kind == "coordinator"
    if ends or not own or (hub and stop.targets):  # a coordinator's metric is looked at each round
        return []
    instant = _instant(settings.speeds)
    if not (_star_stands(settings, instant) if hub else _graph_stands(settings, instant)):
        return []
    limit = f"stop.time {stop.time:g} s" if stop.time else f"stop.metric, {stop.limits()},"
    text = f"missing, and nothing takes time, so that {limit} is never reached"
    cure = "a number of rounds, or durations (network.link, compute.speed)"
    return [f"stop.rounds: {text}; allowed: {cure}"]


def _flat(scenario: Scenario, simulation: Simulation) -> list[str]:
    """A warning where all rounds of a graph's agents end at 0 s: its metrics are true at a time."""
    settings, method, observe = simulation.settings, simulation.method, scenario.observe
    waits = method.timed or settings.policy.limited or method.kind == "coordinator"
    if waits or observe.every != "round" or not observe.metrics or settings.rounds <= 1:
        return []
    links = settings.links
    alone = method.kind == "central" or links is None
    if not _instant(settings.speeds).all() or not (links is None or _free(links).all()):
        return []
    cure = "compute.speed: 1e6" if alone else "network.link.latency: 1 us"
    return [
        "observe: nothing takes time, so that all rounds end at 0 s, when the models are those of "
        f"the last one: rows of the network are alike; {cure} tells rounds apart"
    ]


def _instant(speeds: Speeds) -> Flags:
    """Whose (agents,) computations are known to take no time."""
    known = not speeds.redraw or (not speeds.measured.size and len({*bounds(speeds.law)}) == 1)
    free = (bounds(speeds.overhead)[1] == 0.0) & (speeds.devices[2] == 0.0)
    return np.asarray(np.isinf(fastest(speeds)) & known & free)


def _star_stands(settings: Settings, instant: Flags) -> bool:
    """Whether collections close at once; instant (agents,): whose computations take no time."""
    assert settings.uplinks is not None
    assert settings.downlinks is not None
    quick = int(np.count_nonzero(instant & _free(settings.uplinks) & _free(settings.downlinks)))
    policy, agents = settings.policy, settings.problem.agents
    tiers = () if settings.tree is None else settings.tree.tiers
    ways = [way for tier in tiers for way in (tier.uplinks, tier.downlinks)]
    if takes(settings.intake) or not all(_free(way).all() for way in ways):
        return False
    everybody = settings.participation.least == agents
    if policy.kind in ("quorum", "buffer") and everybody:
        return quick >= policy.value
    return quick == agents


def _graph_stands(settings: Settings, instant: Flags) -> bool:
    """Whether some agents never wait: for a computation, or for somebody who has to."""
    graph, links = settings.graph, settings.links
    assert graph is not None
    assert links is not None
    slow = ~instant
    if settings.policy.kind == "each":
        return not slow.all()
    free = _free(links)
    if settings.changing is not None:  # links of other rounds are other links
        return bool(instant.all() and free.all() and len(free))
    slow[graph.target[~free]] = True
    for _ in range(len(slow)):
        reached = slow.copy()
        reached[graph.target[slow[graph.source]]] = True
        if (reached == slow).all():
            break
        slow = reached
    return not slow.all()


def _free(links: Links) -> Flags:
    """On which links (links,) messages take no time."""
    if links.lossy or links.plays.shape[1]:
        return np.zeros(links.ends.shape[1], bool)
    return np.asarray((links.latency == 0.0) & np.isinf(links.wires[1]))


def _unobservable(scenario: Scenario) -> list[str]:
    """What is wrong with observations of which there are too many until the end of the run."""
    every, stop = scenario.observe.every, scenario.stop
    if not isinstance(every, float) or stop.time is None or stop.rounds or stop.targets:
        return []
    if stop.time <= MAX_OBSERVATIONS * every:
        return []
    text = f"found {every:g} s, {stop.time / every:.3g} observations until {stop.time:g} s"
    return [f"observe.every: {text}; allowed: at most {MAX_OBSERVATIONS} in a run"]


def _stuck(scenario: Scenario, simulation: Simulation) -> list[str]:
    """Why agents can never finish what they are asked first, a line for each."""
    settings = simulation.settings
    churn = settings.churn
    if churn is None or np.isinf(churn.longest).all():
        return []
    with explained(scenario):
        asked = opening(simulation)
    if asked is None or simulation.method.timed:
        return []
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = asked.work / fastest(settings.speeds)[asked.who]
        seconds += bounds(settings.speeds.overhead)[0] + settings.speeds.devices[2, asked.who]
    hopeless = np.flatnonzero(seconds > churn.longest[asked.who] * ROUNDING)
    return [
        never(int(i), float(seconds[r]), float(asked.work[r]), float(churn.longest[i]))
        for r, i in zip(hopeless, asked.who[hopeless], strict=True)
    ]


def endless(settings: Settings) -> list[str]:
    """One warning for all links, and one for all devices, at whose rates anything takes for ever.

    Speeds that are drawn anew every round are asked for in the first.
    """
    sides = (settings.links, settings.downlinks, settings.uplinks)
    dead = [name for links in sides if links is not None for name in _dead(links)]
    warnings = [_said(dead, "network: nothing arrives on", "bandwidth")] if dead else []
    stuck = [f"agent {i}" for i in np.flatnonzero(_never(speeds_of(settings.speeds)))]
    return warnings + ([_said(stuck, "compute: nothing is ever done by", "speed")] if stuck else [])


def _dead(links: Links) -> list[str]:
    """The links whose bandwidth is none, in words; traces have some at last."""
    if links.plays.shape[1]:
        return []
    ends = links.ends[:, _never(links.wires[1])].T.tolist()
    return [f"the link from {_node(source)} to {_node(target)}" for source, target in ends]


def _never(rates: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the most that there may be takes for ever at each of these rates (n,)."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.isinf(MOST_WORK / rates))


def _said(names: list[str], what: str, rate: str) -> str:
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    drawn = f"whose {rate} was drawn as 0 or next to it"
    return f"{what} {', '.join(names[:NAMED])}{rest}, {drawn}; choose a law that is above 0"


def _node(agent: int) -> str:
    return "the coordinator" if agent < 0 else f"agent {agent}"
