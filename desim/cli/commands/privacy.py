"""`desim privacy`: what a run has spent, and in which terms."""

from typing import Annotated

import typer

from desim.cli.options import RunFolder


def privacy(
    run: RunFolder,
    delta: Annotated[
        float | None, typer.Option("--delta", metavar="D", help="Default: the scenario's.")
    ] = None,
    view: Annotated[
        str | None,
        typer.Option("--view", metavar="VIEW", help="E.g. neighbour:3; default: all that apply."),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option("--relation", metavar="R", help="replace-one, add-or-remove-one, agent."),
    ] = None,
) -> None:
    """Account for a run: the paper's epsilon beside the rigorous one, with all that they mean."""
    import desim
    from desim.cli.privacy import lines
    from desim.runs.privacy import statement

    opened = desim.open(run)
    typer.echo("\n".join(lines(opened.name, statement(opened, delta, view, relation))))
