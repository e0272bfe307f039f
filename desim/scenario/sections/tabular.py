"""Sections of `problem.data` whose rows come in one table and are dealt to the agents."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from desim import units
from desim.errors import refusal, spelling
from desim.fields import Count, File, Flag, Folder, Form, Number, Several, Strict, Text
from desim.fields.numbers import quantity, scalars

FORMS = "{column: ..., value: ...} or {column: ..., above: ...}"


ONE = {"type": ["string", "number"]}
Values = Annotated[
    tuple[str | int | float, ...],
    scalars("text or a number, or a list of them"),
    WithJsonSchema({"anyOf": [ONE, {"type": "array", "items": ONE}]}),
]
Scale = Literal["none", "standard", "minmax", "max", "pixel", "unit-ball"]


class Protected(Strict):
    """The group that fairness is about: rows whose column has some value, or is above a number."""

    column: Text
    """column that tells the groups apart; no feature unless named"""
    value: Values = ()
    """what it holds in the rows of the protected group: a value, or a list of values"""
    above: Number | None = None
    """the protected group has more than this there"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written, if it is a mapping with a column."""
        if not isinstance(data, Mapping) or "column" not in data:
            raise ValueError(refusal(data, FORMS))
        return super().mapping(data)

    @model_validator(mode="after")
    def _one_rule(self) -> "Protected":
        if bool(self.value) == (self.above is not None):
            found = "both" if self.value else "neither"
            raise ValueError(f"found {found} of value and above; allowed: {FORMS}")
        return self


class Data(Strict):
    """What every source has: what is done to features before training."""

    source: str
    scale: Scale = "none"
    """features: as they are, mean 0 and deviation 1, in [0, 1], in [-1, 1] by their largest
    absolute value, divided by 255 (pixel), or all rows in the unit ball"""
    normalize: Literal["none", "l2", "clip"] = "none"
    """each row: none, divided by its norm (l2), or by max(1, norm) (clip)"""
    intercept: Flag = False
    """put a feature that is always 1 in front"""
    protected: Protected | None = None
    """the protected group: {column: sex, value: Female}, or {column: age, above: 60}"""

    @property
    def tested(self) -> bool:
        """Whether there are test rows."""
        return bool(getattr(self, "test", 0.0))


def _share(value: object) -> float:
    """The share of rows for testing, a fraction in [0, 1)."""
    try:
        share = units.fraction(value)
    except ValueError as error:
        near = spelling(value, ["own"])
        raise ValueError(f"{error}, own, {{own: ...}}{near}") from None
    if share == 1:
        raise ValueError("found 1; allowed: a fraction below 1, for rows to train on")
    return share


def _label(value: object) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(refusal(value, "a label: text or a number"))
    return value


Scalars = tuple[str | int | float, ...]
Label = Annotated[str | int | float, PlainValidator(_label)]


class SomeRows(Strict):
    """So many rows for testing."""

    rows: Count
    """how many, drawn uniformly"""


class MarkedRows(Strict):
    """The rows that a column marks for testing."""

    examples = {"column": "split", "value": "test"}

    column: Text
    """column that says which rows are for testing; no feature unless named"""
    value: Label
    """what it holds in these rows"""


OWN_SHARE = 0.2
TEST_KEYS = ("rows", "column", "value", "own")


def _own_share(value: object) -> float:
    """The share of an agent's rows that it is tested on, a fraction in (0, 1)."""
    allowed = "a fraction above 0 and below 1, or a percentage, of every agent's rows"
    try:
        share = units.fraction(value)
    except ValueError:
        raise ValueError(refusal(value, allowed)) from None
    if not 0.0 < share < 1.0:
        raise ValueError(refusal(value, allowed))
    return share


class OwnRows(Strict):
    """A share of each agent's rows, drawn uniformly, is for testing that agent's model."""

    examples = {"own": "20 %"}

    own: Annotated[float, PlainValidator(_own_share), WithJsonSchema(quantity(units.SHARE))]
    """the share, to the nearest row; nobody trains on them"""


OWN_ROWS: list[dict[str, Any]] = [
    {"enum": ["own"]},
    {
        "type": "object",
        "properties": {"own": quantity(units.SHARE)},
        "required": ["own"],
        "additionalProperties": False,
    },
]


def own_rows(value: object, info: ValidationInfo) -> OwnRows | None:
    """What is written as `own` or {own: share}; None for anything else."""
    if isinstance(value, OwnRows) or value == "own":
        return value if isinstance(value, OwnRows) else OwnRows(own=OWN_SHARE)
    if not isinstance(value, dict) or "own" not in value:
        return None
    if others := [key for key in value if key != "own"]:
        text = f"found own together with {', '.join(map(str, others))}, which are nobody's own"
        raise ValueError(f"{text}; allowed: {{own: share}} alone")
    return OwnRows.model_validate(value, context=info.context)


def refuse_other_tests(test: object, **others: object) -> None:
    """ValueError where agents are tested on rows of their own, and a key names other rows."""
    for key, value in others.items():
        if isinstance(test, OwnRows) and value:
            text = f"found test: own together with {key}, which names test rows"
            raise ValueError(f"{text}; allowed: one of them")


def _share_or_own(value: object, info: ValidationInfo) -> float | OwnRows:
    return own_rows(value, info) or _share(value)


def tested_by(value: object, info: ValidationInfo) -> float | Strict:
    """Which rows are for testing: a share, so many, or those that a column marks."""
    if isinstance(value, Strict):
        return value
    if (own := own_rows(value, info)) is not None:
        return own
    if isinstance(value, dict):
        near = "".join([spelling(key, TEST_KEYS) for key in value][:1])
        if not value.keys() & set(TEST_KEYS):
            allowed = "{rows: n}, {column: ..., value: ...}, {own: share}, or a share"
            raise ValueError(refusal(value, allowed) + near)
        kind = MarkedRows if "column" in value or "value" in value else SomeRows
        return kind.model_validate(value, context=info.context)
    return _share(value)


TEST_KINDS: list[dict[str, Any]] = [
    {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}
    for keys in (
        {"rows": {"type": "integer", "minimum": 1}},
        {"column": {"type": "string"}, "value": {"type": ["string", "number"]}},
    )
]


def quantity_or(*kinds: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a share, or of one of the mappings."""
    return {"anyOf": [quantity(units.SHARE), *OWN_ROWS, *kinds]}


WRITTEN = PlainSerializer(lambda test: test.written() if isinstance(test, Strict) else test)


Test = Annotated[Any, PlainValidator(tested_by), WRITTEN, WithJsonSchema(quantity_or(*TEST_KINDS))]
TestShare = Annotated[Any, PlainValidator(_share_or_own), WRITTEN, WithJsonSchema(quantity_or())]


class Table(Data):
    """Rows that come in one table and are dealt to the agents by `problem.partition`."""

    positive: Annotated[Scalars, scalars("a label, or a list of labels")] = ()
    """classification: the label, or list of labels, that becomes 1; every other becomes -1"""
    train: Count | None = None
    """how many of the rows that are not for testing to train on, drawn uniformly; default: all"""
    classes: Count | None = None
    """for a model: how many labels 0, 1, ... there are, whatever the rows hold; default: they are
    counted"""


class Bundled(Table):
    """A data set that comes with scikit-learn."""

    source: Literal["sklearn"]
    name: Literal["breast_cancer", "digits", "wine", "iris", "diabetes"]
    """the data set"""
    test: Test = 0.0
    """rows held out for testing: a share of all, {rows: n}, {column: ..., value: ...}, or own, a
    share of every agent's rows for its model, {own: 20 %} unless it says more"""


class Columns(Table):
    """Rows with named columns, some of which may hold words or have missing values."""

    examples = {"features": ["age", "hours"], "marks": -999}

    test: Test = 0.0
    """rows held out for testing: a share of all, {rows: n}, {column: ..., value: ...}, or own, a
    share of every agent's rows for its model, {own: 20 %} unless it says more"""
    features: Several[Text] = ()
    """columns to learn from; default: every other numeric column, with `encode` every other one"""
    exclude: Several[Text] = ()
    """columns not to learn from, where features says nothing"""
    encode: Literal["none", "one-hot", "ordinal"] = "none"
    """columns of words: no features; one feature for each word (1 where it stands, else 0); or one
    for each column, its words numbered 0, 1, ... in the order of the alphabet; words are those of
    the training rows"""
    unseen: Literal["none", "error"] = "none"
    """with encode, words of test rows that no training row holds: no word at all (0 in all of the
    column's features; -1 with ordinal), or refused"""
    missing: Literal["error", "drop", "most-frequent", "mean", "median"] = "error"
    """rows with a missing value (in CSV files an empty place, ? or NA) among features, label and
    columns that other keys name: refused, left out, or filled from the training rows (features
    only): with the most frequent value, or the mean or median of numbers and the most frequent word
    """
    marks: Annotated[Scalars, scalars("a number or text, or a list of them")] = ()
    """what else stands for a missing value, in any column: a number or text, or a list of them"""

    @model_validator(mode="after")
    def _chosen_once(self) -> "Columns":
        if self.features and self.exclude:
            raise ValueError("found features and exclude; allowed: only one of them")
        return self


def one_of(section: Any, first: str, second: str) -> None:
    """ValueError unless exactly one of two keys is present."""
    present = [key for key in (first, second) if getattr(section, key) is not None]
    if len(present) != 1:
        found = "both" if present else "neither"
        raise ValueError(f"found {found} of {first} and {second}; allowed: one of them")


class OpenML(Columns):
    """A data set of openml.org, downloaded once and cached by scikit-learn."""

    examples = {"name": "adult", "version": 2, "id": 1590, "label": "class"}

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
        one_of(self, "name", "id")
        return self


class File_(Columns):
    """A table in a file."""

    file: File
    """the file, relative to the scenario's folder; ${NAME} is an environment variable"""
    label: Text
    """column to predict"""


class Csv(File_):
    """A CSV file with a header line, perhaps compressed."""

    examples = {"separator": ";"}

    source: Literal["csv"]
    separator: Text = ","
    """what stands between columns"""


class Parquet(File_):
    """A Parquet file."""

    source: Literal["parquet"]


class OwnTest(Form):
    """Which of the source's own test rows are used: all, or so many."""

    words = ("all",)

    @classmethod
    def allowed(cls) -> str:
        """What may stand there, with what stands for none of them."""
        return f"{super().allowed()}, own, {{own: ...}}"

    rows: Count | None = None
    """how many, drawn uniformly"""


def _of_source(value: object, info: ValidationInfo) -> Strict:
    found = own_rows(value, info)
    return found or OwnTest.model_validate(value, context=info.context)


class Images(Table):
    """Images with labels, each one row of pixels, and with test rows of their own."""

    test: Annotated[
        Any, PlainValidator(_of_source), WRITTEN,
        WithJsonSchema({"anyOf": [{"enum": ["all"]}, *OWN_ROWS, TEST_KINDS[0]]}),
    ] = OwnTest.of("all")  # fmt: skip
    """which of the source's test rows are used: all, or {rows: n} of them; or none, but own, a
    share of every agent's rows for its model, {own: 20 %} unless it says more"""
    scale: Scale = "pixel"
    """features: divided by 255 (pixel), or as for other sources"""


class MnistIdx(Images):
    """Images in the four idx files of MNIST and its kin, compressed or not."""

    source: Literal["mnist-idx"]
    folder: Folder
    """the folder with train-images-idx3-ubyte, train-labels-idx1-ubyte and t10k-... (or .gz),
    relative to the scenario's; ${NAME} is an environment variable"""


class MnistNpz(Images):
    """Images in arrays x_train, y_train, x_test, y_test of one npz file, as Keras keeps MNIST."""

    source: Literal["mnist-npz"]
    file: File
    """the file, relative to the scenario's folder; ${NAME} is an environment variable"""
