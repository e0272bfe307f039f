"""Blocks of rounds in which agents send to chosen neighbours: what waits, and what log rows say."""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.compiled.chosen import (
    AGENT,
    NOBODY,
    RELEASE,
    ROUND,
    Chosen,
    chosen_for,
    tell_chosen,
)
from desim.engine.compiled.lowering import Steps, Unplayable
from desim.engine.compiled.player import Player
from desim.engine.compiled.tape import Stretch
from desim.engine.requests import Heard
from desim.engine.us import Cohort
from desim.engine.world import World
from desim.masks import is_public
from desim.network.timeline.messages import DELIVER, SEND, log_each
from desim.network.timeline.record import UPLINK, Batch, Kind


class Meeting(Player):
    """Plays rounds with one message to a chosen neighbour, and one release, which waits for it."""

    block: Chosen  # the rounds that were played last

    def __init__(self, world: World, us: Cohort, steps: Steps) -> None:
        super().__init__(world, us, steps)
        if not self.wires.graph.degree.all():
            raise Unplayable("agents without neighbours")

    def sent(self, us: Cohort) -> bool:
        """Whether all was heard, and nothing waits but what is to be told with a message."""
        unsent, ahead, wires = us._unsent, us._ahead, self.wires
        kept = list(map(id, unsent)) == list(map(id, ahead))
        heard = wires.last is not None and not wires.pending
        return bool(kept and heard and (self.values or np.isfinite(wires.last).all()))

    def usable(self, stretch: Stretch) -> int:
        """As `Player`, and in which all know whom each agent sends to."""
        column = stretch.column(self.steps.to)  # type: ignore[arg-type]
        parts = [column] if isinstance(column, np.ndarray) else column
        bad = [b for b, to in enumerate(parts) if not is_public(to) or to.dtype.kind not in "iu"]
        return min([super().usable(stretch), *bad])

    def chosen(self, stretch: Stretch, number: int) -> Chosen:
        """Whom agents send to in rounds, and what waits."""
        rows = self._waiting()
        room = len(rows) + number * self.n
        self.block = chosen_for(number, self.n, self.wires.last, len(rows), room)
        self.block.to[:] = np.asarray(stretch.column(self.steps.to))[:number]  # type: ignore[arg-type]
        self.block.waiting[: len(rows)] = rows
        return self.block

    def _waiting(self) -> Any:
        """Rows of the ledger that wait for a message."""
        rows = self.world.ledger.rows
        return np.flatnonzero(rows.floats[: rows.n[0], 0] == np.inf)

    def heard(self, rows: Array) -> Heard:
        """What was heard in the latest round."""
        graph, wires = self.wires.graph, self.wires
        return Heard(graph.incoming, wires.places, wires.last.copy(), wires.number == wires.count)

    def counted(self, degrees: Array, part: slice) -> Array:
        """How many messages each agent heard in a part of the rounds, one after the other."""
        return self.block.came[part].ravel()

    def log_sent(
        self, us: Cohort, s: int, rounds: Any, part: slice, told: Any, within: Any, totals: Any
    ) -> None:
        """Append the rows of messages and of releases that waited for them; totals: bytes."""
        block, later, (v, drawn, *_) = self.block, self.world.log.later, self.steps.sends[s]
        times, ids, sizes = told[0], told[2], told[5]
        if drawn:
            release = ids[0, part]
        else:  # what was released last, in the round before
            release = np.tile(us._release, (len(rounds), 1))
            if len(ids):
                release[part.start == 0 :] = ids[0, max(0, part.start - 1) : part.stop - 1]
        link, factor = block.link[part], block.factor[part]
        inputs = self.first, link, factor, times[v, part], rounds, sizes[s], release
        if number := int(np.count_nonzero(link != NOBODY)):
            total = sum(totals[part])
            counts = (SEND, number, total), (DELIVER, number, total)
            later(Batch(tell_chosen, inputs, 2 * number, within[0], within[1], counts))
        low, high = block.ends[part.start - 1] if part.start else 0, block.ends[part.stop - 1]
        if number := int(high - low):
            sent, none = block.sent[:, low:high], np.zeros(number)
            place = UPLINK, sent[AGENT], -1, sent[ROUND], self.world.settings.horizon
            row = int(Kind.RELEASE), *place, block.times[low:high], none, none, sent[RELEASE]
            later(Batch(log_each, row, number, within[0], within[1], ((row[0], number, 0),)))

    def _leave(self, us: Cohort, stretch: Stretch, done: int, k: int, ids: Any) -> None:
        """Leave also what waits as it is after round k."""
        super()._leave(us, stretch, done, k, ids)
        own, wires, ledger = us.__dict__, self.wires, self.world.ledger
        link = self.block.link[done - 1]
        wires.number[:] = wires.count - 1
        wires.number[link[link != NOBODY]] = wires.count
        who, rounds, releases = ledger.rows.ints[self._waiting(), :3].T
        waits = np.full((len(turns := np.unique(rounds)), self.n), NOBODY)
        waits[np.searchsorted(turns, rounds), who] = releases
        own["_unsent"] = list(waits)
        own["_ahead"] = own["_unsent"].copy()  # the very same
        if ledger.waiting is not None:
            ledger.waiting[:] = np.inf
