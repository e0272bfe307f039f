"""Large matrices that are lent again once nobody holds them.

Memory that is new to a process is slow: a virtual machine's first has to come from its host.
"""

from weakref import finalize, ref

import numpy as np

from desim.arrays import Array

KEPT = 2  # matrices that nobody holds


class Leases:
    """Lends matrices; their memory comes back when the last array that looks at it is gone."""

    def __init__(self) -> None:
        self._free: list[Array] = []

    def matrix(self, rows: int, width: int) -> Array:
        """A matrix (rows, width), float64, of any numbers."""
        self._free = [one for one in self._free if one.shape == (rows, width)]
        lease = _Lease(self._free.pop() if self._free else np.empty((rows, width)))
        finalize(lease, _returned, ref(self), lease.matrix).atexit = False
        return np.asarray(lease)


def _returned(lender: "ref[Leases]", matrix: Array) -> None:
    leases = lender()
    if leases is not None and len(leases._free) < KEPT:
        leases._free.append(matrix)


class _Lease:
    """What arrays hold that look at a matrix, in the matrix's place."""

    def __init__(self, matrix: Array) -> None:
        self.matrix, self.__array_interface__ = matrix, matrix.__array_interface__
