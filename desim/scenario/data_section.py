"""The section `problem.data`: where the rows come from and how they are prepared."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    PlainValidator,
    SerializeAsAny,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from desim.errors import refusal, show, spelling
from desim.fields import Count, File, Flag, Fraction, NonNegative, Positive, Several, Strict, Text

PER_KIND: dict[str, dict[str, Any]] = {
    "classification": {
        "intercept": True,
        "informative": 2,
        "clusters": 2,
        "separation": 1.0,
        "flip": 0.01,
    },
    "regression": {"intercept": False, "noise": 0.1},
}


class Data(Strict):
    """What every source has: the split, and what is done to features before training."""

    source: str
    test: Fraction = 0.0
    """share of rows held out for testing"""
    scale: Literal["none", "standard", "minmax", "unit-ball"] = "none"
    """features: as they are, mean 0 and deviation 1, in [0, 1], or all rows in the unit ball"""
    normalize: Literal["none", "l2", "clip"] = "none"
    """each row: none, divided by its norm (l2), or by max(1, norm) (clip)"""
    intercept: Flag = False
    """put a feature that is always 1 in front"""

    @model_validator(mode="after")
    def _leaves_rows(self) -> "Data":
        if self.test == 1:
            raise ValueError("test: found 1; allowed: a fraction below 1, for rows to train on")
        return self


class Synthetic(Data):
    """Generated rows (scikit-learn's make_classification, or a noisy linear model)."""

    source: Literal["synthetic"]
    kind: Literal["classification", "regression"]
    """classification (labels -1, 1) or regression"""
    rows: Count
    """training rows of each agent"""
    dim: Count
    """features, the intercept included"""
    informative: Count | None = None
    """features that matter; default 2 in classification, all in regression"""
    clusters: Count | None = None
    """classification: clusters of each class (2)"""
    separation: Positive | None = None
    """classification: distance between the classes (1)"""
    flip: Fraction | None = None
    """classification: share of labels drawn at random (1 %)"""
    noise: NonNegative | None = None
    """regression: standard deviation of the noise in the label (0.1)"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, with the defaults of its kind."""
        written = super().mapping(data)
        kind = written.get("kind")
        return {**PER_KIND.get(kind, {}), **written} if isinstance(kind, str) else written

    @model_validator(mode="after")
    def _consistent(self) -> "Synthetic":
        for kind, keys in PER_KIND.items():
            for key in set(keys) - set(PER_KIND[self.kind]):
                if getattr(self, key) is not None:
                    raise ValueError(f"found {key} with kind {self.kind}; allowed with kind {kind}")
        features = self.dim - self.intercept
        if features < (self.informative or 1):
            found = f"{self.informative or 1} informative of {features} features"
            limit = "dim - 1, the intercept being one" if self.intercept else "dim"
            raise ValueError(f"found {found}; allowed: at most {limit}")
        classified = self.kind == "classification"
        if classified and 2 * (self.clusters or 2) > 2 ** (self.informative or 2):
            found = f"found {self.clusters} clusters with {self.informative} informative features"
            raise ValueError(f"{found}; allowed: clusters <= 2^(informative - 1)")
        return self


def _labels(value: object) -> tuple[str | int | float, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise ValueError(refusal(value, "a label, or a list of labels"))
    return tuple(values)


class Table(Data):
    """Rows that come in one table and are dealt to the agents by `problem.partition`."""

    positive: Annotated[tuple[str | int | float, ...], PlainValidator(_labels)] = ()
    """classification: the label, or list of labels, that becomes 1; every other becomes -1"""


class Bundled(Table):
    """A data set that comes with scikit-learn."""

    source: Literal["sklearn"]
    name: Literal["breast_cancer", "digits", "wine", "iris", "diabetes"]
    """the data set"""


class OpenML(Table):
    """A data set of openml.org, downloaded once and cached by scikit-learn."""

    source: Literal["openml"]
    name: Text | None = None
    """name of the data set; with id left out"""
    version: Count | None = None
    """version of the named data set"""
    id: Count | None = None
    """number of the data set; with name left out"""
    label: Text | None = None
    """column to predict; default: the data set's own"""

    @model_validator(mode="after")
    def _one_address(self) -> "OpenML":
        if (self.name is None) == (self.id is None):
            found = "neither" if self.name is None else "both"
            raise ValueError(f"found {found} of name and id; allowed: one of them")
        return self


class File_(Table):
    """A table in a file."""

    file: File
    """the file, relative to the scenario's folder"""
    label: Text
    """column to predict"""
    features: Several[Text] = ()
    """columns to learn from; default: every other numeric column"""


class Csv(File_):
    """A CSV file with a header line."""

    source: Literal["csv"]
    separator: Text = ","
    """what stands between columns"""


class Parquet(File_):
    """A Parquet file."""

    source: Literal["parquet"]


class Npz(Strict):
    """Arrays A (agents, rows, dim) and b (agents, rows), taken as they are."""

    source: Literal["npz"]
    file: File
    """the file, relative to the scenario's folder"""


SOURCES: dict[str, type[Strict]] = {
    "synthetic": Synthetic,
    "sklearn": Bundled,
    "openml": OpenML,
    "csv": Csv,
    "parquet": Parquet,
    "npz": Npz,
}
LATER = {"mnist-idx": "reading MNIST's own files; convert them to npz, csv or parquet"}


def _source(value: object, info: ValidationInfo) -> Strict:
    """The section of the class that `source` names."""
    if isinstance(value, Strict):
        return value
    allowed = f"source: {' | '.join(SOURCES)}"
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, f"a mapping with {allowed}"))
    source = value.get("source")
    if isinstance(source, str) and source in LATER:
        raise ValueError(f"source: not available yet: {LATER[source]}")
    if not isinstance(source, str) or source not in SOURCES:
        found = f"found source: {show(source)}" if "source" in value else "found no source"
        raise ValueError(f"{found}; allowed: {allowed}{spelling(source, SOURCES)}")
    return SOURCES[source].model_validate(dict(value), context=info.context)


class _Sources:
    """JSON Schema of the section: one option for each source."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        sections = SOURCES.values()
        return {"oneOf": [handler(section.__pydantic_core_schema__) for section in sections]}


DataSection = Annotated[SerializeAsAny[Strict], BeforeValidator(_source), _Sources]
