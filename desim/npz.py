"""Arrays of npz files, which may be torn, forged or of objects: then they are refused in words."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNREADABLE = (
    ValueError, OSError, EOFError, TypeError, AttributeError, MemoryError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file, never unpickling anything; ValueError with the reason where damaged."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise ValueError(str(error)) from None
