"""What each agent of a run learns of each other: `run.pairwise`, by `privacy.accounting.pairwise`.

The rows of a view are the messages that its agents received in this execution, whatever was lost,
late or addressed to others, as `runs.symbols` plays them.
"""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.privacy.accounting.pairwise import squared, whitened
from desim.runs.symbols import INPUT, NOISE, Symbols


def view_of(own: Symbols, log: dict[str, Array], who: set[int]) -> tuple[Array, Array]:
    """Coefficients (m, symbols) of what agents `who` have received, and when (m,), s."""
    last: dict[tuple[int, int, int], int] = {}
    rows, times = list[Array](), list[float]()
    index: dict[tuple[int, int], list[Any]] = {}
    for messages in own.sent:
        for one in messages:
            index.setdefault((one.agent, one.round), []).append(one)
    for time, agent, peer, round_ in zip(*(log[k].tolist() for k in log), strict=True):
        if agent not in who or peer in who:
            continue
        fits = [
            one for one in index.get((peer, round_), ())
            if one.to is None or one.to[peer] == agent
        ]
        place = last.get((agent, peer, round_), 0)
        last[agent, peer, round_] = place + 1
        for row in fits[place].vectors:
            rows.append(row)
            times.append(time)
    out = np.zeros((len(rows), own.count))
    for r, row in enumerate(rows):
        out[r, : len(row)] = row
    return out, np.array(times)


def mu_squared(own: Symbols, log: dict[str, Array], who: set[int]) -> Array:
    """Mu^2 (agents,) of each agent towards agents `who` together, 0 of their own."""
    rows, _ = view_of(own, log, who)
    kind, owner = own.kind[: own.count], own.owner[: own.count]
    others = ~np.isin(owner, list(who))
    noise = np.flatnonzero((kind == NOISE) & others & rows.any(0)) if len(rows) else np.empty(0, int)
    inputs = np.flatnonzero((kind == INPUT) & others)
    view = whitened(rows[:, inputs], rows[:, noise] * own.scale[noise])
    found = np.zeros(own.agents)
    for u in range(own.agents):
        if u not in who:
            columns = np.flatnonzero(owner[inputs] == u)
            found[u] = min(squared(view, columns, own.bound[inputs][columns]), own.local[u])
    return found
