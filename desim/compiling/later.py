"""Libraries that are imported when they are first asked for something, so that a start is short.

    from desim.compiling.later import pd, special

A run whose data, network and noise do not need them never imports them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["Inner", "Later", "bare", "optimize", "pd", "sparse", "special"]


class Later:
    """Stands for a module until then; what was asked for once is an attribute from then on."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # whoever inspects objects asks everything for these
            raise AttributeError(attribute)
        value = self._attribute(attribute)
        setattr(self, attribute, value)
        return value

    def _attribute(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


class Inner(Later):
    """Stands for a package whose `module` has most of what is asked for: all else is left alone."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(name)
        self._module = module
        self._inner: ModuleType | None = None

    def _attribute(self, attribute: str) -> Any:
        try:
            if self._inner is None:
                with bare(self._name):
                    self._inner = import_module(f"{self._name}.{self._module}")
            return getattr(self._inner, attribute)
        except (ImportError, AttributeError):
            return super()._attribute(attribute)


@contextmanager
def bare(package: str) -> Iterator[None]:
    """Import modules of a package, e.g. scipy.linalg, without what the package itself imports.

    Whoever imports the package later gets it whole. Nothing is done where it is there already.
    """
    parent, _, name = package.rpartition(".")
    found = find_spec(parent)
    if package in sys.modules or found is None or not found.submodule_search_locations:
        yield
        return
    stand_in = sys.modules[package] = ModuleType(package)
    stand_in.__path__ = [str(Path(found.submodule_search_locations[0]) / name)]
    try:
        yield
    finally:
        for one in [one for one in sys.modules if f"{one}.".startswith(f"{package}.")]:
            del sys.modules[one]


if TYPE_CHECKING:
    import pandas as pd
    from scipy import optimize, sparse, special
else:
    pd = Later("pandas")
    optimize, sparse = Later("scipy.optimize"), Later("scipy.sparse")
    special = Inner("scipy.special", "_ufuncs")
