"""What a run remembers between two rounds, as trees that a file without pickle can hold.

A tree has trees, arrays, numbers and words under names; what is None is left out.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import Unfit

Tree = dict[str, Any]


def attributes(owner: Any, names: str) -> Tree:
    """The attributes `names` of `owner`, as they are: arrays are not copied."""
    return {name: getattr(owner, name) for name in names.split()}


def recall(owner: Any, tree: Tree, names: str) -> None:
    """Give the attributes `names` of `owner` what a tree has, each as the type that it is of."""
    for name in names.split():
        own = getattr(owner, name)
        if isinstance(own, np.ndarray):
            setattr(owner, name, fitting(own, tree[name]).copy())
        else:
            setattr(owner, name, type(own)(tree[name].item()))


def fill(array: NDArray[Any], found: NDArray[Any]) -> None:
    """Write what a tree has into `array`, which others hold, too."""
    array[...] = fitting(array, found)


def fitting(like: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
    """An array of a tree; ValueError unless it has the shape and type of `like`."""
    if found.shape != like.shape or found.dtype != like.dtype:
        raise ValueError(f"{found.dtype}{found.shape} in place of {like.dtype}{like.shape}")
    return found


@contextmanager
def recalling() -> Iterator[None]:
    """Context in which a tree that is not of this run raises Unfit."""
    try:
        yield
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise Unfit(f"the checkpoint is not one of this run ({error!r})") from error


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of a tree by their dotted names."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            arrays |= flat(value, f"{prefix}{name}.")
        elif value is not None:
            arrays[f"{prefix}{name}"] = np.asarray(value)
    return arrays


def nested(arrays: Mapping[str, NDArray[Any]]) -> Tree:
    """The tree whose arrays have these dotted names."""
    tree: Tree = {}
    for path, array in arrays.items():
        *above, name = path.split(".")
        branch = tree
        for one in above:
            branch = branch.setdefault(one, {})
        branch[name] = array
    return tree
