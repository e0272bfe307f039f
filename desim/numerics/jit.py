"""The only place with compile flags, so that every kernel obeys the same arithmetic.

Strict IEEE arithmetic (no fastmath: a result must not depend on vector width or threads) and
numpy's error model (without it a division blocks vectorisation). What is compiled is kept on disk;
see `code_cache`.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from desim.errors import InputError
from desim.numerics.code_cache import PACKAGE, Store, guarded
from desim.numerics.parts import ENTRANCE, PART, KeptPart, leads_to
from desim.numerics.plain import with_rent

LEAN = {"error_model": "numpy", "forceinline": True, "_nrt": False, **PART}  # see `lean_inline`
PARALLEL_WORK = 1 << 19  # multiply-adds, about 0.1 ms on one core: 25 times the launch of a team

_threads: int | None = None
_launched = 0


def _compiled(function: Callable[..., Any], plain: bool = True, **flags: Any) -> Any:
    """A compiled function; plain: it may be played as plain Python until that is worth it.

    It vanishes into its callers only if it says so: otherwise it would, or not, as the first of
    them that is compiled does, and all that they call be optimised again for each place.
    """
    flags = {"error_model": "numpy", "forceinline": False} | flags
    path = Path(function.__code__.co_filename).resolve()
    own = path.is_relative_to(PACKAGE)  # not a plugin, whose helpers may change unseen
    entrance: Any = numba.njit(**flags | ENTRANCE)(function)
    if not isinstance(entrance, Dispatcher):
        return entrance
    if own:
        entrance._cache = Store(function, path)  # type: ignore[attr-defined]
    if ENTRANCE and not flags.get("parallel"):
        leads_to(entrance, lambda: _part(function, path if own else None, flags))
    return with_rent(guarded(entrance)) if plain and own else guarded(entrance)


def _part(function: Callable[..., Any], path: Path | None, flags: dict[str, Any]) -> Any:
    """What other compiled functions call of this one, kept if it has a path; see `parts`."""
    part = numba.njit(**flags | PART)(function)
    if path is not None:
        part._cache = Store(function, path, KeptPart)
    return guarded(part)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a serial kernel; like every one it lets other threads of Python run meanwhile."""
    return _compiled(function, nogil=True)


def product_kernel(function: Callable[..., Any]) -> Any:
    """Compile a serial kernel with matrix products, which is never played as plain Python.

    NumPy's library of products need not be the one of compiled code, and may round differently.
    """
    return _compiled(function, plain=False, nogil=True)


def inline(function: Callable[..., Any]) -> Any:
    """Compile a small function that vanishes into its callers' loops."""
    return _compiled(function, forceinline=True)


def lean_kernel(function: Callable[..., Any]) -> Any:
    """Compile a serial kernel that makes no arrays and returns none.

    Elsewhere numba counts, atomically, who holds each array that goes through a small function: in
    a kernel that only writes log rows that is three quarters of the time.
    """
    return _compiled(function, nogil=True, _nrt=False)


def far_kernel(function: Callable[..., Any]) -> Any:
    """Compile a lean kernel that returns nothing and that nobody calls but by its address."""
    return _compiled(function, nogil=True, _nrt=False, no_cpython_wrapper=True)


def lean_inline(function: Callable[..., Any]) -> Any:
    """Compile a part of lean kernels that vanishes into them: it makes and returns no arrays.

    Every array that is handed to a function which stays one costs seven numbers on the stack; of a
    short round with all its books that is more than the arithmetic. Python may call it, too.
    """
    return _compiled(function, nogil=True, forceinline=True, _nrt=False)


def parallel_kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel whose prange loop is shared by threads; its rows must be independent."""
    return _compiled(function, parallel=True, nogil=True)


def threads() -> int:
    """Threads of the parallel kernels: set_threads, else $DESIM_THREADS, else all cores."""
    global _threads
    if _threads is None:
        text = os.environ.get("DESIM_THREADS") or str(numba.config.NUMBA_NUM_THREADS)
        if not text.isdecimal() or int(text) < 1:
            raise InputError(f"DESIM_THREADS: found {text!r}; allowed: a whole number, at least 1")
        _threads = min(int(text), int(numba.config.NUMBA_NUM_THREADS))
    return _threads


def set_threads(number: int | None) -> None:
    """Use this many threads (at most the cores); None returns to the environment's choice."""
    global _threads
    if number is not None and number < 1:
        raise InputError(f"threads: found {number}; allowed: a whole number, at least 1")
    _threads = None if number is None else min(number, int(numba.config.NUMBA_NUM_THREADS))


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which parallel kernels have one thread."""
    global _threads
    before, _threads = _threads, 1
    try:
        yield
    finally:
        _threads = before


def use_parallel(work: float) -> bool:
    """Whether a call of `work` multiply-adds gains from threads; readies the team if so."""
    global _launched
    if work < PARALLEL_WORK or threads() == 1:
        return False
    if _launched != threads():
        numba.set_num_threads(threads())
        _launched = threads()
    return True


@cache
def _team(process: int, number: int) -> ThreadPoolExecutor:
    """Threads of one process: a fork has none of its parent's."""
    return ThreadPoolExecutor(number)


def in_parts(run: Callable[[int, int], Any], rows: int, work: float) -> None:
    """Call run(low, high) of a kernel on all `rows`, in parts on all threads if that gains.

    It is compiled once where a parallel kernel is compiled twice, which takes seconds where there
    are matrix products, but it takes longer to launch.
    """
    if not use_parallel(work) or rows < 2:
        run(0, rows)
        return
    parts = min(threads(), rows)
    ends = [rows * part // parts for part in range(parts + 1)]
    list(_team(os.getpid(), threads()).map(run, ends[:-1], ends[1:]))


@cache
def _blas() -> list[Any]:
    """The libraries of matrix products in this process, those of compiled code among them."""
    import scipy.linalg.cython_blas  # noqa: F401  loads the one that numba calls

    libraries = ThreadpoolController().lib_controllers
    return [one for one in libraries if one.user_api == "blas"]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread for matrix products: their bits, and the time of small ones, depend on it."""
    before = [(one, one.num_threads) for one in _blas() if one.num_threads != 1]
    for one, _ in before:
        one.set_num_threads(1)
    try:
        yield
    finally:
        for one, number in before:
            one.set_num_threads(number)
