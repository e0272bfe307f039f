"""Study files: a base scenario, which of its keys vary over which values, and what to compare."""

import secrets
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, ValidationError
from pydantic import model_validator as together

from desim import units
from desim.errors import InputError, refusal
from desim.fields import Count, Flag, Strict, Text, Whole
from desim.fields.numbers import MAX_WHOLE, existing, finite, number, positive, whole
from desim.fields.strict import explain
from desim.scenario import varied
from desim.scenario.load import read
from desim.scenario.schema import SECTIONS, directory_name, without_null
from desim.scenario.sections.privacy import Delta, View
from desim.scenario.tree import from_python, named_file, require_mapping, scenarios, unfit
from desim.scenario.varied import Range, Vary

# The section of a study file that makes it a tuner's: what is looked for, over which keys.


LEARNING = ("tpe", "cmaes", "nsga2")  # samplers of Optuna
SECRET = 1 << 48  # seeds below can all be tried
DRAWN = "none, so that it is drawn, or one from 2^48 on: it tells how many runs there were"
LARGEST_SEED = 2**32 - 1  # of their random numbers
SPENT = ("time", "bytes", "rounds", "joules", "epsilon")
READ = {"time": units.seconds, "bytes": units.size, "rounds": positive, "joules": units.joules,
        "epsilon": positive}  # fmt: skip


def _target(value: object) -> dict[str, float]:
    found = varied.targets(value)
    if len(found) != 1 or len(next(iter(found.values()))) != 1:
        raise ValueError(refusal(value, "one metric with one value, as in {accuracy: 0.93}"))
    return {name: values[0] for name, values in found.items()}


def _least(value: object) -> tuple[str, ...]:
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    for one in several:
        if one not in SPENT:
            raise ValueError(refusal(one, f"{', '.join(SPENT)}, or a list of them", SPENT))
    if not several or len(set(several)) < len(several):
        raise ValueError(refusal(value, f"one or several of {', '.join(SPENT)}, each once"))
    return several


def _limits(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, "a mapping such as {epsilon: 3, bytes: 10 MB}"))
    found = {}
    for name, limit in value.items():
        if name not in READ:
            raise ValueError(refusal(name, ", ".join(SPENT), SPENT))
        try:
            found[name] = positive(READ[name](limit))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def _seeds(value: object) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    return tuple(whole(one, 0) for one in varied.expanded(value))


def _cap(value: object) -> float | Literal[False]:
    if value is False:
        return False
    return number(value, "false, or a number >= 1", lambda x: x >= 1.0)


def _mean(value: object) -> float:
    return number(
        value,
        f"a number above 1, at most {varied.MAX_VALUES}",
        lambda x: 1 < x <= varied.MAX_VALUES,
    )


class Charge(Strict):
    """The law of the number of runs of which the best is released, so that its price is known."""

    examples = {"law": "geometric", "mean": 20}

    law: Literal["geometric", "logarithmic", "poisson"]
    """of how many candidates are played: geometric (Liu and Talwar 2019), logarithmic or poisson
    (Papernot and Steinke 2022)"""
    mean: Annotated[float, PlainValidator(_mean)]
    """of that number"""


class Tune(Strict):
    """What `desim tune` looks for: the least of something until a target, over keys that vary."""

    examples = {
        "vary": {
            "policy": ["all", {"quorum": 8}],
            "algorithm.rho": {"log_uniform": [0.1, 10]},
            "algorithm.local.epochs": [1, 2, 5, 10],
        },
        "until": {"accuracy": 0.93}, "least": ["time", "epsilon"],
        "limits": {"epsilon": 3, "bytes": "10 MB"}, "seeds": "0..9", "cap": 4, "runs": 200,
    }  # fmt: skip

    vary: Annotated[
        Vary,
        PlainValidator(varied.vary),
        PlainSerializer(
            lambda found: {k: v.plain() if isinstance(v, Range) else v for k, v in found.items()}
        ),
    ]
    """dotted keys, each with a list of values or a range: uniform, log_uniform or integer [a, b]"""
    until: Annotated[dict[str, float], PlainValidator(_target)]
    """the target: a metric and its value"""
    least: Annotated[tuple[str, ...], PlainValidator(_least)] = ("time",)
    """what is to be small when the target is met, time, bytes, rounds, joules or epsilon; of
    several the front: candidates that no other one beats in all of them"""
    limits: Annotated[dict[str, float], PlainValidator(_limits)] = {}
    """a run that has spent more of these when the target is met counts as one that never met it"""
    seeds: Annotated[tuple[int, ...], PlainValidator(_seeds)] = tuple(range(10))
    """seeds that all candidates meet, in this order: one, a list, or a range such as 0..9"""
    runs: Count | None = None
    """at most so many runs (but for those that were cut off and may win), the fresh ones aside;
    default: 200"""
    sampler: Literal["random", "grid", "tpe", "cmaes", "nsga2"] = "random"
    """random, grid (all combinations), or one of Optuna's that learn: tpe, cmaes, nsga2"""
    seed: Whole | None = None
    """seed of the sampler; default: 0, but with charge drawn by the operating system and stored, as
    nobody may know how many runs there were"""
    batch: Count = 10
    """how many candidates are proposed together and race each other, whatever the workers"""
    race: Flag = True
    """drop a candidate as soon as a test over the seeds so far says it is worse than another"""
    cap: Annotated[float | Literal[False], PlainValidator(_cap)] = Field(default=4.0)
    """a run ends at so many times what the best took on its seed, where it can win no more; false:
    never"""
    fresh: Whole | None = None
    """on how many further seeds the best is played again; default: as many as there are seeds"""
    charge: Charge | None = None
    """the law of how many runs there are, for an epsilon of releasing the best of them; default:
    tuning is not charged"""

    @together(mode="after")
    def _fits(self) -> "Tune":
        if self.sampler == "grid":
            for key, one in self.vary.items():
                if isinstance(one, Range) and one.kind != "integer":
                    raise ValueError(
                        f"sampler: found grid with a range, vary.{key}; allowed: lists of values"
                    )
                if isinstance(one, Range) and one.high - one.low >= varied.MAX_VALUES:
                    most = f"ranges of at most {varied.MAX_VALUES} numbers"
                    raise ValueError(
                        f"sampler: found grid, and more in vary.{key}; allowed: {most}"
                    )
        if self.learns and (self.seed or 0) > LARGEST_SEED:
            allowed = f"at most {LARGEST_SEED} with {self.sampler}"
            raise ValueError(f"seed: {refusal(self.seed, allowed)}")
        if self.fresh_seeds and max(self.fresh_seeds) > MAX_WHOLE:
            raise ValueError(f"seeds: found {max(self.seeds)}, beyond which no seeds are left for "
                             "fresh runs; allowed: smaller ones, or fresh: 0")  # fmt: skip
        if self.sampler == "cmaes" and len(self.least) > 1:
            raise ValueError("sampler: found cmaes, which looks for one; allowed with several: "
                             "random, grid, tpe, nsga2")  # fmt: skip
        if self.charge is not None:
            self._check_charge()
        elif self.budget < len(self.seeds):
            allowed = f"at least {len(self.seeds)}, one candidate on all seeds"
            raise ValueError(f"runs: {refusal(self.budget, allowed)}")
        return self

    def _check_charge(self) -> None:
        """ValueError where the theorems about the best of a random number of runs say nothing."""
        written = self.model_fields_set.__contains__
        wrong = {
            "sampler": (self.sampler != "random", self.sampler, "random: candidates drawn alike"),
            "runs": (self.runs is not None, self.runs, "none: the law draws how many"),
            "least": (len(self.least) > 1, list(self.least), "one: one candidate is released"),
            "seeds": (len(self.seeds) > 1, f"{len(self.seeds)} seeds", "one, such as seeds: 0"),
            "fresh": (bool(self.fresh), self.fresh, "0: more runs are more releases"),
            "race": (self.race and written("race"), True, "false: no run looks at another"),
            "seed": (self.seed is not None and self.seed < SECRET, self.seed, DRAWN),
            "cap": (self.cap and written("cap"), self.cap, "false: no run looks at another"),
        }
        for key, (found, value, allowed) in wrong.items():
            if found:
                raise ValueError(f"{key}: {refusal(value, f'with charge {allowed}')}")

    @property
    def target(self) -> tuple[str, float]:
        """The metric and its value."""
        return next(iter(self.until.items()))

    @property
    def learns(self) -> bool:
        """Whether its sampler proposes by what earlier candidates came to."""
        return self.sampler in LEARNING

    @property
    def budget(self) -> int:
        """How many runs may be asked for before candidates end; charged: no such number."""
        return 200 if self.runs is None else self.runs

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """Seeds that no candidate was chosen by: the next ones after the largest."""
        if self.charge is not None:
            return ()
        wanted = len(self.seeds) if self.fresh is None else self.fresh
        return tuple(range(max(self.seeds) + 1, max(self.seeds) + 1 + wanted))


def secret_seed() -> int:
    """A seed that nobody finds by trying."""
    return secrets.randbelow(MAX_WHOLE - SECRET) + SECRET


def _level(value: object) -> float:
    level = finite(value)
    if not 0.5 <= level < 1.0:
        raise ValueError(refusal(value, "a number from 0.5 to below 1"))
    return level


def _base(value: object, info: Any) -> Any:
    if isinstance(value, Mapping | Path):
        return value
    if not isinstance(value, str):
        raise ValueError(refusal(value, "a scenario file, or a scenario written out"))
    try:
        return existing(value, info)
    except ValueError:
        if value in scenarios():
            return scenarios()[value]
        raise


class Terms(Strict):
    """`false`, or the terms in which epsilons are stated; left out: as the scenario has them."""

    examples = {"view": "eavesdropper", "delta": 1e-6, "relation": "agent"}

    off: bool = Field(False, alias="(off)", repr=False)
    view: View | None = None
    """what the adversary sees"""
    delta: Delta | None = None
    """probability that the epsilon does not hold"""
    relation: Literal["replace-one", "add-or-remove-one", "agent", "add-or-remove-agent"] | None = (
        None
    )
    """which data sets are neighbours"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """The terms; true: those of the scenario."""
        if isinstance(data, bool):
            return {} if data else {"(off)": True}
        if not isinstance(data, Mapping):
            raise ValueError(
                refusal(data, "true, false, or {view: ..., delta: ..., relation: ...}")
            )
        return data

    @property
    def stated(self) -> dict[str, Any]:
        """The terms that are not the scenario's, by name."""
        return self.model_dump(exclude_none=True, exclude={"off"})


class Profile(Strict):
    """What of a case is the method and what the problem, in expected times and profiles."""

    examples = {"methods": ["policy"]}

    methods: Annotated[
        tuple[str, ...], PlainValidator(varied.methods), PlainSerializer(lambda one: list(one))
    ] = ()
    """keys, sections or label that are the method's; default: algorithm, policy, participation,
    codec, or the label of an entry of the list that changes them; the others are the problem's"""


class Compare(Strict):
    """What is compared between cases, over the seeds that they have in common."""

    examples = {
        "targets": {"accuracy": [0.9, 0.93]}, "against": {"policy": "all"}, "level": 0.9,
        "epsilon": {"view": "coordinator", "delta": 1e-5},
    }  # fmt: skip

    targets: Annotated[dict[str, tuple[float, ...]], PlainValidator(varied.targets)] = {}
    """time, rounds, bytes and epsilon are taken until these values; default: stop.metric"""
    stays: Flag = False
    """count a target as met from when on it is met to the run's end, not at the first touch"""
    against: Annotated[dict[str, Any], PlainValidator(varied.against)] = {}
    """values of the cases that the others are held against, or {label: ...}; default: the first"""
    epsilon: Annotated[
        Terms, PlainSerializer(lambda terms: terms.stated if not terms.off else False)
    ] = Terms.model_validate({})
    """false, or the terms of epsilons; default: those of the scenario's privacy"""
    level: Annotated[float, PlainValidator(_level)] = 0.95
    """of the confidence intervals"""
    profile: Annotated[
        Profile, PlainSerializer(lambda one: {"methods": list(one.methods)} if one.methods else {})
    ] = Profile()
    """what is a method in expected running times and performance profiles"""


class Search(Strict):
    """Keys drawn at random, `trials` times; a trial's values depend on nothing but its number."""

    examples = {
        "trials": 20, "seed": 1,
        "draw": {"algorithm.rho": {"log_uniform": [0.1, 10]}, "seed": {"integer": [0, 99]}},
    }  # fmt: skip

    trials: Count
    """how many cases are drawn"""
    draw: Annotated[dict[str, dict[str, Any]], PlainValidator(varied.laws)]
    """law of each dotted key: uniform, log_uniform, integer [a, b], or choice [...]"""
    seed: Whole = 0
    """seed of these draws"""


def _require_not_set(settings: Mapping[str, Any], keys: Collection[str], varies: str) -> None:
    for key in settings.keys() & {*keys}:
        raise ValueError(f"found {key} in set, though {varies.format('it')}; allowed: one of both")
    for key, outer in [inner] if (inner := varied.inside(settings, keys)) else []:
        raise ValueError(
            f"found {key} in set, though {varies.format(outer)}; allowed: in its values"
        )


class StudyFile(Strict):
    """A study as it is written: grid x list x random are its cases, `seed` repeats each of them."""

    examples = {
        "name": "waiting", "base": "quickstart", "set": {"stop.time": "60 s"},
        "grid": {"policy": ["all", {"quorum": 8}], "seed": "0..19"},
        "list": [{"label": "slow at times", "compute.slow.factor": 10}],
        "random": {"trials": 20, "draw": {"algorithm.rho": {"log_uniform": [0.1, 10]}}},
        "compare": {"targets": {"accuracy": 0.93}, "against": {"policy": "all"}},
    }  # fmt: skip

    name: Annotated[Text, BeforeValidator(directory_name)]
    """name of the study; default: the file's name"""
    base: Annotated[
        Any, PlainValidator(_base), PlainSerializer(lambda x: str(x) if isinstance(x, Path) else x)
    ]
    """the scenario that the keys below change: a file, a scenario that comes with desim by its
    name, or one written out"""
    set: Annotated[dict[str, Any], PlainValidator(varied.settings)] = {}
    """values by dotted key for all cases"""
    grid: Annotated[dict[str, tuple[Any, ...]], PlainValidator(varied.grid)] = {}
    """every combination of the values of these dotted keys; ranges such as seed: [0..99]"""
    list: Annotated[tuple[dict[str, Any], ...], PlainValidator(varied.entries)] = ({},)
    """cases written out: mappings of dotted keys, each perhaps with a label"""
    random: Search | None = None
    """a random search over dotted keys"""
    compare: Compare = Compare()
    """what is compared"""
    tune: Tune | None = None
    """of a file for `desim tune`, which has no grid, list and random: what is looked for"""

    @property
    def named_base(self) -> Any:
        """The base scenario, called like the study where it is written out."""
        return {"name": self.name, **self.base} if isinstance(self.base, Mapping) else self.base

    @together(mode="after")
    def _each_key_once(self) -> "StudyFile":
        listed = {key for entry in self.list for key in entry} - {"label"}
        drawn = set(self.random.draw) if self.random else set()
        for key in (set(self.grid) & (listed | drawn)) | (listed & drawn):
            raise ValueError(f"found {key} in two of grid, list and random; allowed: in one")
        varies = {*self.grid, *listed, *drawn}
        _require_not_set(self.set, varies, "{} varies")
        return self

    @together(mode="after")
    def _one_or_the_other(self) -> "StudyFile":
        if self.tune is None:
            return self
        compared = {"targets": "tune.until", "against": "none, as candidates race each other"}
        found = {f"compare.{key}": other for key, other in compared.items()
                 if getattr(self.compare, key)}  # fmt: skip
        others = {"grid": bool(self.grid), "list": self.list != ({},), "random": bool(self.random)}
        found |= {key: "tune.vary" for key, there in others.items() if there}
        for key, other in found.items():
            raise ValueError(f"found {key} beside tune; allowed: {other}")
        _require_not_set(self.set, self.tune.vary, "tune varies {}")
        return self


def study_schema() -> dict[str, Any]:
    """JSON Schema of a study file, for editors."""
    schema = StudyFile.model_json_schema(by_alias=False)
    schema["required"].remove("name")
    epsilon = schema["$defs"]["Compare"]["properties"]["epsilon"]
    terms = {"$ref": epsilon.pop("$ref")}
    epsilon |= {"anyOf": [{"type": "boolean"}, terms], "default": True}
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "desim study"}
    return {**without_null(schema), **title}


def _null(data: Any, place: tuple[Any, ...]) -> bool:
    """Whether null is there and says nothing: a value of a scenario's key leaves that key out."""
    if place[0] not in ("name", "tune", "compare", "random") or place[1:2] in (
        ("vary",),
        ("draw",),
    ):
        return False
    if place[:2] == ("compare", "against"):
        return False
    for key in place:
        data = data[key]
    return data is None


def check_overrides(keys: Iterable[str], others: Collection[str], owner: str) -> None:
    """InputError for keys that the study or tuner varies, or that are its file's own."""
    own = set(StudyFile.model_fields) - set(SECTIONS)
    for key in keys:
        if key in others:
            raise InputError(f"override {key}: {owner} varies it; allowed: other keys")
        if key.partition(".")[0] in own:
            allowed = "keys of the scenario, as in algorithm.rho; change this one in the file"
            raise InputError(f"override {key}: is a key of {owner}'s file; allowed: {allowed}")
    for key, outer in [inner] if (inner := varied.inside(keys, others)) else []:
        raise InputError(f"override {key}: {owner} varies {outer}; allowed: other keys")


def read_study(source: str | Path | Mapping[str, Any]) -> tuple[StudyFile, Path]:
    """The study of a file, name or dict, and where its file names count from; or InputError."""
    if isinstance(source, Mapping):
        tree, folder, name = from_python(source), Path(), "study"
    else:
        path = named_file(source, "study")
        tree, folder, name = read(path), path.parent, path.name.split(".")[0]
    require_mapping(tree, f"a study, which is a mapping with {', '.join(StudyFile.keys())}")
    if "base" not in tree.data and {"problem", "algorithm"} & set(tree.data):
        raise InputError(
            f"{tree.source}: is a scenario; allowed: a study, whose key base names one"
        )
    tree.data.setdefault("name", name)
    null = {place: text for place, text in unfit(tree.data) if _null(tree.data, place)}
    problems = [tree.line(place, text) for place, text in [*tree.problems, *null.items()]]
    try:
        study = StudyFile.model_validate(tree.data, context={"folder": folder.resolve()})
    except ValidationError as error:
        for details in error.errors(include_url=False):
            if details["loc"] not in null:
                problems.append(tree.line(details["loc"], explain(details, StudyFile)))
        raise InputError(problems) from None
    if problems:
        raise InputError(problems)
    return study, folder.resolve()
