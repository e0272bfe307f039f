"""What is said beside an epsilon: what it takes for granted, and what its reader has to know."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.privacy.accounting.prices import Prices

NEIGHBOURS = {
    "replace-one": "one record of one agent is replaced by another",
    "add-or-remove-one": "one record of one agent is left out at a public number of rows; "
    "contributions lie in a ball around 0, so that it moves a value half as far as a replaced one "
    "(but for roundings and ranges)",
    "agent": "all records of one agent are replaced",
}
ALWAYS = (
    "no record is in the data of two agents",
    "noise is of real numbers and its seed is secret",
    "each point of the curve is for a time fixed beforehand",
)
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
    some are of steps that nobody sees; lost: agents, by the reason why their epsilon is infinite.
    """

    exact: bool
    counted: bool
    secret: bool
    flat: bool
    hidden: bool
    lost: Mapping[str, NDArray[np.int64]]

    @classmethod
    def of(cls, seen: Mapping[str, Any], priced: Prices) -> "Signs":
        """What these releases show."""
        lost = np.isinf(priced.mu2)
        mechanism, agent = seen["mechanism"], seen["agent"]
        unbounded = np.isinf(np.asarray(seen["sensitivity"], float))
        reused = mechanism.equal("reused")
        bare = ~reused & (mechanism.equal("none") | (np.asarray(seen["scale"], float) == 0.0))
        where = (reused, bare, unbounded & ~bare & ~reused, ~unbounded & ~bare & ~reused)
        return cls(
            bool(priced.gaussian.all()),
            bool((priced.laplace + priced.pure + priced.ratio > 0.0).any()),
            bool((priced.ratio > 0.0).any()),
            bool((priced.xi > 0.0).any()),
            bool(mechanism.equal("noisy-gradient").any()),
            {why: np.unique(agent[lost & rows]) for why, rows in zip(LOST, where, strict=True)},
        )


def assumptions(relation: str, signs: Sequence[Signs]) -> tuple[str, ...]:
    """What epsilon and risk of the releases that show these signs take for granted."""
    said = [NEIGHBOURS[relation], *ALWAYS]
    if any(one.counted for one in signs):
        said.append(SCHEDULED)
    if any(one.secret for one in signs):
        said.append("batches are drawn uniformly without replacement and stay secret")
    if any(one.flat for one in signs):
        said.append("rows keep to the bound on their norm: objective perturbation rests on it")
    if any(one.hidden for one in signs):
        said.append("nobody sees the steps of a local training before its end")
    return tuple(said)


def flags(signs: Sequence[Signs], delta: float, rows: NDArray[np.int64] | None) -> tuple[str, ...]:
    """Why an epsilon is infinite, and what else speaks against trusting it."""
    lost = {why: np.concatenate([one.lost[why] for one in signs]) for why in LOST}
    said = [f"infinite: {why} ({_named(who)})" for why, who in lost.items() if len(who)]
    if rows is not None and len(rows) and delta >= 1.0 / max(int(rows.min()), 1):
        few = int(rows.min())
        said.append(f"delta {delta:g} is not below 1 / rows: an agent has {few} rows only")
    return tuple(said)


def each_once(said: Sequence[tuple[str, Iterable[str]]]) -> list[str]:
    """Each text once, with the names of whom it is about where not all have it."""
    found: dict[str, list[str]] = {}
    for name, texts in said:
        for text in texts:
            found.setdefault(text, []).append(name)
    every = len(said)
    return [
        text if len(who) == every else f"{', '.join(who)}: {text}" for text, who in found.items()
    ]


def _named(agents: NDArray[np.int64]) -> str:
    """The agents in words, the first few of many."""
    who = np.unique(agents)
    if len(who) == 1:
        return f"agent {who[0]}"
    listed = ", ".join(map(str, who[:5]))
    return f"agents {listed}{', ...' if len(who) > 5 else ''}"
