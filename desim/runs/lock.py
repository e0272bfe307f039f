"""Who writes to a run directory: one process at a time, known to all, forgotten when it dies.

The lock is on the directory itself: no file is left behind, and the system frees it at a SIGKILL.
"""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from desim.errors import InputError

try:
    import fcntl
except ImportError:  # a system without these locks: nobody is kept out
    fcntl = None  # type: ignore[assignment]

TRIES, PAUSE = 5, 0.02  # s; who only asks holds the directory for a moment


@contextmanager
def write_lock(path: Path, refusal: str) -> Iterator[None]:
    """Keep others from writing to directory `path`; InputError(refusal) where somebody does.

    On file systems without locks nobody is kept out.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        if not _locked(handle):
            raise InputError(f"{path}: {refusal}")
        yield
    finally:
        os.close(handle)


def busy(path: Path) -> bool:
    """Whether a process is writing to the run directory `path` at this moment."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _locked(handle, tries=1, shared=True)
    finally:
        os.close(handle)


def _locked(handle: int, tries: int = TRIES, shared: bool = False) -> bool:
    """Whether the lock was to be had, or locks are unknown here."""
    if fcntl is None:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    for attempt in range(tries):
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return True
            time.sleep(PAUSE if attempt + 1 < tries else 0.0)
        else:
            return True
    return False
