"""What is said beside an epsilon: what it takes for granted, and what its reader has to know."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.privacy.prices import CURVATURE, Prices

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


def assumptions(relation: str, seen: Mapping[str, Any], priced: Prices) -> tuple[str, ...]:
    """What the epsilon of these releases takes for granted."""
    said = [NEIGHBOURS[relation], *ALWAYS]
    if (priced.ratio > 0.0).any():
        said.append("batches are drawn uniformly without replacement and stay secret")
    if (priced.xi > 0.0).any():
        said.append(f"the loss is so flat that objective perturbation has xi <= {CURVATURE:g}")
    if seen["mechanism"].equal("noisy-gradient").any():
        said.append("nobody sees the steps of a local training before its end")
    return tuple(said)


def flags(
    seen: Mapping[str, Any], priced: Prices, delta: float, rows: NDArray[np.int64] | None
) -> tuple[str, ...]:
    """Why an epsilon is infinite, and what else speaks against trusting it."""
    lost = np.isinf(priced.mu2)
    mechanism, agent = seen["mechanism"], seen["agent"]
    unbounded = np.isinf(np.asarray(seen["sensitivity"], float))
    reused = mechanism.equal("reused")
    bare = ~reused & (mechanism.equal("none") | (np.asarray(seen["scale"], float) == 0.0))
    said = [
        f"infinite: {reason} ({_named(agent[lost & where])})"
        for where, reason in (
            (reused, "a noise draw served two values"),
            (bare, "released without noise"),
            (unbounded & ~bare & ~reused, "the sensitivity has no bound, as the loss is unclipped"),
            (~unbounded & ~bare & ~reused, "sensitivity over noise is beyond floating point"),
        )
        if (lost & where).any()
    ]
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
