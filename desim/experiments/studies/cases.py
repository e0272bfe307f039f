"""The cases of a study, each a scenario of its own."""

import hashlib
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from desim.errors import InputError, show, spelling
from desim.experiments.studies.sides import marked, short_setting, sided
from desim.fields.numbers import whole
from desim.runs.reading.series import setting_text
from desim.scenario.load import load, resolved_yaml, seeded
from desim.scenario.noise_target import require_measured
from desim.scenario.schema import Scenario
from desim.scenario.study_file import Search, StudyFile
from desim.scenario.varied import MAX_VALUES

# The cases: every combination of values, with all seeds.
MAX_NAMED = 8  # values or labels that an error names

DIGITS = 16  # of the hash that names a run's directory


@dataclass(frozen=True)
class Case:
    """One scenario up to its seed: `values` are its own keys, as the study file writes them.

    name: of the entry in the study's list, "" for none; the keys in `listed` are that entry's.
    """

    number: int
    label: str
    values: Mapping[str, Any]
    seeds: tuple[int, ...]
    scenario: Scenario
    name: str = ""
    listed: frozenset[str] = frozenset()

    @property
    def rest(self) -> dict[str, Any]:
        """The values that are not those of the list's entry."""
        return {key: value for key, value in self.values.items() if key not in self.listed}

    def texts(self) -> Iterator[tuple[int, str]]:
        """Every seed with the resolved scenario that has it."""
        text = resolved_yaml(self.scenario)
        yield from ((seed, seeded(text, seed)) for seed in self.seeds)


def key_of(text: str) -> str:
    """The name of the directory of a run: the first digits of its resolved scenario's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def cases(study: StudyFile, folder: Path) -> list[Case]:
    """All cases, loaded and checked; InputError with what is wrong with any of them."""
    drafts = _drafts(study)
    found: list[Case] = []
    problems: list[tuple[str, str]] = []
    for number, (name, listed, values, several) in enumerate(drafts):
        named = listed if name else ()
        rest = [short_setting(k, v) for k, v in values.items() if k not in named]
        label = ", ".join([name, *rest] if name else rest)
        try:
            seeds = tuple(_seed(seed) for seed in several)
            first = {"seed": seeds[0]} if seeds else {}
            scenario = load(study.named_base, {**study.set, **values, **first}, folder)
            require_measured(scenario, "a study")
            wanted = seeds or (scenario.seed,)
            found.append(Case(number, label, values, wanted, scenario, name, listed))
        except InputError as error:
            problems += [(label, text) for text in error.problems]
    if problems:
        raise InputError(each_once(problems, len(drafts)))
    return found


def _seed(value: object) -> int:
    try:
        return whole(value, 0)
    except ValueError as error:
        raise InputError(f"seed: {error}") from None


def require_built(
    scenarios: Mapping[str, Scenario], what: str, tell: Callable[[int, int], None]
) -> None:
    """Build scenarios, by label; InputError with what is wrong with any of them.

    Values that fit their keys may not fit the data or the network. tell: how many of how many are
    built; what: the word for one of them.
    """
    from desim.scenario.build import check  # brings numba

    problems: list[tuple[str, str]] = []
    for number, (label, scenario) in enumerate(scenarios.items(), 1):
        try:
            check(scenario)
        except InputError as error:
            problems += [(label, text) for text in error.problems]
        tell(number, len(scenarios))
    if problems:
        raise InputError(each_once(problems, len(scenarios), what))


def each_once(problems: list[tuple[str, str]], cases: int, what: str = "case") -> list[str]:
    """Each problem once, with the case where not all cases have it."""
    found: dict[str, list[str]] = {}
    for label, text in problems:
        found.setdefault(text, []).append(label)
    return [
        text if len(labels) == cases else f"{what} {labels[0] or 'base'}: {text}"
        for text, labels in found.items()
    ]


def _drafts(study: StudyFile) -> list[tuple[str, frozenset[str], dict[str, Any], list[Any]]]:
    """Name, keys of the list's entry, values and seeds of each case.

    Settings that differ in nothing but the seed are one case.
    """
    found: dict[str, tuple[str, frozenset[str], dict[str, Any], list[Any]]] = {}
    trials = 1 if study.random is None else study.random.trials
    runs = math.prod([len(study.list), trials, *map(len, study.grid.values())])
    if runs > MAX_VALUES:  # before any is drawn: that takes a minute for a million
        raise InputError(f"study: found {runs} runs; allowed: at most {MAX_VALUES}")
    for entry, settings in _settings(study):
        name = str(entry.get("label", ""))
        values = {key: value for key, value in settings.items() if key != "seed"}
        draft = name, frozenset(entry) - {"label"}, values, list[Any]()
        seeds = found.setdefault(name + repr(values), draft)[3]
        seeds += [settings["seed"]] if "seed" in settings else []
    return list(found.values())


def _settings(study: StudyFile) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every combination of an entry of the list, a trial and the grid's values; its entry first."""
    trials: list[dict[str, Any]] = [{}]
    if study.random is not None:
        trials = [drawn(study.random, trial) for trial in range(study.random.trials)]
    for entry, trial in itertools.product(study.list, trials):
        own = {key: value for key, value in entry.items() if key != "label"}
        for values in itertools.product(*study.grid.values()):
            yield entry, {**own, **trial, **dict(zip(study.grid, values, strict=True))}


def drawn(search: Search, trial: int) -> dict[str, Any]:
    """Values of one trial: a function of the search's seed, the trial's number and each key."""
    found: dict[str, Any] = {}
    for key, law in search.draw.items():
        name, terms = next(iter(law.items()))
        rng = np.random.default_rng([search.seed, trial, zlib.crc32(key.encode())])
        if name == "choice":
            found[key] = terms[int(rng.integers(len(terms)))]
        elif name == "integer":
            found[key] = int(rng.integers(terms[0], terms[1], endpoint=True))
        elif name == "uniform":
            found[key] = float(rng.uniform(terms[0], terms[1]))
        else:
            found[key] = float(np.exp(rng.uniform(*np.log(terms))))
    return found


def check_methods(study: StudyFile, cases: Sequence[Case]) -> None:
    """Raise InputError for keys of the method, in compare.profile, that no case differs in."""
    if study.compare.profile.methods:
        listed = frozenset(key for entry in study.list for key in entry) - {"label"}
        known = [{**({"label": case.name} if case.name else {}), **case.values} for case in cases]
        try:
            sided(known, listed, study.compare.profile.methods)
        except InputError as error:
            raise InputError(f"compare.profile.{error}") from None


def opponents(cases: Sequence[Case], against: Mapping[str, Any]) -> list[tuple[Case, Case]]:
    """Every case with the one that it is held against: the first, or as `against` says.

    against: values by dotted key; a case's opponent is equal to it in all other keys. Or the label
    of an entry of the study's list: the opponent has the same other values. InputError where
    nobody has an opponent.
    """
    if not against:
        return [(case, cases[0]) for case in cases[1:]]
    label = against.get("label")  # which stands for the keys of its entry
    by_label = {marked(case.rest): case for case in cases if case.name == label}
    known = {marked(case.values): case for case in cases} if label is None else by_label
    marks = (marked({**case.values, **against} if label is None else case.rest) for case in cases)
    pairs = ((case, known.get(mark)) for case, mark in zip(cases, marks, strict=True))
    found = [(case, one) for case, one in pairs if one is not None and one.number != case.number]
    if found:
        return found
    near = spelling(against["label"], _named(cases)) if "label" in against else ""
    raise InputError(
        f"compare.against: found {show(dict(against))}, from which no case differs in these keys "
        f"alone; allowed: {_allowed(cases, against)}{near}"
    )


def _named(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(case.name for case in cases if case.name))


def _allowed(cases: Sequence[Case], against: Mapping[str, Any]) -> str:
    """The labels that cases have, or the values that they have of the keys that are asked for."""
    if "label" in against:
        names = _named(cases)
        return (
            f"label: {' or '.join(names[:MAX_NAMED])}" if names else "no label, as no case has one"
        )
    parts = []
    for key in against:
        values = list(dict.fromkeys(setting_text(case.values[key]) for case in cases
                                    if key in case.values))  # fmt: skip
        some = " or ".join(map(str, values[:MAX_NAMED])) + (
            " or ..." if len(values) > MAX_NAMED else ""
        )
        parts.append(f"{key}: {some}" if values else f"no {key}, which no case changes")
    return ", ".join(parts)
