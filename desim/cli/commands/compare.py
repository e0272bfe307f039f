"""`desim compare`: runs side by side."""

from pathlib import Path
from typing import Annotated

import typer

from desim.cli.options import RunFolders, chosen
from desim.cli.options import target as parsed

FORMS = ("text", "markdown", "latex")
ENDINGS = (".txt", ".md", ".tex")


def compare(
    runs: RunFolders,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="METRIC=VALUE", help="E.g. accuracy=0.9; repeatable."),
    ] = None,
    stays: Annotated[
        bool, typer.Option("--stays", help="A target counts from when on it is met to the end.")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMS), help="How it is written.")
    ] = "text",
    delta: Annotated[
        float | None, typer.Option("--delta", metavar="D", help="Default: each scenario's.")
    ] = None,
    view: Annotated[
        str | None, typer.Option("--view", metavar="VIEW", help="Default: each scenario's.")
    ] = None,
    relation: Annotated[
        str | None, typer.Option("--relation", metavar="R", help="Default: each scenario's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Default: standard output.")
    ] = None,
) -> None:
    """Hold runs against each other: time, bytes and epsilon until targets, and at the end."""
    import desim
    from desim.runs.output import output

    chosen("--format", form, FORMS)
    asked = targets(target) if target else None
    made = desim.compare(list(runs), asked, delta=delta, view=view, relation=relation, stays=stays)
    text = made.written(form)
    if out is None:
        typer.echo(text)
        return
    with output(out, ENDINGS) as partial:
        partial.write_text(text + "\n", "utf-8")
    typer.echo(out)


def targets(texts: list[str]) -> dict[str, list[float]]:
    """Values by metric from texts METRIC=VALUE."""
    found: dict[str, list[float]] = {}
    for text in texts:
        metric, value = parsed(text)
        found.setdefault(metric, []).append(value)
    return found
