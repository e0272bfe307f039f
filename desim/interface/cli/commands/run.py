"""`desim run`: simulates a scenario into a run directory."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from desim.errors import InputError, gathering
from desim.interface.cli.options import (
    Board,
    Cluster,
    Flow,
    Force,
    Overrides,
    ScenarioFile,
    Trainers,
    load_scenario,
    output_option,
    switch,
    trackers,
    with_out,
)
from desim.interface.cli.progress import begun, complain, left, remark, tell

if TYPE_CHECKING:
    from desim.runs.run import Run
    from desim.scenario.schema import Scenario


def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, output_option("DIR", "New directory; default: runs/NAME, or NAME-2, ...")
    ] = None,
    override: Overrides = None,
    force: Force = False,
    workers: Trainers = None,
    dask: Cluster = None,
    tensorboard: Board = None,
    mlflow: Flow = None,
    watch: Annotated[bool, switch("watch", "Serve a page that shows it, until Ctrl-C.")] = False,
) -> None:
    """Simulate a scenario into a run directory."""
    more = {"trackers": trackers(tensorboard, mlflow), "workers": workers, "dask": dask}
    simulated(lambda: load_scenario(scenario, override), out, force, watch, more)


def simulated(
    read: Callable[[], "Scenario"], out: Path | None, force: bool, watch: bool = False,
    more: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Simulate the scenario that read() gives into `out`, or a directory of its name.

    watch: with a page that shows it; more: of `record`.
    """
    from desim.runs.directory import next_free

    loaded = ready(read, out, force)
    path = out or next_free(Path("runs"), loaded.name)
    if not watch:
        tell(_played(loaded, path, force, more or {}))
        return
    from desim.interface.player.local_server import beside

    with beside(path, complain) as wait:
        played = _played(loaded, path, force, more or {})
        tell(played)
        wait()


def _played(loaded: "Scenario", path: Path, force: bool, more: dict[str, Any]) -> "Run":
    """The run, played into the directory, or as far as Ctrl-C lets it come; more: of `record`."""
    from desim.interface.cli.progress import announced, progress_bar
    from desim.runs.recording import prepare, record
    from desim.scenario.described import circumstances

    before = begun(path)
    try:
        with progress_bar(loaded.name) as progress, announced(progress.compiling):
            prepared = prepare(loaded)
            progress.engine = prepared.simulation.engine
            for line in circumstances(prepared.simulation):
                remark(line)
            return record(prepared, path, progress, force, **more)
    except KeyboardInterrupt:
        return left(path, before)


def ready(read: Callable[[], "Scenario"], out: Path | None, force: bool) -> "Scenario":
    """The scenario; InputError with all that is wrong with it and with the directory."""
    from desim.runs.directory import check_free

    problems: list[str] = []
    with gathering(problems):
        with_out(force, out)
        if out is not None:
            check_free(out, force)
    try:
        loaded = read()
    except InputError as error:
        raise InputError([*error.problems, *problems]) from None
    if problems:
        raise InputError(problems)
    return loaded
