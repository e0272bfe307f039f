"""Who looks: which releases an adversary sees, and what its view leaves open.

Everything an agent reveals is in its releases, so a view is a choice of rows; what others compute
from those rows is post-processing and free. Where that is all an adversary gets (`neighbour`,
`final-model`), the rows behind it are charged: a rigorous bound, though not always a tight one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from desim.arrays import Mask
from desim.columns import Columns
from desim.errors import InputError, refusal

NAMELESS = ("eavesdropper", "coordinator", "final-model")
ONE = re.compile(r"(neighbour|direct):\s*(\d{1,9})")
SET = re.compile(r"collusion:\s*\[\s*(\d{1,9}(?:\s*,\s*\d{1,9})*)\s*\]")
PATTERN = rf"^({'|'.join(NAMELESS)}|{ONE.pattern}|{SET.pattern})$"
WORDS = (*NAMELESS, "neighbour", "direct", "collusion")
ALLOWED = (
    f"{', '.join(NAMELESS)}, 'neighbour:3', 'direct:3', 'collusion:[0, 3]' or the same as a mapping"
)


@dataclass(frozen=True)
class Adversary:
    """One who sees `kind`; `agents` are those that it is made of, whose own data it knows."""

    kind: str
    agents: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.agents:
            return self.kind
        named = list(self.agents) if self.kind == "collusion" else self.agents[0]
        return f"{self.kind}:{named}"


def read_view(view: object) -> Adversary:
    """Read a view such as `neighbour:3`, or {"neighbour": 3}; ValueError for an unknown one."""
    text = view
    if isinstance(view, Mapping) and len(view) == 1:
        ((word, agents),) = view.items()
        text = f"{word}:{list(agents) if isinstance(agents, list | tuple) else agents}"
    if not isinstance(text, str):
        raise ValueError(refusal(view, ALLOWED))
    if text in NAMELESS:
        return Adversary(text)
    if one := ONE.fullmatch(text):
        return Adversary(one[1], (int(one[2]),))
    if several := SET.fullmatch(text):
        return Adversary("collusion", tuple(sorted({int(j) for j in several[1].split(",")})))
    if text in WORDS:
        example = f"{text}:[0, 3]" if text == "collusion" else f"{text}:3"
        raise ValueError(f"found {text!r}, a view that names no agent; allowed: {example}")
    raise ValueError(refusal(view, ALLOWED, WORDS))


def adversary(view: str, agents: int) -> Adversary:
    """Read a view as `read_view`; InputError for an unknown one or an agent >= `agents`."""
    try:
        who = read_view(view)
    except ValueError as wrong:
        raise InputError(f"view: {wrong}") from None
    if who.agents and who.agents[-1] >= agents:
        raise InputError(f"view: found {view!r}; allowed: agents 0 to {agents - 1}")
    return who


def visible(releases: Columns, who: Adversary, events: Columns | None = None) -> Mask:
    """Which rows (n,) of the releases table the adversary sees.

    A message that is lost was transmitted: an eavesdropper saw it, nobody else. `direct` needs the
    `events`; a coordinator's view needs one, see `require_seen`.
    """
    arrived = releases["delivered"] > 0
    if who.kind == "eavesdropper":
        return np.ones(len(arrived), bool)
    if who.kind == "coordinator":
        uploads = releases["seen_by"].equal("coordinator")
        return np.asarray(arrived & uploads)
    others = ~np.isin(releases["agent"], who.agents)
    if who.kind == "direct":
        return np.asarray(others & arrived & _received(releases, who.agents[0], events))
    return np.asarray(others & arrived)


def require_seen(who: Adversary, star: bool, rows: int) -> None:
    """InputError for a coordinator's view of rows of which none (not `star`) goes to one."""
    if who.kind == "coordinator" and rows and not star:
        raise InputError("view: found coordinator; allowed: others, as there is no coordinator")


def charged(releases: Columns, who: Adversary, events: Columns | None = None) -> Mask:
    """Which rows (n,) the adversary's view costs: an agent's, up to the last one that it sees.

    A release is priced given the ones before it, and a method goes on from what it has sent: who
    receives a later release learns of a lost one too, so only what follows the last one is free.
    """
    reached = visible(releases, who, events)
    agent = releases["agent"]
    place = np.empty(len(agent), np.int64)
    place[np.lexsort((releases["release"], releases["time"]))] = np.arange(len(agent))
    last = np.full(1 + int(agent.max(initial=-1)), -1)
    np.maximum.at(last, agent[reached], place[reached])
    return np.asarray(place <= last[agent])


def _received(releases: Columns, agent: int, log: Columns | None) -> Mask:
    """Which releases arrived on a link that ends at `agent`."""
    if log is None:
        raise InputError(f"view: found direct:{agent}; allowed: others, as there are no events")
    arrivals = log["kind"].equal("deliver") & (log["agent"] == agent)
    arrivals &= (log["peer"] >= 0) & (log["release"] >= 0)
    return np.isin(releases["release"], log["release"][arrivals])


def reservations(who: Adversary, star: bool) -> tuple[str, ...]:
    """What a reader of an epsilon for this view has to know; star: a coordinator sees releases."""
    if who.kind == "direct":
        nobody = "; on a star it receives no release at all" if star else ""
        return (
            f"optimistic: what other agents pass on to agent {who.agents[0]} is left out{nobody}",
        )
    if who.kind == "final-model":
        return ("all releases up to the last delivered one; no hidden-state theorem is applied",)
    if who.kind in ("neighbour", "collusion"):
        told = "the coordinator tells it" if star else "others pass it on"
        return (f"all releases of others up to the last delivered one, of which {told}",)
    return ()
