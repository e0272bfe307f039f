"""What is computed once and kept between runs: compiled code, optima, tables of other libraries.

All of it may be deleted at any time, and a folder that cannot be written to is no error.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.npz import read_npz


def cache_home() -> Path:
    """$DESIM_CACHE_DIR, or desim's place in the user's cache folder."""
    chosen = os.environ.get("DESIM_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(home) / "desim"


def stored_arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of an npz file, or None where there is none or it is damaged."""
    try:
        return read_npz(path)
    except (OSError, ValueError):
        return None


def keep(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an npz file, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
