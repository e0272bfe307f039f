"""What a run may release at most, known beforehand, where data decide how much it does.

Whom a coordinator invites by losses, when a target ends a run and which query a sparse vector
answers follow from data. What such a run has released then depends on them, too, so that a sum over
its rows is no guarantee: it is another number on another draw of the noise. What holds is what all
rounds that are allowed would cost. Whoever releases something in some rounds only, as what was
released before says, is dominated round by round by who does in all of them (Zhu, Dong and Wang
2022, Thm 10; Rogers, Roth, Ullman and Vadhan 2016: a filter whose bound is fixed beforehand); or a
budget, which is one. What follows from anything else but releases is one more release.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.columns import Columns, Words
from desim.privacy.accounting.accountants import UNBOUNDED, Account
from desim.privacy.accounting.gaussian import mu_of
from desim.privacy.accounting.prices import Prices
from desim.privacy.ledger.mechanisms import MECHANISMS
from desim.scenario import disclosures

if TYPE_CHECKING:
    from desim.engine.play import Simulation
    from desim.runs.run import Run
    from desim.scenario.schema import Scenario

FORESEEN = 1_000_000  # releases that are looked at beforehand
LISTED = 20_000  # kinds of releases that a manifest lists
COLUMNS = ("mechanism", "sensitivity", "scale", "sampling")
ROUNDING = 1e-8  # relative, by which sums may fall short of each other
UNREPEATED = "nothing that this run has stored bounds what it might have released"


class Allowed(NamedTuple):
    """What a run might have released, and what is to be said of that.

    rows: as a table of releases, None for no bound; budget: epsilon, delta and relation of one that
    it has kept to, or None; flags: why, without the numbers.
    """

    rows: Columns | None
    budget: tuple[float, float, str] | None
    flags: tuple[str, ...]


def at_most(scenario: "Scenario", simulation: "Simulation") -> dict[str, Any]:
    """What the manifest has of it; empty where how much is released follows from no data.

    by: in words, what decides; unreleased: which of it follows from more than releases; rounds;
    rows: [agents, [[mechanism, sensitivity, scale, sampling, how often], ...]], or None; budget.
    """
    by = [*_deciding(scenario, simulation.method)]
    if not by:
        return {}
    rounds, terms = _rounds(simulation), scenario.privacy
    budget = None
    if terms is not None and terms.budget is not None:
        budget = [terms.budget, terms.delta, terms.neighbours]
    unreleased = [*disclosures.unreleased_targets(scenario)]
    rows = None if unreleased else listed(simulation)
    bound = None if np.isinf(rounds) else int(rounds)
    found = {"by": by, "unreleased": unreleased, "rounds": bound, "rows": rows, "budget": budget}
    return found | _planned_sums(simulation)


def _rounds(simulation: "Simulation") -> float:
    """In how many rounds agents are called at most: in a tree those of their edges count."""
    tree = simulation.settings.tree
    return simulation.settings.rounds * (1 if tree is None else tree.rounds)


def _planned_sums(simulation: "Simulation") -> dict[str, Any]:
    """Of a trusted coordinator the terms of all sums, each with how often, if they are not many."""
    from desim.scenario.trusting import terms_of

    trust, rounds = simulation.settings.trust, simulation.settings.rounds
    if trust is None or not rounds * simulation.problem.agents <= FORESEEN:
        return {}
    terms = ([*one, None if np.isnan(q) else q] for *one, q in terms_of(trust, int(rounds)))
    return {"sums": [[*one, len(list(same))] for one, same in groupby(terms)]}


def _deciding(scenario: "Scenario", method: Any) -> Iterator[str]:
    """What data decide of how much is released."""
    if scenario.participation.power:
        yield f"{scenario.participation.choose} invites by losses that were released"
    for name in scenario.stop.targets:
        yield f"stop.metric ends it by {name}"
    if getattr(method, "asks", False) and scenario.privacy is not None:
        yield f"{method.name} releases what the answers to its queries say"


def listed(simulation: "Simulation") -> list[Any] | None:
    """The rows of `at_most`; None where nobody knows them, or they are too many to be listed."""
    from desim.engine.inviting import terms_of  # compiled, which whoever reads needs not
    from desim.network.conditions.choosing import Chooser

    rounds, agents = _rounds(simulation), simulation.problem.agents
    if simulation.settings.trust is not None:
        return None
    if not rounds * agents <= FORESEEN:
        return None
    planned = simulation.method.most(int(rounds))
    if planned is None:
        return None
    every, choice = list(planned), simulation.settings.participation
    if isinstance(choice, Chooser) and choice.losses is not None:
        every.append((terms_of(choice.losses, simulation.problem.rows), int(rounds)))
    alike: dict[Any, tuple[Any, int]] = {}  # rounds of the same terms are looked at once
    for terms, times in every:
        amounts = terms.sensitivity, terms.scale, terms.sampling
        key = terms.mechanism, *(one.tobytes() for one in amounts)
        alike[key] = terms, alike.get(key, (terms, 0))[1] + times
    counts: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(agents)]
    for terms, times in alike.values():
        share = [None if np.isnan(one) else one for one in terms.sampling.tolist()]
        amounts = terms.sensitivity.tolist(), terms.scale.tolist(), share
        for agent, each in enumerate(zip(*amounts, strict=True)):
            counts[agent][(MECHANISMS[terms.mechanism], *each)] += times
    groups: dict[tuple[Any, ...], list[int]] = {}
    for agent, kinds in enumerate(counts):
        groups.setdefault(tuple((*kind, n) for kind, n in kinds.items()), []).append(agent)
    if sum(map(len, groups)) > LISTED:
        return None
    if any(not np.isfinite(kind[1]) for kinds in groups for kind in kinds):
        return None  # without any bound, as each row says
    return [[who, [list(kind) for kind in kinds]] for kinds, who in groups.items()]


def allowed(run: "Run") -> Allowed | None:
    """What a run might have released; None where how much it does follows from no data."""
    known = run.manifest.get("privacy", {})
    found = known.get("allowed")
    if found is None:
        if "chosen" not in known:
            return None
        found = {"by": [f"{known['chosen']['by']} invites by losses that were released"]}
    by = ", and ".join(found["by"])
    if unreleased := found.get("unreleased"):
        return Allowed(None, None, tuple(f"infinite: {one}" for one in unreleased))
    budget, rows, sums = found.get("budget"), found.get("rows"), found.get("sums")
    if rows is None and budget is None and sums is None:
        text = "nothing bounds beforehand how much that is" if found.get("by") else UNREPEATED
        cure = "stop.rounds with noise whose plan is known, or privacy.budget, does"
        return Allowed(None, None, (f"infinite: {by}, and {text}; {cure}",))
    bare = rows is None and sums is None
    what = "its budget" if bare else f"all {found.get('rounds')} rounds"
    text = f"{by}: epsilon is that of {what}, which holds before the run"
    if sums is not None:
        agents = len(run.manifest["rows"])
        terms = [
            (*one, np.nan if q is None else q) for *one, q, times in sums for _ in range(times)
        ]
        from desim.privacy.accounting.trusted_sums import table_of_sums

        return Allowed(table_of_sums(terms, agents, agents), None, (text,))
    bound = None if budget is None else (float(budget[0]), float(budget[1]), str(budget[2]))
    return Allowed(None if rows is None else table_of_listed(rows), bound, (text,))


def table_of_listed(rows: Sequence[Any]) -> Columns:
    """The listed rows as a table of releases, one for each time."""
    columns: dict[str, list[Any]] = {name: [] for name in ("agent", *COLUMNS)}
    for who, kinds in rows:
        for *values, times in kinds:
            for name, value in zip(COLUMNS, values, strict=True):
                columns[name] += [value] * (len(who) * times)
            columns["agent"] += np.repeat(who, times).tolist()
    n = len(columns["agent"])
    words = list(dict.fromkeys(columns["mechanism"]))
    codes = np.array([words.index(word) for word in columns["mechanism"]], np.int8)
    amounts: dict[str, Any] = {
        name: np.array([np.nan if one is None else one for one in columns[name]], float)
        for name in COLUMNS[1:]
    }
    every = Words(np.zeros(n, np.int8), ["public"])
    return {
        "time": np.zeros(n), "agent": np.array(columns["agent"], np.int64),
        "release": np.arange(n), "round": np.zeros(n, np.int64),
        "mechanism": Words(codes, words), **amounts, "seen_by": every,
        "delivered": np.ones(n, np.int64),
    }  # fmt: skip


def bounded(
    run: "Run", happened: Account, might: Allowed, replayed: Callable[[Columns], Account]
) -> Account:
    """The account of what the run might have released, at which the curve of what it has ends.

    happened: of the rows that it has; replayed: the account of other rows, in the same terms.
    """
    if np.isinf(happened.worst):  # for the reason that it says itself
        return happened
    spent = f"what happened came to {happened.worst:.4g}, a number that itself tells of the data"
    flags = (*(f"{one}; {spent}" for one in might.flags), *happened.flags)
    prices: Callable[[int], Prices] = _lost
    final, method = np.full(happened.agents, np.inf), UNBOUNDED
    if might.rows is not None:
        planned = replayed(might.rows)
        final, prices, method = planned.final.copy(), planned.prices, planned.method
    if (most := _budget(happened, might)) is not None:
        budget = replayed(one_each(happened.agents, mu_of(most, happened.delta)))
        cheap = budget.final < final
        prices = partial(_cheaper, cheap, budget.prices, prices)
        final = np.where(cheap, budget.final, final)
        method = budget.method if cheap.all() else method
    if (final < happened.final * (1.0 - ROUNDING)).any():  # more than was foreseen
        final, prices, method = np.full(happened.agents, np.inf), _lost, UNBOUNDED
        flags = (f"infinite: more was released than was foreseen; {spent}", *flags)
    end = float(run.manifest.get("time", happened.growth[0].max(initial=0.0)))
    worst = float(final.max(initial=0.0))
    growth = np.append(happened.growth[0], end), np.append(happened.growth[1], worst)
    return replace(
        happened, method=method, flags=flags, final=final, prices=prices, growth=growth,
        columns=lambda: _ended(happened.columns(), final, end),
    )  # fmt: skip


def _cheaper(
    cheap: NDArray[np.bool_], one: Callable[[int], Prices], other: Callable[[int], Prices],
    agent: int,
) -> Prices:  # fmt: skip
    """Prices of an agent's releases by the account that says less."""
    return (one if cheap[agent] else other)(agent)


def _ended(curve: Columns, final: Array, end: float) -> Columns:
    """A curve that ends at the final epsilons (agents,), at `end` s."""
    last = {"time": np.full(len(final), end), "agent": np.arange(len(final)), "epsilon": final}
    return {name: np.concatenate([curve[name], last[name]]) for name in last}


def _budget(happened: Account, might: Allowed) -> float | None:
    """The epsilon of the budget that bounds mu^2, in the terms of the account; None elsewhere.

    A filter of other releases bounds one order of their divergences, or counts them.
    """
    if might.budget is None or happened.method != "exact GDP":
        return None
    epsilon, delta, relation = might.budget
    return epsilon if (delta, relation) == (happened.delta, happened.relation) else None


def one_each(agents: int, mu: float) -> Columns:
    """A Gaussian release of each agent that costs mu whatever the relation."""
    return table_of_listed([[list(range(agents)), [["clipped-gaussian", mu, 1.0, None, 1]]]])


def _lost(agent: int) -> Prices:
    """No privacy at all."""
    return Prices(np.full(1, np.inf), *[np.zeros(1)] * (len(Prices._fields) - 1))


def stand_in(run: "Run", exact: bool, relation: str) -> tuple[Columns | None, tuple[str, ...]]:
    """The releases to charge instead of those of the run, None for no bound; and why.

    exact: whether all that it has released is Gaussian; relation: as asked for.
    """
    might = allowed(run)
    assert might is not None
    if might.rows is not None or might.budget is None:
        return might.rows, might.flags
    epsilon, delta, of = might.budget
    if not exact or relation != of:
        return None, (f"infinite: {might.flags[0]}; under {relation} it bounds nothing",)
    return one_each(len(run.manifest["rows"]), mu_of(epsilon, delta)), might.flags
