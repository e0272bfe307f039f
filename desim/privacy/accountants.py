"""Accounting as a replay: epsilon of every agent over time, from nothing but the release rows.

An agent's own records are behind its own releases only, so every agent has its own account; what
others send later is post-processing. Pure Gaussian accounts are exact; in all others the Renyi
divergences of the releases are added up, which is an upper bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.columns import Columns, Pieces, gathered, pieces_of, rows_of
from desim.errors import InputError
from desim.privacy.gaussian import check_delta, epsilon_of
from desim.privacy.prices import Prices, prices
from desim.privacy.renyi import ORDERS, epsilon_of_divergences
from desim.privacy.running import running_max, running_sum
from desim.privacy.statements import Signs, assumptions, flags
from desim.privacy.views import Adversary, adversary, charged, require_seen, reservations

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
LARGEST = 1 << 20  # releases whose prices are held at once
BLOCK = 256  # rows of divergences that are held at once: they fit a cache
IDENTITY = ["time", "release", "agent", "mechanism", "sensitivity", "scale", "sampling"]


@dataclass(frozen=True)
class Account:
    """What a view learns, and in which terms that is said.

    method: exact GDP (mu^2 adds up) or RDP (an upper bound, never above exact GDP of known batches
    or the sum of pure epsilons); final: epsilon (agents,) of all that the view has seen; growth:
    times s at which the largest of the agents' epsilons grows, and what it is from then on.
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

    @cached_property
    def curve(self) -> "pd.DataFrame":
        """Columns time s, agent, epsilon, cumulative, by (time, release).

        A row (0, agent, 0) for an agent of which nothing is seen.
        """
        import pandas as pd

        return pd.DataFrame(self.columns())

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
        from desim.privacy.loss_distribution import epsilon_pld

        chosen = int(np.argmax(self.final)) if agent is None else agent
        return epsilon_pld(self.prices(chosen), self.delta)


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
    made, star = _glanced(pieces)
    agents = _agents(len(made) - 1, owned)
    who = adversary(view, agents)
    require_seen(who, star, int(made.sum()))

    def block(first: int, end: int) -> Block:
        mine = None if (first, end) == (0, len(made)) else partial(_of, first=first, end=end)
        own = gathered(pieces, mine)
        return Block.of(own, who, events, owned, relation, amplification)

    ends = _blocks(made)
    final, growth, signs, exact = np.zeros(agents), [], [], True
    for first, end in ends:
        one = block(first, end).spent(delta)
        np.maximum.at(final, one.agent, one.epsilon)
        growth.append(_growing(one.time, one.epsilon))
        signs.append(one.signs)
        exact &= one.exact

    def columns() -> Columns:
        found = [one] if len(ends) == 1 else [block(*each).spent(delta) for each in ends]
        return _curve(*_in_order(found), agents)

    return Account(
        str(who),
        relation,
        delta,
        "exact GDP" if exact else "RDP",
        assumptions(relation, signs),
        (*reservations(who, star), *flags(signs, delta, owned)),
        final,
        _merged(growth),
        columns,
        lambda agent: block(agent, agent + 1).priced,
    )


class Spent(NamedTuple):
    """What agents have spent after each of their releases (n,), and what is to be said of it."""

    time: Array
    release: NDArray[np.int64]
    agent: NDArray[np.int64]
    epsilon: Array
    exact: bool
    signs: Signs


class Block(NamedTuple):
    """Releases of some agents that a view is charged for, by (time, release), and their prices."""

    seen: Columns
    priced: Prices

    @classmethod
    def of(
        cls, releases: Columns, who: Adversary, events: Any, owned: NDArray[np.int64] | None,
        relation: str, amplification: bool,
    ) -> "Block":  # fmt: skip
        """The block of these rows of the table."""
        seen = _once(rows_of(releases, charged(releases, who, events)))
        return cls(seen, prices(seen, owned, relation, amplification))

    def spent(self, delta: float) -> Spent:
        """What they come to."""
        agent = np.asarray(self.seen["agent"], np.int64)
        return Spent(
            np.asarray(self.seen["time"], float),
            self.seen["release"],
            agent,
            _cumulative_epsilon(agent, self.priced, delta),
            bool(self.priced.gaussian.all()),
            Signs.of(self.seen, self.priced),
        )


def _glanced(pieces: Pieces) -> tuple[NDArray[np.int64], bool]:
    """How many releases each agent (up to the last one) has made, and if a coordinator gets any."""
    made, star = np.zeros(0, np.int64), False
    for rows in pieces:
        number = np.bincount(rows["agent"], minlength=len(made))
        number[: len(made)] += made
        made, star = number, star or bool(rows["seen_by"].equal("coordinator").any())
    return made, star


def _blocks(made: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Agents from .. to, of whom each block has at most so many releases, or one agent."""
    blocks, first, held = [], 0, 0
    for agent, number in enumerate(made.tolist()):
        if held and held + number > LARGEST:
            blocks.append((first, agent))
            first, held = agent, 0
        held += number
    return [*blocks, (first, len(made))]


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
    ruined = np.isinf(priced.mu2)
    with np.errstate(over="ignore"):
        known = np.where(ruined, 0.0, priced.mu2 + priced.ratio**2)  # batches known to everybody
    ruined, spent = running_max(ruined, agent), running_sum(known, agent)
    epsilon = np.where(ruined, np.inf, epsilon_of(np.sqrt(spent), delta))
    order = np.argsort(agent, kind="stable")
    bounds = np.flatnonzero(np.diff(agent[order], prepend=-1, append=-1))
    gaussian, foreign = priced.gaussian[order], priced.foreign[order]
    for first, end in pairwise(bounds):
        if not gaussian[first:end].all():
            own = order[first:end]
            divergent = _renyi_epsilon(priced.take(own), delta)
            mixed = np.maximum.accumulate(foreign[first:end])
            epsilon[own] = np.where(mixed, divergent, np.minimum(divergent, epsilon[own]))
    # Monotone but for the last bits of the roots: a later release never takes anything back.
    return np.asarray(running_max(epsilon, agent))


def _renyi_epsilon(priced: Prices, delta: float) -> Array:
    """Epsilon (n,) after each release of one agent, from the sum of divergences."""
    epsilon = np.empty(len(priced.mu2))
    total = np.zeros(len(ORDERS))
    for first in range(0, len(epsilon), BLOCK):
        block = slice(first, first + BLOCK)
        running = np.cumsum(priced.take(block).divergences(), axis=0)
        running += total
        total = running[-1]
        epsilon[block] = epsilon_of_divergences(running, delta)
    pure = np.cumsum(priced.laplace + priced.pure)  # basic composition, better for a few releases
    impure = np.cumsum(priced.mu2 + priced.rho + priced.xi + priced.ratio) > 0.0
    return np.minimum(epsilon, np.where(impure, np.inf, pure))
