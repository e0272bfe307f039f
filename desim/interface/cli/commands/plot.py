"""`desim plot`: figures of runs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from desim.errors import InputError, chosen, refusal
from desim.interface.cli.commands.compare import targets
from desim.interface.cli.options import (
    RunFolders,
    first_and_last,
    goal,
    inches,
    limits,
    option,
    output_option,
)

if TYPE_CHECKING:
    from desim.runs.run import Run

KINDS = (
    "curve",
    "bars",
    "tradeoff",
    "timeline",
    "utilisation",
    "network",
    "staleness",
    "epsilon",
    "clocks",
    "ecdf",
    "profile",
)
ABSCISSAE = ("time", "round", "bytes", "epsilon")
BANDS = ("range", "middle", "quartiles", "interval", "seeds", "none")
SCALE = ("ylim", "log")
OPTIONS = {  # what each kind takes, beside title and size
    "curve": ("x", "metric", "band", "label", *SCALE),
    "bars": ("x", "metric", "target", "label"),
    "tradeoff": ("metric", "label", *SCALE),
    "timeline": ("rounds",),
    "clocks": ("rounds",),
    "staleness": ("label",),
    "epsilon": SCALE,
    "ecdf": ("x", "target", "label", "methods"),
    "profile": ("x", "target", "label", "methods"),
}
ANSWERS = ("ecdf", "profile")
OF_ONE = ("timeline", "utilisation", "network", "epsilon")


Kind = Annotated[str, option("kind", "|".join(KINDS), "What to draw.")]
Abscissa = Annotated[
    str | None,
    option("x", "|".join(ABSCISSAE), "What to plot against, or to count; default: time."),
]
Metric = Annotated[
    str | None, option("metric", "NAME", "Default: accuracy, or the first in common.")
]
Target = Annotated[
    list[str] | None,
    option(
        "target", "VALUE", "Of bars: that the metric must meet; of ecdf, profile: METRIC=VALUE."
    ),
]
Methods = Annotated[
    list[str] | None, option("methods", "KEY", "Of ecdf, profile: keys of the method; repeatable.")
]
Rounds = Annotated[
    str | None, option("rounds", "FIRST-LAST", "Of timeline, clocks; default: as fit.")
]
AROUND = "Around the median of seeds; interval: 95 %; default: range, of many middle."
Band = Annotated[str | None, option("band", "|".join(BANDS), AROUND)]
Label = Annotated[
    list[str] | None, option("label", "TEXT", "In order, one for each curve, bar or line.")
]
Limits = Annotated[str | None, option("ylim", "LOW:HIGH", "E.g. 80%:100%, or 0.1: for one end.")]
Log = Annotated[
    bool | None,
    typer.Option("--log/--linear", help="Scale of the ordinate; default: as the metric asks."),
]
Title = Annotated[str | None, option("title", "TEXT", "Above the figure.")]
Size = Annotated[str | None, option("size", "WxH", "In inches, e.g. 6x3.5.")]
WHERE = "png, pdf, svg; default: in the first RUN."
Out = Annotated[Path | None, output_option("FILE", WHERE)]


def plot(
    runs: RunFolders,
    kind: Kind = "curve",
    x: Abscissa = None,
    metric: Metric = None,
    target: Target = None,
    rounds: Rounds = None,
    band: Band = None,
    label: Label = None,
    methods: Methods = None,
    ylim: Limits = None,
    log: Log = None,
    title: Title = None,
    size: Size = None,
    out: Out = None,
) -> None:
    """Draw runs: curves, time to a target, privacy against accuracy, timelines, networks.

    Runs that differ in their seeds only are one curve with a band. clocks: a deployed run, or the
    first, over one that simulates it. profile, ecdf: which method is first over many problems.
    """
    chosen("--kind", kind, KINDS)
    chosen("--x", "time" if x is None else x, ABSCISSAE)
    chosen("--band", "none" if band is None else band, BANDS)
    options = _options(
        kind, x=x, metric=metric, target=target or None, rounds=rounds, band=band,
        label=label or None, methods=methods or None, ylim=ylim, log=log,
    )  # fmt: skip
    options |= {} if title is None else {"title": title}
    options |= {} if size is None else {"size": inches(size)}
    if kind in ANSWERS:
        typer.echo(_answered(runs, kind, options, out))
        return
    opened = opened_runs(runs)
    if kind in OF_ONE:
        opened = _every(opened)  # a study of one run is one, too
        if len(opened) != 1:
            raise InputError(f"--kind {kind}: found {len(opened)} runs; allowed: one run")
    if kind == "clocks":
        opened = _real_first(_every(opened))
    typer.echo(_drawn(opened, kind, options, out, runs[0]))


def _options(kind: str, **options: Any) -> dict[str, Any]:
    """What is not None, as the figure's function takes it; InputError for what the kind has not."""
    given = {name: one for name, one in options.items() if one is not None}
    for name in given:
        if name not in OPTIONS.get(kind, ()):
            kinds = ", ".join(one for one, taken in OPTIONS.items() if name in taken)
            raise InputError(f"--{name}: found with --kind {kind}; allowed: with {kinds}")
    read = {"rounds": first_and_last, "ylim": limits}
    found = {name: read[name](one) if name in read else one for name, one in given.items()}
    if "label" in found:
        found["labels"] = found.pop("label")
    if "target" in found:
        del found["target"]
        found |= _targets(kind, options["target"])
    return found


def _targets(kind: str, texts: list[str]) -> dict[str, Any]:
    """The target of bars, a number, or those of profiles by metric."""
    if kind in ANSWERS:
        return {"targets": targets(texts)}
    try:
        (value,) = map(goal, texts)
    except ValueError:
        found = refusal(", ".join(texts), "one number, as in 0.93 or 93%")
        raise InputError(f"--target: {found}") from None
    return {"target": value}


def _answered(
    folders: Sequence[Path], kind: str, options: dict[str, Any], out: Path | None
) -> Path:
    """Draw a profile or distribution functions and say where."""
    from desim.experiments.studies.folder import STUDY
    from desim.experiments.studies.study_tables import open_study
    from desim.interface import plots

    one = len({os.path.realpath(folder) for folder in folders}) == 1
    study = open_study(folders[0]) if one and (folders[0] / STUDY).is_file() else None
    x = options.setdefault("x", "time")
    path = out or folders[0] / f"{kind}-{x}.png"
    getattr(plots, kind)(opened_runs(folders) if study is None else study, out=path, **options)
    return path


def _drawn(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]",
    kind: str,
    options: dict[str, Any],
    out: Path | None,
    folder: Path,
) -> Path:
    """Draw and say where; by default in `folder`."""
    from desim.interface import plots
    from desim.interface.plots.drawable import drawable

    stem = kind
    if kind in ("curve", "bars"):
        x = options.setdefault("x", "time")
        options["metric"] = drawable(runs, "round", options.get("metric")).metric
        stem = f"{options['metric']}-{x}" + "-bars" * (kind == "bars")
    path = out or folder / f"{stem}.png"
    draw = plots.plot if kind == "curve" else getattr(plots, kind)
    what: list[Any] = [next(iter(runs))] if kind in OF_ONE else [runs]
    draw(*(list(runs) if kind == "clocks" else what), **{"out": path, **options})
    return path


def _every(runs: "Sequence[Run] | Mapping[str, Sequence[Run]]") -> "list[Run]":
    """The runs without the labels of their cases."""
    if isinstance(runs, Mapping):
        return [run for some in runs.values() for run in some]
    return list(runs)


def _real_first(runs: "Sequence[Run]") -> "Sequence[Run]":
    """Two runs of one scenario, the deployed one first; InputError for others."""
    from desim.deployments.fidelity.clock_errors import against, unlike

    found = against(runs, asked=True)
    if found is None or len(found[1]) != 1:
        number = f"{len(runs)} run{'s' * (len(runs) != 1)}"
        raise InputError(f"--kind clocks: found {number}; allowed: a real run and a simulated one")
    if texts := unlike(found[0], found[1][0]):
        raise InputError([f"--kind clocks: {text}" for text in texts])
    return [found[0], *found[1]]


def opened_runs(folders: Sequence[Path]) -> "Sequence[Run] | Mapping[str, Sequence[Run]]":
    """Runs, each directory once; by label where one of the directories is a study's."""
    from desim.experiments.studies.folder import by_label

    places = {os.path.realpath(folder): folder for folder in reversed(folders)}
    return by_label(list(places.values())[::-1])
