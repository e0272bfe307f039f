"""The times of all methods in many worlds, and what these say of the order of the methods.

In one process or in several, the numbers are the same. What a world draws beside its factors is
addressed by the scenario's seed, the same for all methods and in all worlds: they differ by the
factors alone. Intervals of shares are Wilson's (1927), as if worlds were independent; points of
Sobol' lie more evenly, so that the intervals are rather too wide. First-order indices are those of
Saltelli et al. (2010, doi 10.1016/j.cpc.2009.09.018), total ones Jansen's (1999, doi
10.1016/S0010-4655(98)00154-4), as scipy has them, with a bootstrap over points.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri
from scipy.stats import qmc, sobol_indices

from desim.arrays import Array, Mask
from desim.errors import DesimError, InputError, refusal, show, spelling
from desim.experiments.pool import mapped
from desim.experiments.ranking.contenders import Contender, again
from desim.fields.numbers import whole
from desim.numerics.plain import at_once
from desim.scenario.load import read
from desim.scenario.scaled import INPUTS, TRANSPORTS, scaled
from desim.scenario.schema import Scenario

# By which factors worlds differ from a scenario: the law that each is drawn from.


SEED, TRANSPORT = "seed", "transport"
USUAL = (0.5, 2.0)  # ends of a factor that nothing is said of
RANGE = re.compile(r"\s*([^\s.][^\s]*?)\s*\.\.\s*(\S+)\s*")
FORMS = "LOW..HIGH, {uniform: [LOW, HIGH]}, {lognormal: SIGMA}, or none"


@dataclass(frozen=True)
class Law:
    """The law of a factor: loguniform or uniform (low, high), or lognormal (median 1, sigma)."""

    kind: str
    low: float
    high: float

    def of(self, shares: Array) -> Array:
        """Factors (n,) at shares (n,) of the probability, in (0, 1)."""
        if self.kind == "lognormal":
            return np.asarray(np.exp(self.high * ndtri(shares)))
        if self.kind == "uniform":
            return self.low + (self.high - self.low) * shares
        ends = np.log([self.low, self.high])
        return np.asarray(np.exp(ends[0] + (ends[1] - ends[0]) * shares))

    def allows(self, factor: float) -> bool:
        """Whether a factor is within the law's ends; of a lognormal one, within 2 sigma."""
        if self.kind == "lognormal":
            return bool(abs(np.log(factor)) <= 2.0 * self.high)
        return self.low <= factor <= self.high

    def __str__(self) -> str:
        if self.kind == "lognormal":
            return f"lognormal, sigma {self.high:g}"
        even = "" if self.kind == "uniform" else "log-"
        return f"{even}uniform x{self.low:g} to x{self.high:g}"


@dataclass(frozen=True)
class Choice:
    """One of several values, all as likely: seeds, or laws of transport."""

    values: tuple[Any, ...]

    def of(self, shares: Array) -> list[Any]:
        """Values (n,) at shares (n,) of the probability."""
        places = np.minimum((shares * len(self.values)).astype(int), len(self.values) - 1)
        return [self.values[k] for k in places]

    def allows(self, value: Any) -> bool:
        """Any value is one of them."""
        return True

    def __str__(self) -> str:
        if len(self.values) > 4:
            return f"one of {len(self.values)}: {self.values[0]} to {self.values[-1]}"
        return "one of " + ", ".join(map(str, self.values))


Vary = Mapping[str, Any] | str | Path | None
Laws = dict[str, Law | Choice]


def laws(vary: Vary = None) -> Laws:
    """The law of every input; vary: other ones by input, or a YAML file of them.

    A law is text LOW..HIGH, two numbers, a mapping such as {lognormal: 0.3}, or none, which holds
    the factor at 1; of transport words, as in ideal, tcp; of seeds FIRST..LAST. InputError for
    others.
    """
    asked = said(vary)
    known = (*INPUTS, TRANSPORT, SEED)
    usual = Law("loguniform", *USUAL)
    found: dict[str, Law | Choice | None] = dict.fromkeys(INPUTS, usual)
    problems = []
    for name, one in asked.items():
        if name not in known:
            problems.append(f"vary: {refusal(name, ', '.join(known), known)}")
            continue
        try:
            read = {SEED: _seeds, TRANSPORT: _transport}.get(name, _law)
            found[name] = None if one is None or one == "none" else read(one)
        except ValueError as error:
            problems.append(f"vary.{name}: {error}")
    if problems:
        raise InputError(problems)
    return {name: law for name in known if (law := found.get(name)) is not None}


def said(vary: Vary) -> dict[str, Any]:
    """The inputs of which something is said, and what."""
    found = read(Path(vary)).data if isinstance(vary, str | Path) else vary or {}
    if not isinstance(found, Mapping):
        raise InputError(f"{vary}: {refusal(found, 'a mapping such as latency: 0.1..10')}")
    return dict(found)


def _law(said: object) -> Law | None:
    if said == 1:
        return None
    if isinstance(said, str):
        said = _range(said, FORMS, float)
    if isinstance(said, Sequence):
        return _ends("loguniform", list(said))
    if isinstance(said, Mapping) and len(said) == 1:
        kind, numbers = next(iter(said.items()))
        if kind == "lognormal" and isinstance(numbers, int | float) and 0.0 < numbers < 10.0:
            return Law("lognormal", 1.0, float(numbers))
        if kind in ("uniform", "loguniform"):
            return _ends(kind, numbers)
    raise ValueError(refusal(said, FORMS))


def _range(said: str, forms: str, number: Any) -> list[Any]:
    with suppress(ValueError):
        if match := RANGE.fullmatch(said):
            return [number(match[1]), number(match[2])]
    raise ValueError(refusal(said, forms))


def _ends(kind: str, numbers: Any) -> Law:
    two = isinstance(numbers, list | tuple) and len(numbers) == 2
    fine = two and all(isinstance(x, int | float) and math.isfinite(x) for x in numbers)
    if not fine or not 0.0 < numbers[0] < numbers[1]:
        raise ValueError(f"found {show(numbers)}; allowed: two numbers, 0 < LOW < HIGH")
    return Law(kind, float(numbers[0]), float(numbers[1]))


def _seeds(said: object) -> Choice:
    forms = "FIRST..LAST, or a list of seeds"
    try:
        if isinstance(said, str):
            first, last = _range(said, forms, int)
            said = list(range(first, last + 1))
        seeds = tuple(whole(one, 0) for one in said) if isinstance(said, Sequence) else ()
    except ValueError:
        seeds = ()
    if len(set(seeds)) != len(seeds) or len(seeds) < 2:
        raise ValueError(refusal(said, f"{forms}, at least two"))
    return Choice(seeds)


def _transport(said: object) -> Choice:
    listed: list[Any] = list(said) if isinstance(said, list | tuple) else []
    listed = [one.strip() for one in said.split(",")] if isinstance(said, str) else listed
    words = [one for one in listed if one in TRANSPORTS]
    if not len(words) == len(set(words)) == len(listed) > 1:
        allowed = f"at least two of {', '.join(TRANSPORTS)}"
        odd = next((one for one in listed if one not in TRANSPORTS), None)
        raise ValueError(refusal(said, allowed) + spelling(odd, TRANSPORTS))
    return Choice(tuple(words))


FIRST = 0.5  # s for which this process plays worlds alone, to see how long they take
WORTH = 15.0  # s of worlds from which on to start others takes less
CHUNK = 0.25  # s of worlds that a process is given at a time
Progress = Callable[[int, int], None]


class World(NamedTuple):
    """Factors by input, the seed and the law of transport; None: the scenario's."""

    factors: dict[str, float]
    seed: int | None = None
    transport: str | None = None

    @property
    def chosen(self) -> dict[str, int | str]:
        """What it has chosen of several."""
        found = {"seed": self.seed, "transport": self.transport}
        return {name: one for name, one in found.items() if one is not None}


class Race:
    """All methods, by seed (None: their own): seconds of each in any world."""

    def __init__(self, contenders: dict[int | None, list[Contender]]) -> None:
        self.contenders = contenders
        self.alike = {}  # for each the first that draws the same network and devices
        for seed, own in contenders.items():
            drawn = [(one.agents, one.scenario.seed, one.scenario.kind, one.scenario.network,
                      one.scenario.compute) for one in own]  # fmt: skip
            self.alike[seed] = [drawn.index(one) for one in drawn]

    def seconds(self, world: World) -> list[float]:
        """When s each method meets the target in a world; inf: never."""
        found, drawn = [], dict[int, Any]()
        some = self.contenders[world.seed]
        for contender, first in zip(some, self.alike[world.seed], strict=True):
            if contender.way != "notes":
                found.append(contender.seconds(_in(contender, world)))
                continue
            if first not in drawn:
                drawn[first] = contender.conditions(_in(contender, world))
            found.append(contender.clocked(drawn[first]))
        return found

    def scenario(self, world: World, number: int) -> Scenario:
        """What method `number` is in a world."""
        return _in(self.contenders[world.seed][number], world)


def _in(contender: Contender, world: World) -> Scenario:
    return scaled(contender.by(world.transport), world.factors)


def times(
    race: Race, worlds: Sequence[World], workers: int, progress: Progress | None = None
) -> Array:
    """Seconds (worlds, methods) until the target; inf: never. workers: processes at most."""
    tell = progress or (lambda done, total: None)
    found, began = (
        np.full((len(worlds), len(race.contenders[worlds[0].seed])), np.nan),
        perf_counter(),
    )
    done = 0
    with at_once():
        for k, world in enumerate(worlds):
            found[k] = race.seconds(world)
            done = k + 1
            if done == 1:
                began = perf_counter()  # the first one may have compiled
                continue
            pace = (perf_counter() - began) / (done - 1)
            tell(done, len(worlds))
            if (
                workers > 1
                and perf_counter() - began > FIRST
                and pace * (len(worlds) - done) > WORTH
            ):
                break
        else:
            return found
    size = max(1, min(int(CHUNK / pace), (len(worlds) - done) // (4 * workers) + 1))
    parts = [worlds[first : first + size] for first in range(done, len(worlds), size)]
    plain = {seed: [one.plain for one in own] for seed, own in race.contenders.items()}
    for values in mapped(partial(_race_of, plain), _seconds, parts, workers):
        found[done : done + len(values)] = values
        done += len(values)
        tell(done, len(worlds))
    return found


def _race_of(plain: dict[int | None, list[dict[str, Any]]]) -> Race:
    """The same methods in another process."""
    return Race({seed: [again(one) for one in own] for seed, own in plain.items()})


def _seconds(race: Race, worlds: Sequence[World]) -> list[list[float]]:
    try:
        with at_once():
            return [race.seconds(world) for world in worlds]
    except DesimError as error:
        raise InputError(str(error)) from None


# In which share of the worlds an order of methods, or a first place, holds.
LEVEL = 1.959963984540054  # standard deviations of 95 %


def wilson(met: int, worlds: int) -> tuple[float, float]:
    """The ends of the interval of a share: met of so many worlds."""
    share, part = met / worlds, LEVEL**2 / worlds
    middle = share + part / 2
    spread = LEVEL * sqrt(share * (1.0 - share) / worlds + part / (4 * worlds))
    return max(0.0, (middle - spread) / (1 + part)), min(1.0, (middle + spread) / (1 + part))


def _share(met: Mask) -> dict[str, float]:
    """A share of the worlds (n,), its standard error and interval."""
    n, k = len(met), int(np.count_nonzero(met))
    low, high = wilson(k, n)
    return {"share": k / n, "error": sqrt(k / n * (1 - k / n) / n), "low": low, "high": high}


def order(labels: Sequence[str], seconds: Sequence[float]) -> str:
    """Methods by time, as in `led < fedlin = fedavg < (never: tamuna)`."""
    ranked = sorted(zip(seconds, range(len(labels)), strict=True))
    text, before = "", -1.0
    for needed, place in ranked:
        if needed < np.inf:
            sign = "" if not text else " = " if needed == before else " < "
            text, before = f"{text}{sign}{labels[place]}", needed
    never = [labels[place] for needed, place in ranked if needed == np.inf]
    last = f"(never: {', '.join(never)})" if never else ""
    return f"{text} < {last}" if text and last else text or last


def orders(labels: Sequence[str], seconds: Array) -> pd.DataFrame:
    """Each order that occurs in seconds (worlds, methods), the commonest first, with its share."""
    found = np.array([order(labels, row) for row in seconds.tolist()], object)
    counted = sorted(Counter(found.tolist()).items(), key=lambda one: (-one[1], one[0]))
    return pd.DataFrame([{"order": text, **_share(found == text)} for text, _ in counted])


def pairs(labels: Sequence[str], seconds: Array, base: Array) -> pd.DataFrame:
    """For each two methods, the faster in the scenario as it is first: where it is before.

    level: the share of worlds in which both are equal to the last bit, or neither gets there.
    """
    rows = []
    places = np.argsort(base, kind="stable").tolist()
    for k, i in enumerate(places):
        for j in places[k + 1 :]:
            level = np.mean(seconds[:, i] == seconds[:, j])
            holds = _share(seconds[:, i] < seconds[:, j])
            rows.append({"before": labels[i], "after": labels[j], **holds, "level": float(level)})
    return pd.DataFrame(rows)


def first(labels: Sequence[str], seconds: Array, base: Array) -> pd.DataFrame:
    """For each method, by time in the scenario as it is (base (methods,) s): where it is first.

    first alone, that is; never: the share of worlds in which it does not meet the target; median:
    of its seconds, infinite ones among them.
    """
    best = seconds.min(1)
    alone = (seconds == best[:, None]).sum(1) == 1
    rows = []
    for i in np.argsort(base, kind="stable").tolist():
        own = seconds[:, i]
        middle = float(np.quantile(own, 0.5, method="inverted_cdf"))
        won = _share(alone & (own == best) & (own < np.inf))
        never = float(np.mean(own == np.inf))
        rows.append(
            {"method": labels[i], "seconds": base[i], "median": middle, **won, "never": never}
        )
    return pd.DataFrame(rows)


# What each input contributes to a lead: Sobol' indices on scrambled Sobol' points.
RESAMPLES = 400
MAX_POINTS = 256  # points of an index, times (inputs + 2) worlds
KEY = 7301  # apart from the seed of the points


class Points(NamedTuple):
    """Shares of probability in (0, 1): first, second (n, inputs), and crossed (inputs, m, inputs).

    crossed[i] is first[:m] with column i of second.
    """

    first: Array
    second: Array
    crossed: Array

    @property
    def rows(self) -> Array:
        """All of them (2 n + inputs m, inputs), the worlds of shares first."""
        inputs = self.first.shape[1]
        return np.concatenate([self.first, self.second, self.crossed.reshape(-1, inputs)])


def points(inputs: int, worlds: int, seed: int) -> Points:
    """At least so many points for shares, a power of two, and those that indices need besides."""
    half = max(1, int(np.ceil(np.log2(max(worlds, 2) / 2))))
    drawn = qmc.Sobol(2 * inputs, scramble=True, seed=seed).random_base2(half)
    drawn = np.clip(drawn, 1e-12, 1.0 - 1e-12)
    first, second = drawn[:, :inputs], drawn[:, inputs:]
    some = min(len(drawn), MAX_POINTS)
    crossed = np.repeat(first[None, :some], inputs, axis=0)
    for i in range(inputs):
        crossed[i, :, i] = second[:some, i]
    return Points(first, second, crossed)


def indices(names: Sequence[str], found: Points, values: Array, seed: int) -> pd.DataFrame:
    """First-order and total index of each input, with standard errors and 95 % intervals.

    values: of the function at found.rows, finite. Empty where it is the same everywhere.
    """
    n, some = len(found.first), found.crossed.shape[1]
    first, second = values[:some], values[n : n + some]
    crossed = values[2 * n :].reshape(len(names), some)
    together = np.concatenate([first, second])
    if np.ptp(together) <= 1e-12 * max(1.0, float(np.abs(together).max())):
        return pd.DataFrame()
    best = _estimate(first, second, crossed)
    rng = np.random.default_rng([seed, KEY])
    again = [
        _estimate(first[k], second[k], crossed[:, k])
        for k in rng.integers(some, size=(RESAMPLES, some))
    ]
    spread = np.nanstd(again, axis=0)
    low, high = np.nanquantile(again, [0.025, 0.975], axis=0)
    rows = []
    for i, name in enumerate(names):
        row: dict[str, object] = {"input": name}
        for k, kind in enumerate(("first", "total")):
            row |= {
                kind: best[k, i], f"{kind}_error": spread[k, i],
                f"{kind}_low": low[k, i], f"{kind}_high": high[k, i],
            }  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows)


def _estimate(first: Array, second: Array, crossed: Array) -> Array:
    """Rows first order and total of indices (2, inputs)."""
    values = {"f_A": first[None], "f_B": second[None], "f_AB": crossed[:, None]}
    with np.errstate(all="ignore"):
        found = sobol_indices(func=values, n=len(first))
    return np.array([found.first_order.ravel(), found.total_order.ravel()])
