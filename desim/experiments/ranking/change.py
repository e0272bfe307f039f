"""The smallest change that takes the first place from the method that has it, played to be sure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from desim.arrays import Array, Int
from desim.errors import RunError
from desim.experiments.ranking.laws import SEED, TRANSPORT, Choice, Law, Laws
from desim.experiments.ranking.turning import rounded, smallest
from desim.experiments.ranking.worlds import Field, World
from desim.runs.play import played
from desim.scenario.schema import Scenario

STARTS = 6  # worlds from which the smallest change is looked for


@dataclass(frozen=True)
class Change:
    """Factors that turn the first place over: `led` was first, `by` is then.

    size: Euclidean norm of the factors' natural logarithms; within: whether the laws of the inputs
    allow them; seconds: of both in that world, as `desim.run` plays it.
    """

    factors: Mapping[str, float]
    led: str
    by: str
    size: float
    within: bool
    seconds: tuple[float, float]

    def __str__(self) -> str:
        texts = [f"{name} x{factor:.6g}" for name, factor in self.factors.items()]
        return f"{' and '.join(texts)}: {self.by} before {self.led}"


def rivals(base: Array) -> tuple[int, int]:
    """The first and the next that is not level with it; twice the first where there is none."""
    leader = int(np.argmin(base))
    others = np.where(base > base[leader], base, np.inf)
    later = np.flatnonzero(base > base[leader])
    return leader, int(later[np.argmin(others[later])]) if len(later) else leader


@dataclass(frozen=True)
class Contest:
    """The first method against all that are not level with it, in any world."""

    field: Field
    inputs: tuple[str, ...]
    leader: int
    others: Int

    def lead(self, seconds: Array) -> float:
        """The logarithm of the next time over the leader's (methods,) s.

        -inf if that alone is inf; inf where nobody gets there, which turns nothing over.
        """
        first, second = float(seconds[self.leader]), float(seconds[self.others].min())
        if first == np.inf:
            return -np.inf if second < np.inf else np.inf
        with np.errstate(all="ignore"):
            return float(np.log(np.divide(second, first)))

    def played(self, factors: Mapping[str, float]) -> Array:
        """Seconds (methods,) with these factors."""
        return np.array(self.field.seconds(World(dict(factors))))

    def gap(self, logs: Array) -> float:
        """The lead where the inputs' factors have these logarithms (inputs,)."""
        return self.lead(self.played(dict(zip(self.inputs, np.exp(logs).tolist(), strict=True))))

    def turns(self, factors: Mapping[int, float]) -> bool:
        """Whether factors by place of the input turn the first place over."""
        return self.lead(self.played({self.inputs[k]: f for k, f in factors.items()})) < 0.0


def turned(
    names: Sequence[str], drawn: Laws, field: Field, base: Array, every: Sequence[World],
    seconds: Array, seed: int,
) -> Change | None:  # fmt: skip
    """The smallest change found, looked for from worlds with these seconds (worlds, methods)."""
    inputs = tuple(name for name in drawn if name not in (SEED, TRANSPORT))
    leader = int(np.argmin(base))
    contest = Contest(field, inputs, leader, np.flatnonzero(base != base[leader]))
    logs = np.log([[one.factors[name] for name in inputs] for one in every])
    lost = np.array([contest.lead(row) for row in seconds]) < 0.0
    starts = sorted(logs[lost], key=lambda one: float(np.linalg.norm(one)))[:STARTS]
    best = smallest(contest.gap, len(inputs), starts, seed) if inputs else None
    if best is None:
        return None
    factors = {inputs[k]: factor for k, factor in rounded(contest.turns, best).items()}
    after = int(contest.others[np.argmin(contest.played(factors)[contest.others])])
    return _verified(contest, names, drawn, factors, after)


def _verified(
    contest: Contest, names: Sequence[str], drawn: Laws, factors: dict[str, float], after: int
) -> Change:
    """The change, with the times of the runs that `desim.run` makes of both scenarios."""
    leader, field = contest.leader, contest.field
    metric, value = field.entrants[None][leader].target
    shown = [_time(field.scenario(World(factors), k), metric, value) for k in (leader, after)]
    within = all(_allows(drawn[name], factor) for name, factor in factors.items())
    size = float(np.linalg.norm(np.log(list(factors.values()))))
    return Change(factors, names[leader], names[after], size, within, (shown[0], shown[1]))


def _time(scenario: Scenario, metric: str, value: float) -> float:
    """When s a run of the scenario meets the target; inf: never, as when it comes to a stop."""
    try:
        return float(played(scenario).time_to(metric, value))
    except RunError:
        return np.inf


def _allows(law: Law | Choice, factor: float) -> bool:
    """Whether a factor is within the law's ends; of a lognormal one, within 2 sigma."""
    if isinstance(law, Choice):
        return True
    if law.kind == "lognormal":
        return bool(abs(np.log(factor)) <= 2.0 * law.high)
    return law.low <= factor <= law.high
