"""Wrong twins: a module with one fragment of its source changed, to show that a test can fail."""

import inspect
import sys
from types import ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from desim.numerics import plain


class Absent(Exception):
    """The text that a twin was to replace is not there once: no assertion, which tests expect."""


def mutant(module: ModuleType, right: str, wrong: str) -> ModuleType:
    """The module with `right`, which must occur exactly once in its source, replaced by `wrong`.

    Its kernels are plain Python when Python calls them: to compile them would take longer.
    """
    source = inspect.getsource(module)
    if source.count(right) != 1:
        raise Absent(f"{right!r} occurs {source.count(right)} times in {module.__name__}")
    twin = ModuleType(module.__name__ + "_mutant")
    twin.__file__, file = module.__file__, f"<mutant of {module.__name__}>"
    sys.modules[twin.__name__] = twin  # where dataclasses look for what annotations name
    try:
        exec(compile(source.replace(right, wrong), file, "exec"), vars(twin))
    finally:
        del sys.modules[twin.__name__]
    for kernel in list(vars(twin).values()):
        if isinstance(kernel, Dispatcher) and kernel.py_func.__code__.co_filename == file:
            _uncompiled(kernel)
    return twin


def _uncompiled(kernel: Dispatcher) -> None:
    def call(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return plain.native(plain.twin(kernel)(*map(plain.numbers, arguments)))

    plain.with_rent(kernel)._compile_for_args = lambda *arguments: call
