"""The command line: each command is one call of the Python interface, and says what came of it.

Exit codes: 0 done, 1 the run failed or was stopped, 2 bad input (nothing has been written then).
Everything heavy is imported by the command that needs it, so that `desim --help` is instant.
"""

import gc
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from desim.cli.again import replay, retime
from desim.cli.options import Overrides, settings
from desim.cli.studies import study
from desim.errors import DesimError, InputError

GARBAGE = 200_000  # objects between collections: a start makes so many, and they stay

app = typer.Typer(
    name="desim",
    help="Private federated and decentralised learning in virtual time: seconds, bytes, epsilon.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ScenarioFile = Annotated[Path, typer.Argument(help="Scenario file (YAML).", metavar="SCENARIO")]
RunFolder = Annotated[Path, typer.Argument(help="Directory of a run.", metavar="RUN")]
Force = Annotated[bool, typer.Option("--force", help="Replace the run that the directory holds.")]


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Answer the options that come before a command."""
    if version:
        import desim

        typer.echo(f"desim {desim.__version__}")
        raise typer.Exit


@app.command()
def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="New directory; default: runs/NAME."),
    ] = None,
    override: Overrides = None,
    force: Force = False,
) -> None:
    """Play a scenario into a run directory."""
    import desim
    from desim.cli.compiling import announced
    from desim.cli.progress import progress_bar
    from desim.runs.directory import next_free

    loaded = _load(scenario, override)
    path = out or next_free(Path("runs"), loaded.name)
    try:
        with progress_bar(loaded.name) as progress, announced():
            played = desim.run(loaded, out=path, progress=progress, force=force)
    except KeyboardInterrupt:
        _complain("stopped before the run began; nothing was written")
        raise typer.Exit(1) from None
    _tell(played)


@app.command()
def resume(run: RunFolder, override: Overrides = None) -> None:
    """Go on with a run that was killed or stopped; --set stop.rounds=N moves its end."""
    from desim.cli.resume import go_on

    _tell(go_on(run, settings(override)))


@app.command()
def check(scenario: ScenarioFile, override: Overrides = None) -> None:
    """Check a scenario, its data and its network; write nothing."""
    from desim.cli.checked import sentence
    from desim.cli.compiling import announced
    from desim.scenario import build

    loaded = _load(scenario, override)
    with announced():
        simulation = build.check(loaded)
    typer.echo(sentence(loaded, simulation))


@app.command()
def warmup(
    scenarios: Annotated[
        list[Path] | None,
        typer.Argument(help="Default: all that come with desim.", metavar="[SCENARIO...]"),
    ] = None,
) -> None:
    """Compile beforehand what scenarios need, so that their first run does not wait for it."""
    from desim.cli.compiling import warm

    typer.echo("\n".join(warm(scenarios)))


@app.command("list")
def list_names(
    what: Annotated[
        str, typer.Argument(help="algorithms, losses, ...; default: everything.", metavar="[WHAT]")
    ] = "",
) -> None:
    """List what a scenario can name: algorithms, losses, topologies, networks, ..."""
    from desim.cli.catalogue import SECTIONS
    from desim.errors import refusal

    if what and what not in SECTIONS:
        raise InputError(f"list: {refusal(what, ', '.join(SECTIONS), SECTIONS)}")
    for number, name in enumerate([what] if what else SECTIONS):
        if not what:
            typer.echo(("\n" if number else "") + name)
        entries = SECTIONS[name]()
        width = max((len(entry) for entry, _ in entries), default=0)
        for entry, about in entries:
            typer.echo(f"  {entry:{width}}  {about}".rstrip())


@app.command()
def show(run: RunFolder) -> None:
    """Summarise a run: how it ended, time, messages, metrics, whom it waited for."""
    import desim

    _show(desim.open(run))


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs.", metavar="RUN...")],
    x: Annotated[
        Literal["time", "round", "bytes", "epsilon"],
        typer.Option("--x", help="What to plot against."),
    ] = "time",
    metric: Annotated[
        str | None, typer.Option("--metric", help="Default: accuracy, or the first in common.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="png, pdf, svg; default: in the first RUN."
        ),
    ] = None,
) -> None:
    """Plot a metric of one or more runs against time, rounds, bytes or epsilon."""
    import desim
    from desim.plots import shared_metric

    opened = [desim.open(folder) for folder in runs]
    metric = metric or shared_metric(opened)
    path = out or runs[0] / f"{metric}-{x}.png"
    desim.plot(opened, x=x, metric=metric, out=path)
    typer.echo(path)


@app.command()
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
    """Try to refute a scenario's epsilon by playing it on neighbouring data."""
    from desim.cli.audit import carry_out

    loaded = _load(scenario, override)
    try:
        lines = carry_out(
            loaded, out, runs=runs, claims=claim, view=view, delta=delta, level=level, agent=agent,
            row=row, seed=seed, workers=workers,
        )  # fmt: skip
    except KeyboardInterrupt:
        _complain("stopped before the verdict; nothing was written")
        raise typer.Exit(1) from None
    typer.echo("\n".join(lines))


@app.command()
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


app.command()(retime)
app.command()(replay)
app.command()(study)


@app.command()
def schema(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Default: standard output.")
    ] = None,
) -> None:
    """Write the JSON Schema of scenario files, for editors."""
    from desim.cli.schema import write_schema

    write_schema(out)


def _load(path: Path, texts: list[str] | None) -> Any:
    """The scenario with the overrides KEY=VALUE, whose values are read as YAML."""
    import desim

    return desim.load(path, settings(texts))


def _tell(played: Any) -> None:
    """Summarise a run that has just been played; leave with exit code 1 unless it is done."""
    _show(played)
    if played.status != "done":
        _complain(f"{played.status}: {played.manifest['reason']}")
        raise typer.Exit(1)


def _show(run: Any) -> None:
    from desim.cli.summary import summary

    typer.echo("\n".join(summary(run)))


def _complain(text: str) -> None:
    typer.echo(text, err=True)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: parse, run one command, leave by SystemExit with the exit code."""
    gc.set_threshold(GARBAGE)
    try:
        app(arguments, prog_name="desim")
    except DesimError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
