"""Who is active in a round: a pure function of the seed and the round, blind to data and clocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream

if TYPE_CHECKING:
    from desim.network.conditions.choosing import Chooser

Who = NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """Whom a coordinator invites follows from the seed and the round alone."""

    agents: int
    seed: int = 0
    uniform: ClassVar[bool] = False  # whether cohorts are of one size, all equally likely
    remembers: ClassVar[bool] = False  # whether who is invited follows from what was seen

    @property
    def least(self) -> float:
        """The size of the smallest cohort, or its mean where that is random."""
        return self.agents

    def draw(self, round_: int) -> Who:
        """Return the active agents of `round_` (1, 2, ...), ascending; may be empty."""
        raise NotImplementedError


@dataclass(frozen=True)
class Everybody(Drawn):
    """All agents in every round."""

    uniform = True

    @cached_property
    def everybody(self) -> Who:
        """All agents, ascending."""
        return np.arange(self.agents)

    def draw(self, round_: int) -> Who:
        """The same array in every round."""
        return self.everybody


@dataclass(frozen=True)
class Bernoulli(Drawn):
    """Each agent independently with probability p, drawn every round."""

    p: float = 1.0

    @property
    def least(self) -> float:
        """The mean."""
        return self.p * self.agents

    def draw(self, round_: int) -> Who:
        """Agents whose own draw of the round is below p."""
        everybody = np.arange(self.agents)
        place = {"agent": everybody, "round": round_, "size": 1}
        active: Who = everybody[
            keys.uniforms(self.seed, Stream.PARTICIPATION, **place)[:, 0] < self.p
        ]
        return active


@dataclass(frozen=True)
class UniformSubset(Drawn):
    """`count` agents without replacement, drawn every round."""

    count: int = 1
    uniform = True

    @property
    def least(self) -> float:
        """Of all cohorts."""
        return self.count

    def draw(self, round_: int | Who) -> Who:
        """So many, all subsets alike; of rounds (n,) a row each."""
        place = Stream.PARTICIPATION, self.agents, self.count
        return np.asarray(keys.subset(self.seed, *place, round=round_))


@dataclass(frozen=True)
class Schedule(Drawn):
    """Given sets of agents, used in turn and from the start again (loops), else the last stays."""

    sets: Sequence[Who] = ()
    loops: bool = True

    @property
    def least(self) -> float:
        """Of the given ones."""
        return min(len(who) for who in self.sets)

    def draw(self, round_: int) -> Who:
        """The set whose turn it is."""
        turn = (round_ - 1) % len(self.sets) if self.loops else min(round_, len(self.sets)) - 1
        return self.sets[turn]


Participation: TypeAlias = "Drawn | Chooser"


def recorded(path: Path, agents: int, where: str) -> list[Who]:
    """Who took part in rounds 1, 2, ...: a csv with columns round and agent, a row for each.

    Or an npz with one array (rounds, agents) of 1 and 0. InputError at `where` for anything else,
    agents out of range, nobody at all.
    """
    from desim.readers import arrays

    found = arrays(path, where, ("round", "agent"))
    if path.suffix != ".npz":
        table = _matrix(found, agents, where)
    elif len(found) != 1:
        raise InputError(f"{where}: found {len(found)} arrays; allowed: one, rounds x agents")
    else:
        ((_, table),) = found.items()
    if table.ndim != 2 or table.shape[1] != agents or not np.isin(table, (0.0, 1.0)).all():
        text = f"found an array of shape {table.shape}"
        raise InputError(f"{where}: {text}; allowed: 1 and 0, rounds x {agents} agents")
    if not table.any():
        raise InputError(f"{where}: found no agent at all; allowed: at least one")
    return [np.flatnonzero(row) for row in table]


def _matrix(found: Mapping[str, NDArray[np.float64]], agents: int, where: str) -> Any:
    """Rows (round, agent) as an array (rounds, agents) of 1 and 0."""
    if "round" not in found or "agent" not in found:
        names = ", ".join(found) or "none of numbers"
        raise InputError(f"{where}: found the columns {names}; allowed: round and agent")
    from desim.readers import require_whole

    rounds, who = found["round"], found["agent"]
    for name, values, low, high in (("round", rounds, 1, 1e7), ("agent", who, 0, agents - 1)):
        require_whole(values, name, where, low, high, f"{low} to {high:.0f}")
    table = np.zeros((int(rounds.max(initial=1)), agents))
    table[rounds.astype(int) - 1, who.astype(int)] = 1.0
    return table


def common_length(seed: int, round_: int, p: float) -> int:
    """Return how many local steps all agents make in a round: L = 1, 2, ... ~ Geom(p), mean 1/p.

    The inverse of P(L > l) = (1 - p)^l at a draw of its own.
    """
    u = float(keys.uniforms(seed, Stream.PARTICIPATION, peer=0, round=round_)[0])
    return 1 if p == 1.0 else 1 + int(np.log(u) / np.log1p(-p))
