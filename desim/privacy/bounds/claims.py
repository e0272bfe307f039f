"""The nouns of this package: a paper's theorem with its verdict, and what it says of one run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Releases: TypeAlias = "pd.DataFrame"  # rows of a run's releases.parquet
Verdict = Literal["holds", "loose", "unproved", "wrong"]
RELATION = "replace-one"  # in all the papers
ALL = "all messages"
ONE = "one iteration, given the past"
FINAL = "the agent's last local model alone"
ONCE = "the final model, sampled once: every view"


@dataclass(frozen=True)
class Bound:
    """One theorem about privacy.

    algorithms: contract names; view: what the adversary it covers sees; verdict: whether it holds,
    holds but is loose, lacks a proof, or is wrong; wrong: what is wrong, or what it needs;
    rigorous: what desim says instead; formula: the paper's, instead: the one that holds, if any.
    """

    name: str
    paper: str
    theorem: str
    algorithms: tuple[str, ...]
    view: str
    verdict: Verdict
    wrong: str
    rigorous: str
    formula: Callable[..., Any]
    instead: Callable[..., Any] | None = None

    @property
    def trusted(self) -> bool:
        """Whether an epsilon of this theorem may be acted on."""
        return self.verdict in ("holds", "loose")

    def covers(self, view: str) -> bool:
        """Whether the theorem speaks about a view as scenarios name it, once for the whole run."""
        return self.view in (ALL, ONCE) or (self.view == FINAL and view == "final-model")


@dataclass(frozen=True, eq=False)
class Claim:
    """What a theorem says of one run: epsilon (agents,) at delta, and how it was computed.

    method: how epsilon came from the theorem; unmet: conditions of the theorem that the run does
    not meet, in words.
    """

    bound: Bound
    epsilon: Array
    delta: float
    method: str
    unmet: tuple[str, ...] = ()
    relation: str = RELATION

    @property
    def worst(self) -> float:
        """The largest epsilon of an agent."""
        return float(np.max(self.epsilon, initial=0.0))


def once(releases: Releases) -> Releases:
    """Return the rows of `releases` in the order of rounds, the same bits sent again left out."""
    return releases.drop_duplicates(["agent", "release"]).sort_values(["agent", "round", "release"])


def summed(agent: ArrayLike, amount: ArrayLike, agents: int) -> Array:
    """Sums (agents,) of amounts (n,) over the rows (n,) of each agent; 0 for none, inf kept."""
    total = np.zeros(agents)
    np.add.at(total, np.asarray(agent), np.asarray(amount, float))
    return total
