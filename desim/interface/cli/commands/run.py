"""`desim run`: simulates a scenario into a run directory."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from desim.errors import InputError, gathering
from desim.interface.cli.options import (
    Force,
    Overrides,
    ScenarioFile,
    load_scenario,
    output_option,
    with_out,
)
from desim.interface.cli.progress import begun, left, remark, tell

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario


def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, output_option("DIR", "New directory; default: runs/NAME, or NAME-2, ...")
    ] = None,
    override: Overrides = None,
    force: Force = False,
) -> None:
    """Simulate a scenario into a run directory."""
    simulated(lambda: load_scenario(scenario, override), out, force)


def simulated(read: Callable[[], "Scenario"], out: Path | None, force: bool) -> None:
    """Simulate the scenario that read() gives into `out`, or a directory of its name."""
    from desim.interface.cli.progress import announced, progress_bar
    from desim.runs.directory import next_free
    from desim.runs.recording import prepare, record
    from desim.scenario.described import circumstances

    loaded = ready(read, out, force)
    path = out or next_free(Path("runs"), loaded.name)
    before = begun(path)
    try:
        with progress_bar(loaded.name) as progress, announced(progress.compiling):
            prepared = prepare(loaded)
            progress.engine = prepared.simulation.engine
            for line in circumstances(prepared.simulation):
                remark(line)
            played = record(prepared, path, progress, force)
    except KeyboardInterrupt:
        played = left(path, before)
    tell(played)


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
