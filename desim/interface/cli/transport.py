"""What transport makes of a scenario's messages, in words."""

from collections.abc import Iterator

import numpy as np

from desim.amounts import between, size
from desim.arrays import Int
from desim.engine.crossing import meeting, two_ways
from desim.engine.opening import Opening
from desim.engine.settings import Settings
from desim.network.conditions.links import connected, law, rates, seconds_after, seconds_both_ways
from desim.network.timeline.messages import Links
from desim.scenario.sections.links import Tcp

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
        yield from _told("down", (down, up), first.down, pause, first.up)
        yield from _told("up", (up, down), first.up, pause, first.down)
    elif links is not None and links.ends.size:
        pause = float(np.median(first.seconds))
        bits = 64 * settings.problem.dim
        yield from _told("to a neighbour", (links, links), bits, pause, None)
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


def _told(
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
