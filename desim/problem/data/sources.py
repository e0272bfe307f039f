"""The table of each source: generated, of scikit-learn, of openml.org, of files, of plug-ins."""

import importlib
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, chosen, refusal
from desim.numerics import keys
from desim.numerics.cache import cache_home, keep, stored_arrays
from desim.numerics.keys import Stream
from desim.problem.data.examples import table_of, text_windows
from desim.problem.data.frames import framed
from desim.problem.data.images import image_folders, read_images
from desim.problem.data.table import Draw, Table, bounded, split
from desim.problem.models.checked import answered
from desim.problem.models.user_model import Examples
from desim.problem.problem import Joined
from desim.readers import csv_frame, npz_arrays, parquet_frame, reading, uneven

if TYPE_CHECKING:
    import pandas as pd


# Generated tables; the last rows are for testing.

SMALL = 1 << 16  # numbers of a table that is kept for the next run of its seed


def generate(section: Any, agents: int | None, seed: int) -> Table:
    """Training rows for all agents, section.rows each, and test rows, their own among them."""
    if agents is None:
        raise InputError("problem.agents: missing; generated data need the number of agents")
    each, own = section.rows, getattr(section.test, "own", 0.0)
    if own:  # of rows that are more by as many, to be held out once they are dealt
        each += max(1, round(each * own / (1.0 - own)))
    share = 0.0 if own else section.test
    train = agents * each
    tested = max(1, round(train * share / (1.0 - share))) if share else 0
    make = _classification if section.kind == "classification" else _regression
    A, b = make(section, agents, each, tested, seed)
    names = tuple(f"x{j}" for j in range(A.shape[1]))
    test = np.arange(train + tested) >= train
    return Table(A, b, names, dict(zip(names, A.T, strict=True)), ~test, test)


def _classification(
    section: Any, agents: int, each: int, tested: int, seed: int
) -> tuple[Any, Any]:
    """scikit-learn's clusters at hypercube corners (Guyon 2003), labels -1, 1, none redundant."""
    rows, features = agents * each + tested, section.dim - section.intercept
    state = int(keys.integers(seed, Stream.DATA, 2**31 - 1, round=Draw.GENERATOR)[0])
    drawn = _clusters if rows * features <= SMALL else _clusters.__wrapped__
    asked = section.informative, section.clusters, section.separation, section.flip
    A, label = drawn(rows, features, *asked, state)
    return A.copy(), 2.0 * label - 1.0


@lru_cache(64)
def _clusters(
    rows: int, features: int, informative: int, clusters: int, apart: float, flip: float, state: int
) -> tuple[Any, Any]:
    """The table (rows, features) and its labels 0, 1: of a small one runs of a seed share it."""
    from sklearn.datasets import make_classification

    made: tuple[Any, Any] = make_classification(
        n_samples=rows,
        n_features=features,
        n_informative=informative,
        n_redundant=0,
        n_clusters_per_class=clusters,
        class_sep=apart,
        flip_y=flip,
        random_state=state,
    )
    return made


def _regression(section: Any, agents: int, each: int, tested: int, seed: int) -> tuple[Any, Any]:
    """Labels b = a.w + noise with a, w ~ N(0, I).

    Each agent's rows have their own address (test rows: agent -1), so that an agent more changes
    nobody else's; an intercept is one more coordinate of w.
    """
    features = section.dim - section.intercept
    parts = [(np.arange(agents), each), (-1, tested)]

    def drawn(what: Draw, many: int) -> Any:
        """Normals for all rows, so many for a row."""
        place = {"seed": seed, "stream": Stream.DATA, "round": what}
        return np.concatenate(
            [keys.normals(agent=i, size=m * many, **place).ravel() for i, m in parts]
        )

    A, noise = drawn(Draw.FEATURES, features).reshape(-1, features), drawn(Draw.NOISE, 1)
    w = keys.normals(seed, Stream.DATA, round=Draw.TRUTH, size=section.dim)
    return A, A @ w[section.intercept :] + section.intercept * w[0] + section.noise * noise


# Arrays of npz and npy files: already one block for each agent, or rows that are yet to be dealt.


SHAPES = "A (agents, rows, dim) and b (agents, rows)"
ANY = "A (agents, rows, ...) and b (agents, rows, ...)"
TESTED = ("test_A", "test_b")
NAMED = "arrays of numpy.savez, without pickled objects, that `inputs:` and `labels:` name"
PLAIN = "an array that numpy.save wrote, without pickled objects"


def dealt_arrays(file: Path, agents: int | None, modelled: bool = False) -> tuple[Any, ...]:
    """Arrays A (agents, rows, dim) and b (agents, rows) of an npz file; pickles are refused.

    And test_A (rows, dim) and test_b (rows,), None where it has none. modelled: for a model, which
    takes arrays of any type and shape (agents, rows, ...).
    """
    shapes, where = ANY if modelled else SHAPES, "problem.data.file"
    loaded = npz_arrays(file, where, ("A", "b"), f"{shapes}, without pickled objects", TESTED)
    for name, array in loaded.items():
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"{where}: {name} of {file.name} holds {array.dtype}; allowed: real numbers"
            )
    with np.errstate(over="ignore"):  # of longer floats: what becomes infinite is found below
        arrays = {key: np.asarray(one, None if modelled else float) for key, one in loaded.items()}
    A, b = arrays["A"], arrays["b"]
    fits = A.ndim >= 3 if modelled else A.ndim == 3 and b.ndim == 2
    if not fits or b.shape[:2] != A.shape[:2] or 0 in A.shape or 0 in b.shape:
        raise InputError(
            f"{where}: found A {A.shape} and b {b.shape} in {file.name}; allowed: "
            f"{shapes}, none of them 0"
        )
    if agents is not None and agents != len(A):
        raise InputError(f"problem.agents: found {agents}; allowed: {len(A)}, as in {file.name}")
    test_A, test_b = (arrays.get(name) for name in TESTED)
    _refuse_unlike(A, b, test_A, test_b, f"{where}: {file.name}")
    for name, array in arrays.items():
        for place in np.argwhere(~np.isfinite(array))[:1] if array.dtype.kind == "f" else ():
            spot = ", ".join(str(index) for index in place)
            raise InputError(f"{where}: {name}[{spot}] of {file.name} is not finite")
        bounded(array, f"{where}: {name} of {file.name}")
    return A, b, test_A, test_b


def _refuse_unlike(A: Any, b: Any, test_A: Any, test_b: Any, where: str) -> None:
    """InputError for test rows that are not like the agents'."""
    if test_A is None and test_b is None:
        return
    if test_A is None or test_b is None:
        found, lacks = TESTED if test_b is None else TESTED[::-1]
        raise InputError(f"{where}: found {found} without {lacks}; allowed: both or neither")
    rows = len(test_A)
    if test_A.shape != (rows, *A.shape[2:]) or test_b.shape != (rows, *b.shape[2:]) or not rows:
        text = f"found test_A {test_A.shape} and test_b {test_b.shape}"
        allowed = f"rows like those of A {A.shape} and b {b.shape}, one or more"
        raise InputError(f"{where}: {text}; allowed: {allowed}")


def undealt_arrays(section: Any, needed: Iterable[str]) -> tuple[Examples, str]:
    """Rows in arrays of a file or a folder, and the key that names it.

    section: inputs, labels, test, and file (npz) or folder (of npy files); needed: arrays (rows,)
    that serve as columns.
    """
    own = section.test if hasattr(section.test, "inputs") else None
    parts = [section.inputs, section.labels, *((own.inputs, own.labels) if own else ())]
    columns = [name for name in dict.fromkeys(needed) if name not in ("label", section.labels)]
    if section.file is not None:
        where = "problem.data.file"
        loaded = npz_arrays(section.file, where, (*parts, *columns), NAMED)
    else:
        where = "problem.data.folder"
        loaded = {name: _mapped(section.folder, name, where) for name in (*parts, *columns)}
    found = [loaded[name] for name in parts]
    marked = {name: loaded[name] for name in columns}
    if section.labels in needed:
        marked[section.labels] = loaded[section.labels]
    if own is None:
        return Examples(found[0], found[1], marked), where
    A, b, test_A, test_b = found
    if not all(one.ndim for one in found):
        raise InputError(f"{where}: found a single number among {', '.join(parts)}; allowed: rows")
    if test_A.shape[1:] != A.shape[1:] or test_b.shape != (len(test_A), *b.shape[1:]):
        text = f"found {own.inputs} {test_A.shape} and {own.labels} {test_b.shape}"
        allowed = f"rows like those of {parts[0]} {A.shape} and {parts[1]} {b.shape}"
        raise InputError(f"problem.data.test: {text}; allowed: {allowed}")
    test = np.arange(len(A) + len(test_A)) >= len(A)
    marked = {name: _stretched(one, len(A), len(test)) for name, one in marked.items()}
    return Examples(Joined(A, test_A), Joined(b, test_b), marked, test), where


def _mapped(folder: Path, name: str, where: str) -> Any:
    """An npy file of the folder, mapped into memory; pickles are refused."""
    file = folder / f"{name}.npy"
    if not folder.is_dir():
        raise InputError(f"{where}: {folder} is no directory; allowed: a folder of npy files")
    chosen(f"{where}: npy files", name, sorted(one.stem for one in folder.glob("*.npy")))
    with reading(file, where, "npy", PLAIN):
        return np.load(file, mmap_mode="r", allow_pickle=False)


def _stretched(column: Any, rows: int, whole: int) -> Any:
    """A column (rows,) of training rows as one of all rows: those of test rows belong to nobody."""
    if column.shape != (rows,):
        return column
    return np.concatenate([column, np.repeat(column[:1], whole - rows)])


# Data sets that libraries bring: plug-ins, torch, Hugging Face (on disk) and scikit-learn.


ROWS = "pairs (inputs, label), inputs of one shape"


def plugged_examples(section: Any) -> Examples:
    """The rows of a plug-in's data set."""
    where = f"problem.data: {section.name}"
    found = answered(where, lambda: section.of().read(**section.given))
    if not isinstance(found, Examples):
        text = f"read returned a {type(found).__name__}"
        raise InputError(f"{where}: {text}; allowed: desim.model.Examples")
    return found


def torch_examples(section: Any) -> Examples:
    """The rows of a data set of a torch library, items (inputs, label), all in memory.

    section: of, its dotted name; given, its arguments; tested_with, what test rows have instead.
    """
    library, _, name = section.of.rpartition(".")
    module = _imported(library, "problem.data.of", f"pip install {library.partition('.')[0]}")
    if not hasattr(module, name):
        raise InputError(f"problem.data.of: found no {name!r} in {library}; allowed: what it has")
    of, where, parts = getattr(module, name), f"problem.data: {section.of}", []
    for more in [{}, section.tested_with][: 1 + bool(section.tested_with)]:
        arguments = {**section.given, **more}
        parts.append(answered(where, lambda: _items(of(**arguments), where)))  # noqa: B023  called here
    A, labels = (np.concatenate(both) for both in zip(*parts, strict=True))
    test = np.arange(len(A)) >= len(parts[0][0]) if len(parts) > 1 else None
    return Examples(A, labels, test=test)


def _items(found: Any, where: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Arrays of all items (inputs, label) of something with a length and a place for each."""
    pairs = [found[place] for place in range(len(found))]
    if not pairs or any(not isinstance(one, tuple | list) or len(one) != 2 for one in pairs):
        raise InputError(f"{where}: {refusal(pairs[:1], ROWS)}")
    shapes = {_numbers(one).shape for one, _ in pairs}
    if len(shapes) > 1:
        text = f"found inputs of shapes {', '.join(map(str, sorted(shapes)[:3]))}"
        raise InputError(f"{where}: {text}; allowed: one shape, as a transform makes it")
    labels = np.array([np.asarray(label).item() for _, label in pairs])
    return np.stack([_numbers(one) for one, _ in pairs]), labels


def _numbers(one: Any) -> NDArray[Any]:
    """An input as an array; an image of Pillow's as (channels, height, width)."""
    array = np.asarray(one)
    if not hasattr(one, "getbands"):
        return array
    return array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)


def hugging_face_examples(section: Any) -> Examples:
    """The rows of a data set that `datasets` saved into a folder, all in memory.

    section: folder, split, test_split, inputs, labels, columns.
    """
    where = "problem.data.folder"
    library = _imported("datasets", "problem.data.source", "pip install datasets")
    loaded = answered(where, lambda: library.load_from_disk(str(section.folder)))
    wanted = [one for one in (section.split, section.test_split) if one is not None]
    if isinstance(loaded, dict):
        for key, name in (("split", section.split), ("test_split", section.test_split)):
            if name is None and key == "split":
                raise InputError(f"problem.data.split: missing; allowed: {', '.join(loaded)}")
            if name is not None:
                chosen(f"problem.data.{key}", name, loaded)
        parts = [loaded[one] for one in wanted]
    elif wanted:
        raise InputError(f"problem.data.split: found {wanted[0]}, but no splits in the folder; "
                         "allowed: none")  # fmt: skip
    else:
        parts = [loaded]
    keys = {"inputs": section.inputs, "labels": section.labels}
    keys |= {f"columns[{place}]": name for place, name in enumerate(section.columns)}
    for key, name in keys.items():
        chosen(f"problem.data.{key}", name, parts[0].column_names)
    names = list(dict.fromkeys(keys.values()))
    whole = {name: np.concatenate([_column(one, name, where) for one in parts]) for name in names}
    test = np.arange(sum(map(len, parts))) >= len(parts[0]) if len(parts) > 1 else None
    columns = {name: whole[name] for name in section.columns}
    return Examples(whole[section.inputs], whole[section.labels], columns, test)


def _column(part: Any, name: str, where: str) -> NDArray[Any]:
    items = [_numbers(one) for one in part[name]]
    shapes = {one.shape for one in items}
    if len(shapes) > 1:
        text = f"found rows of shapes {', '.join(map(str, sorted(shapes)[:3]))} in column {name!r}"
        raise InputError(f"{where}: {text}; allowed: one shape")
    return np.stack(items)


def _imported(library: str, where: str, cure: str) -> Any:
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as lacking:
        text = f"found no {lacking.name} here"
        raise InputError(f"{where}: {text}; allowed: {cure}, or a Dataset of a plug-in") from None


# Those inside scikit-learn, stored as arrays: to import it takes longer than a short run.


class Bundled(NamedTuple):
    """Features A (rows, features), labels (rows,), names of the features and of the labels."""

    A: NDArray[np.float64]
    labels: NDArray[Any]
    names: tuple[str, ...]
    called: tuple[str, ...]


def bundled(name: str) -> Bundled:
    """Data set `name` as the installed version of scikit-learn has it."""
    path = cache_home() / "tables" / f"{name}-{version('scikit-learn')}.npz"
    found = stored_arrays(path)
    if found is None or set(found) != set(Bundled._fields):
        found = _loaded(name)
        keep(path, found)
    names, called = (tuple(str(one) for one in found[key]) for key in ("names", "called"))
    return Bundled(found["A"], found["labels"], names, called)


def _loaded(name: str) -> dict[str, NDArray[Any]]:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    called = np.array([str(one) for one in getattr(bunch, "target_names", [])], str)
    names = np.array([str(one) for one in bunch.feature_names], str)
    A, labels = np.asarray(bunch.data, float), np.asarray(bunch.target)
    return {"A": A, "labels": labels, "names": names, "called": called}


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
