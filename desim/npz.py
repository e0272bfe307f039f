"""Arrays of npz files, which may be torn, forged or of objects: then they are refused in words."""

from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import raised


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file, never unpickling anything; ValueError with the reason where damaged."""
    try:
        with path.open("rb") as opened, loaded(opened) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise
    except Exception as error:  # zip, zlib, numpy and its headers have no exception in common
        raise ValueError(str(error) if type(error) is ValueError else raised(error)) from None


def loaded(opened: IO[bytes]) -> Any:
    """The npz file that is open, as numpy reads it; ValueError for a single array."""
    found = np.load(opened, allow_pickle=False)
    if isinstance(found, np.ndarray):
        raise ValueError("it is one array, as npy files are")
    return found
