"""A play on a compiled engine, or else on the cohort engine, from the start with the same bits."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from desim.columns import Deferred, rows_of
from desim.engine.signals import Sink
from desim.engine.world import Discard, Unforeseen, World
from desim.numerics.plain import absent, counted


def play(method: Any, engine: Any, world: World, long: bool, drive: Any, new: Any) -> float:
    """Play a method on a compiled engine; return the end of the run in virtual seconds.

    Where the cohort engine is sooner done, or the program does what compiled rounds do not know,
    drive(world, "cohort"). long: whether the run is worth compiling for; new: what makes a World.
    """
    if method.kind == "coordinator":
        program = method.compiled()
        if long or not _sooner_otherwise(program, world):
            return float(engine(program, world))
        from desim.engine.compiled.star import want

        want(program, new(world.settings, Discard(), None))
        with counted():
            return float(drive(world, "cohort"))
    if not isinstance(world.sink, Discard):
        world.sink = Once(world.sink)
    try:
        return float(engine(method.agents, world))
    except Unforeseen:
        if isinstance(world.sink, Once):
            world.sink.again()
        world.begin_again(new)
        if isinstance(world.sink, Once):
            world.report = world.sink.heeding(world.report)
        return float(drive(world, "cohort"))


def _sooner_otherwise(program: Any, world: World) -> bool:
    """Whether there is no code for the formulas, and it is known how many rounds there are.

    A run that is resumed goes on as it began.
    """
    if world.keeper is not None and world.keeper.found is not None:
        return "desk" not in world.keeper.found["engine"]
    from desim.engine.compiled.rounds import advance

    return world.settings.rounds < np.inf and absent(advance, program.formulas)


class Once:
    """A sink that takes every row once, though a play `again` hands over all from the start."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.known, self.count = sink, dict[str, int](), dict[str, int]()

    def again(self) -> None:
        """From now on come the rows of another play, the first of which are known."""
        self.known, self.count = self.count, {}

    def heeding(self, report: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
        """`report`, which Ctrl-C interrupts only once all known rows have come again.

        A run that ends before would have less than is written down of it.
        """

        def waiting(progress: Any) -> None:
            try:
                assert report is not None
                report(progress)
            except KeyboardInterrupt:
                if all(self.count.get(name, 0) >= rows for name, rows in self.known.items()):
                    raise

        return report and waiting

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Hand on what is new."""
        rows = columns.rows if isinstance(columns, Deferred) else len(next(iter(columns.values())))
        before = self.count.get(name, 0)
        self.count[name] = before + rows
        known = self.known.get(name, 0) - before
        if known <= 0:
            self.sink.append(name, columns)
        elif known < rows:
            self.sink.append(name, rows_of(columns, slice(known, None)))
