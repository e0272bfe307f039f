"""What a run had spent by then: a total that grows with time, of bytes or of epsilon."""

from dataclasses import dataclass

import numpy as np

from desim.arrays import Array
from desim.runs.played import Played


@dataclass(frozen=True)
class Meter:
    """What has been spent: times (n,) s in order, and the total (n,) from each of them on."""

    times: Array
    totals: Array

    def by(self, when: Array | float) -> Array:
        """The totals at times (m,) s, all that happens at those instants included."""
        before = np.searchsorted(self.times, when, side="right")
        return np.asarray(np.concatenate([[0.0], self.totals])[before])


def delivered(run: Played) -> Meter:
    """Bytes of the messages that arrived; InputError where the log leaves messages out."""
    arrived = run.delivered()
    return Meter(arrived["time"].to_numpy(float), np.cumsum(arrived["bytes"].to_numpy(float)))
