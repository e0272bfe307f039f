"""What a command says of the run that came of it, and how it leaves."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from desim.runs.run import Run


def tell(played: "Run") -> None:
    """Summarise a run that has just been played; leave with exit code 1 unless it is done."""
    tell_all(played)
    if played.status != "done":
        complain(f"{played.status}: {played.manifest['reason']}")
        raise typer.Exit(1)


def tell_all(run: "Run") -> None:
    """Summarise a run."""
    from desim.cli.summary import summary

    typer.echo("\n".join(summary(run)))


def complain(text: str) -> None:
    """Say what went wrong, on standard error."""
    typer.echo(text, err=True)
