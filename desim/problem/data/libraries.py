"""Data sets that libraries bring: plug-ins, torch, Hugging Face (on disk) and scikit-learn.

A library is imported when its data set is asked for, and nothing is downloaded.
"""

import importlib
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, chosen, refusal
from desim.numerics.cache import cache_home, keep, stored_arrays
from desim.problem.models.checked import answered
from desim.problem.models.dataset import Examples

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
