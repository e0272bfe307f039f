"""Links and devices that have been drawn so slow that nothing of theirs ever ends.

Who waits for all fails with the reason; a deadline, a quorum or a buffer passes them over without a
word. So it is said before the run, on every engine in the same words.
"""

import numpy as np
from numpy.typing import NDArray

from desim.engine.world import Settings
from desim.kernels.network import Links
from desim.kernels.speed import speeds_into

MOST = 2.0**63  # bits of a message, or gradients of a computation
NAMED = 3


def endless(settings: Settings) -> list[str]:
    """One warning for all links, and one for all devices, at whose rates anything takes for ever.

    Speeds that are drawn anew every round are asked for in the first.
    """
    sides = (settings.links, settings.downlinks, settings.uplinks)
    dead = [name for links in sides if links is not None for name in _dead(links)]
    told = [_said(dead, "network: nothing arrives on", "bandwidth")] if dead else []
    agents = np.arange(settings.problem.agents)
    speed = np.empty(len(agents))
    speeds_into(settings.speeds, agents, np.ones_like(agents), speed)
    stuck = [f"agent {i}" for i in np.flatnonzero(_never(speed))]
    return told + ([_said(stuck, "compute: nothing is ever done by", "speed")] if stuck else [])


def _dead(links: Links) -> list[str]:
    """The links whose bandwidth is none, in words; traces have some at last."""
    if links.plays.shape[1]:
        return []
    ends = links.ends[:, _never(links.wires[1])].T.tolist()
    return [f"the link from {_node(source)} to {_node(target)}" for source, target in ends]


def _never(rates: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the most that there may be takes for ever at each of these rates (n,)."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.isinf(MOST / rates))


def _said(names: list[str], what: str, rate: str) -> str:
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    drawn = f"whose {rate} was drawn as 0 or next to it"
    return f"{what} {', '.join(names[:NAMED])}{rest}, {drawn}; choose a law that is above 0"


def _node(agent: int) -> str:
    return "the coordinator" if agent < 0 else f"agent {agent}"
