"""What a coordinator's program remembers from one round to the next, as attributes."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from desim.memory import Tree, recall, recalling


class Variables:
    """Arrays, numbers, and what remembers and recalls itself, such as `Latest`, by name.

    Arrays are copied when they are set and read, so that `x = own.x; x -= g` changes no variable.
    """

    def __init__(self, start: Tree) -> None:
        self.__dict__["_values"] = {name: _copied(value) for name, value in start.items()}

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__["_values"]:
            raise self._unknown(name)
        return _copied(self._values[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise self._unknown(name)
        self._values[name] = _copied(value)

    def _unknown(self, name: str) -> AttributeError:
        names = ", ".join(self._values) or "none"
        return AttributeError(f"hub.memory: found {name!r}; allowed: those it began with, {names}")


def remembered(own: Variables | None) -> Tree:
    """What a checkpoint needs of them."""
    values: Tree = {} if own is None else own._values
    return {k: v.remembered() if hasattr(v, "recall") else v for k, v in values.items()}


def recalled(own: Variables, tree: Tree) -> None:
    """Give them what they were when the checkpoint was taken."""
    before = SimpleNamespace(**own._values)
    with recalling():
        for name, value in own._values.items():
            if hasattr(value, "recall"):
                value.recall(tree[name])
            else:
                recall(before, tree, name)
                own._values[name] = getattr(before, name)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
