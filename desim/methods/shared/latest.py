"""The latest reply of every agent, as a coordinator keeps it, with their sum."""

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.memory import Tree, attributes, recall
from desim.problem.kernels.sums import column_sums, replace_rows


class Latest:
    """Rows (agents, dim); a reply costs its own row, whatever the number of agents."""

    def __init__(self, rows: Array) -> None:
        self.rows, self.total, self.since = rows.copy(), column_sums(rows), np.zeros(1)

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return attributes(self, "rows total since")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, "rows total since")

    def replace(self, who: NDArray[np.int64], news: Array) -> Array:
        """Rows who (n,) become news (n, dim); return the new sum (dim,), which changes later."""
        replace_rows(self.rows, self.total, self.since, who, news)
        return np.asarray(self.total)
