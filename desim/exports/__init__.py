"""`desim.export`: runs for other programs: Perfetto's timeline, and csv."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from desim.errors import InputError, refusal
from desim.runs.run import Run

Kind = Literal["perfetto", "csv"]


def export(
    run: Run,
    to: str,
    out: str | Path | None = None,
    *,
    rounds: tuple[int, int] | None = None,
    agents: int | None = None,
    tell: Callable[[str], object] = lambda text: None,
    progress: Callable[[int, int], object] | None = None,
) -> Path:
    """Write a run for another program and return where.

    to: perfetto (one file, for ui.perfetto.dev) or csv (a folder); out: default in the run's
    directory. rounds, agents: for perfetto, the first and last round and how many agents are
    shown; default: as many as fit. tell is told what is left out, progress how
    many of how many rows of csv are written. InputError for another format, a
    place that cannot be written, or a run in memory without out.
    """
    from desim.exports.perfetto import write_trace
    from desim.exports.tables import write_tables

    if to not in get_args(Kind):
        raise InputError(f"export: {refusal(to, ', '.join(get_args(Kind)), get_args(Kind))}")
    if out is None and run.directory is None:
        raise InputError("export: the run is in memory; allowed: out, where it is to go")
    name = "trace.pftrace" if to == "perfetto" else "csv"
    path = Path(out) if out is not None else (run.directory or Path()) / name
    try:
        if to == "csv":
            write_tables(run, path, progress)
        else:
            for text in write_trace(run, path, rounds, agents):
                tell(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return path
