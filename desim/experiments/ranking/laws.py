"""By which factors worlds differ from a scenario: the law that each is drawn from."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from desim.arrays import Array
from desim.errors import InputError, refusal, show, spelling
from desim.fields.numbers import whole
from desim.scenario.load import read
from desim.scenario.scaled import INPUTS, TRANSPORTS

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
