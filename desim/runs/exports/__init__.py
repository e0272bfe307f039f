"""`desim.export`: runs for other programs, timelines, csv and trackers, and for other eyes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.columns import Pieces, Words, pieces_of
from desim.errors import InputError, chosen
from desim.log.column_meanings import COLUMNS
from desim.numerics.later import pd
from desim.runs.directory import output
from desim.runs.run import Run, as_run, is_run

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"perfetto": "trace.pftrace", "csv": "csv", "public": "public"}
TRACKERS = {"tensorboard": "tensorboard", "mlflow": "mlruns"}


def export(
    run: Run | str | Path | Mapping[str, Sequence[Run]],
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
    tables, private ones too), public (a folder: what a view may see, and its epsilon), tensorboard
    or mlflow (see `desim.TensorBoard` and `desim.MLflow`; of these run may also be runs by label,
    as `Study.by_case` has them, an experiment with the name of the study's directory, and out an
    address); out: default in the run's directory.
    rounds, agents: for perfetto, the first and last round and how many agents are shown; default:
    as many as fit. view, delta, relation: for public, default the scenario's; anyway: where their
    epsilon is infinite, too. tell is told what is left out, progress how many of how many rows of
    csv are written. InputError for another format, a place that cannot be written, an infinite
    epsilon, or a run in memory without out.
    """
    from desim.runs.exports.perfetto import write_trace
    from desim.runs.exports.public import write_public

    chosen("export", to, NAMES | TRACKERS)
    if to in TRACKERS:
        return told(run, to, out)
    if isinstance(run, Mapping):
        raise InputError(f"export: found several runs, to {to}; allowed: one")
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


# Trackers: a run, or each run of a study.


def told(
    run: Run | str | Path | Mapping[str, Sequence[Run]], to: str, out: str | Path | None
) -> Path:
    """Tell a tracker of runs; return where."""
    from desim.runs.trackers import tell
    from desim.runs.trackers.event_files import TensorBoard
    from desim.runs.trackers.experiment_runs import MLflow

    if isinstance(run, Mapping):
        named = titled(run)
    else:
        one = as_run(run)
        named = {one.name if one.directory is None else one.directory.resolve().name: one}
        out = out or (one.directory and one.directory / TRACKERS[to])
    if out is None or not named:
        raise InputError("export: found no runs, or no out; allowed: both, or a run's directory")
    place = next(iter(named.values())).directory
    experiment = place.resolve().parents[1].name if isinstance(run, Mapping) and place else None
    tracker = TensorBoard(out) if to == "tensorboard" else MLflow(out, experiment)
    for title, one in named.items():
        tell(tracker, one, title)
    return Path(out)


def titled(labelled: Mapping[str, Any]) -> dict[str, Run]:
    """Runs by label, and those of a label by seed: each with a title that a folder may have."""
    from desim.runs.trackers.grouped import title_of

    found: dict[str, Run] = {}
    for label, some in labelled.items():
        for one in [some] if is_run(some) else some:
            run = as_run(one)
            found[title_of(label, run.manifest["seed"], found)] = run
    return found


# csv: the three tables of a run, and one that says what their columns are.

TABLES = ("events", "metrics", "releases")
AT_ONCE = 100_000  # rows written before progress is told


def write_tables(
    run: Run, folder: Path, progress: Callable[[int, int], object] | None = None
) -> None:
    """Write events.csv, metrics.csv, releases.csv and columns.csv; numbers read back exactly.

    progress is told how many of how many rows are written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; allowed: a folder")
    tables = {name: run.store.pieces(name, list(COLUMNS[name])) for name in TABLES}
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(name, column, *found) for name in TABLES for column, found in COLUMNS[name].items()]
    tables["columns"] = pieces_of(
        pd.DataFrame(rows, columns=["table", "column", "unit", "meaning"])
    )
    done, total = 0, sum(int(pieces.first[-1]) for pieces in tables.values())
    for name, pieces in tables.items():
        with (
            output(folder / f"{name}.csv", [".csv"]) as partial,
            partial.open("w", encoding="utf-8", newline="") as file,
        ):
            for place, part in enumerate(_parts(pieces)):
                part.to_csv(file, index=False, header=place == 0)
                done += len(part)
                if progress is not None:
                    progress(done, total)


def _parts(pieces: Pieces) -> Iterator["pd.DataFrame"]:
    """The rows, at most AT_ONCE at a time, and a part without rows where there are none."""
    for columns in pieces:
        whole = pd.DataFrame({
            name: pd.Categorical.from_codes(one.codes, pd.Index(one.words))
            if isinstance(one, Words) else one
            for name, one in columns.items()
        })  # fmt: skip
        for first in range(0, max(len(whole), 1), AT_ONCE):
            yield whole.iloc[first : first + AT_ONCE]
