"""Kernels as plain Python, as long as that is sooner done than compiling them.

The source of a kernel means the same to Python and has the same bits there. To compile what a run
of a second needs takes a minute: so nothing is compiled before plain Python has taken
some time, as one rents skis before one buys them. What is found compiled on disk is used from the
first call on.
"""

import atexit
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher, OmittedArg

from desim.errors import InputError, refusal
from desim.numerics.cache import cache_home
from desim.numerics.code_cache import digest

PATIENCE = 20.0  # seconds of processor time in one process
PRICE = 50.0  # the same of all processes with these sources: what the quickstart takes to compile
LARGEST = 1 << 20  # numbers handed to a call that is still played as plain Python
LOADING = 0.4  # seconds that the first function takes to load, with what numba imports for it
FEW = 1 << 13  # numbers handed to a call that is not worth a load

_namespaces: dict[int, dict[str, Any]] = {}
_twins: dict[Any, Callable[..., Any] | None] = {}  # None: not asked for yet
_missing: set[tuple[int, Any]] = set()  # what was looked for on disk and not found
_absent: dict[int, bool] = {}  # functions of which nothing at all was on disk
_contexts = {"at once": 0, "few calls": 0}  # how many this process is in
_earlier: float | None = None  # seconds of plain Python in processes before this one
_counting = threading.Lock()  # of them: runs may be played in several threads
seconds = 0.0  # of processor time that plain Python took in this process


def when() -> str:
    """When kernels are compiled: `later`, once that is worth it, `at-once` or `never`."""
    text = os.environ.get("DESIM_COMPILE") or "later"
    if text not in ("later", "at-once", "never"):
        raise InputError(f"DESIM_COMPILE: {refusal(text, 'later, at-once, never')}")
    return text


def rented() -> bool:
    """Whether a kernel that is not compiled yet is to be played as plain Python now."""
    wanted = when()
    if numba.config.DISABLE_JIT or wanted == "at-once":
        return False
    brief = _contexts["few calls"] > 0 and seconds < LOADING  # whatever others have spent
    paid = seconds >= min(PATIENCE, PRICE - _before()) and not brief
    return wanted == "never" or not (paid or _contexts["at once"])


@contextmanager
def at_once() -> Iterator[None]:
    """Context in which what is called is compiled first, unless nothing is ever to be."""
    with _inside("at once"):
        yield


@contextmanager
def few_calls() -> Iterator[None]:
    """Context with so few calls that to load compiled code is not worth it, unless they add up."""
    with _inside("few calls"):
        yield


@contextmanager
def _inside(what: str) -> Iterator[None]:
    with _counting:
        _contexts[what] += 1
    try:
        yield
    finally:
        with _counting:
            _contexts[what] -= 1


def twin(kernel: Any) -> Any:
    """A function of `with_rent` and all that it calls as plain Python; any other is itself.

    One that another stands for says itself how it is played.
    """
    if not isinstance(kernel, Dispatcher):
        return kernel
    if kernel not in _twins:
        return vars(kernel).get("plainly", kernel)
    if _twins[kernel] is None:
        source = kernel.py_func
        names, defaults = _namespace(source.__globals__), source.__defaults__
        _twins[kernel] = FunctionType(source.__code__, names, source.__name__, defaults)
    return _twins[kernel]


def _namespace(module: dict[str, Any]) -> dict[str, Any]:
    """The names of a module, with plain Python in place of compiled functions."""
    if id(module) not in _namespaces:
        names = _namespaces[id(module)] = dict(module)
        names.update({name: twin(value) for name, value in module.items()})
    return _namespaces[id(module)]


def _numbers(arguments: Any) -> int:
    """How many numbers the arrays among arguments hold."""
    total = 0
    for one in arguments:
        if isinstance(one, np.ndarray):
            total += one.size
        elif isinstance(one, tuple):
            total += _numbers(one)
    return total


def numbers(argument: Any) -> Any:
    """An argument whose floats divide by zero as compiled ones do."""
    if isinstance(argument, float):
        return np.float64(argument)
    return _mapped(numbers, argument) if isinstance(argument, tuple) else argument


def _mapped(change: Callable[[Any], Any], parts: Any) -> Any:
    changed = map(change, parts)
    return type(parts)(*changed) if hasattr(parts, "_fields") else tuple(changed)


def native(result: Any) -> Any:
    """A result as compiled code returns it: numbers are Python's."""
    if isinstance(result, np.generic):
        return result.item()
    return _mapped(native, result) if isinstance(result, tuple) else result


def with_rent(kernel: Any) -> Any:
    """The compiled function, whose calls from Python are plain Python as long as that is sooner."""
    compiled = kernel._compile_for_args

    def chosen(*arguments: Any, **names: Any) -> Any:
        began = time.thread_time()  # to look for compiled code takes longer than many a call
        if rented() and (when() == "never" or _small(kernel, arguments)):
            return _timed(twin(kernel), began)
        return compiled(*arguments, **names)

    kernel._compile_for_args = chosen
    _twins[kernel] = None
    return kernel


def always_compiled(kernel: Any) -> Any:
    """A function of `with_rent` that is never plain Python after all.

    It works beside another one in memory that both change, and a change in Python is not whole.
    """
    if _twins.pop(kernel, kernel) is None:
        del kernel._compile_for_args
    return kernel


def possible() -> bool:
    """Whether the next call of a function may be plain Python."""
    return bool(numba.config.DISABLE_JIT) or rented()


def ready(kernel: Any, arguments: Any = None, worth: bool = False) -> bool:
    """Whether a call of the function would be compiled code; without arguments: may be.

    worth: whether it is to be compiled for a run that compiles others, if need be.
    """
    if numba.config.DISABLE_JIT or when() == "never":
        return False
    bought = not rented() and (worth or when() == "at-once" or not _contexts["at once"])
    if bought or kernel not in _twins:
        return True
    return not _without_code(kernel) if arguments is None else _found(kernel, arguments)


def compiled_since(before: float) -> bool:
    """Whether what was called since `seconds` were so many was compiled code for sure."""
    return not numba.config.DISABLE_JIT and seconds == before


def _small(kernel: Any, arguments: Any) -> bool:
    """Whether a call is short enough, and its compiled function not there already."""
    many = _numbers(arguments)
    if _contexts["few calls"] and many <= FEW and seconds < LOADING:
        return True
    return many <= LARGEST and not _found(kernel, arguments)


def _found(kernel: Any, arguments: Any) -> bool:
    """Whether a function is kept on disk for arguments like these."""
    if any(isinstance(one, OmittedArg) for one in arguments):
        return True
    if _without_code(kernel):  # to name the types of a call takes 0.4 ms
        return False
    signature = tuple(kernel.typeof_pyval(one) for one in arguments)
    if (id(kernel), signature) in _missing:
        return False
    with global_compiler_lock:  # what it looks through is of all threads
        if kernel._cache.holds(signature, kernel.targetctx):
            return True
    _missing.add((id(kernel), signature))
    return False


def _without_code(kernel: Any) -> bool:
    """Whether nothing was kept of a function when it was called first, for whatever types."""
    if id(kernel) not in _absent:
        _absent[id(kernel)] = not Path(kernel._cache._cache_file._index_path).exists()
    return _absent[id(kernel)]


def _timed(plain: Callable[..., Any], began: float) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        global seconds
        if not seconds:
            atexit.register(_remember)
        try:
            with np.errstate(all="ignore"):
                return native(plain(*map(numbers, arguments)))
        finally:
            seconds += time.thread_time() - began

    return call


def _account() -> Any:
    return cache_home() / "compiled" / f"plain-seconds-{digest('desim.engine.compiled.rounds')}"


def _before() -> float:
    """Seconds of plain Python in processes before this one."""
    global _earlier
    if _earlier is None:
        try:
            told = float(_account().read_text())
            _earlier = max(0.0, told) if math.isfinite(told) else 0.0
        except (OSError, ValueError):
            _earlier = 0.0
    return _earlier


def _remember() -> None:
    """Add this process's seconds to those of all, unless it was told never to compile."""
    with suppress(OSError, InputError):
        if when() == "never":
            return
        _account().parent.mkdir(parents=True, exist_ok=True)
        _account().write_text(f"{_before() + seconds:.3f}\n")
