"""Memory that is handed out in order, from large pieces.

The first touch of a page costs as much as writing fifty rows of the log. Pieces as large as these
come in huge pages where the system has them, which numpy asks for.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 23  # bytes
ALIGNED = 64  # bytes: a line of the processor's memory


class Arena:
    """Hands out arrays; a piece is let go with the last array of it."""

    def __init__(self) -> None:
        self._free = np.empty(0, np.uint8)

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """An array of this shape, C-contiguous and not filled."""
        size = prod(np.atleast_1d(shape).tolist()) * np.dtype(dtype).itemsize
        whole = -(-size // ALIGNED) * ALIGNED
        if whole > len(self._free):
            self._free = np.empty(max(PIECE, whole), np.uint8)
        piece, self._free = self._free[:size], self._free[whole:]
        return np.asarray(piece.view(dtype).reshape(shape))
