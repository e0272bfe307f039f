"""A simulation in words, so that a wrong unit or too large a size is seen before the run."""

from collections.abc import Iterator, Sequence

import numpy as np

from desim.agent_names import agents, listed
from desim.amounts import between, measured_text, size
from desim.arrays import Array, Int
from desim.engine.crossing import meeting, two_ways
from desim.engine.opening import Opening, opening
from desim.engine.play import Simulation
from desim.engine.settings import Settings
from desim.network.conditions.devices import overheads_of, speeds_of
from desim.network.conditions.hierarchy import Tree
from desim.network.conditions.links import (
    CONGESTION,
    connected,
    law,
    rates,
    seconds_after,
    seconds_both_ways,
)
from desim.network.timeline.computations import takes
from desim.network.timeline.messages import Links
from desim.network.timeline.transport import IDEAL, KIND, NEW
from desim.scenario.harm import in_words
from desim.scenario.schema import Scenario
from desim.scenario.sections.links import Tcp
from desim.scenario.trusting import sums_of

# What transport makes of the messages of a scenario.
LONGEST = 80_000_000  # bits of a message that is tried
OFF = 0.1  # of a message's time, from which on it is said that there is no transport


def carriers(settings: Settings, first: Opening | None) -> Iterator[str]:
    """Warnings where links without transport are much faster than TCP on them."""
    up, down, links = settings.uplinks, settings.downlinks, settings.links
    if first is None or not len(first.seconds):
        return
    if up is not None and down is not None:
        rule = np.max if settings.policy.kind == "all" else np.median
        pause = float(rule(first.seconds))
        yield from _over_tcp("down", (down, up), first.down, pause, first.up)
        yield from _over_tcp("up", (up, down), first.up, pause, first.down)
    elif links is not None and links.ends.size:
        pause = float(np.median(first.seconds))
        bits = 64 * settings.problem.dim
        yield from _over_tcp("to a neighbour", (links, links), bits, pause, None)
        yield from _met(settings, links, bits)


def _met(settings: Settings, links: Links, bits: int) -> Iterator[str]:
    """What messages both ways on a line would take more, where the simulation does not say it."""
    pairs = two_ways(links)
    if links.transport.ideal or links.once or not pairs.shape[1]:
        return
    if meeting(settings, links).shape[1] == pairs.shape[1]:
        return
    some = pairs[:, np.isin(pairs[0], _typical(links)) | np.isin(pairs[1], _typical(links))]
    both, alone = seconds_both_ways(links, some[:, :3], min(bits, LONGEST))
    share = float(np.max(both / alone) - 1.0)
    if share > OFF:
        yield (
            "network.link.transport: acknowledgements that wait behind what the other end sends "
            "at the same time are left out here: messages that meet on a line take up to "
            f"{100 * share:.0f} % longer; they are counted over reno or cubic on a graph that "
            "stays where all wait for all (policy: all), without churn or contention"
        )


def _over_tcp(
    way: str, there_and_back: tuple[Links, Links], bits: int, pause: float, other: int | None
) -> Iterator[str]:
    """What one way's messages take; other: bits of those of the other way, which are between."""
    links, back = there_and_back
    if not links.transport.ideal or links.once or not np.isfinite(bits):
        return
    some = _typical(links)
    plain = links.latency[some] + bits / rates(links)[some]
    idle = np.full(len(some), pause)
    if other is not None and np.isfinite(other):
        idle += back.latency[some] + other / rates(back)[some]
    joined = connected(links, [law(Tcp(), False)] * len(links.ends[0]), back)
    tcp = seconds_after(joined, some, bits, idle)
    more = tcp / plain - 1.0
    worst = int(np.argmax(more))
    if more[worst] > OFF:
        text = f"{size(bits / 8)} {way} {between(plain[[worst]], 's')}, with tcp"
        after = f"after {between(idle[[worst]], 's')} of idleness" if idle[worst] else "kept busy"
        yield (
            f"network.link.transport: ideal says that {text} it takes "
            f"{between(tcp[[worst]], 's')} {after} ({100 * more[worst]:.0f} % more); "
            "transport: tcp says what real connections do"
        )


def _typical(links: Links) -> Int:
    """The links with the least, the median and the largest product of latency and bandwidth."""
    order = np.argsort(links.latency * np.minimum(rates(links), 1e18), kind="stable")
    return np.unique(order[[0, len(order) // 2, -1]])


# The whole description, with sizes of files.
ROW = 13.0  # bytes of an event in events.parquet, about: 11 to 14 were measured on large logs
NUMBER = 8  # bytes of a number in an npz file
WORTH_A_LINE, WORTH_A_WARNING = 1e8, 1e9  # bytes
LONG, NARROW, SLOW = 5.0, 1e3, 0.1  # s, bit/s, 1/s: beyond these a unit may have been forgotten


def sentence(scenario: Scenario, simulation: Simulation) -> str:
    """One line: method, sizes, loss, topology, engine and when the run will end."""
    problem = simulation.problem
    where = f" ({listed(problem.sites)})" if problem.sites else ""
    features = " x ".join(map(str, problem.A.shape[1:]))
    return (
        f"ok: {scenario.name}: {scenario.algorithm.name}, {problem.agents} agents{where}, "
        f"{int(problem.start[-1])} rows, {features} features, "
        f"{scenario.problem.loss.kind} loss, {scenario.network.topology.kind} topology, "
        f"{simulation.engine} engine ({simulation.why}), until {scenario.stop.limits()}"
    )


@np.errstate(divide="ignore", invalid="ignore")  # what was drawn as 0 takes for ever
def circumstances(simulation: Simulation) -> list[str]:
    """Lines: what the links and the devices are, and what the first exchange takes."""
    settings = simulation.settings
    pace = speeds_of(settings.speeds)  # 1/s
    speed = f"a gradient of one row takes {_span(1.0 / pace)}"
    speed += " (a bare speed is in 1/s)" if ((pace > 0.0) & (pace < SLOW)).any() else ""
    speed = speed if (1.0 / pace).max() > 0.0 else "computing takes no time"
    besides = overheads_of(settings.speeds)
    fixed = f"; a computation {_span(besides)} besides" if besides.max() > 0.0 else ""
    sides = {"links": settings.links, "uplinks": settings.uplinks, "downlinks": settings.downlinks}
    words = {name: _link(one) for name, one in sides.items() if one is not None and one.ends.size}
    if len(words) > 1 and len({*words.values()}) == 1:
        words = {"links": next(iter(words.values()))}
    lines = [f"{name}: {text}" for name, text in words.items()]
    lines += [] if settings.tree is None else edges(settings.tree)
    lines += [f"devices: {speed}{fixed}"]
    if simulation.origin is not None:
        compute = simulation.origin.scenario.compute
        lines += [f"measured: {text}"] if (text := measured_text(compute.written())) else []
        if (flops := compute.work.flops) is not None:
            lines.append(f"work: {flops:.6g} floating point operations for each row")
    if takes(settings.intake):
        lines.append("coordinator: takes replies in one after the other, before it goes on")
    if simulation.origin is not None:
        lines += in_words(simulation.origin.scenario, settings.problem.agents)
    first = opening(simulation)
    lines += _first(first, settings) if first is not None else []
    lines += [f"warning: {text}" for text in carriers(settings, first)]
    return [*lines, *sums_of(simulation), *sizes(simulation)]


def edges(tree: Tree) -> Iterator[str]:
    """Of each level of a tree, from the cloud down: how many edges, and their links upwards."""
    for tier in reversed(tree.tiers):
        up, down = _link(tier.uplinks), _link(tier.downlinks)
        ways = up if up == down else f"up {up}; down {down}"
        size = np.bincount(tier.owner)
        low, high = int(size.min()), int(size.max())
        each = f"{low}" if low == high else f"{low} to {high}"
        rounds = "" if tier.rounds == 1 else f", {tier.rounds} rounds of their own for each above"
        leave = "" if tier.calendar is None else ", which leave and come back"
        yield f"edges: {tier.number}, with {each} below each{rounds}{leave}; {ways}"


def _link(links: Links) -> str:
    """Latency, bandwidth and losses of links, as drawn for this run."""
    latency, rate = links.latency, rates(links)
    parts = [between(latency, "s") if latency.max() > 0.0 else "no latency"]
    parts[0] += " (a bare number is in s)" if latency.max() >= LONG else ""
    finite = rate[np.isfinite(rate)]
    text = between(finite, "bit/s") if len(finite) else "sending takes no time"
    text += " on average" if links.plays.shape[1] else ""
    narrow = ((finite > 0.0) & (finite < NARROW)).any()
    parts.append(text + (" (a bare number is in bit/s)" if narrow else ""))
    arriving = 1.0 - _lost(links.loss, links.bursts[1])
    arriving *= 1.0 - _lost(links.onward[3:5], links.onward[6]) if len(links.onward) else 1.0
    lost = 1.0 - arriving
    what = "messages" if links.transport.ideal else "packets"
    parts += [f"{100.0 * lost:.3g} % of {what} lost"] if lost else []
    return ", ".join([*parts, *_carried(links)])


def _carried(links: Links) -> list[str]:
    """By what messages are carried, and on what lines."""
    law, names = links.transport.law, {code: name for name, code in CONGESTION.items()}
    found = sorted({(names.get(int(kind)), anew > 0) for kind, anew in law[[KIND, NEW]].T if kind})
    words = [f"tcp ({name}, {'a new connection' if anew else 'kept'})" for name, anew in found]
    if links.lines.shape[1]:
        which, rate = links.lines
        shared, many = rate[np.isfinite(rate)], len(np.unique(which))
        words.append(f"behind {many} line{'s' if many > 1 else ''}")
        words[-1] += f" of {between(shared, 'bit/s')}" if len(shared) else ""
    return words


def _lost(loss: Sequence[float] | Array, share: float) -> float:
    """Share of attempts that are lost; loss: outside bursts and in them; share: of time in them."""
    return float(loss[0] + share * (loss[1] - loss[0]))


def _first(first: Opening, settings: Settings) -> Iterator[str]:
    """What the first exchange takes: of a coordinator all of it, else computing and sending."""
    if not len(first.who):
        return
    low, high = f"{first.work.min():.6g}", f"{first.work.max():.6g}"
    work = f"{low if low == high else f'{low} to {high}'} gradients in {_span(first.seconds)}"
    if settings.uplinks is not None and settings.downlinks is not None:
        down, up = _messages(settings.downlinks, first.down), _messages(settings.uplinks, first.up)
        whole = down[first.who] + first.seconds + up[first.who]
        parts = f"{size(first.down / 8)} down, {work}, {size(first.up / 8)} up"
        yield f"first exchange: {parts}; in all {_span(whole)}"
        yield from _too_late(first.who, whole, settings)
        return
    bits = 64 * settings.problem.dim
    sent = "" if settings.links is None or not settings.links.ends.size else (
        f"; {size(bits / 8)} to a neighbour in {_span(_messages(settings.links, bits))}"
    )  # fmt: skip
    yield f"first computation: {work}{sent}"


def _too_late(who: Int, whole: Array, settings: Settings) -> Iterator[str]:
    """A warning of the agents whose first exchange takes longer than anybody waits for."""
    policy = settings.policy
    limit = policy.rule.limit
    late = whole > limit
    if not late.any():
        return
    named = agents(who[late], settings.problem.sites)
    become = "come late" if policy.late == "carry" else "are not heard"
    least = f", longer until {policy.at_least} replies are there" if policy.at_least else " at most"
    yield (
        f"warning: the first exchange of {named} takes {_span(whole[late])}, and the "
        f"coordinator waits for {limit:g} s{least}: at this pace their replies {become}"
    )


def _span(seconds: Array) -> str:
    """The least and the largest of durations, some of which may have no end."""
    known = seconds[np.isfinite(seconds)]
    parts = [between(known, "s")] if len(known) else []
    return " or ".join([*parts, *(["without end"] if len(known) < len(seconds) else [])])


def _messages(links: Links, bits: int) -> Array:
    """How long the first message of that size takes on each link, in s."""
    found = np.asarray(links.latency + bits / rates(links))
    if not links.transport.ideal:
        some = np.flatnonzero(links.transport.law[KIND] != IDEAL)
        found[some] = seconds_after(links, some, bits, np.zeros(len(some)), before=0)
    return found


def sizes(simulation: Simulation) -> Iterator[str]:
    """Lines about files of 100 MB and more; none where only the end of the run knows its rounds."""
    settings = simulation.settings
    if not np.isfinite(settings.rounds):
        return
    rounds, problem = settings.rounds, settings.problem
    smaller = {"all": "log: messages or log: rounds is", "messages": "log: rounds is"}
    less = f"; {smaller[settings.log]} smaller" if settings.log in smaller else ""
    model = NUMBER * (rounds + 1) * problem.dim
    for amount, before, text in (
        (ROW * rounds * events(simulation), "about ", f"events at log: {settings.log}{less}"),
        (model * (simulation.method.kind == "coordinator"), "",
         "model.npz, the model of every round"),
        (model * problem.agents * simulation.observation.iterates, "",
         "iterates.npz, all models of every round (observe.iterates: true)"),
    ):  # fmt: skip
        if amount >= WORTH_A_LINE:
            weight = "warning" if amount >= WORTH_A_WARNING else "size"
            yield f"{weight}: {before}{size(amount)} of {text}"


def events(simulation: Simulation) -> float:
    """Rows of the event log in a round, about, as far as the method says what a round is."""
    settings, noise = simulation.settings, simulation.method.noise is not None
    if simulation.method.kind == "coordinator":
        called = settings.policy.training(float(settings.participation.least))
        # Called, and a message there; work, perhaps noise, and a message back; a collection.
        rows = {"all": called * (6 + noise) + 1, "messages": 4 * called + 1, "rounds": 1.0}
        return rows[settings.log]
    if settings.graph is None or settings.links is None or simulation.method.kind == "central":
        return 2.0 + noise
    agents, messages = settings.problem.agents, len(settings.links.ends[0])
    own = {"all": 2 + noise, "messages": 1, "rounds": 1}
    return agents * own[settings.log] + (2.0 * messages if settings.log != "rounds" else 0.0)
