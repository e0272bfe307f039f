"""`desim flower run`: plays a Flower app under a scenario's network, devices and policy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from desim.errors import InputError, refusal
from desim.interface.cli.commands.run import simulated
from desim.interface.cli.options import (
    Board,
    Flow,
    Force,
    Overrides,
    option,
    output_option,
    settings,
    switch,
    trackers,
)

APP = "A Flower app's folder, or server:app client:app, as modules in this folder have them."
BASE = "Scenario file, or one that comes with desim: its network, devices, policy, churn and log."


def flower(
    action: Annotated[str, typer.Argument(metavar="run", help="What to do: run.")],
    app: Annotated[list[str], typer.Argument(metavar="APP...", help=APP)],
    scenario: Annotated[str | None, option("scenario", "SCENARIO", BASE)] = None,
    agents: Annotated[int | None, option("agents", "N", "How many nodes.", min=1)] = None,
    rounds: Annotated[int | None, option("rounds", "N", "Rounds at most.", min=1)] = None,
    config: Annotated[
        list[str] | None, option("config", "KEY=VALUE", "Override [tool.flwr.app.config].")
    ] = None,
    out: Annotated[
        Path | None, output_option("DIR", "New directory; default: runs/NAME, or NAME-2, ...")
    ] = None,
    log: Annotated[bool, switch("log", "Show Flower's own log.")] = False,
    override: Overrides = None,
    force: Force = False,
    tensorboard: Board = None,
    mlflow: Flow = None,
    watch: Annotated[bool, switch("watch", "Serve a page that shows it, until Ctrl-C.")] = False,
) -> None:
    """Play a Flower app, unmodified, in virtual time."""
    if action != "run":
        raise InputError(f"flower: {refusal(action, 'run', ['run'])}")
    from desim.flower.asked import BASE as BY_DEFAULT
    from desim.flower.asked import app_of, keys, show_log
    from desim.scenario.load import loaded

    found, changes = app_of(app, config or []), settings(override)
    base: Any = dict(BY_DEFAULT) if scenario is None else scenario
    show_log(log)
    seed = changes.get("seed", "0").strip()
    drawn = int(seed) if seed.isdecimal() else 0  # what is no seed is refused with the rest
    sections = keys(found, app, config or [], agents, rounds, drawn)
    sections = {"name": found.name, **sections, **changes}
    more = {"trackers": trackers(tensorboard, mlflow)}
    simulated(lambda: loaded(base, sections), out, force, watch, more)
