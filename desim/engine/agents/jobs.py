"""Pure jobs, run late: what has begun waits until a result is needed, then runs as one batch.

A job's inputs are frozen when it begins and rows do not depend on each other, so that bits depend
neither on the size of a batch nor on what else is in it. Jobs that are never asked for never run.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.arguments import result_given
from desim.engine.at_work import Rows
from desim.engine.requests import Job
from desim.engine.world import World


@dataclass
class Ticket:
    """One agent's job and, once it has run, its result (1, dim)."""

    job: Job
    who: Int
    round: Int
    inputs: tuple[Array, ...]
    result: Array | None = None

    def alike(self, other: "Ticket") -> bool:
        """Whether one batch may run both."""
        one, two = ([(rows.dtype, rows.shape[1:]) for rows in t.inputs] for t in (self, other))
        return self.job == other.job and one == two


class Jobs:
    """Jobs that have begun and not run yet."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pending: list[Ticket] = []

    def begin(self, job: Job, us: Any, inputs: tuple[Array, ...]) -> Ticket:
        """Freeze the inputs (rows of one agent) and return the ticket for the result."""
        ticket = Ticket(job, us.who, us.round, tuple(np.array(rows) for rows in inputs))
        self.pending.append(ticket)
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """Nobody will ask for the result of this job."""
        self.pending = [other for other in self.pending if other is not ticket]

    def result(self, ticket: Ticket) -> Array:
        """Return the result of a job; if it has not run, run it and all pending of its kind."""
        if ticket.result is None:
            kind = [t for t in self.pending if t.alike(ticket) and t is not ticket]
            batch = [ticket, *kind][: self.world.settings.batch_limit]
            self.pending = [t for t in self.pending if all(t is not b for b in batch)]
            who, round_ = (np.concatenate([getattr(t, n) for t in batch]) for n in ("who", "round"))
            rows = Rows(who, round_, int(self.world.ledger.seed))
            inputs = [
                np.concatenate(parts) for parts in zip(*(t.inputs for t in batch), strict=True)
            ]
            results = self.world.work(ticket.job, rows, *inputs)
            results = result_given(ticket.job, results, len(who))
            for r, t in enumerate(batch):
                t.result = results[r : r + 1]
        assert ticket.result is not None
        return ticket.result
