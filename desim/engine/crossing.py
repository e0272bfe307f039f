"""Which links of a graph are the two ways of one line whose messages meet: known in each round."""

import numpy as np

from desim.arrays import Int, Mask
from desim.engine.settings import Settings
from desim.network.timeline.messages import NONE, Links
from desim.network.timeline.segments import CUBIC, KIND, RENO

APART = np.zeros((2, 0), np.int64)


def two_ways(links: Links) -> Int:
    """Pairs (2, n) of links, the lower number first, that lead there and back."""
    source, target = links.ends
    low, high = np.minimum(source, target), np.maximum(source, target)
    order = np.lexsort((np.arange(len(source)), high, low))
    first, second = order[:-1], order[1:]
    same = (low[first] == low[second]) & (high[first] == high[second])
    return np.array([first[same], second[same]], np.int64)


def meeting(settings: Settings, links: Links) -> Int:
    """Pairs (2, n) of links on which messages of Reno or CUBIC meet, and both starts are known.

    They are where everybody waits for everybody on a graph that stays: neither end sends twice
    before the other one has sent.
    """
    waits = settings.policy.kind == "all" and settings.churn is None
    stays = settings.changing is None and links.contention == NONE and not links.once
    if links.transport.ideal or not waits or not stays:
        return APART
    pairs = two_ways(links)
    kinds = np.isin(links.transport.law[KIND], (RENO, CUBIC))
    return np.asarray(pairs[:, kinds[pairs[0]] & kinds[pairs[1]]])


def used_both_ways(pairs: Int, used: Mask | None) -> Int:
    """Those of pairs (2, n) whose links are both used (links,); None: all links are."""
    return pairs if used is None else np.asarray(pairs[:, used[pairs[0]] & used[pairs[1]]])


def demand_patience(pairs: Int) -> None:
    """ValueError for a wait that ends before all is here where messages meet on lines."""
    if pairs.shape[1]:
        raise ValueError(
            "us.gather: within: found a wait that may end early, over tcp on a graph where all "
            "wait for all; allowed with it: network.link.transport: ideal, or policy: deadline"
        )
