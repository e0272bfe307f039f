"""`desim plot`: figures of runs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from desim.cli.options import chosen, first_and_last, inches, limits
from desim.errors import InputError

if TYPE_CHECKING:
    from desim.runs.run import Run

KINDS = ("curve", "bars", "tradeoff", "timeline", "utilisation", "network", "staleness", "epsilon")
ABSCISSAE = ("time", "round", "bytes", "epsilon")
BANDS = ("range", "middle", "quartiles", "interval", "seeds", "none")
SCALE = ("ylim", "log")
OPTIONS = {  # what each kind takes, beside title and size
    "curve": ("x", "metric", "band", "label", *SCALE),
    "bars": ("x", "metric", "target", "label"),
    "tradeoff": ("metric", "label", *SCALE),
    "timeline": ("rounds",),
    "staleness": ("label",),
    "epsilon": SCALE,
}
OF_ONE = ("timeline", "utilisation", "network", "epsilon")


def plot(
    runs: Annotated[
        list[Path], typer.Argument(help="Directories of runs, or of studies.", metavar="RUN...")
    ],
    kind: Annotated[
        str, typer.Option("--kind", metavar="|".join(KINDS), help="What to draw.")
    ] = "curve",
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="|".join(ABSCISSAE),
            help="What to plot against, or to count; default: time.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="Default: accuracy, or the first in common.")
    ] = None,
    target: Annotated[
        float | None, typer.Option("--target", help="Of bars: the value that the metric must meet.")
    ] = None,
    rounds: Annotated[
        str | None,
        typer.Option("--rounds", metavar="FIRST-LAST", help="Of a timeline; default: as fit."),
    ] = None,
    band: Annotated[
        str | None,
        typer.Option(
            "--band",
            metavar="|".join(BANDS),
            help="Around the median of seeds; interval: 95 %; default: range, of many middle.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="TEXT", help="In order, one for each curve, bar or line."),
    ] = None,
    ylim: Annotated[
        str | None,
        typer.Option("--ylim", metavar="LOW:HIGH", help="E.g. 80%:100%, or 0.1: for one end."),
    ] = None,
    log: Annotated[
        bool | None,
        typer.Option("--log/--linear", help="Scale of the ordinate; default: as the metric asks."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Above the figure.")] = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="WxH", help="In inches, e.g. 6x3.5.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="png, pdf, svg; default: in the first RUN."
        ),
    ] = None,
) -> None:
    """Draw runs: curves, time to a target, privacy against accuracy, timelines, networks.

    Runs that differ in their seeds only are one curve with a band.
    """
    chosen("--kind", kind, KINDS)
    if x is not None:
        chosen("--x", x, ABSCISSAE)
    if band is not None:
        chosen("--band", band, BANDS)
    given = {
        "x": x, "metric": metric, "target": target, "rounds": rounds, "band": band,
        "label": label or None, "ylim": ylim, "log": log,
    }  # fmt: skip
    options = _options(kind, {name: one for name, one in given.items() if one is not None})
    options |= {} if title is None else {"title": title}
    options |= {} if size is None else {"size": inches(size)}
    opened = opened_runs(runs)
    if kind in OF_ONE and (isinstance(opened, Mapping) or len(opened) != 1):
        raise InputError(f"--kind {kind}: found {len(opened)} runs or cases; allowed: one run")
    typer.echo(_drawn(opened, kind, options, out, runs[0]))


def _options(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """What was given, as the figure's function takes it; InputError for what the kind has not."""
    for name in given:
        if name not in OPTIONS.get(kind, ()):
            kinds = ", ".join(one for one, taken in OPTIONS.items() if name in taken)
            raise InputError(f"--{name}: found with --kind {kind}; allowed: with {kinds}")
    read = {"rounds": first_and_last, "ylim": limits}
    found = {name: read[name](one) if name in read else one for name, one in given.items()}
    if "label" in found:
        found["labels"] = found.pop("label")
    return found


def _drawn(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]",
    kind: str,
    options: dict[str, Any],
    out: Path | None,
    folder: Path,
) -> Path:
    """Draw and say where; by default in `folder`."""
    from desim import plots
    from desim.plots.measured import drawable

    stem = kind
    if kind in ("curve", "bars"):
        x = options.setdefault("x", "time")
        options["metric"] = drawable(runs, "round", options.get("metric")).metric
        ends = [] if kind == "curve" else [kind]
        stem = "-".join([options["metric"], x, *ends])
    path = out or folder / f"{stem}.png"
    if kind in OF_ONE:
        getattr(plots, kind)(next(iter(runs)), out=path, **options)
    else:
        draw = plots.plot if kind == "curve" else getattr(plots, kind)
        draw(runs, out=path, **options)
    return path


def opened_runs(folders: Sequence[Path]) -> "Sequence[Run] | Mapping[str, Sequence[Run]]":
    """Runs, each directory once; by label where one of the directories is a study's."""
    import desim
    from desim.studies.folder import STUDY, stored_runs

    places = {os.path.realpath(folder): folder for folder in reversed(folders)}
    folders = list(places.values())[::-1]
    studies = [folder for folder in folders if (folder / STUDY).is_file()]
    if not studies:
        return [desim.open(folder) for folder in folders]
    labelled: dict[str, list[Run]] = {}
    for folder in folders:
        found = stored_runs(folder) if folder in studies else {str(folder): [desim.open(folder)]}
        for label, runs in found.items():
            name = f"{folder.name}: {label}" if len(folders) > 1 and folder in studies else label
            labelled.setdefault(name, []).extend(runs)
    return labelled
