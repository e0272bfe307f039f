"""`desim.replay`: a stored scenario played again, and the first row that comes out different."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.engine.world import Progress
from desim.errors import RunError
from desim.numerics.later import pd
from desim.runs.directory import ARRAYS
from desim.runs.premises import require_virtual
from desim.runs.recording import run as play
from desim.runs.run import Run, as_run

TABLES = ("events", "metrics", "releases")
NOTHING = "no row"
SUMMED = 1e-12  # relative, of listeners' numbers: rows come in batches that hang on real time


@dataclass(frozen=True)
class Difference:
    """Row `row` of a table, or entry `row` of an array, where `column` is not the same."""

    table: str
    row: int
    column: str
    stored: Any
    replayed: Any

    def __str__(self) -> str:
        values = f"stored {self.stored}, replayed {self.replayed}"
        return f"{self.table}: row {self.row}, {self.column}: {values}"


@dataclass(frozen=True)
class Replay:
    """A run played again.

    differences: columns table, row, column, stored, replayed with the first one of each table and
    array, and of what listeners said, in this order; whole: the stored run was complete, else it is
    the beginning that counts.
    """

    run: Run
    differences: pd.DataFrame
    whole: bool

    @property
    def same(self) -> bool:
        """Whether everything that was stored came out again, to the last bit."""
        return self.differences.empty

    def lines(self) -> list[str]:
        """What differs, one line for each table or array."""
        return [str(Difference(*row)) for row in self.differences.itertuples(index=False)]


def replay(run: Run | str | Path, progress: Callable[[Progress], None] | None = None) -> Replay:
    """Play the resolved scenario of a run, or of that in a directory, in memory and compare them.

    Of a run that was stopped or killed, the rows that it left are compared with the first ones. A
    file that is not the one the run has left is compared, too: this says where it differs.
    """
    run = as_run(run)
    require_virtual(run.manifest, "nothing replays it")
    stored = Run(run.manifest, run.store.as_it_is(), run.directory, run.scenario)
    try:
        again = play(run.scenario, progress=progress)
    except RunError as error:
        if not isinstance(error.run, Run):
            raise
        again = error.run
    whole = run.status in ("done", "failed")
    found = [
        first_difference(getattr(stored, name), getattr(again, name), name, whole)
        for name in TABLES
    ]
    if whole:
        for name in ARRAYS:
            was, now = stored.store.arrays(name), again.store.arrays(name)
            for key in sorted({*was, *now}):
                label = name if key == name else f"{name} {key}"
                found.append(_array_difference(label, was.get(key), now.get(key)))
        found.append(_difference_heard(stored.listeners, again.listeners))
    rows = [vars(one) for one in found if one is not None]
    columns = ["table", "row", "column", "stored", "replayed"]
    return Replay(again, pd.DataFrame(rows, columns=columns), whole)


def first_difference(
    stored: pd.DataFrame, replayed: pd.DataFrame, table: str, whole: bool = True
) -> Difference | None:
    """The first row in which two tables differ by a bit; not `whole`: stored may end earlier."""
    common = min(len(stored), len(replayed))
    first, where = common, ""
    for name in stored.columns:
        odd = _odd(stored[name].iloc[:common], replayed[name].iloc[:common])
        if len(odd) and odd[0] < first:
            first, where = int(odd[0]), name
    if where:
        return Difference(table, first, where, *(_at(f, first, where) for f in (stored, replayed)))
    if len(stored) == len(replayed) or (not whole and len(stored) < len(replayed)):
        return None
    return Difference(table, common, "row", _row(stored, common), _row(replayed, common))


def unlike(
    one: Run, other: Run, tables: Sequence[str] = TABLES, arrays: Sequence[str] = ARRAYS
) -> str:
    """In what two runs differ first, to the last bit, in words; empty where they are the same."""
    for name in tables:
        found = first_difference(getattr(one, name), getattr(other, name), name)
        if found is not None:
            values = f"{found.stored} and {found.replayed}"
            return f"{name} differ in row {found.row}, {found.column}: {values}"
    for name in arrays:
        first, second = one.store.arrays(name), other.store.arrays(name)
        for key in sorted({*first, *second}):
            a, b = first.get(key), second.get(key)
            numbers = a is not None and b is not None and a.dtype.kind == b.dtype.kind == "f"
            if a is None or b is None or not np.array_equal(a, b, equal_nan=numbers):
                return f"{name if key == name else f'state us.{key}'} differs"
    return ""


def _odd(stored: "pd.Series[Any]", replayed: "pd.Series[Any]") -> NDArray[np.int64]:
    """Places where two columns differ; NaN equals NaN."""
    if isinstance(stored.dtype, pd.CategoricalDtype):
        if stored.dtype == replayed.dtype:
            return np.flatnonzero(stored.cat.codes.to_numpy() != replayed.cat.codes.to_numpy())
        return np.flatnonzero(stored.astype(str).to_numpy() != replayed.astype(str).to_numpy())
    a, b = stored.to_numpy(), replayed.to_numpy()
    with np.errstate(invalid="ignore"):
        return np.flatnonzero((a != b) & ~((a != a) & (b != b)))


def _at(frame: pd.DataFrame, row: int, column: str) -> Any:
    value = frame[column].iloc[row]
    return value.item() if isinstance(value, np.generic) else value


def _row(frame: pd.DataFrame, row: int) -> str:
    if row >= len(frame):
        return NOTHING
    return " ".join(f"{name} {_at(frame, row, name)}" for name in frame.columns)


def _array_difference(label: str, stored: Any, replayed: Any) -> Difference | None:
    if stored is None or replayed is None or stored.shape != replayed.shape:
        shapes = ["none" if one is None else str(one.shape) for one in (stored, replayed)]
        return Difference(label, 0, "shape", *shapes)
    odd = np.flatnonzero((stored != replayed) & ~((stored != stored) & (replayed != replayed)))
    if not len(odd):
        return None
    values = (one.reshape(-1)[odd[0]].item() for one in (stored, replayed))
    return Difference(label, int(odd[0]), "entry", *values)


def _difference_heard(stored: Any, replayed: Any) -> Difference | None:
    """The first entry of what listeners said that came out different."""
    was, now = dict(_entries(stored)), dict(_entries(replayed))
    for name in [*was, *(name for name in now if name not in was)]:
        a, b = was.get(name, "nothing"), now.get(name, "nothing")
        numbers = isinstance(a, float) and isinstance(b, float)
        if a != b and not (numbers and np.isclose(a, b, rtol=SUMMED, atol=0.0, equal_nan=True)):
            return Difference("listeners", 0, name, a, b)
    return None


def _entries(said: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of numbers and words in mappings and lists, as `meter joules 3`."""
    if not isinstance(said, dict | list):
        yield name, said
        return
    for key, one in said.items() if isinstance(said, dict) else enumerate(said):
        yield from _entries(one, f"{name} {key}".lstrip())
