"""Accounting as a replay: epsilon of every agent over time, from nothing but the release rows.

An agent's own records are behind its own releases only, so every agent has its own account; what
others send later is post-processing. Pure Gaussian accounts are exact. In all others the Renyi
divergences of the releases are added up, and what has been released in the end is priced once more
by its privacy loss distribution: both are upper bounds, and the second one is mostly the lower.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.arrays import Array
from desim.columns import Columns, Pieces, columns_of, gathered, pieces_of
from desim.errors import InputError
from desim.privacy.accounting.composition import Block, Spent
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.accounting.loss_distribution import epsilon_pld, sharpen
from desim.privacy.accounting.prices import Prices
from desim.privacy.accounting.tallies import tallies
from desim.privacy.accounting.views import (
    Signs,
    adversary,
    assumptions,
    flags,
    require_seen,
    reservations,
)

if TYPE_CHECKING:
    import pandas as pd

ROWS_IN_MEMORY = 1 << 20  # releases whose prices are held at once
UNBOUNDED = "no bound"  # the method of an epsilon that is infinite as nothing is known to bound it


@dataclass(frozen=True)
class Account:
    """What a view learns, and in which terms that is said.

    method, of the worst agent: exact GDP (mu^2 adds up); PLD or RDP, upper bounds, never above
    exact GDP of known batches or the sum of pure epsilons; or no bound; final: epsilon (agents,) of
    all that the view has seen, or might have where that follows from data; growth: times s at which
    the largest of the agents' epsilons grows, and what it is from then on; void: whether more was
    seen than the releases.
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
    counts, star = _glanced(pieces)
    agents = _agents(len(counts) - 1, owned)
    who = adversary(view, agents)
    require_seen(who, star, int(counts.sum()))

    def block(first: int, end: int) -> Block:
        mine = None if (first, end) == (0, len(counts)) else partial(_of, first=first, end=end)
        own = gathered(pieces, mine)
        return Block.of(own, who, log, owned, relation, amplification)

    blocks = [partial(block, *ends) for ends in _blocks(counts)]
    final, growth, signs, sharp, spent = _replayed(blocks, agents, delta)

    def columns() -> Columns:
        found = [spent] if spent is not None else [each().spent(delta) for each in blocks]
        time, agent, epsilon = _in_order(found)
        return _curve(time, agent, np.minimum(epsilon, final[agent]), agents)

    return Account(
        str(who),
        relation,
        delta,
        _method(final, signs, sharp),
        assumptions(relation, signs),
        (*reservations(who, star), *flags(signs, delta, owned)),
        final,
        growth,
        columns,
        lambda agent: block(agent, agent + 1).priced,
    )


def _replayed(
    blocks: Sequence[Callable[[], Block]], agents: int, delta: float
) -> tuple[Array, tuple[Array, Array], list[Signs], NDArray[np.bool_], Spent | None]:
    """Final epsilons (agents,), growth, signs, where loss distributions tell; all, if one block."""
    final, sharp = np.zeros(agents), np.zeros(agents, bool)
    growth, signs, one = [], [], None
    for block in blocks:
        mine = block()
        one = mine.spent(delta)
        np.maximum.at(final, one.agent, one.epsilon)
        sharp |= _sharpened(final, mine, delta)
        growth.append(_growing(one.time, np.minimum(one.epsilon, final[one.agent])))
        signs.append(one.signs)
    return final, _merged(growth), signs, sharp, one if len(blocks) == 1 else None


def _method(final: Array, signs: Sequence[Signs], sharp: NDArray[np.bool_]) -> str:
    if all(one.exact for one in signs):
        return "exact GDP"
    return "PLD" if len(final) and sharp[final.argmax()] else "RDP"


def _sharpened(final: Array, mine: Block, delta: float) -> NDArray[np.bool_]:
    """Lower `final` (agents,) to what loss distributions say, where that is less; tell where."""
    if mine.priced.gaussian.all():
        return np.zeros(len(final), bool)
    counted = tallies(mine.priced, np.asarray(mine.seen["agent"], np.int64))
    return sharpen(final, counted, delta)


def _glanced(pieces: Pieces) -> tuple[NDArray[np.int64], bool]:
    """How many releases each agent (up to the last one) has made, and if a coordinator gets any."""
    counts, star = np.zeros(0, np.int64), False
    for rows in pieces:
        number = np.bincount(rows["agent"], minlength=len(counts))
        number[: len(counts)] += counts
        counts, star = number, star or bool(rows["seen_by"].equal("coordinator").any())
    return counts, star


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
