"""What the latest call of each agent carried: one row for all that were told the same."""

import numpy as np

from desim.arrays import Array, Int


class Payloads:
    """Rows (width,) by agent; a row that several agents were sent is in memory once."""

    def __init__(self, agents: int) -> None:
        self.width = 0
        self._blocks: dict[int, Array] = {}
        self._block, self._row = np.zeros(agents, np.int64), np.zeros(agents, np.int64)
        self._number = 0

    def note(self, who: Int, payload: Array) -> None:
        """Agents who (n,) are sent payload (p,), or (n, p), a row each."""
        if payload.shape[-1] != self.width:
            self.width, self._blocks = payload.shape[-1], {}
        self._number += 1
        self._blocks[self._number] = np.atleast_2d(np.array(payload, float))
        self._block[who] = self._number
        self._row[who] = 0 if payload.ndim == 1 else np.arange(len(who))
        if len(self._blocks) > 2 * len(self._block) + 2:
            used = np.unique(self._block).tolist()
            self._blocks = {one: self._blocks[one] for one in used if one in self._blocks}
        elif len(who) == len(self._block):
            self._blocks = {self._number: self._blocks[self._number]}

    def of(self, who: Int) -> Array:
        """A copy of the rows (n, width) of agents who (n,)."""
        block, row = self._block[who], self._row[who]
        if len(who) and (block == block[0]).all():
            return self._blocks[int(block[0])][row]
        rows = np.empty((len(who), self.width))
        for one in np.unique(block).tolist():
            mine = block == one
            rows[mine] = self._blocks[one][row[mine]]
        return rows
