"""What a summary tells of a log, gathered in one reading of it, piece by piece."""

from collections import Counter, deque

import numpy as np

from desim.columns import Columns, Pieces, Words
from desim.runs.reading.occupation import Occupation
from desim.runs.reading.sums import Keys, Sums
from desim.runs.reading.unanswered import Unanswered, Untimely
from desim.runs.reading.waits import closed, closers, instants

GLANCED = ["time", "kind", "agent", "peer", "round", "bytes", "seconds"]
SHORT = ["time", "kind", "bytes"]  # without who waited and computed


class Glance:
    """last: time s of the last event; counts: events by kind; bytes: delivered; agents: 1 + last.

    occupied: what agents did; closers: how often each closed a wait; hub: whether the coordinator
    waited; waited: (agent, for whom, s) of the pair with the longest waits in all, or None;
    unanswered: counts calls that were not answered in time, where that may be.
    """

    def __init__(
        self, pieces: Pieces, deep: bool = True, unanswered: Unanswered | Untimely | None = None
    ) -> None:
        self.last, self.bytes = 0.0, 0.0
        self.occupied, self.unanswered = Occupation(), unanswered
        self.counts: Counter[str] = Counter()
        self.closers: Counter[int] = Counter()
        self.hub = False
        self._pairs, self._waited = Keys(), Sums()
        self._arrived, self._last = Counter[bool](), Counter[bool]()  # by: whether at coordinator
        if deep:
            for log in instants(_counted(pieces, self)):
                self._wait(log)
        else:
            for log in pieces:
                self._count(log)

    def _count(self, log: Columns) -> None:
        kind: Words = log["kind"]
        self.last = max(self.last, float(log["time"].max(initial=0.0)))
        codes, counts = np.unique(kind.codes, return_counts=True)
        self.counts.update({kind.words[k]: int(n) for k, n in zip(codes, counts, strict=True)})
        self.bytes += float(log["bytes"][kind.equal("deliver")].sum())
        if "agent" in log:
            self.occupied.add(log)
            if self.unanswered is not None:
                deque(self.unanswered.at_collections(log), maxlen=0)

    def _wait(self, log: Columns) -> None:
        rows, closer = closed(log), closers(log)
        agent, waited = rows["agent"], rows["seconds"]
        who, counts = np.unique(closer, return_counts=True)
        self.closers.update(dict(zip(who.tolist(), counts.tolist(), strict=True)))
        self.hub = self.hub or bool((agent < 0).any())
        arrived = log["kind"].equal("deliver")
        to, time = log["agent"][arrived], log["time"][arrived]
        last = np.isin(to + 1j * time, agent + 1j * rows["time"])  # of one agent and instant
        for centre in (True, False):
            self._arrived[centre] += int(((to < 0) == centre).sum())
            self._last[centre] += int((((to < 0) == centre) & last).sum())
        between = (agent >= 0) & (closer >= 0)
        pair = agent[between].astype(np.int64) << 32 | closer[between]
        self._waited.add(self._pairs.of(pair), waited[between])

    @property
    def alike(self) -> bool:
        """Whether all that was waited for came together each time, so that nobody was last."""
        closed = self.closers.total()
        together = closed < self._arrived[self.hub] == self._last[self.hub]
        return together and min(self.closers, default=-1) >= 0

    @property
    def waited(self) -> tuple[int, int, float] | None:
        """The agent, for whom, and s, where most time passed in waiting; None without any."""
        pairs, places = self._pairs.sorted
        spent = self._waited.at(places)
        if not spent.max(initial=0.0) > 0.0:
            return None
        most = int(spent.argmax())
        one, other = divmod(int(pairs[most]), 1 << 32)
        return one, other, float(spent[most])


def _counted(pieces: Pieces, glance: Glance) -> Pieces:
    """The same pieces, each counted when it is read."""

    def read(number: int) -> Columns:
        log = pieces[number]
        glance._count(log)
        return log

    return Pieces(np.diff(pieces.first).tolist(), read)
