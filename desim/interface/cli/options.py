"""Arguments and options that several commands have, and the examples below the help of each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from desim.errors import InputError, refusal
from desim.units import fraction

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario


def option(name: str, metavar: str | None, text: str, *short: str, **limits: Any) -> Any:
    """An option --name METAVAR, which is not empty; short: before it, as in -o."""
    return typer.Option(*short, f"--{name}", metavar=metavar, help=text, callback=_some, **limits)


def _some(given: Any) -> Any:
    """What is given for an option: an unset variable of a shell is not the default."""
    if "" in (given if isinstance(given, list) else [given]):
        raise typer.BadParameter("found ''; allowed: a value, or to leave the option out")
    return given


def switch(name: str, text: str) -> Any:
    """An option --name that takes no value."""
    return option(name, None, text)


def output_option(metavar: str, text: str) -> Any:
    """The option -o METAVAR."""
    return typer.Option("-o", "--out", metavar=metavar, help=text, parser=_named)


def path_argument(metavar: str, text: str) -> Any:
    """An argument that names a file or a directory."""
    return typer.Argument(metavar=metavar, help=text, parser=_named)


def _named(text: str | Path) -> Path:
    """The path that a text names: an unset variable of a shell is not this directory."""
    if text == "":
        raise typer.BadParameter("found ''; allowed: a name, or . for this directory")
    return Path(text)


FIGURES = (".png", ".svg", ".pdf")
FORMS = ("text", "markdown", "latex")  # of tables
RELATIONS = "replace-one, add-or-remove-one, agent, add-or-remove-agent"
SCENARIO = "Scenario file (YAML), or the name of one that comes with desim (desim list scenarios)."
ScenarioFile = Annotated[Path, path_argument("SCENARIO", SCENARIO)]
RunFolder = Annotated[Path, path_argument("RUN", "Directory of a run.")]
RunFolders = Annotated[list[Path], path_argument("RUN...", "Directories of runs, or of studies.")]
Trainers = Annotated[
    int | None, option("workers", "N", "Processes that train a problem.model; default: none.")
]
Cluster = Annotated[
    str | None, option("dask", "ADDRESS", "Scheduler of a Dask cluster that trains it.")
]
Board = Annotated[str | None, option("tensorboard", "DIR", "Tell TensorBoard, by files in DIR.")]
Flow = Annotated[str | None, option("mlflow", "PLACE", "Tell MLflow: a folder, or an address.")]
Force = Annotated[bool, switch("force", "With -o: replace the run that is there.")]
Overrides = Annotated[
    list[str] | None,
    option("set", "KEY=VALUE", "Override: algorithm.rho=0.1; null leaves a key out."),
]


def file_of_kind(name: str, path: Path, endings: tuple[str, ...]) -> Path:
    """The file of an option; InputError, before anything is played, for one of no known kind."""
    if path.suffix.lower() not in endings:
        raise InputError(f"{name} {path}: {refusal(path.suffix, ', '.join(endings))}")
    return path


def with_out(force: bool, out: Path | None) -> None:
    """InputError for --force without -o: a directory of that name is always new."""
    if force and out is None:
        raise InputError("--force: found without -o; allowed: with it")


def settings(texts: list[str] | None) -> dict[str, str]:
    """Values by dotted key from texts KEY=VALUE."""
    overrides, problems = {}, []
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            problems.append(f"--set: {refusal(text, 'KEY=VALUE, as in algorithm.rho=0.1')}")
        overrides[key.strip()] = value
    if problems:
        raise InputError(problems)
    return overrides


def goal(text: str) -> float:
    """The value of a target, 0.93 or 93 %; ValueError for what is none."""
    return fraction(text) if text.strip().endswith("%") else float(text)


def target(text: str) -> tuple[str, float]:
    """Metric and value of `accuracy=0.93`."""
    metric, _, value = text.partition("=")
    try:
        return metric.strip(), goal(value)
    except ValueError:
        raise InputError(
            f"--target: {refusal(text, 'METRIC=VALUE, as in error=1e-3 or accuracy=90%')}"
        ) from None


def first_and_last(text: str) -> tuple[int, int]:
    """Two rounds from text such as 10-20, or one from 10."""
    first, dash, last = text.partition("-")
    try:
        found = int(first), int(last if dash else first)
    except ValueError:
        found = (1, 0)
    if not 1 <= found[0] <= found[1]:
        raise InputError(f"--rounds: {refusal(text, 'FIRST-LAST, as in 10-20')}")
    return found


def limits(text: str) -> tuple[float | None, float | None]:
    """Two ends from LOW:HIGH such as 80%:100%; an end that is left out is open."""
    low, colon, high = text.partition(":")
    try:
        found = _end(low), _end(high)
    except ValueError:
        found = None, None
    if not colon or found == (None, None):
        raise InputError(f"--ylim: {refusal(text, 'LOW:HIGH, as in 80%:100%, 0.1:10 or 0.5:')}")
    return found


def _end(text: str) -> float | None:
    value = text.strip()
    if not value:
        return None
    return float(value[:-1]) / 100.0 if value.endswith("%") else float(value)


def inches(text: str) -> tuple[float, float]:
    """Width and height from WxH such as 6x3.5."""
    wide, _, high = text.lower().partition("x")
    try:
        return float(wide), float(high)
    except ValueError:
        raise InputError(f"--size: {refusal(text, 'WxH in inches, as in 6x3.5')}") from None


def load_scenario(path: Path, texts: list[str] | None) -> "Scenario":
    """The scenario with the overrides KEY=VALUE, whose values are read as YAML."""
    import desim

    return desim.load(path, settings(texts))


def trackers(board: str | None, flow: str | None) -> list[Any]:
    """Those that --tensorboard and --mlflow ask for."""
    import desim

    found = [desim.TensorBoard(board)] if board else []
    return [*found, *([desim.MLflow(flow)] if flow else [])]
