"""`desim energy`: what the devices of a run took, in joules, by cause or by agent."""

import json
import math
from typing import Annotated

import typer

from desim import units
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
    until: Annotated[
        str | None, option("until", "TIME", "Until then, in s or with a unit: 90 s, 2 h.")
    ] = None,
    by: Annotated[str, option("by", "|".join(BY), "What is added up.")] = "cause",
    as_json: Annotated[bool, switch("json", "For other programs: each agent and cause.")] = False,
) -> None:
    """Say what a run's devices took, in joules: of scenarios with compute.power, network.power."""
    import desim

    chosen("--by", by, BY)
    if target is not None and until is not None:
        raise InputError("--until: found with --target; allowed: only one of them")
    opened = desim.open(run)
    table = opened.energy(_limit(target, until))
    if as_json:
        if not math.isfinite(table["joules"].sum()):
            raise InputError(f"--target: {target} was never met; allowed: one that was")
        typer.echo(json.dumps({"run": opened.name, "energy": table.to_dict("records")}, indent=2))
        return
    whole = float(table["joules"].sum())
    after = f"until {until or (target or '').replace('=', ' ')}" if until or target else "in all"
    agents = int((table["agent"] >= 0).groupby(table["agent"]).any().sum())
    rows = [
        ["coordinator" if name == -1 else str(name), amount(joules, "J"), _share(joules, whole)]
        for name, joules in table.groupby(by, sort=False)["joules"].sum().items()
    ]
    lines = aligned([[by, "energy", "share"], *rows])
    lines = [f"{opened.name}: {amount(whole, 'J')} of {agents} agents {after}", *lines]
    label = "batteries, of the whole run" if until or target else "batteries"
    lines += [f"{label}: {text}"] if (text := opened.exhaustion) else []
    say("\n".join(lines))


def _limit(target: str | None, until: str | None) -> "float | dict[str, float] | None":
    """Up to when: a time s, or a target."""
    if target is not None:
        [(metric, [value])] = targets([target]).items()
        return {metric: value}
    if until is None:
        return None
    try:
        return units.seconds(float(until) if until.replace(".", "", 1).isdigit() else until)
    except ValueError as error:
        raise InputError(f"--until: {error}") from None


def _share(joules: float, whole: float) -> str:
    return percent(joules / whole) if 0.0 < whole < float("inf") else "-"
