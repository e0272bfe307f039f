"""The section `problem.data`: where rows, text and examples come from, and their preparation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    PlainValidator,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from desim.errors import refusal, show, spelling
from desim.fields import Count, File, Folder, Fraction, NonNegative, Positive, Several, Strict, Text
from desim.fields.numbers import wholes
from desim.problem.models.user_model import Dataset
from desim.scenario import registry
from desim.scenario.sections.tabular import (
    OWN_ROWS,
    TEST_KINDS,
    WRITTEN,
    Bundled,
    Csv,
    Data,
    MnistIdx,
    MnistNpz,
    OpenML,
    Parquet,
    Scale,
    Table,
    Test,
    TestShare,
    one_of,
    own_rows,
    quantity_or,
    refuse_other_tests,
    tested_by,
)

# Examples of any shape: arrays, images, data sets of libraries.

LIBRARIES = ("torchvision.datasets", "torchaudio.datasets")


class Examples(Table):
    """Rows of any shape; a loss that is no model's takes the numbers of each in one line."""

    examples = {"test": "20 %"}

    test: Test = 0.0
    """rows held out for testing: a share of all, {rows: n}, {column: ..., value: ...}, or own, a
    share of every agent's rows for its model; by default the test rows that the data bring, if they
    do, of which {rows: n} takes so many, and own none"""

    @property
    def tested(self) -> bool:
        """Whether there may be test rows: only the data know."""
        return True


class TestArrays(Strict):
    """Test rows in arrays of their own."""

    examples = {"inputs": "test_A", "labels": "test_b"}

    inputs: Text
    """the array of their inputs"""
    labels: Text
    """the array of their labels"""


def _test(value: object, info: ValidationInfo) -> Any:
    if isinstance(value, dict) and ("inputs" in value or "labels" in value) and "own" not in value:
        return TestArrays.model_validate(value, context=info.context)
    return tested_by(value, info)


OF_ARRAYS: dict[str, Any] = {
    "type": "object",
    "properties": {"inputs": {"type": "string"}, "labels": {"type": "string"}},
    "required": ["inputs", "labels"],
    "additionalProperties": False,
}


class Arrays(Examples):
    """Rows in arrays (rows, ...) of an npz file or of npy files, which stay where they are.

    Arrays of numbers or words with one value for each row are columns, such as the one that
    `partition: {by: ...}` names.
    """

    examples = {"file": "arrays.npz", "folder": "arrays", "inputs": "x_train", "labels": "y_train"}

    source: Literal["arrays"]
    file: File | None = None
    """an npz file, relative to the scenario's folder; with folder left out"""
    folder: Folder | None = None
    """a folder of npy files, of which only the rows that are asked for are read"""
    inputs: Text = "A"
    """the array of inputs, (rows, ...)"""
    labels: Text = "b"
    """the array of labels, (rows,), or (rows, ...) for a model that takes arrays"""
    test: Annotated[
        Any,
        PlainValidator(_test),
        WRITTEN,
        WithJsonSchema(quantity_or(*TEST_KINDS, OF_ARRAYS)),
    ] = 0.0
    """rows held out for testing: a share of all, {rows: n}, {column: ..., value: ...}, own, a share
    of every agent's rows for its model, or other arrays, {inputs: ..., labels: ...}"""

    @property
    def tested(self) -> bool:
        """Whether there are test rows."""
        return bool(self.test)

    @model_validator(mode="after")
    def _one_place(self) -> "Arrays":
        one_of(self, "file", "folder")
        return self


class ImageFolders(Examples):
    """Images in folders named like their classes, perhaps inside train and test, or of users."""

    examples = {"levels": ["writer", "class"], "size": [32, 32], "channels": 3}

    source: Literal["images"]
    folder: Folder
    """the folder with a folder for each class, or with train and test, in which these are; relative
    to the scenario's"""
    levels: Several[Text] = ("class",)
    """what the folders on the way to an image are, from the outside in: class, and columns such as
    the writer, by which rows may be dealt"""
    size: Annotated[
        Several[Count] | None, WithJsonSchema({"type": "array", "items": {"type": "integer"}})
    ] = None
    """[height, width], to which all images are brought; default: as they are, all of one size"""
    channels: Annotated[int, *wholes(1, 3)] | None = None
    """1 (gray) or 3 (red, green, blue), to which all are brought; default: as they are"""
    scale: Scale = "pixel"
    """features: divided by 255 (pixel), or as for other sources"""

    @model_validator(mode="after")
    def _possible(self) -> "ImageFolders":
        if self.levels.count("class") != 1 or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels: {refusal(list(self.levels), 'names, one of them class')}")
        if self.size is not None and len(self.size) != 2:
            raise ValueError(f"size: {refusal(list(self.size), '[height, width]')}")
        if self.channels == 2:
            raise ValueError("channels: found 2; allowed: 1, 3")
        return self


def _arguments(value: object, info: ValidationInfo) -> object:
    """The mapping, with paths that count from the scenario's folder."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(refusal(value, "a mapping with names of arguments"))
    folder = Path((info.context or {}).get("folder", "."))
    return {key: _argument(one, folder) for key, one in value.items()}


def _argument(value: Any, folder: Path) -> Any:
    if not isinstance(value, Mapping) or set(value) != {"path"}:
        return value
    if not isinstance(value["path"], str):
        raise ValueError(f"path: {refusal(value['path'], 'a file or folder')}")
    return {"path": str(folder.absolute() / value["path"])}


Arguments = Annotated[
    dict[str, Any], BeforeValidator(_arguments), WithJsonSchema({"type": "object"})
]


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the data set gets them."""
    return {
        key: Path(one["path"]) if isinstance(one, Mapping) and set(one) == {"path"} else one
        for key, one in arguments.items()
    }


class Plugged(Examples):
    """What the data set of a plug-in reads: a desim.model.Dataset."""

    examples = {"name": "my-data", "arguments": {"folder": {"path": "speech"}}}

    source: Literal["plugin"]
    name: Text
    """the data set's name"""
    arguments: Arguments = {}
    """what its `read` gets, by name; {path: ...} is a path relative to the scenario's folder"""

    @property
    def of(self) -> type[Dataset]:
        """The class that the registry holds under this name."""
        found: type[Dataset] = registry.plugged().datasets[self.name]
        return found

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `read`."""
        return given(self.arguments)

    @model_validator(mode="after")
    def _known(self) -> "Plugged":
        known = registry.plugged().datasets
        if self.name not in known:
            none = "none, as no plug-in that is known here brings any (plugins)"
            raise ValueError(f"name: {refusal(self.name, ', '.join(known) or none, known)}")
        return self


class TorchData(Examples):
    """A data set of torchvision or torchaudio that is on this machine, all in memory."""

    examples = {
        "of": "torchvision.datasets.MNIST",
        "arguments": {"root": {"path": "data"}},
        "test_arguments": {"train": False},
    }

    source: Literal["torch"]
    of: Text
    """its class"""
    arguments: Arguments = {}
    """what the class gets, by name; {path: ...} is a path relative to the scenario's folder"""
    test_arguments: Arguments = {}
    """what differs for its test rows"""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the class."""
        return given(self.arguments)

    @property
    def tested_with(self) -> dict[str, Any]:
        """Those that differ for test rows."""
        return given(self.test_arguments)

    @model_validator(mode="after")
    def _known(self) -> "TorchData":
        if self.of.rpartition(".")[0] not in LIBRARIES:
            allowed = " or ".join(f"{one}.NAME" for one in LIBRARIES)
            raise ValueError(f"of: {refusal(self.of, f'{allowed}, or a Dataset of a plug-in')}")
        refuse_other_tests(self.test, test_arguments=self.test_arguments)
        for key in ("arguments", "test_arguments"):
            if getattr(self, key).get("download"):
                raise ValueError(f"{key}: found download; allowed: data that are on this machine")
        return self


class HuggingFace(Examples):
    """A data set of Hugging Face's `datasets` that save_to_disk put into a folder."""

    examples = {"inputs": "image", "labels": "label", "columns": ["speaker"], "split": "train"}

    source: Literal["huggingface"]
    folder: Folder
    """the folder, relative to the scenario's"""
    inputs: Text
    """the column of inputs"""
    labels: Text
    """the column of labels"""
    columns: Several[Text] = ()
    """others that are used, such as the one by which rows are dealt"""
    split: Text | None = None
    """which split is trained on, where the folder has several"""
    test_split: Text | None = None
    """which split holds the test rows"""

    @model_validator(mode="after")
    def _one_test(self) -> "HuggingFace":
        refuse_other_tests(self.test, test_split=self.test_split)
        return self


# Text, as rows of tokens.


class TextFiles(Strict):
    """Text in windows of so many tokens, whose labels are the tokens that follow; for models."""

    examples = {
        "file": "novel.txt", "folder": "authors", "length": 64, "every": 32,
        "vocabulary": "words.txt", "test": "20 %",
    }  # fmt: skip

    source: Literal["text"]
    file: File | None = None
    """a text file in UTF-8, relative to the scenario's folder; with folder left out"""
    folder: Folder | None = None
    """a folder of .txt files; the column `file` holds their names, as in partition: {by: file}"""
    length: Count
    """tokens of a row"""
    every: Count | None = None
    """tokens from the beginning of a row to that of the next; default: length"""
    tokens: Literal["bytes", "characters", "words"] = "bytes"
    """bytes: 0 to 255, the same for every text; characters, words: numbered 1, 2, ... by the
    vocabulary, 0 for what it lacks"""
    vocabulary: File | None = None
    """a public text file with the words, or the characters; default: those of all the rows"""
    test: Test = 0.0
    """rows held out for testing: a share of all, {rows: n}, {column: file, value: ...}, or own, a
    share of every agent's rows for its model"""
    train: Count | None = None
    """how many of the rows that are not for testing to train on, drawn uniformly; default: all"""

    @property
    def tested(self) -> bool:
        """Whether there are test rows."""
        return bool(self.test)

    @model_validator(mode="after")
    def _consistent(self) -> "TextFiles":
        one_of(self, "file", "folder")
        if self.vocabulary is not None and self.tokens == "bytes":
            raise ValueError("found vocabulary with tokens bytes, which need none; allowed with "
                             "tokens: characters, words")  # fmt: skip
        return self


# Rows of numbers, and the choice of a source.

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
    """share of rows for testing, generated on top of the training rows; own, a share of every
    agent's rows for its model"""
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


def _only_own(value: object, info: ValidationInfo) -> Any:
    if value is None or (found := own_rows(value, info)) is not None:
        return None if value is None else found
    raise ValueError(refusal(value, "own, {own: share}, or no key: the file's test_A and test_b"))


class Npz(Strict):
    """Arrays A (agents, rows, dim) and b (agents, rows), taken as they are.

    And, if there are test rows, test_A (rows, dim) and test_b (rows,). A model takes any shapes:
    (agents, rows, ...).
    """

    examples = {"file": "arrays.npz"}

    source: Literal["npz"]
    file: File
    """the file, relative to the scenario's folder"""
    test: Annotated[
        Any, PlainValidator(_only_own), WRITTEN, WithJsonSchema({"anyOf": OWN_ROWS})
    ] = None
    """own, a share of every agent's rows for its model; default: test rows of the file"""


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
