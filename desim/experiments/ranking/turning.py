"""The smallest change of the inputs that takes the first place from the method that has it.

Smallest: in the Euclidean norm of the logarithms of the factors. The search goes from changes that
turn the place over towards none, then along the surface on which both methods are level, as
structural reliability looks for its design point (Hasofer and Lind, 1974), with drawn directions
besides: a time may jump where a message more is lost. What it finds is a change that does turn the
place over, which runs of both scenarios confirm; that none is smaller is not proved.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from desim.arrays import Array, Int
from desim.errors import RunError
from desim.experiments.ranking.worlds import SEED, TRANSPORT, Laws, Race, World
from desim.runs.recording import played
from desim.scenario.schema import Scenario

FARTHEST = 32.0  # factors beyond that are no small change
STEPS = (2.0, 4.0, FARTHEST)  # factors tried of each input alone, and of all
HALVINGS = 14
DRAWN = 60  # directions
SLOPE = 0.02  # step of a logarithm for the slope
Gap = Callable[[Array], float]


def smallest(gap: Gap, inputs: int, starts: Sequence[Array], seed: int) -> Array | None:
    """Logarithms (inputs,) of the smallest factors found with gap < 0; None if there are none.

    gap: of logarithms (inputs,), > 0 at 0; starts: some at which it is not.
    """
    best: Array | None = None
    alone = [row * sign for row in np.eye(inputs) for sign in (1.0, -1.0)]
    corners = [np.array(one) for one in product((1.0, -1.0), repeat=inputs)]
    outwards = (np.log(k) * one for some in (alone, corners) for k in STEPS for one in some)
    for start in [*starts, *outwards]:
        if best is not None and np.linalg.norm(start) > 2.0 * np.linalg.norm(best):
            continue
        if gap(start) < 0.0:
            edge = _edge(gap, start)
            if best is None or np.linalg.norm(edge) < np.linalg.norm(best):
                best = edge
    if best is None:
        slope = _slope(gap, np.zeros(inputs))
        far = -np.log(FARTHEST) * slope / max(float(np.abs(slope).max()), 1e-300)
        best = _edge(gap, far) if slope.any() and gap(far) < 0.0 else None
    return None if best is None else _improved(gap, best, np.random.default_rng(seed))


def _edge(gap: Gap, start: Array) -> Array:
    """The part of `start` at which the gap closes, on the far side of it."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if gap(middle * start) < 0.0 else (middle, high)
    return high * start


def _slope(gap: Gap, at: Array) -> Array:
    """The derivative (inputs,) of the gap, by differences on both sides."""
    steps = SLOPE * np.eye(len(at))
    found = np.array([gap(at + step) - gap(at - step) for step in steps]) / (2.0 * SLOPE)
    return np.where(np.isfinite(found), found, 0.0)


def _improved(gap: Gap, best: Array, rng: np.random.Generator) -> Array:
    """Another point on the edge, nearer to 0 where one is found."""
    for _ in range(8):
        slope = _slope(gap, best)
        size = float(np.linalg.norm(slope))
        before = best
        if size > 0.0:
            for part in (1.0, 0.5, 0.25):  # of the way from this direction to the steepest one
                best = _tried(gap, best, (1 - part) * _unit(best) - part * slope / size)
        if np.linalg.norm(best) > 0.999 * np.linalg.norm(before):
            break
    for spread in np.geomspace(0.6, 0.02, DRAWN):
        best = _tried(gap, best, _unit(best) + spread * rng.standard_normal(len(best)))
    for k in range(len(best)):
        best = _tried(gap, best, np.where(np.arange(len(best)) == k, 0.0, best))
    return best


def _tried(gap: Gap, best: Array, direction: Array) -> Array:
    """The edge in another direction where that is nearer."""
    if not np.linalg.norm(direction) > 0.0:
        return best
    start = 0.999 * float(np.linalg.norm(best)) * _unit(direction)
    return _edge(gap, start) if gap(start) < 0.0 else best


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))


def rounded(turns: Callable[[dict[int, float]], bool], best: Array) -> dict[int, float]:
    """Factors by input, of as few digits as do, from three on, that turn the place over, too.

    Those of 1 are left out.
    """
    tries = product((3, 4, 5), (0.05, 0.01, 0.0))  # with as few inputs as possible
    for digits, least in tries:
        for stretch in (1.0, 1.001, 1.002, 1.005, 1.01):
            factors = [float(f"{np.exp(stretch * one):.{digits}g}") for one in best]
            few = {k: f for k, f in enumerate(factors) if abs(np.log(f)) > least}
            if few and turns(few):
                return few
    return {k: float(np.exp(one)) for k, one in enumerate(best) if one != 0.0}


# The change for a contest of methods, confirmed by runs of both scenarios.
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

    race: Race
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
        return np.array(self.race.seconds(World(dict(factors))))

    def gap(self, logs: Array) -> float:
        """The lead where the inputs' factors have these logarithms (inputs,)."""
        return self.lead(self.played(dict(zip(self.inputs, np.exp(logs).tolist(), strict=True))))

    def turns(self, factors: Mapping[int, float]) -> bool:
        """Whether factors by place of the input turn the first place over."""
        return self.lead(self.played({self.inputs[k]: f for k, f in factors.items()})) < 0.0


def turned(
    names: Sequence[str], drawn: Laws, race: Race, base: Array, every: Sequence[World],
    seconds: Array, seed: int,
) -> Change | None:  # fmt: skip
    """The smallest change found, looked for from worlds with these seconds (worlds, methods)."""
    inputs = tuple(name for name in drawn if name not in (SEED, TRANSPORT))
    leader = int(np.argmin(base))
    contest = Contest(race, inputs, leader, np.flatnonzero(base != base[leader]))
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
    leader, race = contest.leader, contest.race
    metric, value = race.contenders[None][leader].target
    shown = [_time(race.scenario(World(factors), k), metric, value) for k in (leader, after)]
    within = all(drawn[name].allows(factor) for name, factor in factors.items())
    size = float(np.linalg.norm(np.log(list(factors.values()))))
    return Change(factors, names[leader], names[after], size, within, (shown[0], shown[1]))


def _time(scenario: Scenario, metric: str, value: float) -> float:
    """When s a run of the scenario meets the target; inf: never, as when it comes to a stop."""
    try:
        return float(played(scenario).time_to(metric, value))
    except RunError:
        return np.inf
