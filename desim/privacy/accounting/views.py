"""Who looks: which releases an adversary sees, what its view leaves open, and what is assumed.

Everything an agent reveals is in its releases, so a view is a choice of rows; what others compute
from those rows is post-processing and free. Where that is all an adversary gets (`neighbour`,
`final-model`), the rows behind it are charged: a rigorous bound, though not always a tight one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Mask
from desim.columns import Columns
from desim.errors import InputError, refusal
from desim.privacy.accounting.prices import Prices

NAMELESS = ("eavesdropper", "coordinator", "final-model", "participants")
MODELS = ("participants", "final-model", "neighbour", "collusion")  # who see models and no replies
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


def _reservations(who: Adversary, star: bool) -> tuple[str, ...]:
    """What a reader of an epsilon for this view has to know; star: a coordinator sees releases."""
    if who.kind == "direct":
        nobody = "; on a star it receives no release at all" if star else ""
        return (
            f"optimistic: what other agents pass on to agent {who.agents[0]} is left out{nobody}",
        )
    if who.kind == "final-model":
        return ("all releases up to the last delivered one; no hidden-state theorem is applied",)
    if who.kind in ("neighbour", "collusion"):
        source = "the coordinator tells it" if star else "others pass it on"
        return (f"all releases of others up to the last delivered one, of which {source}",)
    return ()


# Statements beside an epsilon: what it takes for granted, and what its reader has to know.

NEIGHBOURS = {
    "replace-one": "one record of one agent is replaced by another",
    "add-or-remove-one": "one record of one agent is left out at a public number of rows; "
    "contributions lie in a ball around 0, so that it moves a value half as far as a replaced one "
    "(but for roundings and ranges)",
    "agent": "all records of one agent are replaced",
    "add-or-remove-agent": "all records of one agent are left out, so that it adds 0 to each sum "
    "that it would be in, and its weight to the divisor of no average",
}
APART = "no record is in the data of two agents"
REAL = "noise is of real numbers and its seed is secret"
WHOLE = "the seed of the noise is secret"  # of noise that is of whole numbers, as it says
FIXED = "each point of the curve is for a time fixed beforehand"
WHOLES = ("discrete-gaussian", "lattice-sum", "skellam-sum")
SCHEDULED = "no sensitivity, noise or batch follows from what was released"
LOST = (  # why an epsilon is infinite
    "a noise draw served two values",
    "released without noise",
    "the sensitivity has no bound, as the loss is unclipped",
    "sensitivity over noise is beyond floating point",
)


@dataclass(frozen=True)
class Signs:
    """What releases show of their account, to be put into words with that of others.

    exact: mu^2 says everything about all; counted: some have a loss distribution that is used;
    secret: some are on batches that stay secret; flat: some are of objective perturbation; hidden:
    some are of steps that nobody sees; whole, real: some have noise of such numbers; lost: agents,
    by the reason why their epsilon is infinite.
    """

    exact: bool
    counted: bool
    secret: bool
    flat: bool
    hidden: bool
    whole: bool
    real: bool
    lost: Mapping[str, NDArray[np.int64]]

    @classmethod
    def of(cls, seen: Mapping[str, Any], priced: Prices) -> "Signs":
        """What these releases show."""
        lost = np.isinf(priced.mu2)
        mechanism, agent = seen["mechanism"], seen["agent"]
        unbounded = np.isinf(np.asarray(seen["sensitivity"], float))
        reused = mechanism.equal("reused")
        used = {mechanism.words[code] for code in np.unique(mechanism.codes).tolist()}
        bare = ~reused & (mechanism.equal("none") | (np.asarray(seen["scale"], float) == 0.0))
        where = (reused, bare, unbounded & ~bare & ~reused, ~unbounded & ~bare & ~reused)
        return cls(
            bool(priced.gaussian.all()),
            bool((priced.laplace + priced.pure + priced.sampled > 0.0).any()),
            bool(((priced.ratio > 0.0) & (priced.rows > 1.0)).any()),
            bool((priced.xi > 0.0).any()),
            bool(mechanism.equal("noisy-gradient").any()),
            not used.isdisjoint(WHOLES),
            bool(used - {*WHOLES, "none", "reused"}),
            {why: np.unique(agent[lost & rows]) for why, rows in zip(LOST, where, strict=True)},
        )


def of_whole_numbers(signs: Sequence[Signs]) -> bool:
    """Whether all noise of the releases that show these signs is of whole numbers."""
    return any(one.whole for one in signs) and not any(one.real for one in signs)


def assumptions(relation: str, signs: Sequence[Signs]) -> tuple[str, ...]:
    """What epsilon and risk of the releases that show these signs take for granted."""
    said = [NEIGHBOURS[relation], APART, WHOLE if of_whole_numbers(signs) else REAL, FIXED]
    if any(one.counted for one in signs):
        said.append(SCHEDULED)
    if any(one.secret for one in signs):
        said.append("batches are drawn uniformly without replacement and stay secret")
    if any(one.flat for one in signs):
        said.append("rows keep to the bound on their norm: objective perturbation rests on it")
    if any(one.hidden for one in signs):
        said.append("nobody sees the steps of a local training before its end")
    return tuple(said)


def flags(
    who: Adversary, star: bool, signs: Sequence[Signs], delta: float, rows: NDArray[np.int64] | None
) -> tuple[str, ...]:
    """What a view leaves out, why an epsilon is infinite, and what else speaks against trusting it.

    star: whether a coordinator sees releases.
    """
    lost = {why: np.concatenate([one.lost[why] for one in signs]) for why in LOST}
    said = [*_reservations(who, star)]
    said += [f"infinite: {why} ({_named(who)})" for why, who in lost.items() if len(who)]
    if rows is not None and len(rows) and delta >= 1.0 / max(int(rows.min()), 1):
        few = int(rows.min())
        said.append(f"delta {delta:g} is not below 1 / rows: an agent has {few} rows only")
    return tuple(said)


def _named(agents: NDArray[np.int64]) -> str:
    """The agents in words, the first few of many."""
    who = np.unique(agents)
    if len(who) == 1:
        return f"agent {who[0]}"
    listed = ", ".join(map(str, who[:5]))
    return f"agents {listed}{', ...' if len(who) > 5 else ''}"
