"""The data sets inside scikit-learn, kept as arrays: to import it takes longer than a short run."""

from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.numerics.cache import cache_home, keep, stored_arrays


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

    given = getattr(datasets, f"load_{name}")()
    called = np.array([str(one) for one in getattr(given, "target_names", [])], str)
    names = np.array([str(one) for one in given.feature_names], str)
    A, labels = np.asarray(given.data, float), np.asarray(given.target)
    return {"A": A, "labels": labels, "names": names, "called": called}
