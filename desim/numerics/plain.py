"""Kernels as plain Python, as long as that is sooner done than compiling them.

The source of a kernel means the same to Python and has the same bits there. To compile what a run
of a second needs takes half a minute: so nothing is compiled before plain Python has taken as long,
as one rents skis before one buys them. Then a process of its own compiles (see `background`), and
what was played plainly is compiled code from when that is found on disk: no run waits for it.
"""

import atexit
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
from desim.numerics.cores import cores

PATIENCE = 20.0  # seconds of processor time in one process: it will go on for as long
PRICE = 40.0  # the same of all with these sources, where runs wait: what the quickstart compiles in
SOON = 1.0  # the same of one that is known to go on; and from one look at all this to the next
LARGEST = 1 << 20  # numbers handed to a call that is still played as plain Python
LOADING = 0.4  # seconds that the first function takes to load, with what numba imports for it
FEW = 1 << 13  # numbers handed to a call that is not worth a load

_namespaces: dict[int, dict[str, Any]] = {}
_twins: dict[Any, Callable[..., Any] | None] = {}  # None: not asked for yet
_missing: dict[tuple[int, Any], tuple[Any, Any]] = {}  # functions and types not found on disk
_contexts = {"at once": 0, "few calls": 0, "soon": 0}  # how many this process is in
_earlier: float | None = None  # seconds of plain Python in processes before this one
_counting = threading.Lock()  # of them: runs may be played in several threads
_looking = threading.Lock()
_awaited = False  # whether a process compiles, as far as this one knows
_paid = 0.0  # seconds of this process that a process has begun for
_next = SOON  # seconds at which it is looked at all this again
seconds = 0.0  # of processor time that plain Python took in this process
begun: list[Callable[[float], None]] = []  # called with the price when a process begins to compile


def when() -> str:
    """When kernels are compiled: `later`, `here` (later, and runs wait), `at-once` or `never`."""
    text = os.environ.get("DESIM_COMPILE") or "later"
    if text not in ("later", "here", "at-once", "never"):
        raise InputError(f"DESIM_COMPILE: {refusal(text, 'later, here, at-once, never')}")
    return text


def rented() -> bool:
    """Whether a kernel that is not compiled yet is to be played as plain Python now."""
    wanted = when()
    if numba.config.DISABLE_JIT or wanted == "at-once":
        return False
    if wanted == "never" or _contexts["at once"]:
        return wanted == "never"
    brief = _contexts["few calls"] > 0 and seconds < LOADING  # whatever others have spent
    return brief or seconds < min(PATIENCE, PRICE - _before()) or apart()


def apart() -> bool:
    """Whether a process of its own compiles, so that runs need not wait."""
    from desim.numerics import background  # most runs end before they ask

    return when() == "later" and background.possible()


def at_once() -> AbstractContextManager[None]:
    """Context in which what is called is compiled first, unless nothing is ever to be."""
    return _inside("at once")


def soon() -> AbstractContextManager[None]:
    """Context of so many calls that compiling is worth it; first of all where nobody else could."""
    return _inside("soon" if apart() and cores() > 1 else "at once")


def few_calls() -> AbstractContextManager[None]:
    """Context with so few calls that to load compiled code is not worth it, unless they add up."""
    return _inside("few calls")


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
        if _rents(kernel, arguments):
            return _timed(twin(kernel), began)
        return compiled(*arguments, **names)

    kernel._compile_for_args = chosen
    _twins[kernel] = None
    return kernel


def _rents(kernel: Any, arguments: tuple[Any, ...]) -> bool:
    return rented() and (when() == "never" or _small(kernel, arguments))


def rents(kernel: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a call of a compiled function is better plain Python now.

    One that this process has loaded numba calls at once, without asking.
    """
    if not _rents(kernel, arguments):
        return False
    loaded = when() != "never" and kernel.overloads
    return not (loaded and tuple(map(kernel.typeof_pyval, arguments)) in loaded)


def played(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """What a call as plain Python returns."""
    return _timed(twin(kernel), time.thread_time())(*arguments)


def absent(kernel: Any, argument: Any) -> bool:
    """Whether a function would be plain Python for an argument like this, unless all ever are."""
    if not rented() or when() == "never":
        return False
    kind = kernel.typeof_pyval(argument)
    if any(kind in signature for signature in kernel.overloads):
        return False
    with global_compiler_lock:
        return not kernel._cache.holds_some(kind)


def want(kernel: Any, arguments: tuple[Any, ...]) -> None:
    """Note that machine code for arguments like these would be of use, if there is none."""
    if isinstance(kernel, Dispatcher) and when() == "later":
        _found(kernel, arguments)


def spend(more: float) -> None:
    """Count seconds as plain Python's, which were spent because there is no machine code."""
    global seconds
    if not seconds:
        atexit.register(_remember)
    seconds += more
    if seconds >= _next:
        look()


@contextmanager
def counted() -> Iterator[None]:
    """Context whose seconds count as plain Python's."""
    began, before = time.thread_time(), seconds
    try:
        yield
    finally:
        spend(max(0.0, time.thread_time() - began - (seconds - before)))


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
    if arguments is None:
        return apart() or Path(kernel._cache._cache_file._index_path).exists()
    return _found(kernel, arguments)


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
    looked_for = id(kernel), _kinds(arguments)  # to name the types of a call takes 0.4 ms
    if looked_for in _missing:
        return False
    signature = tuple(kernel.typeof_pyval(one) for one in arguments)
    with global_compiler_lock:  # what it looks through is of all threads
        if kernel._cache.holds(signature, kernel.targetctx):
            return True
    _missing[looked_for] = kernel, signature
    return False


def _kinds(arguments: Any) -> tuple[Any, ...]:
    """What arguments of the same types have in common: no others do."""
    kinds: list[Any] = []
    for one in arguments:
        if isinstance(one, np.ndarray):
            flags = one.flags
            order = flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable
            kinds.append((one.dtype, one.ndim, order))
        elif isinstance(one, tuple):
            kinds.append((type(one), _kinds(one)))
        elif isinstance(one, int):
            kinds.append((type(one), one.bit_length() > 63))  # such is unsigned
        else:
            kinds.append(one if callable(one) else type(one))
    return tuple(kinds)


def look(over: bool = False) -> None:
    """Let a process compile what was missing, once that is paid for, or see what one has done.

    over: a run has just ended. What has ended while this process played is looked for anew.
    """
    global _awaited, _next, _paid, _earlier
    if when() != "later" or not seconds or not _looking.acquire(blocking=False):
        return
    from desim.numerics import background

    try:
        _next, spent = seconds + SOON, seconds - _paid
        if _awaited and not background.busy():
            _awaited = False
            _missing.clear()
        likely = spent >= (SOON if _contexts["soon"] else PATIENCE)
        if _awaited or not (likely or over) or not apart():
            return
        wanted = [one for one in list(_missing.values()) if background.keeps(*one)]
        price = background.price(kernel for kernel, _ in wanted)
        if not wanted or not (likely or spent + _before() >= price):
            return
        if background.start(wanted):
            _awaited, _paid, _earlier = True, seconds, 0.0
            with suppress(OSError):
                _account().write_text("0.000\n")
            for tell in begun:
                tell(price)
        else:
            _awaited = background.busy()
    finally:
        _looking.release()


def _timed(plain: Callable[..., Any], began: float) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return native(plain(*map(numbers, arguments)))
        finally:
            spend(time.thread_time() - began)

    return call


def _account() -> Any:
    return cache_home() / "compiled" / f"plain-seconds-{digest('desim.engine.compiled.rounds')}"


def _before() -> float:
    """Seconds of plain Python in processes before this one."""
    global _earlier
    if _earlier is None:
        _earlier = 0.0
        with suppress(OSError, ValueError):
            told = map(float, _account().read_text().split())
            _earlier = sum(s for s in told if 0.0 <= s < math.inf)
    return _earlier


def _remember() -> None:
    """Add a line for this process's seconds, as others may now, unless it is never to compile."""
    with suppress(OSError, InputError):
        if when() == "never":
            return
        _account().parent.mkdir(parents=True, exist_ok=True)
        with _account().open("a") as file:
            file.write(f"{seconds - _paid:.3f}\n")
