"""Whose data were read by computations and are not noised yet: what an agent must not send bare."""

import numpy as np

from desim.arrays import Array, Mask

Agents = bool | Mask  # all agents of a cohort, none, or a mask (n,)


class Exposure:
    """Of the agents of one cohort, as far as they have computed and released.

    Noise that is drawn ahead covers the next computation of those that drew it.
    """

    def __init__(self) -> None:
        self.computed = False  # whether anything was, since the latest release of any agent
        self.read: Agents = False  # of whom something was computed that no release has noised since
        self._earlier: Agents = False  # the same before the latest computation
        self._ahead = False  # whether noise is drawn ahead, of whomever
        self._covered: Agents = False  # of whom

    def begin(self, n: int) -> None:
        """All n agents compute something that may read their data."""
        self._earlier = self.read
        if self._ahead:
            new = self._covered is False or difference(True, rows(self._covered, n))
            self.read = union(self.read, new)
            self._ahead = self._covered = False
        else:
            self.read = self.computed = True  # the same for all agents of a cohort

    def finish(self, work: Array, result: Array) -> None:
        """It gave result, rows (n, ...) for work (n,): who had none and gives zeros read nothing.

        A job that reads an agent's data has work there: that is the method's word.
        """
        if np.count_nonzero(work) == len(work):
            return
        nothing = (work == 0.0) & ~(result != 0.0).reshape(len(work), -1).any(axis=1)
        self.read = union(self._earlier, difference(self.read, nothing))

    def cover(self, mask: Mask) -> None:
        """Agents where `mask` (n,) have drawn noise that enters their next computation."""
        self._covered = union(self._covered, difference(True, ~mask))
        self._ahead = True

    def release(self, mask: Mask) -> None:
        """Agents where `mask` (n,) have released what they computed, with noise or charged."""
        self.computed, self.read = False, difference(self.read, mask)

    @property
    def bare(self) -> bool:
        """Whether somebody may have read data that no release has noised since."""
        return self.computed or self.read is not False


def rows(agents: Agents, n: int) -> Mask:
    """The mask (n,)."""
    return np.full(n, agents) if isinstance(agents, bool) else agents


def union(one: Agents, other: Agents) -> Agents:
    """Those of either."""
    if isinstance(one, bool):
        return True if one else other
    if isinstance(other, bool):
        return True if other else one
    return np.asarray(one | other)


def difference(agents: Agents, mask: Mask) -> Agents:
    """Those that are not in `mask` (n,)."""
    number = np.count_nonzero(mask)
    if agents is False or number == len(mask):
        return False
    if number == 0:
        return agents
    left = rows(agents, len(mask)) & ~np.asarray(mask)
    return left if left.any() else False
