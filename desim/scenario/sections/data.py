"""The section `problem.data`: where the rows come from and how they are prepared."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from desim.errors import refusal, show, spelling
from desim.fields import Count, File, Fraction, NonNegative, Positive, Strict
from desim.scenario.sections.examples import (
    Arrays,
    HuggingFace,
    ImageFolders,
    Plugged,
    TorchData,
)
from desim.scenario.sections.tables import (
    Bundled,
    Csv,
    Data,
    MnistIdx,
    MnistNpz,
    OpenML,
    Parquet,
    TestShare,
)
from desim.scenario.sections.text import TextFiles

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


class Synthetic(Data):
    """Generated rows (scikit-learn's make_classification, or a noisy linear model)."""

    examples = {"test": "20 %", "informative": 5, "clusters": 1, "separation": 2.0}

    source: Literal["synthetic"]
    kind: Literal["classification", "regression"]
    """classification (labels -1, 1) or regression"""
    rows: Count
    """training rows of each agent"""
    dim: Count
    """features, the intercept included"""
    test: TestShare = 0.0
    """share of rows for testing, generated on top of the training rows"""
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
            least = (self.informative or 1) + self.intercept
            inside = f"{self.informative or 1} informative" + " and the intercept" * self.intercept
            raise ValueError(f"found dim {self.dim}; allowed: at least {least}, {inside}")
        classified = self.kind == "classification"
        if classified and 2 * (self.clusters or 2) > 2 ** (self.informative or 2):
            found = f"found {self.clusters} clusters with {self.informative} informative features"
            raise ValueError(f"{found}; allowed: clusters <= 2^(informative - 1)")
        return self


class Npz(Strict):
    """Arrays A (agents, rows, dim) and b (agents, rows), taken as they are.

    And, if there are test rows, test_A (rows, dim) and test_b (rows,). A model takes any shapes:
    (agents, rows, ...).
    """

    examples = {"file": "arrays.npz"}

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
    "arrays": Arrays,
    "images": ImageFolders,
    "text": TextFiles,
    "torch": TorchData,
    "huggingface": HuggingFace,
    "plugin": Plugged,
    "mnist-idx": MnistIdx,
    "mnist-npz": MnistNpz,
}


def _source(value: object, info: ValidationInfo) -> Strict:
    """The section of the class that `source` names."""
    if isinstance(value, Strict):
        return value
    allowed = f"source: {' | '.join(SOURCES)}"
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, f"a mapping with {allowed}"))
    source = value.get("source")
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
