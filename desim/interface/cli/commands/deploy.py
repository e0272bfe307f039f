"""`desim deploy`: plays a scenario by real processes that speak TCP."""

from pathlib import Path
from typing import Annotated

from desim.interface.cli.commands.run import ready
from desim.interface.cli.options import (
    Board,
    Flow,
    Force,
    Overrides,
    ScenarioFile,
    load_scenario,
    option,
    output_option,
    switch,
    trackers,
)
from desim.interface.cli.progress import begun, complain, left, tell

HOSTS = "A file of hosts (YAML): wait for them at a port, see desim join."


def deploy(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, output_option("DIR", "New directory; default: runs/NAME, or NAME-2, ...")
    ] = None,
    loopback: Annotated[
        bool, switch("loopback", "On this machine without links: as fast as it is.")
    ] = False,
    hosts: Annotated[Path | None, option("hosts", "FILE", HOSTS)] = None,
    override: Overrides = None,
    force: Force = False,
    tensorboard: Board = None,
    mlflow: Flow = None,
) -> None:
    """Play a scenario by real processes, one for each agent, in real seconds."""
    from desim.deployments.deployed import begin
    from desim.deployments.fleet import ended_by_others
    from desim.errors import InputError
    from desim.interface.cli.progress import announced, progress_bar
    from desim.runs.directory import next_free

    if loopback and hosts is not None:
        raise InputError("--hosts: found with --loopback; allowed: one of the two")
    loaded = ready(lambda: load_scenario(scenario, override), out, force)
    path = out or next_free(Path("runs"), loaded.name)
    before = begun(path)
    try:
        with (
            progress_bar(loaded.name) as progress,
            announced(progress.compiling),
            ended_by_others(complain),
        ):
            followers = trackers(tensorboard, mlflow)
            played = begin(loaded, path, progress, force, loopback, hosts, complain, followers)
    except KeyboardInterrupt:
        played = left(path, before)
    tell(played)
