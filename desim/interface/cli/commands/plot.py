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
    "curve", "bars", "tradeoff", "timeline", "utilisation", "network", "staleness", "epsilon",
    "pairs", "distance", "learnt", "clients", "served", "clocks", "ecdf", "profile",
)  # fmt: skip
ABSCISSAE = ("time", "round", "bytes", "joules", "epsilon")
BANDS = ("range", "middle", "quartiles", "interval", "seeds", "none")
AGAINST = ("agent", "rows", "computing", "messages", "contributions")
SCALE = ("ylim", "log")
OPTIONS = {  # what each kind takes, beside title and size
    "curve": ("x", "metric", "band", "label", *SCALE),
    "bars": ("x", "metric", "target", "label"),
    "tradeoff": ("metric", "label", *SCALE),
    "timeline": ("rounds",),
    "clocks": ("rounds",),
    "staleness": ("label",),
    "clients": ("label", *SCALE),
    "served": ("against",),
    "epsilon": SCALE,
    "distance": SCALE,
    "learnt": SCALE,
    "ecdf": ("x", "target", "label", "methods"),
    "profile": ("x", "target", "label", "methods"),
}
READ = {"rounds": first_and_last, "ylim": limits}  # how options are read that are not plain
ANSWERS = ("ecdf", "profile")
OF_ONE = ("timeline", "utilisation", "network", "epsilon", "pairs", "distance", "learnt", "served")


Methods = Annotated[
    list[str] | None, option("methods", "KEY", "Of ecdf, profile: keys of the method; repeatable.")
]
AROUND = "Around the median of seeds; interval: 95 %; default: range, of many middle."
Limits = Annotated[str | None, option("ylim", "LOW:HIGH", "E.g. 80%:100%, or 0.1: for one end.")]
Out = Annotated[Path | None, output_option("FILE", "png, pdf, svg; default: in the first RUN.")]


def plot(
    runs: RunFolders,
    kind: Annotated[str, option("kind", "|".join(KINDS), "What to draw.")] = "curve",
    x: Annotated[
        str | None,
        option("x", "|".join(ABSCISSAE), "What to plot against, or to count; default: time."),
    ] = None,
    metric: Annotated[
        str | None, option("metric", "NAME", "Default: accuracy, or the first in common.")
    ] = None,
    target: Annotated[
        list[str] | None,
        option(
            "target", "VALUE", "Of bars: that the metric must meet; of ecdf, profile: METRIC=VALUE."
        ),
    ] = None,
    rounds: Annotated[
        str | None, option("rounds", "FIRST-LAST", "Of timeline, clocks; default: as fit.")
    ] = None,
    against: Annotated[
        str | None, option("against", "|".join(AGAINST), "Of served; default: agent.")
    ] = None,
    band: Annotated[str | None, option("band", "|".join(BANDS), AROUND)] = None,
    label: Annotated[
        list[str] | None, option("label", "TEXT", "In order, one for each curve, bar or line.")
    ] = None,
    methods: Methods = None,
    ylim: Limits = None,
    log: Annotated[
        bool | None,
        typer.Option("--log/--linear", help="Scale of the ordinate; default: as the metric asks."),
    ] = None,
    title: Annotated[str | None, option("title", "TEXT", "Above the figure.")] = None,
    size: Annotated[str | None, option("size", "WxH", "In inches, e.g. 6x3.5.")] = None,
    out: Out = None,
) -> None:
    """Draw runs: curves, time to a target, privacy against accuracy, timelines, networks.

    Runs that differ in their seeds only are one curve with a band. clocks: a deployed run, or the
    first, over one that simulates it. profile, ecdf: which method is first over many problems.
    pairs, distance, learnt: what agents learn of each other, by whom, how far away and when.
    clients, served: accuracies on clients' own test rows, over time and of each at the end.
    """
    chosen("--kind", kind, KINDS)
    chosen("--x", "time" if x is None else x, ABSCISSAE)
    chosen("--band", "none" if band is None else band, BANDS)
    options = _options(
        kind, x=x, metric=metric, target=target or None, rounds=rounds, band=band, against=against,
        label=label or None, methods=methods or None, ylim=ylim, log=log,
    )  # fmt: skip
    options |= {} if title is None else {"title": title}
    options |= {} if size is None else {"size": inches(size)}
    typer.echo(_drawn(runs, kind, options, out))


def _options(kind: str, **options: Any) -> dict[str, Any]:
    """What is not None, as the figure's function takes it; InputError for what the kind has not."""
    found = {name: one for name, one in options.items() if one is not None}
    for name in found:
        if name not in OPTIONS.get(kind, ()):
            kinds = ", ".join(one for one, names in OPTIONS.items() if name in names)
            raise InputError(f"--{name}: found with --kind {kind}; allowed: with {kinds}")
    found |= {name: read(found[name]) for name, read in READ.items() if name in found}
    if "label" in found:
        found["labels"] = found.pop("label")
    if "target" in found and kind in ANSWERS:
        found["targets"] = targets(found.pop("target"))
    elif "target" in found:
        try:
            (found["target"],) = map(goal, options["target"])
        except ValueError:
            text = refusal(", ".join(options["target"]), "one number, as in 0.93 or 93%")
            raise InputError(f"--target: {text}") from None
    return found


def _drawn(folders: Sequence[Path], kind: str, options: dict[str, Any], out: Path | None) -> Path:
    """Draw and say where; by default in the first folder."""
    from desim.experiments.studies.study import open_study
    from desim.interface import plots
    from desim.interface.plots.drawable import drawable
    from desim.runs.directory import STUDY

    draw, stem = plots.plot if kind == "curve" else getattr(plots, kind), kind
    one = len({os.path.realpath(folder) for folder in folders}) == 1
    if kind in ANSWERS and one and (folders[0] / STUDY).is_file():
        what: list[Any] = [open_study(folders[0])]
    else:
        runs = opened_runs(folders)
        parts = runs.values() if isinstance(runs, Mapping) else [runs]
        every = [run for some in parts for run in some]
        if kind in OF_ONE and len(every) != 1:  # a study of one run is one, too
            raise InputError(f"--kind {kind}: found {len(every)} runs; allowed: one run")
        what = every if kind in OF_ONE else [runs]
        if kind == "clocks":
            from desim.deployments.fidelity.clock_errors import against, unlike

            pair = against(every, asked=True)
            if pair is None or len(pair[1]) != 1:
                text = f"{len(every)} run{'s' * (len(every) != 1)}"
                allowed = "a real run and a simulated one"
                raise InputError(f"--kind clocks: found {text}; allowed: {allowed}")
            what = [pair[0], *pair[1]]
            if texts := unlike(*what):
                raise InputError([f"--kind clocks: {text}" for text in texts])
    if kind in (*ANSWERS, "curve", "bars"):
        stem += f"-{options.setdefault('x', 'time')}"
    if kind in ("curve", "bars"):
        options["metric"] = drawable(what[0], "round", options.get("metric")).metric
        stem = f"{options['metric']}-{options['x']}" + "-bars" * (kind == "bars")
    path = out or folders[0] / f"{stem}.png"
    draw(*what, **{"out": path, **options})
    return path


def opened_runs(folders: Sequence[Path]) -> "Sequence[Run] | Mapping[str, Sequence[Run]]":
    """Runs, each directory once; by label where one of the directories is a study's."""
    from desim.experiments.studies.folder import groups_of

    places = {os.path.realpath(folder): folder for folder in reversed(folders)}
    found: Sequence[Run] | Mapping[str, Sequence[Run]] = groups_of(list(places.values())[::-1])
    return found
