"""`desim.robust`: in how many worlds an order of methods holds, and what turns it over."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from desim.arrays import Array
from desim.errors import InputError, refusal
from desim.experiments.ranking.change import Change, rivals, turned
from desim.experiments.ranking.entrants import WORDS, Entrant, aimed, entered
from desim.experiments.ranking.given import Given, Source, differences, given, target_of
from desim.experiments.ranking.indices import Points, indices, points
from desim.experiments.ranking.laws import SEED, TRANSPORT, Choice, Law, Laws, Vary, laws, said
from desim.experiments.ranking.scaled import moved
from desim.experiments.ranking.standing import first, order, orders, pairs
from desim.experiments.ranking.worlds import Field, World, times
from desim.numerics.environment import cores

MOST = 1 << 20  # worlds
RARE = ("behind", "overhead")  # inputs that few scenarios have
Progress = Callable[[str, int, int], None]


@dataclass(eq=False, repr=False)
class Robust:
    """How far an order of methods can be trusted.

    methods: names; target: metric and value; laws: of the inputs that were varied; order: in the
    scenario as it is. Tables: first (a row for each method), orders, pairs: shares of the worlds;
    indices: of the inputs, for the log ratio of the times of `rivals`, second over first; worlds:
    one row each, its factors and the methods' seconds, infinite where the target is not met.
    change: the smallest that turns the first place over, None where none was found; notes: what
    else is to be said.
    """

    methods: tuple[str, ...]
    target: tuple[str, float]
    laws: Mapping[str, Law | Choice]
    order: str
    rivals: tuple[str, str]
    first: pd.DataFrame
    orders: pd.DataFrame
    pairs: pd.DataFrame
    indices: pd.DataFrame
    worlds: pd.DataFrame
    change: Change | None
    seed: int
    notes: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of worlds in which the whole order is that of the scenario as it is."""
        found = self.orders.loc[self.orders["order"] == self.order, "share"]
        return float(found.iloc[0]) if len(found) else 0.0

    def __repr__(self) -> str:
        share = f"{self.share:.1%} of {len(self.worlds)} worlds"
        return f"<Robust {self.order}: in {share}>"

    def text(self) -> str:
        """The table of the command line."""
        from desim.experiments.ranking.shown import shown

        return shown(self)


def robust(
    scenarios: Sequence[Source],
    target: Mapping[str, float],
    worlds: int = 1000,
    vary: Vary = None,
    seed: int = 0,
    workers: int | None = None,
    overrides: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Robust:
    """In how many worlds the order holds in which methods meet the target, and what turns it over.

    scenarios: files, names, loaded ones, runs, or studies, which stand for their cases; target:
    {"error": 1e-3}; worlds: how many, rounded up to a power of two; vary: laws of factors by input
    (see `ranking.laws`), by default 0.5..2; seed: of the worlds; workers: processes,
    by default one a core, whose number changes no result; overrides: dotted keys of all scenarios;
    progress: told what is done, how much of it and of how much. InputError where there is nothing
    to compare, or no method meets the target.
    """
    _check(worlds, seed, workers)
    aim, drawn, tell = target_of(target), laws(vary), progress or (lambda what, done, total: None)
    found = given(scenarios, overrides)
    notes = differences(found)
    found = [Given(one.label, aimed(one.scenario, aim)) for one in found]
    drawn = _that_matter(found, drawn, notes, said(vary))
    made = _entered(found, aim, drawn, tell)
    base = np.array(made.seconds(World({})))
    if not np.isfinite(base).any():
        metric, value = aim
        raise InputError(
            f"target {metric}: found {value:g}, which no method meets within its rounds and time; "
            "allowed: what one of them comes to"
        )
    notes += _of_ways(found, made.entrants[None])
    chosen = points(len(drawn), worlds, seed)
    every = _worlds(chosen, drawn)
    seconds = times(made, every, workers or cores(), lambda n, total: tell("worlds", n, total))
    return _found(found, aim, drawn, made, base, chosen, every, seconds, seed, notes, tell)


def _check(worlds: int, seed: int, workers: int | None) -> None:
    for name, value, least in (("worlds", worlds, 2), ("seed", seed, 0), ("workers", workers, 1)):
        if value is not None and (not isinstance(value, int) or value < least):
            raise InputError(f"{name}: {refusal(value, f'a whole number, at least {least}')}")
    if worlds > MOST:
        raise InputError(f"worlds: found {worlds}; allowed: at most {MOST}")


def _that_matter(
    found: Sequence[Given], drawn: Laws, notes: list[str], asked: Collection[str]
) -> Laws:
    """The laws of inputs that change something; notes: says which do not, of rare ones if asked."""
    some = {name for one in found for name in moved(one.scenario)} | {SEED, TRANSPORT}
    idle = [name for name in drawn if name not in some]
    for name in idle:
        if name in RARE and name not in asked:
            continue
        notes.append(f"{name}: left out, no scenario has any that a factor would change")
    left = {name: law for name, law in drawn.items() if name in some}
    if not left:
        raise InputError("vary: found no input that changes anything; allowed: at least one")
    return left


def _entered(found: Sequence[Given], aim: tuple[str, float], drawn: Laws, tell: Progress) -> Field:
    """All methods trained, on every seed that worlds may draw, and on their own (None)."""
    law = drawn.get(SEED)
    seeds = [None, *law.values] if isinstance(law, Choice) else [None]
    made: dict[int | None, list[Entrant]] = {}
    for k, seed in enumerate(seeds):
        made[seed] = []
        for j, one in enumerate(found):
            tell("trained", k * len(found) + j, len(seeds) * len(found))
            own = one.scenario
            own = own if seed is None else own.model_copy(update={"seed": seed})
            made[seed].append(entered(own, aim))
    return Field(made)


def _of_ways(found: Sequence[Given], entrants: Sequence[Entrant]) -> list[str]:
    """How the times of those were had that are not simply retimed, and why."""
    return [
        f"{one.label}: {WORDS[entrant.way]} ({entrant.why})"
        for one, entrant in zip(found, entrants, strict=True)
        if entrant.way in ("play", "never")
    ]


def _worlds(chosen: Points, drawn: Laws) -> list[World]:
    columns = {name: law.of(chosen.rows[:, i]) for i, (name, law) in enumerate(drawn.items())}
    factors = [name for name in columns if name not in (SEED, TRANSPORT)]
    return [
        World(
            {name: float(columns[name][k]) for name in factors},
            columns[SEED][k] if SEED in columns else None,
            columns[TRANSPORT][k] if TRANSPORT in columns else None,
        )
        for k in range(len(chosen.rows))
    ]


def _found(
    found: Sequence[Given], aim: tuple[str, float], drawn: Laws, made: Field, base: Array,
    chosen: Points, every: Sequence[World], seconds: Array, seed: int, notes: list[str],
    tell: Progress,
) -> Robust:  # fmt: skip
    names = tuple(one.label for one in found)
    shares = 2 * len(chosen.first)
    leader, rival = rivals(base)
    table = pd.DataFrame([{**one.factors, **one.chosen} for one in every[:shares]])
    table = table.assign(**{name: seconds[:shares, i] for i, name in enumerate(names)})
    values = seconds[:, rival], seconds[:, leader]
    sobol = pd.DataFrame()
    if np.isfinite(values).all() and rival != leader:
        sobol = indices(list(drawn), chosen, np.log(values[0] / values[1]), seed)
    else:
        never = int((~np.isfinite(seconds[:, [leader, rival]]).all(1)).sum())
        notes.append(
            f"no indices: {names[leader]} or {names[rival]} never meets the target in "
            f"{never} of {len(seconds)} worlds"
            if rival != leader
            else "no indices: all methods are level in the scenario as it is"
        )
    change = None
    if rival != leader:
        tell("smallest change", 0, 1)
        change = turned(names, drawn, made, base, every[:shares], seconds[:shares], seed)
        if change is None:
            notes.append("no change of the inputs was found that turns the first place over")
    return Robust(
        names, aim, drawn, order(names, base.tolist()), (names[leader], names[rival]),
        first(names, seconds[:shares], base), orders(names, seconds[:shares]),
        pairs(names, seconds[:shares], base), sobol, table, change, seed, notes,
    )  # fmt: skip
