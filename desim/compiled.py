"""Compiled functions that are kept on disk come back before numba is ready to compile.

Numba loads all that it can compile before it looks whether a function is there already, and tries
for every function whether its folder can be written to. A start that finds all of them compiled
needs neither, and is a tenth of a second shorter.
"""

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from numba.core import caching, config
from numba.core.runtime import rtsys

from desim.later import bare


def ready_numba() -> None:
    """Import the part of numba that asks scipy for matrix products, without all of scipy.linalg.

    Numba imports it before it compiles, whatever that is. It only wants to know that two extension
    modules are there; the package around them takes a quarter of a second.
    """
    with bare("scipy.linalg"):
        importlib.import_module("numba.np.arraymath")


@cache
def _writable(folder: str) -> None:
    """Make a folder; OSError where it cannot be written to."""
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(folder)


_Chosen: Any = caching.CacheImpl._locator_classes[0]  # the folder that numba's settings name


class _Place(_Chosen):  # type: ignore[misc]
    def ensure_cache_path(self) -> None:
        _writable(self.get_cache_path())


class _Files(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Place, *caching.CacheImpl._locator_classes[1:])


class Kept(caching.FunctionCache):  # type: ignore[misc]
    """What is kept of one function in a folder."""

    _impl_class = _Files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The function for these types, or None where it has to be compiled."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is None:
                ready_numba()
            return found


def keep_in(folder: str, compiled: Any, function: Callable[..., Any]) -> None:
    """Keep in `folder` what numba compiles of a function."""
    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        compiled._cache = Kept(function)
    finally:
        config.CACHE_DIR = before
