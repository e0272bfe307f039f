"""Where compiled code is kept: under a hash of what it was compiled from, wherever that lies.

Numba's own cache goes by the path of a source and does not see an edit in another file. Here the
folder of a file is a hash of its text and of all of desim that it imports, so that copies of desim
share what they have compiled, and an edit compiles anew only what may depend on it.
"""

import gc
import hashlib
import os
import pickle
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

import numba
from numba import types
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys

from desim.loggers import logger
from desim.numerics.cache import cache_home

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PACKAGE = Path(__file__).resolve().parents[1]
FROM = re.compile(rb"^ *from (desim[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
WHOLE = re.compile(rb"^ *import (desim[\w.]*)", re.MULTILINE)
LATER = re.compile(rb"\bkernel_of\(\s*[\"'](desim[\w.]*)")  # a kernel that is imported when needed
PATIENCE = 600.0  # seconds to wait for a process that compiles the same
GARBAGE = 200_000  # objects between collections meanwhile: looking at all of numba takes as long
FORMULAS = b"\n@formulas\n"  # files that say what a kernel computes which does not import them
_locks = threading.local()  # names of locks that this thread has
_naming = threading.RLock()  # numba's settings are of all threads, each of which may import kernels
_own = getattr(caching, "UserProvidedCacheLocator", None) or caching._UserProvidedCacheLocator


@cache
def _sources() -> dict[str, bytes]:
    """The text of each module of desim, by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_bytes()
    return found


@cache
def _imported(module: str) -> frozenset[str]:
    """Modules of desim that a module names in its imports, and those whose formulas it plays.

    These formulas are arithmetic: of what their own files import, only kernels matter.
    """
    sources, text = _sources(), _sources()[module]
    if module == "desim.numerics.jit":  # how it compiles is in its own text and in this one's
        return frozenset({"desim.numerics.parts"})
    named = {one.decode() for one in (*WHOLE.findall(text), *LATER.findall(text))}
    for package, names in FROM.findall(text):
        inner = re.findall(r"\w+", names.decode())
        named |= {package.decode(), *(f"{package.decode()}.{name}" for name in inner)}
    if b"formulas import" in text and FORMULAS not in text:
        named |= {name for name, other in sources.items() if FORMULAS in other}
    if FORMULAS in text:
        named = {name for name in named if name.startswith("desim.problem.kernels")}
    return frozenset(named & sources.keys()) - {module, "desim"}


@cache
def digest(module: str) -> str:
    """A hash of a module's source and of all of desim that it depends on."""
    found, fresh = set[str](), {module}
    while fresh:
        found |= fresh
        fresh = {inner for one in fresh for inner in _imported(one)} - found
    whole = hashlib.sha256()
    for name in sorted(found):
        whole.update(name.encode() + b"\0" + _sources()[name])
    return whole.hexdigest()[:16]


@cache
def folder_of(path: Path) -> Path:
    """The folder of what is compiled from a file of desim."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    folder = cache_home() / "compiled" / f"{name.removeprefix('desim.')}-{digest(name)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError
    except OSError:
        folder = _own_temporary() / folder.name
        folder.mkdir(exist_ok=True)
    return folder


@cache
def _own_temporary() -> Path:
    """A folder below that for temporary files that is this user's alone.

    One that somebody else has made is not read: what is in it would run here.
    """
    user = os.getuid() if hasattr(os, "getuid") else "own"
    folder = Path(tempfile.gettempdir()) / f"desim-{user}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022 and found.st_uid == user:
            return folder
    return Path(tempfile.mkdtemp(prefix="desim-"))


class ByContent(_own):  # type: ignore[misc,valid-type]
    """Numba's way to find what is kept of a function."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        self._py_file, self._lineno = path, function.__code__.co_firstlineno
        self._cache_path = str(folder_of(Path(path).resolve()))

    def get_source_stamp(self) -> str:
        """Nothing to add: the folder is the content."""
        return ""


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """No other process is in here meanwhile, where the system has locks on files.

    A process that has stopped for good does not keep others from their work: they wait PATIENCE.
    """
    names = _locks.__dict__.setdefault("names", set())
    try:
        file = None if fcntl is None or lock in names else lock.open("w")
    except OSError:  # a folder to read from alone
        file = None
    if file is None:
        yield
        return
    with file:
        until = time.monotonic() + PATIENCE
        while not _free(file) and time.monotonic() < until:
            time.sleep(0.02)
        names.add(lock)
        try:
            yield
        finally:
            names.remove(lock)
            fcntl.flock(file, fcntl.LOCK_UN)  # a fork may have the file open, too


def _free(file: IO[str]) -> bool:
    """Whether no other process has this lock; from now on this one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def foreign(kind: Any) -> bool:
    """Whether types name a class of a plug-in: kept, they could not be read without that file."""
    inner = kind if isinstance(kind, tuple) else getattr(kind, "args", getattr(kind, "types", ()))
    module = getattr(getattr(kind, "instance_class", None), "__module__", "desim")
    return module.split(".")[0] != "desim" or any(map(foreign, inner))


UNREADABLE = (AttributeError, ImportError, EOFError, pickle.UnpicklingError)  # or cut off


class Index(caching.IndexDataCacheFile):  # type: ignore[misc]
    """Numba's list of what is stored of a function."""

    def _load_index(self) -> Any:
        """It names classes of arguments: one that another desim had elsewhere cannot be read."""
        try:
            return super()._load_index()
        except UNREADABLE:
            return {}


class Store(caching.FunctionCache):  # type: ignore[misc]
    """What is kept of a function of desim; its files are looked for when they are first wanted.

    impl: how it is kept.
    """

    def __init__(
        self, function: Callable[..., Any], path: Path, impl: Any = caching.CompileResultCacheImpl
    ) -> None:
        self._function, self._path, self._impl_class = function, path, impl
        self._called = f"{function.__module__}.{function.__qualname__}"

    def __getattr__(self, name: str) -> Any:
        """What numba sets at the beginning: where the files are, which takes a while."""
        if name.startswith("__") or "_cache_file" in vars(self):
            raise AttributeError(name)
        with by_content(self._path):
            super().__init__(self._function)
        self._cache_file.__class__ = Index
        return getattr(self, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The stored code; numba would first import all that it compiles with, .2 s of it."""
        rtsys.initialize(target)
        with self._guard_against_spurious_io_errors(), suppress(*UNREADABLE):
            found = self._load_overload(signature, target)
            if found is not None:
                logger("compile").debug("%s: read", self._called)
            return found

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep the code, if there is room: a run that compiles needs no disk for it."""
        logger("compile").info("%s: compiled", self._called)
        with suppress(OSError):
            super().save_overload(signature, data)

    def holds(self, signature: Any, target: Any) -> bool:
        """Whether there is code for arguments like these."""
        name = self._cache_file._load_index().get(self._index_key(signature, target.codegen()))
        return name is not None and os.path.exists(self._cache_file._data_path(name))

    def holds_some(self, kind: Any) -> bool:
        """Whether there is code for arguments of which one has this type."""
        return any(kind in signature for signature, *_ in self._cache_file._load_index())


def guarded(function: Any) -> Any:
    """The compiled function, which one process at a time compiles and adds to what is kept.

    Of two that want the same at once the second finds it kept. And the index of what is kept is
    safe: numba reads it, adds a line and writes it, so that of two processes that do so at once
    each would name the same file, and one would find the other's code behind its own signature.

    A literal number gets no code of its own: where a function vanishes into its caller, the
    compiler knows the number all the same.
    """
    kept = function._cache
    if isinstance(kept, caching.FunctionCache):
        compiled = function.compile

        def once(signature: Any) -> Any:
            signature = tuple(map(types.unliteral, signature))
            lock = Path(kept.cache_path) / f"{function.__name__}.lock"
            with global_compiler_lock, _alone(lock):
                function._cache = caching.NullCache() if foreign(signature) else kept
                before = gc.get_threshold()
                gc.set_threshold(before[0] and max(before[0], GARBAGE), *before[1:])
                try:
                    return compiled(signature)
                finally:
                    gc.set_threshold(*before)
                    function._cache = kept

        function.compile = once
    return function


@contextmanager
def by_content(path: Path) -> Iterator[None]:
    """A function of this file that is made ready meanwhile is kept by its content.

    A numba that knows no other ways to find what it kept adds the path of the file to that.
    """
    with _naming:
        before = numba.config.CACHE_DIR, getattr(numba.config, "CACHE_LOCATOR_CLASSES", "")
        numba.config.CACHE_DIR = str(folder_of(path))
        numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.ByContent"
        try:
            yield
        finally:
            numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = before
