"""The candidates of a tuner with their scenarios, and the checks of its file before it begins."""

import contextlib
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from desim.amounts import epsilon as epsilon_text
from desim.errors import InputError, refusal, require
from desim.experiments.studies.cases import Case, each_once
from desim.experiments.studies.folder import from_file
from desim.experiments.studies.sides import short
from desim.experiments.studies.trials import Asked
from desim.experiments.tuning import RACING
from desim.experiments.tuning.sampling import Grid, Learning, Random, Sampler, size
from desim.log.event_log import levels_with
from desim.privacy.accounting.accountants import UNBOUNDED, Account
from desim.privacy.accounting.selection import drawn, epsilon_of_best
from desim.runs.premises import terms_of
from desim.runs.privacy import foreseen
from desim.runs.reading.series import setting_text
from desim.runs.run import Run
from desim.scenario.checks.chargeable import unchargeable
from desim.scenario.load import load
from desim.scenario.noise_target import require_measured
from desim.scenario.schema import Scenario
from desim.scenario.study_file import (
    Charge,
    StudyFile,
    Tune,
    check_overrides,
    read_study,
    secret_seed,
)
from desim.scenario.varied import Range, Vary


@dataclass
class Candidate:
    """Values by dotted key, how they fare, and why; `at` so many seeds it was decided.

    scenario: None where the values make none.
    """

    number: int
    values: Mapping[str, Any]
    scenario: Scenario | None
    status: str = RACING
    reason: str = ""
    at: int = 0

    @property
    def label(self) -> str:
        """The values by the ends of their keys."""
        return ", ".join(f"{short(key)} {setting_text(one)}" for key, one in self.values.items())

    def case(self, seeds: tuple[int, ...]) -> Case:
        """The candidate as a case of a study that was played with these seeds."""
        assert self.scenario is not None
        return Case(self.number, self.label or "base", self.values, seeds, self.scenario)


def scenario_of(study: StudyFile, folder: Path, values: Mapping[str, Any]) -> Scenario:
    """The scenario of a candidate; InputError with all that is wrong with it."""
    base = study.named_base
    found = load(base, settings := {**study.set, **values}, folder)
    if study.tune is not None and study.tune.charge is not None and _noised_next(found):
        found = load(base, {**settings, "observe.models": "released"}, folder)
    require_measured(found, "a tuner")
    return found


def _noised_next(scenario: Scenario) -> bool:
    """Whether its metrics are of models that agents release next, and could be of these."""
    own = scenario.kind != "coordinator" and scenario.observe.models == "own"
    return own and scenario.algorithm.method.shows() == "next"


def checked(study: StudyFile, folder: Path, vary: Vary) -> dict[str, Scenario]:
    """Scenarios by label in which each value of each key occurs once, beside the others' first.

    InputError with what is wrong with any of them, so that nothing is played before. Values that
    fit alone and not together are found when they are proposed.
    """
    some = {key: one.some if isinstance(one, Range) else one for key, one in vary.items()}
    first = {key: values[0] for key, values in some.items()}
    tried: dict[str, dict[str, Any]] = {}
    for key, several in some.items():
        for value in several:
            tried.setdefault(repr({**first, key: value}), {**first, key: value})
    found: dict[str, Scenario] = {}
    problems: list[tuple[str, str]] = []
    for values in tried.values():
        label = Candidate(0, values, None).label
        try:
            found[label] = scenario_of(study, folder, values)
        except InputError as error:
            problems += [(label, text) for text in error.problems]
    if problems:
        raise InputError(each_once(problems, len(tried), "candidate"))
    return found


# The file of a tuner: read, and checked in all that can be checked before anything is played.


@dataclass(frozen=True)
class Planned:
    """A tuner that can begin: base is the scenario that its keys change."""

    study: StudyFile
    folder: Path
    asked: Asked
    sampler: Sampler
    base: Candidate
    possible: tuple[Account, ...] = ()  # what each candidate's runs may cost at most, if charged

    @property
    def tune(self) -> Tune:
        """The section tune."""
        assert self.study.tune is not None
        return self.study.tune

    @property
    def size(self) -> float:
        """How many candidates there are; inf for a range without steps."""
        return size(self.tune.vary)

    def each_value(self) -> dict[str, Scenario]:
        """Scenarios by label, as `checked` has them."""
        return checked(self.study, self.folder, self.tune.vary)

    def lines(self) -> list[str]:
        """What is looked for, in lines."""
        tune, (metric, value) = self.tune, self.tune.target
        lines = [f"{self.study.name}: least {' and '.join(tune.least)} to {metric} {value:g}"]
        for key, one in tune.vary.items():
            lines.append(f"  {key}: {setting_text(one.plain() if isinstance(one, Range) else one)}")
        many = "no end of" if self.size == math.inf else f"{self.size:g}"
        return [
            *lines,
            f"  {many} candidates, {len(tune.seeds)} seeds, sampler {tune.sampler}, at most "
            f"{tune.budget} runs",
        ]


def planned(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    path: Path | None = None,
) -> Planned:
    """Read and check a tuner's file; InputError with all that is wrong, if anything.

    path: where an earlier call may have stored the seed that it has drawn.
    """
    study, folder = read_study(source)
    tune = study.tune
    if tune is None:
        raise InputError("tune: missing; allowed: a study file whose section tune says what is "
                         "looked for (desim study plays one without)")  # fmt: skip
    check_overrides(overrides or {}, tune.vary, "the tuner")
    if tune.seed is None:
        tune = tune.model_copy(update={"seed": _seed(tune, path)})
    settings = {**study.set, **(overrides or {})}
    study = study.model_copy(update={"set": settings, "tune": tune})
    some = checked(study, folder, tune.vary)
    base = Candidate(-1, {}, scenario_of(study, folder, {}))
    epsilon = "epsilon" in {*tune.least, *tune.limits}
    terms = study.compare.epsilon.stated if epsilon and not study.compare.epsilon.off else None
    asked = Asked((tune.target,), terms, study.compare.stays)
    problems = [*_unmeasured(some, tune, asked, epsilon)]
    if tune.charge is not None:
        lines = (text for one in some.values() for text in unchargeable(one, tune.target[0]))
        problems += dict.fromkeys(lines)
    if problems:
        raise InputError(problems)
    possible = foreseen_of(study, folder) if tune.charge is not None else ()
    return Planned(study, folder, asked, sampler_of(tune), base, possible)


def _seed(tune: Tune, path: Path | None) -> int:
    """The sampler's seed where the file has none; of a charged tuner a secret one, drawn once."""
    if tune.charge is None:
        return 0
    with contextlib.suppress(InputError):
        if path is not None:
            return int(from_file(path, lambda file: file["study"]["tune"]["seed"]))
    return secret_seed()


def _unmeasured(
    some: Mapping[str, Scenario], tune: Tune, asked: Asked, epsilon: bool
) -> Iterator[str]:
    """What is asked for and cannot be measured."""
    metric = tune.target[0]
    lacking = [label for label, one in some.items() if metric not in one.observe.metrics]
    if lacking:
        observed = some[lacking[0]].observe.metrics
        allowed = ", ".join(observed) or "none, as observe.metrics says"
        where = "" if len(lacking) == len(some) else f"candidate {lacking[0]}: "
        yield f"{where}tune.until: {refusal(metric, allowed, observed)}"
    if epsilon and asked.epsilon is None:
        yield "tune: found epsilon in least or limits, and compare.epsilon: false; allowed: one"
    elif epsilon and not asked.epsilon and all(one.privacy is None for one in some.values()):
        yield (
            "tune: found epsilon in least or limits, and no privacy; allowed: a scenario with the "
            "section privacy, or terms in compare.epsilon"
        )
    powered = [one for one in some.values() if one.compute.power or one.network.power]
    if "joules" in {*tune.least, *tune.limits}:
        if len(powered) < len(some):
            allowed = "a scenario with compute.power or network.power"
            yield f"tune: found joules in least or limits, and no watts; allowed: {allowed}"
        if any(one.log != "all" for one in powered):
            yield "log: found events left out, and joules in tune; allowed: all"
    counted = {*levels_with(["deliver"])}
    if "bytes" in {*tune.least, *tune.limits}:
        levels = sorted({one.log for one in some.values()} - counted)
        if levels:
            allowed = ", ".join(sorted(counted))
            yield f"log: found {levels[0]}, and bytes in tune; allowed: {allowed}"


def sampler_of(tune: Tune) -> Sampler:
    """The sampler that the file asks for; InputError where its package is not installed."""
    if tune.sampler == "grid":
        return Grid(tune.vary)
    if tune.learns:
        require("tune.sampler", "optuna", "tune")
        if tune.sampler == "cmaes":
            require("tune.sampler", "cmaes", "tune")
        return Learning(tune)
    return Random(tune.vary, tune.seed or 0, again=tune.charge is not None)


# The epsilon of releasing the best of a random number of runs, for a tuner with `charge`.


@dataclass(frozen=True)
class Price:
    """What the best run's release costs, beside one run alone, in which terms.

    one: the largest epsilon that a run's own may be; best: that of releasing the best; runs: how
    many were drawn.
    """

    one: float
    best: float
    runs: int
    law: str
    mean: float
    view: str
    relation: str
    delta: float
    method: str
    notes: tuple[str, ...]

    def text(self) -> str:
        """The price in words, one line."""
        return (
            f"releasing the best of {self.runs} runs, a number of the {self.law} law of mean "
            f"{self.mean:g}: epsilon {epsilon_text(self.best)} "
            f"(one run alone {epsilon_text(self.one)}); view {self.view}, {self.relation}, "
            f"delta {self.delta:g}, {self.method}"
        )


def number_of_runs(charge: Charge, tune: Tune) -> int:
    """How many runs there are, by the law; the seed is secret, and so is the number."""
    assert tune.seed is not None
    rng = np.random.default_rng([tune.seed, zlib.crc32(b"charge")])
    return drawn(charge.law, charge.mean, rng)


MOST = 1000  # candidates of which each is costed before a tuner begins
LOWEST = ("privacy.noise.sigma", "algorithm.local.tau")  # least noise costs most
UNCOSTED = "found a range of {}, of which not every value can be costed; allowed: a list of values"


def foreseen_of(study: StudyFile, folder: Path) -> tuple[Account, ...]:
    """What a run of each candidate that may be drawn costs at most, from public numbers alone.

    Nobody may see in the price which candidates were drawn. InputError for ranges of which no
    value is known to cost most, and for candidates of which nobody can say what they release, or
    whose epsilons are in several terms: the price is in those of all.
    """
    assert study.tune is not None
    vary = dict(study.tune.vary)
    ranges = []
    for key, one in vary.items():
        if isinstance(one, Range) and one.kind != "integer":
            if key not in LOWEST:
                known = f"{{integer: [a, b]}}, ranges of {' and '.join(LOWEST)}"
                raise InputError(f"tune.charge: {UNCOSTED.format(key)}, {known}")
            ranges.append(key)
            vary[key] = one.ends[:1]
    if size(vary) > MOST:
        allowed = f"at most {MOST} with tune.charge, which costs each before it begins"
        raise InputError(f"tune.vary: {refusal(f'{size(vary):g} candidates', allowed)}")
    asked = study.compare.epsilon.stated
    terms = {key: one for key, one in asked.items() if key != "view"}
    found, stated = [], set()
    for values in Grid(vary).ask(MOST):
        try:
            scenario = scenario_of(study, folder, values)
        except InputError as error:  # it may be proposed, and never be played
            if ranges:  # but a larger value of the range may
                why = f"{UNCOSTED.format(ranges[0])}, as the least one may fail"
                raise InputError([f"tune.charge: {why}", *error.problems]) from None
            continue
        stated.add(terms_of(scenario)._replace(accountant=None, **asked))
        label = Candidate(0, values, None).label
        try:
            account = foreseen(scenario, **terms)
        except InputError as error:  # it could not be played
            raise InputError([f"candidate {label}: {text}" for text in error.problems]) from None
        if account is None:
            text = f"found candidate {label}, of which nobody can say what it releases at most"
            cure = "stop.rounds, with noise whose plan is known"
            raise InputError(f"tune.charge: {text}; allowed: {cure}")
        found.append(account)
    if len(stated) > 1:
        several = " and of ".join(sorted(f"{delta:g}, {x}, view {v}" for delta, v, x, _ in stated))
        text = f"found candidates of delta {several}"
        raise InputError(f"tune.charge: {text}; allowed: the same of all, as in compare.epsilon")
    return tuple(found)


def price(
    runs: Sequence[Run], charge: Charge, asked: Mapping[str, Any], possible: Sequence[Account]
) -> Price:
    """What releasing the best of the runs costs; at least one run.

    asked: terms; possible: the accounts of all candidates that might have been drawn, of which the
    most costly one counts. Runs count where they cost more than was foreseen, which they then say.
    """
    played = [run.account(**asked) for run in runs]
    most = (1.0 + 1e-8) * max(one.worst for one in possible)  # sums round
    accounts = [*possible, *(one for one in played if one.worst > most)]
    first = played[0]
    best, method = epsilon_of_best(accounts, charge.law, charge.mean)
    failed = [run for run in runs if run.status != "done"]
    if failed:
        best, method = np.inf, UNBOUNDED
    notes = [
        *(
            f"infinite: the run of seed {run.manifest['seed']} is {run.status}: where rows made it "
            "end, that it did tells of them"
            for run in failed
        ),
        "of the most costly candidate that might be drawn, in as many rounds as it may play: which "
        "ones were drawn does not show in it",
        "runs have noise of their own, test rows are public, and who made the release keeps the "
        "other runs, their number, all seeds and all else that they showed to itself",
    ]
    notes += dict.fromkeys(text for one in (*played, *possible) for text in one.flags)
    return Price(
        max(one.worst for one in accounts), best, len(runs), charge.law, charge.mean, first.view,
        first.relation, first.delta, method, tuple(notes),
    )  # fmt: skip
