"""A process of its own compiles what was played as plain Python, while runs go on without it.

It outlives the run that has begun it: what it keeps is for the next one. It has no terminal, reads
nothing and says nothing, and Ctrl-C does not reach it. Killed at any moment it leaves no half file
(see `code_cache`). Of one cache folder there is one at a time: it holds a lock on a file there, as
long as it lives. It is to be slow rather than to slow others down, and ends early where memory or
disk is short.
"""

import gc
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from desim.numerics.cache import cache_home
from desim.numerics.code_cache import GARBAGE, PACKAGE, foreign

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LONGEST = 1e4  # seconds: whoever says that a function took more does not tell the truth
EACH = 2.0  # seconds that a function takes to compile, before any was on this machine
BEGINNING = 2.0  # seconds that the process takes before it compiles
NICE = 10
MEMORY, DISK = 1 << 30, 1 << 26  # bytes without which nothing is compiled
FORK = "import os; os.fork() and os._exit(0); "  # whoever begins it has no child to look after
PROGRAM = f"from {__name__} import work; work()"


def _folder() -> Path:
    return cache_home() / "compiled"


@cache
def _usable(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK)


def possible() -> bool:
    """Whether such a process can begin, and what it keeps be found; it may be at work already."""
    return fcntl is not None and bool(sys.executable) and _usable(_folder())


def _lock() -> Any:
    """The lock of this folder, which is let go when all have closed it; None where it is taken."""
    file = (_folder() / "background.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def busy() -> bool:
    """Whether a process compiles for this folder now."""
    with suppress(OSError):
        if (file := _lock()) is None:
            return True
        file.close()
    return False


def start(wanted: Iterable[tuple[Any, Any]]) -> bool:
    """Begin to compile functions for argument types; False where that is not to be now.

    The process is given the lock that this one has taken: there is no moment without it.
    """
    from numba.core import serialize  # with cloudpickle

    with suppress(OSError), tempfile.TemporaryFile() as given:
        if not _room() or (lock := _lock()) is None:
            return False
        with lock:
            given.write(serialize.dumps([(*name_of(one), types) for one, types in wanted]))
            given.seek(0)
            own = filter(None, os.getenv("PYTHONPATH", "").split(os.pathsep))  # it works elsewhere
            path = os.pathsep.join([str(PACKAGE.parent), *map(os.path.abspath, own)])
            subprocess.run(
                [sys.executable, "-P", "-c", FORK + PROGRAM], check=False, stdin=given,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[lock.fileno()],
                start_new_session=True, cwd=_folder(), env=os.environ | {
                    "DESIM_COMPILE": "at-once", "PYTHONPATH": path,
                    "DESIM_CACHE_DIR": str(cache_home().resolve()),
                },
            )  # fmt: skip
            return True
    return False


def name_of(function: Any) -> tuple[str, str]:
    """The module of a function, and its name there."""
    return function.py_func.__module__, function.py_func.__name__


def keeps(function: Any, types: tuple[Any, ...]) -> bool:
    """Whether another process can compile this and has not yet; no class of a plug-in is kept."""
    module, name = name_of(function)
    there = vars(sys.modules[module]).get(name) is function and not foreign(types)
    with global_compiler_lock:
        return there and not function._cache.holds(types, function.targetctx)


def _room() -> bool:
    """Whether there are memory, as far as the system tells, and disk for it."""
    free = math.inf
    with suppress(OSError, ValueError, IndexError):
        told = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2]
        free = 1024.0 * int(told.split()[0])
    return free >= MEMORY and shutil.disk_usage(_folder()).free >= DISK


# The price: seconds that functions took to compile on this machine, by name.


def _prices() -> Path:
    return _folder() / "seconds-of-compiling.json"


def measured() -> dict[str, float]:
    """Seconds that each function took when it was compiled here; none where nobody knows."""
    with suppress(OSError, ValueError, RecursionError):
        known = json.loads(_prices().read_text())
        if isinstance(known, dict):
            told = known.items()
            return {k: s for k, s in told if type(s) in (int, float) and 0.0 <= s <= LONGEST}
    return {}


def price(functions: Iterable[Any]) -> float:
    """Seconds that it takes to compile these, by what others took where one was not yet."""
    known = measured()
    usual = sum(known.values()) / len(known) if known else EACH
    return BEGINNING + sum(known.get(".".join(name_of(one)), usual) for one in functions)


# What the process does.


def work() -> None:
    """Compile what standard input lists, and note what it took; the process ends then."""
    with suppress(OSError):
        os.nice(NICE)
        Path("/proc/self/oom_score_adj").write_text("1000")  # first to go where memory is short
    gc.set_threshold(GARBAGE)
    known = measured()
    for module, name, types in pickle.load(sys.stdin.buffer):
        if not _room():
            break
        with suppress(Exception):  # the others are of use all the same
            function = getattr(import_module(module), name)
            if isinstance(function, Dispatcher):
                began = time.process_time()
                function.compile(types)
                known[f"{module}.{name}"] = round(time.process_time() - began, 3)
                _noted(known)


def _noted(known: dict[str, float]) -> None:
    fresh = _prices().with_suffix(".part")  # this process is the only one here
    fresh.write_text(json.dumps(known))
    fresh.replace(_prices())
