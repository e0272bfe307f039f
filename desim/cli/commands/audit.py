"""`desim audit`: tries to refute an epsilon."""

from pathlib import Path
from typing import Annotated

import typer

from desim.cli.options import Overrides, ScenarioFile, load_scenario
from desim.cli.outcome import complain


def audit(
    scenario: ScenarioFile,
    runs: Annotated[int, typer.Option("--runs", metavar="N", help="Runs on each side.")] = 1000,
    claim: Annotated[
        list[str] | None,
        typer.Option("--claim", metavar="CLAIM", help="paper, rigorous or an epsilon; repeatable."),
    ] = None,
    view: Annotated[
        str | None, typer.Option("--view", metavar="VIEW", help="Default: the scenario's.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", metavar="D", help="Default: the scenario's.")
    ] = None,
    level: Annotated[
        float, typer.Option("--level", metavar="P", help="Probability of a false alarm.")
    ] = 0.01,
    agent: Annotated[
        int | None,
        typer.Option("--agent", metavar="I", help="Whose record; default: who pays most."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", metavar="H", help="Which record; default: a worst pair is searched."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Of the runs' noise.")] = 0,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="W", help="Processes; default: all cores.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="New directory; default: audits/NAME."),
    ] = None,
    override: Overrides = None,
) -> None:
    """Try to refute a scenario's epsilon by simulating it on neighbouring data."""
    from desim.cli.audit import carry_out

    loaded = load_scenario(scenario, override)
    try:
        lines = carry_out(
            loaded, out, runs=runs, claims=claim, view=view, delta=delta, level=level, agent=agent,
            row=row, seed=seed, workers=workers,
        )  # fmt: skip
    except KeyboardInterrupt:
        complain("stopped before the verdict; nothing was written")
        raise typer.Exit(1) from None
    typer.echo("\n".join(lines))
