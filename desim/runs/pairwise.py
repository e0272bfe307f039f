"""`Run.pairwise`: what each agent of a run has learnt of each other one.

The rows of a view are the messages that its agents received in this execution, whatever was lost,
late or addressed to others, as `runs.symbols` plays them; `privacy.accounting.linear_views` prices
them. Where a program is not linear, or nobody can say, epsilon is that of all that was released.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError, chosen, refusal
from desim.numerics.later import pd
from desim.privacy.accounting.gaussian import check_delta, epsilon_of, mu_of
from desim.privacy.accounting.linear_views import RESOLVED, Whitened, squared, whitened
from desim.privacy.accounting.prices import RELATIONS
from desim.runs.premises import require_virtual, stated
from desim.runs.reading.series import Meter
from desim.runs.symbols import INPUT, NOISE, Sent, Symbols, Unfit, symbols_of

if TYPE_CHECKING:
    import pandas as pd

    from desim.runs.run import Run

FIXED = (
    "what agents compute follows from no noise that the observer has not seen; where it does, only "
    "the epsilon of all that was released is a bound"
)
EXACT = "mu is exact: no computation has read noise"
KNOWN = "mu is of batches that are known; all that was released, of batches that stay secret"
ALLOWED = "agents, or tuples of agents, as in [0, (3, 7)]"
LEAKS = 1.0 + 1e-6  # times what was charged: more than rounding, of what nobody was charged for
SAME = 1e-9  # relative difference of mu that is none
AT_ONCE = 1e-12  # relative difference of two times that is none
TIMES = 50  # at which a view is priced, over time


class Pairs:
    """Messages of a run as symbols, and what views of them tell; relation: of neighbouring data.

    log: columns of what was delivered, until `end` s.
    """

    def __init__(
        self, own: Symbols, log: dict[str, Array], relation: str, rows: Int | None,
        end: float = np.inf,
    ) -> None:  # fmt: skip
        self.own, self.log = own, {name: each[log["time"] <= end] for name, each in log.items()}
        self.bound, self.local = own.bounds(relation, rows, end)
        self.kind, self.owner = own.kind[: own.count], own.owner[: own.count]

    @cached_property
    def received(self) -> dict[int, list[tuple[float, Sent]]]:
        """The messages that each agent has received and when s, in the order of time.

        Those of one link and round by when they were sent, as one may be lost or overtake another;
        of two of one moment each counts as both.
        """
        index: dict[tuple[int, int], list[Sent]] = {}
        for one in (one for messages in self.own.sent for one in messages):
            index.setdefault((one.agent, one.round), []).append(one)
        found: dict[int, list[tuple[float, Sent]]] = {i: [] for i in range(self.own.agents)}
        for agent, peer, round_, time, seconds in zip(
            *(self.log[name].tolist() for name in ("agent", "peer", "round", "time", "seconds")),
            strict=True,
        ):
            sent = [one for one in index[peer, round_] if one.to is None or one.to[peer] == agent]
            away = [abs(time - seconds - one.time) for one in sent]
            near = min(away) + AT_ONCE * (1.0 + time)
            found[agent] += [(time, one) for one, s in zip(sent, away, strict=True) if s <= near]
        return found

    def heard(self, who: Sequence[int]) -> list[tuple[float, Sent]]:
        """What agents `who` together have received of others, and when s."""
        found = [one for i in who for one in self.received[i] if one[1].agent not in who]
        return sorted(found, key=lambda one: one[0])

    def rows(self, who: Sequence[int]) -> Array:
        """Coefficients (m, symbols) of what agents `who` together have received of others."""
        vectors = [row for _, one in self.heard(who) for row in one.vectors]
        out = np.zeros((len(vectors), self.own.count))
        for r, row in enumerate(vectors):
            out[r, : len(row)] = row
        return out

    def towards(self, who: Sequence[int]) -> Array:
        """Mu (agents,) of each agent towards agents `who` together; 0 of themselves."""
        inputs, A, C = self.apart(who)
        if not len(inputs):
            return np.zeros(self.own.agents)
        return self._priced(whitened(A, C), inputs, who)

    def over_time(self, who: Sequence[int]) -> tuple[Array, Array]:
        """Times s (k,), and the mu (k, agents) of all that agents `who` have received by then.

        Not more than TIMES, evenly among those of their messages; the last mu is `towards`.
        """
        inputs, A, C = self.apart(who)
        when = np.array([time for time, one in self.heard(who) for _ in one.vectors])
        if not len(inputs):
            return np.zeros(1), np.zeros((1, self.own.agents))
        view, ranks = whitened(A, C), _ranks(C)
        ends = np.flatnonzero(np.diff(when, append=np.inf) > 0.0) + 1
        ends = ends[_some(len(ends))]
        parts = [Whitened(view.Z[: ranks[n - 1]], view.bare[: n - ranks[n - 1]]) for n in ends]
        mu = np.array([self._priced(one, inputs, who) for one in (*parts[:-1], view)])
        return when[ends - 1], np.maximum.accumulate(np.minimum(mu, mu[-1]))

    def apart(self, who: Sequence[int]) -> tuple[Int, Array, Array]:
        """Inputs of others, by agent; what rows of a view say of these and of their noise."""
        rows, others = self.rows(who), ~np.isin(self.owner, who)
        unknown = others & ~np.isin(self.own.other[: self.own.count], who)
        noise = np.flatnonzero((self.kind == NOISE) & unknown & rows.any(0))
        inputs = np.flatnonzero((self.kind == INPUT) & others & rows.any(0))
        inputs = inputs[np.argsort(self.owner[inputs], kind="stable")]
        return inputs, rows[:, inputs], rows[:, noise] * self.own.scale[noise]

    def _priced(self, view: Whitened, inputs: Int, who: Sequence[int]) -> Array:
        """Mu (agents,) of each agent in a view of these inputs."""
        ends = np.searchsorted(self.owner[inputs], np.arange(self.own.agents + 1))
        found = np.zeros(self.own.agents)
        for u in range(self.own.agents):
            part = slice(ends[u], ends[u + 1])
            if u not in who:
                mu2, local = self._squared(view.of(part), inputs[part]), self.local[u]
                found[u] = mu2 if mu2 > LEAKS * local else min(mu2, local)
        found[self.own.bared & ~np.isin(np.arange(self.own.agents), who)] = np.inf
        return np.sqrt(found)

    def _squared(self, view: Whitened, inputs: Int) -> float:
        """Mu^2 of the record of an agent of which a view of these inputs says most.

        A record is in the inputs of one part, and in those of none.
        """
        bound, part = self.bound[inputs], self.own.part[inputs]
        kinds = np.unique(part[part >= 0]).tolist()
        if len(kinds) < 2:
            return squared(view, bound)
        return max(squared(view, np.where((part == k) | (part < 0), bound, 0.0)) for k in kinds)


def _ranks(C: Array) -> Int:
    """How many rows of a whitened view there are after each row (m,) of its noise C.

    Whitened by itself, the noise is the basis; a row reaches as far into it as it is new.
    """
    if not C.shape[1]:
        return np.zeros(len(C), int)
    basis = whitened(C, C).Z
    reach = np.abs(C @ basis.T) > RESOLVED * np.linalg.norm(C, axis=1, keepdims=True)
    last = np.where(reach, np.arange(1, len(basis) + 1), 0).max(1, initial=0)
    return np.asarray(np.maximum.accumulate(last))


def _some(n: int) -> Int:
    """Places of at most TIMES of n things, evenly among them, the last one included."""
    return np.unique(np.linspace(0, n - 1, min(n, TIMES)).round().astype(int))


def pairwise(
    run: "Run", delta: float | None = None, relation: str | None = None,
    observers: Iterable[Any] | None = None, over_time: bool = False,
) -> "pd.DataFrame":  # fmt: skip
    """Columns agent, observer, mu, epsilon, local, distance: see `Run.pairwise`."""
    from desim.scenario.build import build

    require_virtual(run.manifest, "nothing replays it")
    terms = stated(run)
    delta = terms.delta if delta is None else delta
    check_delta(delta)
    simulation = build(run.scenario)
    if (privacy := run.scenario.privacy) is not None and privacy.trusted:
        raise InputError(f"run: found trust: {privacy.trust}; allowed: a run that trusts nobody")
    relation = terms.relation if relation is None else relation
    chosen("relation", relation, RELATIONS)
    agents = simulation.problem.agents
    views = _views(range(agents) if observers is None else observers, agents)
    attrs = {"delta": delta, "relation": relation, "method": "pairwise", "assumptions": ()}
    try:
        if run.status not in ("done", "stopped"):
            raise Unfit(f"the run is {run.status}")
        own, log = symbols_of(simulation)
        pairs = Pairs(own, log, relation, simulation.problem.rows, run.manifest["time"])
        if len(pairs.log["time"]) != run.manifest["counts"]["deliver"]:
            raise Unfit("its messages are not those that the scenario delivers here")
        courses = [
            pairs.over_time(who) if over_time else (np.zeros(1), pairs.towards(who)[None])
            for who in views
        ]
        local = run.account(delta, "eavesdropper", relation).final
        known, capped = epsilon_of(np.sqrt(pairs.local), delta), np.sqrt(pairs.local * LEAKS)
        secret = (local < known * (1.0 - SAME)).any()
        attrs["assumptions"] = (FIXED if own.feedback else EXACT, *[KNOWN] * bool(secret))
    except Unfit as why:
        account = run.account(delta, "eavesdropper", relation)
        times, spent = _spent(account.curve, agents)
        local, flags = spent[-1], [one for one in account.flags if one.startswith("infinite")]
        mu = np.reshape([mu_of(one, delta) if one else 0.0 for one in spent.flat], spent.shape)
        courses = [(times, mu) if over_time else (times[-1:], mu[-1:])] * len(views)
        attrs |= {"method": "all that was released", "reason": "; ".join([str(why), *flags])}
        attrs["assumptions"], capped = account.assumptions, np.full(agents, np.inf)
    found = pd.concat(
        [
            _table(who, times, mu, delta, local, capped, _away(simulation.settings, who))
            for who, (times, mu) in zip(views, courses, strict=True)
        ],
        ignore_index=True,
    )
    found.attrs |= attrs
    return found if over_time else found.drop(columns="time")


def _spent(curve: "pd.DataFrame", agents: int) -> tuple[Array, Array]:
    """At most TIMES times s (k,), and what agents have spent by then, epsilons (k, agents)."""
    times = np.unique(np.append(0.0, curve["time"].to_numpy(float)))
    times = times[_some(len(times))]
    spent = np.zeros((len(times), agents))
    for agent, rows in curve.groupby("agent"):
        meter = Meter(rows["time"].to_numpy(float), rows["epsilon"].to_numpy(float))
        spent[:, int(str(agent))] = meter.by(times)
    return times, spent


def _table(
    who: Sequence[int], times: Array, mu: Array, delta: float, local: Array, capped: Array,
    away: Int,
) -> "pd.DataFrame":  # fmt: skip
    """A view's rows: of each other agent those times s (k,) at which its mu (k, agents) grows.

    capped (agents,): the mu up to which nothing leaks beside releases, which cost local (agents,).
    """
    mu = np.where(mu >= mu[-1] * (1.0 - SAME), mu[-1], mu)
    grows = mu > np.vstack([np.zeros_like(mu[:1]), mu[:-1] * (1.0 + 0.5 * SAME)])
    grows[0] |= ~grows.any(0)
    grows[:, list(who)] = False
    agent, k = np.nonzero(grows.T)
    epsilon, most = epsilon_of(mu[k, agent], delta), local[agent]
    return pd.DataFrame({
        "time": times[k], "agent": agent,
        "observer": who[0] if len(who) == 1 else str(list(who)),
        "mu": mu[k, agent],
        "epsilon": np.where(mu[k, agent] <= capped[agent], np.minimum(epsilon, most), epsilon),
        "local": most, "distance": away[agent],
    })  # fmt: skip


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


def _views(observers: Iterable[Any], agents: int) -> list[tuple[int, ...]]:
    """Agents of each view: one, or several that put together what they have."""
    if isinstance(observers, str) or not np.iterable(observers) or not (some := [*observers]):
        raise InputError(f"observers: {refusal(observers, ALLOWED)}")
    return [_view(one, agents) for one in some]


def _view(observer: Any, agents: int) -> tuple[int, ...]:
    many = isinstance(observer, Iterable) and not isinstance(observer, str)
    who = [*observer] if many else [observer]
    if not who or not all(_is_agent(i, agents) for i in who):
        raise InputError(f"observers: {refusal(observer, f'agents 0 to {agents - 1}')}")
    return tuple(sorted({*map(int, who)}))


def _is_agent(one: Any, agents: int) -> bool:
    whole = isinstance(one, int | np.integer) and not isinstance(one, bool)
    return whole and 0 <= one < agents
