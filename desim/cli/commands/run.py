"""`desim run`: plays a scenario into a run directory."""

from pathlib import Path
from typing import Annotated

import typer

from desim.cli.options import Force, Overrides, ScenarioFile, load_scenario
from desim.cli.outcome import complain, tell


def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="DIR", help="New directory; default: runs/NAME, or NAME-2, ..."
        ),
    ] = None,
    override: Overrides = None,
    force: Force = False,
) -> None:
    """Play a scenario into a run directory."""
    import desim
    from desim.cli.compiling import announced
    from desim.cli.progress import progress_bar
    from desim.runs.directory import next_free

    loaded = load_scenario(scenario, override)
    path = out or next_free(Path("runs"), loaded.name)
    try:
        with progress_bar(loaded.name) as progress, announced():
            played = desim.run(loaded, out=path, progress=progress, force=force)
    except KeyboardInterrupt:
        complain("stopped before the run began; nothing was written")
        raise typer.Exit(1) from None
    tell(played)
