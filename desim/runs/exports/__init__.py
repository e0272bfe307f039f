"""`desim.export`: runs for other programs, Perfetto's timeline and csv, and for other eyes."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from desim.errors import InputError, chosen
from desim.runs.run import Run, as_run

Kind = Literal["perfetto", "csv", "public"]
NAMES = {"perfetto": "trace.pftrace", "csv": "csv", "public": "public"}


def export(
    run: Run | str | Path,
    to: str,
    out: str | Path | None = None,
    *,
    rounds: tuple[int, int] | None = None,
    agents: int | None = None,
    tell: Callable[[str], object] = lambda text: None,
    progress: Callable[[int, int], object] | None = None,
    view: str | None = None,
    delta: float | None = None,
    relation: str | None = None,
    anyway: bool = False,
) -> Path:
    """Write a run for another program, or for other eyes, and return where.

    run: it, or its directory; to: perfetto (one file, for ui.perfetto.dev), csv (a folder: all
    tables, private ones too), or public (a folder: what a view may see, and its epsilon); out:
    default in the run's directory.
    rounds, agents: for perfetto, the first and last round and how many agents are shown; default:
    as many as fit. view, delta, relation: for public, default the scenario's; anyway: where their
    epsilon is infinite, too. tell is told what is left out, progress how many of how many rows of
    csv are written. InputError for another format, a place that cannot be written, an infinite
    epsilon, or a run in memory without out.
    """
    from desim.runs.exports.csv_tables import write_tables
    from desim.runs.exports.perfetto import write_trace
    from desim.runs.exports.public import write_public

    chosen("export", to, get_args(Kind))
    run = as_run(run)
    if out is None and run.directory is None:
        raise InputError("export: the run is in memory; allowed: out, where it is to go")
    path = Path(out) if out is not None else (run.directory or Path()) / NAMES[to]
    try:
        if to == "csv":
            write_tables(run, path, progress)
        elif to == "public":
            for text in write_public(run, path, view, delta, relation, anyway):
                tell(f"left out: {text}")
        else:
            for text in write_trace(run, path, rounds, agents):
                tell(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return path
