"""Accounting as a replay: epsilon of every agent over time, from nothing but the release rows.

An agent's own records are behind its own releases only, so every agent has its own account; what
others send later is post-processing. Pure Gaussian accounts are exact. In all others the Renyi
divergences of the releases are added up, and what has been released in the end is priced once more
by its privacy loss distribution: both are upper bounds, and the second one is mostly the lower.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.arrays import Array
from desim.columns import Columns, Pieces, columns_of, gathered, pieces_of, rows_of
from desim.errors import InputError
from desim.numerics.later import pd
from desim.privacy.accounting.gaussian import check_delta, epsilon_of
from desim.privacy.accounting.loss_distribution import epsilon_pld, sharpen
from desim.privacy.accounting.prices import (
    OF_AGENTS,
    ORDERS,
    Prices,
    Tally,
    concentrated,
    distinct_prices,
    epsilon_of_divergences,
    prices,
    tallies,
)
from desim.privacy.accounting.views import (
    MODELS,
    Adversary,
    Signs,
    adversary,
    assumptions,
    charged,
    flags,
    of_whole_numbers,
    require_seen,
)

if TYPE_CHECKING:
    import pandas as pd


# What releases of some agents cost, one after the other: running sums of their prices.


# Running sums and maxima within groups, in the order of the rows, to the bits that pandas gives.

MANY = 200_000  # rows from which on pandas is faster, its import included


def running_sum(values: Array, group: NDArray[np.integer[Any]]) -> Array:
    """Sum (n,) of the values of a row's group up to the row, by Kahan's summation."""
    if len(values) >= MANY:
        return np.asarray(pd.Series(values).groupby(group).cumsum().to_numpy())
    total: dict[int, float] = defaultdict(float)
    excess: dict[int, float] = defaultdict(float)  # what rounding has added to a total
    out = []
    for value, one in zip(values.tolist(), group.tolist(), strict=True):
        term = value - excess[one]
        after = total[one] + term
        excess[one] = after - total[one] - term
        total[one] = after
        out.append(after)
    return np.array(out, float)


def running_max(values: NDArray[Any], group: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Largest (n,) of the values of a row's group up to the row; no value may be nan."""
    order = np.argsort(group, kind="stable")
    levels, rank = np.unique(values[order], return_inverse=True)
    number = np.cumsum(np.diff(group[order], prepend=group[order][:1]) != 0) * len(levels)
    out = np.empty_like(values)
    out[order] = levels[np.maximum.accumulate(number + rank) - number]
    return out


# What is spent after each release.

BLOCK = 256  # rows of divergences that are held at once: they fit a cache
FEW = 16  # kinds for each release of a stride, up to which they are counted before they add up
SOLVED = 100_000  # epsilons of divergences that are solved for; of more releases not each has one
IDENTITY = ["time", "release", "agent", "mechanism", "sensitivity", "scale", "sampling"]


class Spent(NamedTuple):
    """What agents have spent after each of their releases (n,), and what is to be said of it."""

    time: Array
    release: NDArray[np.int64]
    agent: NDArray[np.int64]
    epsilon: Array
    signs: Signs


class Block(NamedTuple):
    """Releases of some agents that a view is charged for, by (time, release), and their prices."""

    seen: Columns
    priced: Prices

    @classmethod
    def of(
        cls, releases: Columns, who: Adversary, events: Columns | None,
        owned: NDArray[np.int64] | None, relation: str, amplification: bool,
    ) -> "Block":  # fmt: skip
        """The block of these rows of the table."""
        seen = _once(rows_of(releases, charged(releases, who, events)))
        return cls(seen, prices(seen, owned, relation, amplification))

    def by_agent(self) -> dict[int, Tally]:
        """The sums of each agent."""
        return dict(tallies(self.priced, np.asarray(self.seen["agent"], np.int64)))

    def spent(self, delta: float) -> Spent:
        """What they come to."""
        agent = np.asarray(self.seen["agent"], np.int64)
        return Spent(
            np.asarray(self.seen["time"], float),
            self.seen["release"],
            agent,
            _cumulative_epsilon(agent, self.priced, delta),
            Signs.of(self.seen, self.priced),
        )


def _once(seen: Columns) -> Columns:
    """The rows by (time, release), without those that send the same release again."""
    release = seen["release"]
    ordered = np.sort(release)
    if (ordered[1:] != ordered[:-1]).all():
        return rows_of(seen, np.lexsort((release, seen["time"])))
    words = seen["mechanism"]
    spelled = np.array(words.words)[words.codes]
    columns = [spelled if name == "mechanism" else seen[name] for name in IDENTITY]
    keys = np.array([np.unique(one, return_inverse=True)[1] for one in columns])  # nan equals nan
    order = np.lexsort(keys[::-1])
    first = np.unique(keys[1:, order], axis=1, return_index=True)[1]
    return rows_of(seen, order[np.sort(first)])


def _cumulative_epsilon(agent: NDArray[np.int64], priced: Prices, delta: float) -> Array:
    """Epsilon (n,) after each release of its agent, releases in order of time."""
    with np.errstate(over="ignore"):
        known = priced.mu2 + priced.sampled**2  # batches known to everybody
    ruined, known = np.isinf(known), np.where(np.isinf(known), 0.0, known)
    ruined, spent = running_max(ruined, agent), running_sum(known, agent)
    epsilon = np.where(ruined, np.inf, epsilon_of(np.sqrt(spent), delta))
    if priced.gaussian.all():
        return np.asarray(running_max(epsilon, agent))
    order = np.argsort(agent, kind="stable")
    bounds = np.flatnonzero(np.diff(agent[order], prepend=-1, append=-1))
    gaussian, foreign = priced.gaussian[order], priced.foreign[order]
    kinds, kind = distinct_prices(priced)
    table = np.pad(kinds.divergences(), ((0, 1), (0, 0)))
    stride = -(-len(agent) // SOLVED)
    for first, end in pairwise(bounds):
        if not gaussian[first:end].all():
            own = order[first:end]
            divergent = _renyi_epsilon(priced.take(own), table, kind[own], stride, delta)
            mixed = np.maximum.accumulate(foreign[first:end])
            epsilon[own] = np.where(mixed, divergent, np.minimum(divergent, epsilon[own]))
    # Monotone but for the last bits of the roots: a later release never takes anything back.
    return np.asarray(running_max(epsilon, agent))


def _renyi_epsilon(
    priced: Prices, table: Array, kind: NDArray[np.int64], stride: int, delta: float
) -> Array:
    """Epsilon (n,) after each release of one agent, from the sum of divergences.

    table (kinds, orders), kind (n,): of what is not zCDP; the last kind is nothing. Of very many
    releases epsilon is that after the last of each `stride`.
    """
    n = len(kind)
    last = np.minimum(np.arange(0, n, stride) + stride, n) - 1
    sums = priced.rho + 0.5 * priced.mu2, priced.xi, priced.ceiled
    linear = [np.cumsum(one)[last] for one in sums]
    epsilon, total = np.empty(len(last)), np.zeros(len(ORDERS))
    for first in range(0, len(last), BLOCK):
        block = slice(first, first + BLOCK)
        own = kind[first * stride : min((first + BLOCK) * stride, n)]
        if stride == 1 or len(table) > FEW * stride:
            own = np.pad(own, (0, -len(own) % stride), constant_values=len(table) - 1)
            running = table[own].reshape(-1, stride, len(ORDERS)).sum(axis=1)
        else:
            place = np.arange(len(own)) // stride * len(table) + own
            many = np.bincount(place, minlength=-(-len(own) // stride) * len(table))
            running = many.reshape(-1, len(table)) @ table
        running[0] += total
        running = np.cumsum(running, axis=0)
        total = running[-1].copy()
        running += concentrated(*(one[block] for one in linear))
        epsilon[block] = epsilon_of_divergences(running, delta)
    pure = np.cumsum(priced.laplace + priced.pure)  # basic composition, better for a few releases
    impure = np.cumsum(priced.mu2 + priced.rho + priced.xi + priced.sampled + priced.ceiled) > 0.0
    each = np.repeat(epsilon, stride)[:n]
    return np.minimum(each, np.where(impure, np.inf, pure))


ROWS_IN_MEMORY = 1 << 20  # releases whose prices are held at once
UNBOUNDED = "no bound"  # the method of an epsilon that is infinite as nothing is known to bound it


@dataclass(frozen=True)
class Account:
    """What a view learns, and in which terms that is said.

    method: exact GDP (mu^2 adds up) of all agents; else what bounds the worst agent best: PLD, RDP,
    GDP, or pure epsilons added up; or no bound; final: epsilon (agents,) of all that the view has
    seen, or might have where that follows from data; growth: times s at which the largest of the
    agents' epsilons grows, and what it is from then on; void: whether more was seen than the
    releases; whole: whether all noise is of whole numbers.
    """

    view: str
    relation: str
    delta: float
    method: str
    assumptions: tuple[str, ...]
    flags: tuple[str, ...]
    final: Array = field(repr=False)
    growth: tuple[Array, Array] = field(repr=False)
    columns: Callable[[], Columns] = field(repr=False)  # of the curve, as arrays
    prices: Callable[[int], Prices] = field(repr=False)  # of an agent's releases, in their order
    void: bool = False
    whole: bool = False

    def voided(self, why: str) -> "Account":
        """The account of who has seen more than the releases: infinite from the start, and why."""
        agents, final = np.arange(self.agents), np.full(self.agents, np.inf)
        lost = {"time": np.zeros(self.agents), "agent": agents, "epsilon": final}
        return replace(
            self, flags=(why, *self.flags), final=final,
            growth=(np.zeros(1), np.full(1, np.inf)), columns=lambda: lost, void=True,
        )  # fmt: skip

    @cached_property
    def curve(self) -> "pd.DataFrame":
        """Columns time s, agent, epsilon, cumulative, by (time, release).

        Where it is not exact it is that of divergences, but never above the agent's final epsilon,
        which bounds what any part of its releases costs. A row (0, agent, 0) for an agent of which
        nothing is seen.
        """
        import pandas as pd

        return pd.DataFrame(self.columns())

    @property
    def terms(self) -> str:
        """In which terms all this is, in one line."""
        return f"view {self.view}, {self.relation}, delta {self.delta:g}, {self.method}"

    @property
    def unit(self) -> str:
        """What is protected: a record, or all records of an agent."""
        return "agent" if self.relation in OF_AGENTS else "record"

    @property
    def agents(self) -> int:
        """How many agents there are."""
        return len(self.final)

    @property
    def worst(self) -> float:
        """The largest of the agents' epsilons."""
        return float(self.final.max(initial=0.0))

    def pld(self, agent: int | None = None) -> float:
        """Return epsilon of an agent by its privacy loss distribution; default: the worst agent.

        nan where that method does not apply; see `loss_distribution.epsilon_pld`.
        """
        chosen = int(np.argmax(self.final)) if agent is None else agent
        priced = self.prices(chosen)
        counted = tallies(priced, np.zeros(len(priced.mu2), np.int64))
        return epsilon_pld(counted.get(0), self.delta) if len(priced.mu2) else 0.0


def account(
    releases: "Pieces | Mapping[str, Any] | pd.DataFrame",
    *,
    rows: ArrayLike | None,
    delta: float = 1e-5,
    view: str = "eavesdropper",
    relation: str = "replace-one",
    events: "Mapping[str, Any] | pd.DataFrame | None" = None,
    amplification: bool = True,
) -> Account:
    """Replay a releases table, a data frame or arrays by column, for one view, relation and delta.

    rows (agents,): records of each agent, None where that is not known; events: the events table,
    for `direct:J`; amplification: whether Gaussian noise on a batch is charged as noise on a batch
    that stays secret. InputError for a view, relation, delta or row that has no meaning. Of a
    large table as pieces a million rows or so are held at once.
    """
    check_delta(delta)
    owned = None if rows is None else np.asarray(rows, np.int64)
    pieces = pieces_of(releases)
    log = None if events is None else columns_of(events)
    counts, star, trusted = _glanced(pieces)
    agents = _agents(len(counts) - 1, owned)
    who = adversary(view, agents)
    require_seen(who, star, int(counts.sum()))
    common = who, log, owned, relation, amplification
    if trusted:
        return _of_sums(pieces, counts, agents, delta, common)

    def block(first: int, end: int) -> Block:
        mine = None if (first, end) == (0, len(counts)) else partial(_of, first=first, end=end)
        return Block.of(gathered(pieces, mine), *common)

    blocks = [partial(block, *ends) for ends in _blocks(counts)]
    return _account(blocks, agents, delta, common, star, lambda i: block(i, i + 1).priced)


Common = tuple[Adversary, Columns | None, NDArray[np.int64] | None, str, bool]


def _account(
    blocks: Sequence[Callable[[], Block]], agents: int, delta: float, common: Common, star: bool,
    single: Callable[[int], Prices], premises: Iterable[str] = (), remarks: Iterable[str] = (),
) -> Account:  # fmt: skip
    """The account of blocks; common: adversary, events, rows, relation, amplification."""
    who, _, owned, relation, _ = common
    final, growth, signs, method, spent = _replayed(blocks, agents, delta)

    def columns() -> Columns:
        found = [spent] if spent is not None else [each().spent(delta) for each in blocks]
        time, agent, epsilon = _in_order(found)
        return _curve(time, agent, np.minimum(epsilon, final[agent]), agents)

    return Account(
        str(who),
        relation,
        delta,
        "exact GDP" if all(one.exact for one in signs) else method,
        (*assumptions(relation, signs), *premises),
        (*flags(who, star, signs, delta, owned), *remarks),
        final,
        growth,
        columns,
        single,
        whole=of_whole_numbers(signs),
    )


def _of_sums(
    pieces: Pieces, counts: NDArray[np.int64], agents: int, delta: float, common: Common
) -> Account:
    """The account of replies to a trusted coordinator, or of the sums that it shows."""
    from desim.privacy.accounting import trusted_sums as sums

    who, log, _, relation, amplification = common
    if who.kind == "direct":  # what the coordinator sends an agent is made of all sums
        who = Adversary("neighbour", who.agents)
    whole = sums.summed(pieces)
    masked = sums.secured(whole)
    models = masked or who.kind in MODELS
    law = sums.law_of(whole, relation) if models and amplification else ""
    common = (who, log, None if models else common[2], relation, amplification)
    seen = common
    if masked and who.kind == "coordinator":  # of replies it sees the sum, as everybody does
        seen = (Adversary("final-model"), *common[1:])
    said = tuple(sums.remarks(whole, who, relation, delta, agents))

    def block(first: int, end: int) -> Block:
        own = gathered(pieces, partial(_of, first=first, end=end))
        return Block.of(sums.held(own, whole) if models else sums.replies(own), *seen)

    def alike() -> Block:
        rows = sums.of_anybody(whole, who, agents)
        return Block.of(rows, Adversary("final-model"), *common[1:])

    premises = tuple(sums.premises(law, whole, masked)) if models else ()
    if law:
        one = _account([alike], 1, delta, common, True, lambda _: alike().priced, premises, said)
        return _of_anybody(one, agents, np.array(who.agents, np.int64))
    blocks = [partial(block, *ends) for ends in _blocks(counts)]
    single: Callable[[int], Prices] = lambda i: block(i, i + 1).priced  # noqa: E731
    found = _account(blocks, agents, delta, common, True, single, premises, said)
    if relation != "add-or-remove-one":
        return found
    return replace(found, assumptions=(sums.LEFT_OUT, *found.assumptions[1:]))


def _of_anybody(one: Account, agents: int, own: NDArray[np.int64]) -> Account:
    """The account of agents of whom each spends what `one` says; but for those who look, `own`.

    Of very many the curve is that after the last of several releases each.
    """
    final = np.full(agents, one.final[0])
    final[own] = 0.0
    others = np.setdiff1d(np.arange(agents), own)

    def columns() -> Columns:
        curve = one.columns()
        n = len(curve["time"])
        stride = -(-n * agents // ROWS_IN_MEMORY)
        last = np.arange(n - 1, -1, -stride)[::-1]
        time, epsilon = (np.repeat(curve[name][last], len(others)) for name in ("time", "epsilon"))
        return _curve(time, np.tile(others, len(last)), epsilon, agents)

    def single(agent: int) -> Prices:
        return one.prices(0).take(slice(0 if agent in own else None))

    return replace(one, final=final, columns=columns, prices=single)


def _replayed(
    blocks: Sequence[Callable[[], Block]], agents: int, delta: float
) -> tuple[Array, tuple[Array, Array], list[Signs], str, Spent | None]:
    """Final epsilons (agents,), growth, signs, method of the worst agent; all, if one block."""
    final, method = np.zeros(agents), "RDP"
    growth, signs, one = [], [], None
    for block in blocks:
        mine = block()
        one = mine.spent(delta)
        np.maximum.at(final, one.agent, one.epsilon)
        method = _sharpened(final, mine, delta) or method
        growth.append(_growing(one.time, np.minimum(one.epsilon, final[one.agent])))
        signs.append(one.signs)
    return final, _merged(growth), signs, method, one if len(blocks) == 1 else None


def _sharpened(final: Array, mine: Block, delta: float) -> str:
    """Lower `final` (agents,) to what loss distributions say, where that is less.

    The method of the worst agent so far; "" if it is of another block, or all of this is Gaussian.
    """
    agent = np.asarray(mine.seen["agent"], np.int64)
    if mine.priced.gaussian.all():
        return "GDP" if len(agent) and (agent == final.argmax()).any() else ""
    counted = tallies(mine.priced, agent)
    sharp = sharpen(final, counted, delta)
    worst = int(final.argmax())
    if worst not in counted:
        return ""
    method = counted[worst].bound(delta)[1]
    return "PLD" if sharp[worst] else "GDP" if counted[worst].exact else method


def _glanced(pieces: Pieces) -> tuple[NDArray[np.int64], bool, bool]:
    """How many releases each agent (up to the last one) has made, and if a coordinator gets any.

    And whether it sums them up, being trusted.
    """
    counts, star, trusted = np.zeros(0, np.int64), False, False
    for rows in pieces:
        agent = rows["agent"]
        if len(agent) and agent.min() < 0:
            agent, trusted = agent[agent >= 0], True
        number = np.bincount(agent, minlength=len(counts))
        number[: len(counts)] += counts
        counts, star = number, star or bool(rows["seen_by"].equal("coordinator").any())
    return counts, star, trusted


def _blocks(counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Agents from .. to, of whom each block has at most so many releases, or one agent."""
    blocks, first, total = [], 0, 0
    for agent, number in enumerate(counts.tolist()):
        if total and total + number > ROWS_IN_MEMORY:
            blocks.append((first, agent))
            first, total = agent, 0
        total += number
    return [*blocks, (first, len(counts))]


def _of(rows: Columns, first: int, end: int) -> Any:
    """Which rows are of agents first .. end - 1."""
    return (rows["agent"] >= first) & (rows["agent"] < end)


def _growing(time: Array, epsilon: Array) -> tuple[Array, Array]:
    """Where the largest of epsilon (n,) so far grows: times s in order, and what it is then."""
    most = np.maximum.accumulate(epsilon)
    grows = most > np.concatenate([[0.0], most[:-1]])
    return time[grows], most[grows]


def _merged(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The same of the largest in any of the parts."""
    time, epsilon = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(time, kind="stable")
    return _growing(time[order], epsilon[order])


def _in_order(found: Sequence[Spent]) -> tuple[Array, NDArray[np.int64], Array]:
    """Time, agent and epsilon of all, by (time, release)."""
    if len(found) == 1:
        return found[0].time, found[0].agent, found[0].epsilon
    time, release, agent, epsilon = (
        np.concatenate([one[column] for one in found]) for column in range(4)
    )
    order = np.lexsort((release, time))
    return time[order], agent[order], epsilon[order]


def _curve(time: Array, agent: NDArray[np.int64], epsilon: Array, agents: int) -> Columns:
    """The curve of an Account: agents of which nothing is seen come first."""
    unseen = np.setdiff1d(np.arange(agents), agent)
    return {
        "time": np.concatenate([np.zeros(len(unseen)), time]),
        "agent": np.concatenate([unseen, agent]),
        "epsilon": np.concatenate([np.zeros(len(unseen)), epsilon]),
    }


def _agents(last: int, rows: NDArray[np.int64] | None) -> int:
    if rows is None:
        return last + 1
    if last >= len(rows):
        raise InputError(f"rows: found {len(rows)} agents; the releases are of agent {last} too")
    return len(rows)
