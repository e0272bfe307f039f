"""Compiled functions that are kept on disk come back before numba is ready to compile.

Numba loads all that it can compile before it looks whether a function is there already, reads each
function's code for inlining beside the machine's, and tries for every function whether its folder
can be written to. A start that finds all of them compiled needs none of that, and is a fifth of a
second shorter.
"""

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding
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
def _nothing() -> bytes:
    return bytes(binding.parse_assembly("").as_bitcode())


@cache
def _writable(folder: str) -> None:
    """Make a folder; OSError where it cannot be written to."""
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(folder)


_Chosen: Any = caching.CacheImpl._locator_classes[0]  # the folder that numba's settings name


_NAMES = ("func_name", "cpython_wrapper_name", "cfunc_wrapper_name")


class _Place(_Chosen):  # type: ignore[misc]
    def ensure_cache_path(self) -> None:
        _writable(self.get_cache_path())


class _Files(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Place, *caching.CacheImpl._locator_classes[1:])

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """The function from its file; its code for inlining is read when a caller is compiled."""
        (name, kind, data), described = payload[:2]
        if kind != "object":
            return super().rebuild(target_context, payload)
        machine, inlined = data
        engine = target_context.codegen()._engine
        engine._defined_symbols |= {getattr(described, f"llvm_{one}") for one in _NAMES}
        light = (name, kind, (machine, _nothing()))
        found = super().rebuild(target_context, (light, *payload[1:]))
        library = found.library

        def linked() -> Any:
            del library._get_module_for_linking
            library._shared_module = binding.parse_bitcode(inlined)
            engine._load_defined_symbols(library._shared_module)
            return library._shared_module

        library._get_module_for_linking = linked
        return found


class Kept(caching.FunctionCache):  # type: ignore[misc]
    """What is kept of one function."""

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
