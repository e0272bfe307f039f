"""A sink for a play that may turn out to need another engine, which plays it from the start."""

from collections.abc import Callable, Mapping
from typing import Any

from desim.columns import Deferred, rows_of
from desim.engine.signals import Sink


class Once:
    """A sink that takes every row once, though a play `again` hands over all from the start."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.known, self.count = sink, dict[str, int](), dict[str, int]()

    def again(self) -> "Once":
        """Itself, to which come the rows of another play, the first of which are known."""
        self.known, self.count = self.count, {}
        return self

    def heeding(self, report: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
        """`report`, which Ctrl-C interrupts only once all known rows have come again.

        A run that ends before would have less than is written down of it.
        """

        def told(progress: Any) -> None:
            try:
                assert report is not None
                report(progress)
            except KeyboardInterrupt:
                if all(self.count.get(name, 0) >= rows for name, rows in self.known.items()):
                    raise

        return report and told

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
