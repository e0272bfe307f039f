"""`desim compare`: runs side by side."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desim.errors import InputError, chosen, refusal
from desim.interface.cli.options import (
    FORMS,
    RELATIONS,
    RunFolders,
    option,
    output_option,
    switch,
)
from desim.interface.cli.options import target as parsed
from desim.interface.cli.progress import columns, say

if TYPE_CHECKING:
    from desim.runs.run import Run

ENDINGS = (".txt", ".md", ".tex")

SPENT = ("time", "rounds", "bytes", "joules", "epsilon")


def compare(
    runs: RunFolders,
    target: Annotated[
        list[str] | None, option("target", "METRIC=VALUE", "E.g. accuracy=0.9; repeatable.")
    ] = None,
    stays: Annotated[
        bool, switch("stays", "A target counts from when on it is met to the end.")
    ] = False,
    clock: Annotated[
        bool, switch("clock", "Hold seconds against the first RUN's, deployed or not.")
    ] = False,
    profile: Annotated[
        bool, switch("profile", "Expected running times and performance profiles, too.")
    ] = False,
    spent: Annotated[
        str | None, option("spent", "|".join(SPENT), "Of profiles; default: time.")
    ] = None,
    methods: Annotated[
        list[str] | None, option("methods", "KEY", "Of profiles: keys of the method; repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None,
        option("label", "TEXT", "Names of the RUNs; of a study, before its cases'."),
    ] = None,
    form: Annotated[
        str, option("format", "|".join(FORMS), "How it is written; latex: for booktabs.")
    ] = "text",
    delta: Annotated[float | None, option("delta", "D", "Default: each scenario's.")] = None,
    view: Annotated[
        str | None, option("view", "VIEW", "E.g. neighbour:3; default: each scenario's.")
    ] = None,
    relation: Annotated[
        str | None, option("relation", "R", f"{RELATIONS}; default: each scenario's.")
    ] = None,
    out: Annotated[Path | None, output_option("FILE", "Default: standard output.")] = None,
) -> None:
    """Hold runs against each other: time, bytes and epsilon until targets, and at the end.

    Where one is deployed, also the errors of the seconds of those that simulate it.
    """
    import desim
    from desim.runs.directory import output

    chosen("--format", form, FORMS)
    asked = targets(target) if target else None
    for name, one in (("spent", spent), ("methods", methods)):
        if one and not profile:
            raise InputError(f"--{name}: found without --profile; allowed: with it")
    comparison = desim.compare(
        labelled(runs, label) if label else list(runs), asked, delta=delta, view=view,
        relation=relation, stays=stays, clock=clock, profile=profile, spent=spent or "time",
        methods=methods or (),
    )  # fmt: skip
    text = comparison.written(form, math.inf if out else columns(), out.stem if out else "")
    if out is None:
        say(text) if form == "text" else typer.echo(text)
        return
    with output(out, ENDINGS) as partial:
        partial.write_text(text + "\n", "utf-8")
    typer.echo(out)


def labelled(folders: Sequence[Path], labels: Sequence[str]) -> dict[str, list["Run"]]:
    """The runs of each folder by the label that it is given."""
    from desim.experiments.studies.folder import groups_of

    if len(labels) != len(folders):
        raise InputError(f"--label: {refusal(len(labels), f'{len(folders)}, one for each RUN')}")
    for place, text in enumerate(labels):
        if not text or text in labels[:place]:
            raise InputError(f"--label: {refusal(text, 'a text of its own for each RUN')}")
    found: dict[str, list[Run]] = {}
    for text, folder in zip(labels, folders, strict=True):
        runs = groups_of([folder])
        cases = runs if isinstance(runs, dict) else {"": runs}
        found |= {f"{text}: {case}" if case else text: some for case, some in cases.items()}
    return found


def targets(texts: list[str]) -> dict[str, list[float]]:
    """Values by metric from texts METRIC=VALUE."""
    found: dict[str, list[float]] = {}
    for text in texts:
        metric, value = parsed(text)
        found.setdefault(metric, []).append(value)
    return found
