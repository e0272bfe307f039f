"""`Run.pairwise`: what each agent of a run has learnt of each other one.

The rows of a view are the messages that its agents received in this execution, whatever was lost,
late or addressed to others, as `runs.symbols` plays them; `privacy.accounting.pairwise` prices
them. Where a program is not linear, or nobody can say, epsilon is that of all that was released.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.numerics.later import pd
from desim.privacy.accounting.gaussian import check_delta, epsilon_of, mu_of
from desim.privacy.accounting.pairwise import squared, whitened
from desim.runs.premises import require_virtual, stated
from desim.runs.symbols import INPUT, NOISE, Sent, Symbols, Unfit, symbols_of

if TYPE_CHECKING:
    import pandas as pd

    from desim.runs.run import Run

FIXED = "what agents compute follows from no noise that the observer has not seen"
EXACT = "mu is exact: no computation has read noise"


class Pairs:
    """Messages of a run as symbols, and what views of them tell; relation: of neighbouring data."""

    def __init__(self, own: Symbols, log: dict[str, Array], relation: str, rows: Int | None):
        self.own, self.log = own, log
        self.bound, self.local = own.bounds(relation, rows)
        self.kind, self.owner = own.kind[: own.count], own.owner[: own.count]

    @cached_property
    def received(self) -> dict[int, list[Sent]]:
        """The messages that each agent has received, in the order of time."""
        index: dict[tuple[int, int], list[Sent]] = {}
        for one in (one for messages in self.own.sent for one in messages):
            index.setdefault((one.agent, one.round), []).append(one)
        found: dict[int, list[Sent]] = {i: [] for i in range(self.own.agents)}
        before: dict[tuple[int, int, int], int] = {}
        for agent, peer, round_ in zip(
            *(self.log[name].tolist() for name in ("agent", "peer", "round")), strict=True
        ):
            place = before.get((agent, peer, round_), 0)
            before[agent, peer, round_] = place + 1
            sent = [one for one in index[peer, round_] if one.to is None or one.to[peer] == agent]
            found[agent].append(sent[place])
        return found

    def rows(self, who: Sequence[int]) -> Array:
        """Coefficients (m, symbols) of what agents `who` together have received of others."""
        sent = [one for i in who for one in self.received[i] if one.agent not in who]
        vectors = [row for one in sent for row in one.vectors]
        out = np.zeros((len(vectors), self.own.count))
        for r, row in enumerate(vectors):
            out[r, : len(row)] = row
        return out

    def towards(self, who: Sequence[int]) -> Array:
        """Mu (agents,) of each agent towards agents `who` together; 0 of themselves."""
        rows, others = self.rows(who), ~np.isin(self.owner, who)
        noise = np.flatnonzero((self.kind == NOISE) & others & rows.any(0))
        inputs = np.flatnonzero((self.kind == INPUT) & others & rows.any(0))
        inputs = inputs[np.argsort(self.owner[inputs], kind="stable")]
        view = whitened(rows[:, inputs], rows[:, noise] * self.own.scale[noise])
        ends = np.searchsorted(self.owner[inputs], np.arange(self.own.agents + 1))
        found = np.zeros(self.own.agents)
        for u in range(self.own.agents):
            part = slice(ends[u], ends[u + 1])
            if u not in who:
                found[u] = min(squared(view.of(part), self.bound[inputs[part]]), self.local[u])
        return np.sqrt(found)


def pairwise(
    run: "Run", delta: float | None = None, relation: str | None = None,
    observers: Iterable[Any] | None = None,
) -> "pd.DataFrame":  # fmt: skip
    """Columns agent, observer, mu, epsilon, local, distance: see `Run.pairwise`."""
    from desim.scenario.build import build

    require_virtual(run.manifest, "nothing replays it")
    terms = stated(run)
    delta = terms.delta if delta is None else delta
    check_delta(delta)
    relation = relation or terms.relation
    simulation = build(run.scenario)
    agents = simulation.problem.agents
    views = [_view(one, agents) for one in (range(agents) if observers is None else observers)]
    attrs = {"delta": delta, "relation": relation, "method": "pairwise", "assumptions": ()}
    try:
        own, log = symbols_of(simulation)
        pairs = Pairs(own, log, relation, simulation.problem.rows)
        mu = [pairs.towards(who) for who in views]
        local = epsilon_of(np.sqrt(pairs.local), delta)
        attrs["assumptions"] = (FIXED,) if own.feedback else (EXACT,)
    except Unfit as why:
        curve = run.account(delta, "eavesdropper", relation).curve
        spent = curve.groupby("agent")["epsilon"].last()
        local = np.array([float(spent.get(i, 0.0)) for i in range(agents)])
        mu = [np.array([mu_of(one, delta) if one else 0.0 for one in local])] * len(views)
        attrs |= {"method": "all that was released", "reason": str(why)}
    parts = []
    for who, each in zip(views, mu, strict=True):
        others = np.array([u for u in range(agents) if u not in who])
        parts.append(
            pd.DataFrame({
                "agent": others, "observer": who[0] if len(who) == 1 else str(list(who)),
                "mu": each[others], "epsilon": epsilon_of(each[others], delta),
                "local": local[others], "distance": _away(simulation.settings, who)[others],
            })
        )  # fmt: skip
    found = pd.concat(parts, ignore_index=True)
    found.attrs |= attrs
    return found


def _away(settings: Any, who: Sequence[int]) -> Int:
    """How many links (agents,) each agent is from the nearest of agents `who`; -1: nobody knows."""
    graph, away = settings.graph, np.full(settings.problem.agents, -1)
    if graph is None or settings.changing is not None:
        return away
    away[list(who)], reached = 0, 0
    while True:
        near = graph.target[away[graph.source] == reached]
        near, reached = near[away[near] < 0], reached + 1
        if not len(near):
            return away
        away[near] = reached


def _view(observer: Any, agents: int) -> tuple[int, ...]:
    """Agents of a view: one, or several that put together what they have."""
    who = (observer,) if isinstance(observer, int | np.integer) else tuple(sorted(set(observer)))
    if not who or not all(isinstance(i, int | np.integer) and 0 <= i < agents for i in who):
        raise InputError(f"observers: found {observer!r}; allowed: agents 0 to {agents - 1}")
    return tuple(map(int, who))
