"""The table of each source: generated, of scikit-learn, of openml.org, of files, of plug-ins."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from desim.errors import InputError
from desim.problem.data.array_files import undealt_arrays
from desim.problem.data.examples import table_of, text_windows
from desim.problem.data.frames import framed
from desim.problem.data.images import image_folders, read_images
from desim.problem.data.libraries import (
    bundled,
    hugging_face_examples,
    plugged_examples,
    torch_examples,
)
from desim.problem.data.synthetic import generate
from desim.problem.data.table import Table, split
from desim.problem.models.dataset import Examples
from desim.readers import csv_frame, parquet_frame, uneven

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES: dict[str, Any] = {
    "arrays": undealt_arrays, "images": image_folders, "text": text_windows,
    "torch": torch_examples, "huggingface": hugging_face_examples, "plugin": plugged_examples,
}  # fmt: skip
FILE = "problem.data.file"
NA = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL")


def read_table(section: Any, agents: int | None, seed: int, apart: Sequence[str] = ()) -> Table:
    """The table of any source but npz; InputError where it cannot be had.

    apart: columns that serve for something else, and are no features unless named.
    """
    table = _table(section, agents, seed, apart)
    return table._replace(classes=getattr(section, "classes", None) or table.classes)


def _table(section: Any, agents: int | None, seed: int, apart: Sequence[str]) -> Table:
    if section.source == "synthetic":
        return _without(generate(section, agents, seed), apart)
    if section.source == "sklearn":
        return _without(_bundled(section, seed), apart)
    if section.source.startswith("mnist"):
        return read_images(section, seed)
    if section.source in EXAMPLES:
        return table_of(*_examples(section, apart), section, seed)
    if section.source == "openml":
        frame, label, where = *_openml(section), "openml"
    else:
        frame = _csv(section) if section.source == "csv" else parquet_frame(section.file, FILE)
        label, where = section.label, section.file.name
    return framed(frame, label, section, seed, apart, where)


def _examples(section: Any, apart: Sequence[str]) -> tuple[Examples, str]:
    """The rows of a source that has any shape, and the key that names them."""
    if section.source == "arrays":
        marked = getattr(section.test, "column", None)
        return undealt_arrays(section, (*apart, *([marked] if marked else ())))
    if section.source == "text":
        return text_windows(section)
    if section.source == "images":
        return image_folders(section), "problem.data.folder"
    return EXAMPLES[section.source](section), f"problem.data: {section.source}"


def _without(table: Table, apart: Sequence[str]) -> Table:
    keep = [j for j, name in enumerate(table.names) if name not in apart]
    return table._replace(A=table.A[:, keep], names=tuple(table.names[j] for j in keep))


def _bundled(section: Any, seed: int) -> Table:
    """A data set inside scikit-learn; its labels also go by their names."""
    found = bundled(section.name)
    codes: dict[str, object] = {name: code for code, name in enumerate(found.called)}
    columns = dict(zip(found.names, found.A.T, strict=True))
    parts = split(section, columns, len(found.A), seed)
    return Table(found.A, found.labels, found.names, columns, *parts, codes)


def _openml(section: Any) -> "tuple[pd.DataFrame, str]":
    """A data set of openml.org, from scikit-learn's cache after the first time, and its label."""
    from sklearn.datasets import fetch_openml

    which = {"data_id": section.id} if section.id else {"name": section.name}
    if section.version:
        which["version"] = section.version
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of several versions the oldest active one is taken
            found = fetch_openml(**which, as_frame=True, parser="auto")
    except Exception as wrong:  # network, cache, server and parser have no exception in common
        raise InputError(f"problem.data: openml {section.name or section.id}: {wrong}") from wrong
    label = section.label or (found.target_names[0] if found.target_names else None)
    if label is None:
        raise InputError("problem.data.label: this openml data set has no default; name a column")
    return found.frame, label


def _csv(section: Any) -> "pd.DataFrame":
    """A CSV file, also compressed, with a header line."""
    lines = len(section.separator) == 1  # else they are split by a regular expression
    try:
        frame = csv_frame(
            section.file, FILE, sep=section.separator, index_col=False, skipinitialspace=True,
            na_values=NA, keep_default_na=False,
        )  # fmt: skip
    except InputError:
        if lines and section.file.is_file():
            uneven(section.file, section.separator, FILE)
        raise
    if lines and frame.isna().to_numpy().any():
        uneven(section.file, section.separator, FILE)
    return frame
