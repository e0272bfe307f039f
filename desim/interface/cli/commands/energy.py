"""`desim energy`: what the devices of a run took, in joules, by cause or by agent."""

import json
from typing import Annotated

import typer

from desim.amounts import amount, percent
from desim.errors import InputError, chosen
from desim.interface.cli.commands.compare import targets
from desim.interface.cli.options import RunFolder, option, switch
from desim.interface.cli.progress import say
from desim.tabulated import aligned

BY = ("cause", "agent")


def energy(
    run: RunFolder,
    target: Annotated[
        str | None, option("target", "METRIC=VALUE", "Until that; default: all of the run.")
    ] = None,
    by: Annotated[str, option("by", "|".join(BY), "What is added up.")] = "cause",
    as_json: Annotated[bool, switch("json", "For other programs: each agent and cause.")] = False,
) -> None:
    """Say what a run's devices took, in joules: of scenarios with compute.power, network.power."""
    import desim

    chosen("--by", by, BY)
    opened = desim.open(run)
    until = None
    if target is not None:
        [(metric, [value])] = targets([target]).items()
        until = {metric: value}
    table = opened.energy(until)
    if as_json:
        if until is not None and opened.time_to(*next(iter(until.items()))) == float("inf"):
            raise InputError(f"--target: {target} was never met; allowed: one that was")
        typer.echo(json.dumps({"run": opened.name, "energy": table.to_dict("records")}, indent=2))
        return
    whole = float(table["joules"].sum())
    after = "in all" if target is None else f"until {target.replace('=', ' ')}"
    agents = int((table["agent"] >= 0).groupby(table["agent"]).any().sum())
    rows = [
        ["coordinator" if name == -1 else str(name), amount(joules, "J"), _share(joules, whole)]
        for name, joules in table.groupby(by, sort=False)["joules"].sum().items()
    ]
    lines = aligned([[by, "energy", "share"], *rows])
    say("\n".join([f"{opened.name}: {amount(whole, 'J')} of {agents} agents {after}", *lines]))


def _share(joules: float, whole: float) -> str:
    return percent(joules / whole) if 0.0 < whole < float("inf") else "-"
