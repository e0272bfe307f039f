"""What jobs read of the agents' rows, against the batches that the terms of releases declare.

An account that reckons with a batch that stays secret is wrong where more rows were read. Seen are
`gradient` and `batch_gradient`: what a job reads in another way is not.
"""

from dataclasses import replace

import numpy as np

from desim.arrays import Array, Int
from desim.engine.play import Simulation
from desim.engine.signals import Listener, Release
from desim.experiments.audit.pairs import completed, unobserved
from desim.experiments.contract.finding import BrokenError
from desim.log.parquet import Tables
from desim.problem.kernels.gradients import recorded_batches

MARGIN = 1e-9  # relative, of shares of the rows
Read = tuple[Int, Int, int, Int]  # agents (n,), rounds (n,), step, how many rows (n,) of each


class Reads(Listener):
    """Compares, at each release, what the agent has read since its last one with its terms.

    held (agents,): how many rows each has; read: what has been read so far, which grows.
    """

    def __init__(self, rows: Int, read: list[Read]) -> None:
        self.held, self.read, self.looked = np.maximum(rows, 1), read, 0
        self.missed = np.ones(len(rows))  # chance of a row that no batch since had it
        self.whole = set[tuple[int, int]]()  # (round, agent) with a release of all rows
        self.wider: dict[tuple[int, int], tuple[float, float]] = {}  # chances: of a row, declared
        self.unread = 0  # releases that declare a batch, of which none was seen

    def releasing(self, batch: Release) -> Array:
        """Look at a batch of releases, which go out as they are."""
        who, round_, release = batch.who, batch.round, batch.release
        for agents, _, _, count in self.read[self.looked :]:
            agents, first = np.unique(agents, return_index=True)  # two points of one batch
            self.missed[agents] *= 1.0 - count[first] / self.held[agents]
        self.looked = len(self.read)
        declared = batch.terms.sampling[batch.rows]
        for r in np.flatnonzero(release >= 0):
            place, chance = (int(round_[r]), int(who[r])), 1.0 - self.missed[who[r]]
            if not declared[r] < 1.0:
                self.whole.add(place)
            elif chance > declared[r] * (1.0 + MARGIN):
                self.wider.setdefault(place, (float(chance), float(declared[r])))
            self.unread += bool(0.0 == chance < declared[r] < 1.0)
        self.missed[who[release >= 0]] = 1.0
        return batch.output

    def demand(self) -> None:
        """Raise BrokenError that names the first agent that read more than its terms declare."""
        for (k, i), (chance, declared) in sorted(self.wider.items()):
            if (k, i) not in self.whole:
                found = "all its rows are" if chance == 1.0 else f"{chance:.3g} of its rows are"
                raise BrokenError(
                    f"agent {i} releases in round {k} with sampling {declared:.3g}, but {found} "
                    "read since its last release: the batch that the account reckons with is not "
                    "the one that was drawn"
                )


def reads(simulation: Simulation) -> Reads:
    """All that jobs read in a play without metrics and budget; RunError where that fails."""
    one = unobserved(simulation)
    with recorded_batches() as read:
        found = Reads(one.problem.rows, read)
        settings = replace(one.settings, budget=None)
        completed(replace(one, settings=settings).play(Tables(), listeners=[found]))
    return found
