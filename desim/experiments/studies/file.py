"""Study files: a base scenario, which of its keys vary over which varied, and what to compare."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, ValidationError
from pydantic import model_validator as together

from desim.errors import InputError, refusal
from desim.experiments.studies import varied
from desim.experiments.studies.tuner import Tune
from desim.fields import Count, Flag, Strict, Text, Whole
from desim.fields.numbers import existing, finite
from desim.fields.strict import explain
from desim.scenario.load import read
from desim.scenario.schema import SECTIONS, directory_name, without_null
from desim.scenario.sections.privacy import Delta, View
from desim.scenario.tree import from_python, named_file, require_mapping, scenarios, unfit


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
    relation: Literal["replace-one", "add-or-remove-one", "agent"] | None = None
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
    def given(self) -> dict[str, Any]:
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
        Terms, PlainSerializer(lambda terms: terms.given if not terms.off else False)
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

    @together(mode="after")
    def _each_key_once(self) -> "StudyFile":
        listed = {key for entry in self.list for key in entry} - {"label"}
        drawn = set(self.random.draw) if self.random else set()
        for key in (set(self.grid) & (listed | drawn)) | (listed & drawn):
            raise ValueError(f"found {key} in two of grid, list and random; allowed: in one")
        varies = {*self.grid, *listed, *drawn}
        for key in self.set.keys() & varies:
            raise ValueError(f"found {key} in set, though it varies; allowed: one of both")
        if inner := varied.inside(self.set, varies):
            raise ValueError(
                "found {} in set, though {} varies; allowed: in its values".format(*inner)
            )
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
        for key in self.set.keys() & self.tune.vary.keys():
            raise ValueError(f"found {key} in set, though tune varies it; allowed: one of both")
        if inner := varied.inside(self.set, self.tune.vary):
            raise ValueError(
                "found {} in set, though tune varies {}; allowed: in its values".format(*inner)
            )
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


def check_overrides(keys: Iterable[str], others: Collection[str], whose: str) -> None:
    """InputError for keys that the study or tuner varies, or that are its file's own."""
    own = set(StudyFile.model_fields) - set(SECTIONS)
    for key in keys:
        if key in others:
            raise InputError(f"override {key}: {whose} varies it; allowed: other keys")
        if key.partition(".")[0] in own:
            allowed = "keys of the scenario, as in algorithm.rho; change this one in the file"
            raise InputError(f"override {key}: is a key of {whose}'s file; allowed: {allowed}")
    if inner := varied.inside(keys, others):
        key, outer = inner
        raise InputError(f"override {key}: {whose} varies {outer}; allowed: other keys")


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
