"""The nouns of this package: a paper's theorem with its verdict, and what it says of one run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.columns import Columns, rows_of
from desim.errors import InputError, refusal

if TYPE_CHECKING:
    from desim.problem.problem import Problem

Inputs = Mapping[str, Any]  # see `inputs`
Formula = Callable[[Inputs, Columns, float], tuple[Array, list[str]]]
Verdict = Literal["holds", "loose", "unproved", "wrong"]
RELATION = "replace-one"  # in all the papers
ALL = "all messages"
ONE = "one iteration, given the past"
FINAL = "the agent's last local model alone"
ONCE = "the final model, sampled once: every view"
RELEASED = "agent round release mechanism sensitivity scale sampling".split()  # what formulas read
UNCLIPPED = "gradients are not clipped, so c1 is infinite"


@dataclass(frozen=True)
class Bound:
    """One theorem about privacy, of desim's own table or of a plug-in's `Method.bounds`.

    algorithms: contract names; view: what the adversary it covers sees; verdict: whether it holds,
    holds but is loose, lacks a proof, or is wrong; wrong: what is wrong, or what it needs;
    rigorous: what desim says instead; formula: of theorems about whole runs, epsilon (agents,) from
    inputs, releases and delta, and conditions that the releases do not meet; method: how epsilon
    comes from the theorem.
    """

    name: str
    paper: str
    theorem: str
    algorithms: tuple[str, ...]
    view: str
    verdict: Verdict
    wrong: str
    rigorous: str
    formula: Formula | None = None
    method: str = ""

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


def inputs(
    theorem: str, agents: int, unmet: Iterable[str] = (), **numbers: ArrayLike | None
) -> Inputs:
    """What a theorem's formula needs of a run beside its releases, as JSON holds it.

    theorem: name of a `Bound` with a formula; unmet: its conditions that the run does not meet, in
    words; numbers: public ones, or an array (agents,), which is one number where all are the same.
    InputError for what is no number.
    """
    plain = {k: _plain(theorem, k, one) for k, one in numbers.items() if one is not None}
    return {"theorem": theorem, "agents": agents, **plain, "unmet": list(unmet)}


def _plain(theorem: str, key: str, numbers: ArrayLike) -> Any:
    """JSON has no infinity: the text `inf`."""
    try:
        values = np.asarray(numbers, float)
    except (TypeError, ValueError):
        text = refusal(numbers, "a number, or an array (agents,) of them")
        raise InputError(f"inputs of {theorem}: {key}: {text}") from None
    if values.ndim and values.size and (values == values.flat[0]).all():
        values = values.flat[0]
    if np.isfinite(values).all():
        return values.tolist()
    return [str(one) for one in values.tolist()] if values.ndim else str(float(values))


def unclipped(problem: "Problem") -> list[str]:
    """The condition of a bounded gradient, where the run does not meet it."""
    return [] if problem.clipped else [UNCLIPPED]


def by_agent(inputs: Inputs, name: str) -> Array:
    """An input (agents,)."""
    return np.array(np.broadcast_to(np.array(inputs[name], float), inputs["agents"]))


def once(releases: Columns) -> Columns:
    """The rows of `releases` in the order of rounds, the same bits sent again left out."""
    agent, release = releases["agent"], releases["release"]
    order = np.lexsort((release, agent))
    new = (np.diff(agent[order], prepend=-1) != 0) | (np.diff(release[order], prepend=-1) != 0)
    rows = rows_of(releases, order[new])
    return rows_of(rows, np.lexsort((rows["release"], rows["round"], rows["agent"])))


def ratios(rows: Columns) -> Array:
    """Sensitivity over scale (n,) of the rows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(rows["sensitivity"] / rows["scale"])


def summed(agent: ArrayLike, amount: ArrayLike, agents: int) -> Array:
    """Sums (agents,) of amounts (n,) over the rows (n,) of each agent; 0 for none, inf stays."""
    total = np.zeros(agents)
    np.add.at(total, np.asarray(agent), np.asarray(amount, float))
    return total
