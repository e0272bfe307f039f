"""`desim export`: a run for another program, or for other eyes."""

from typing import Annotated, Any

import typer

from desim.errors import InputError, chosen
from desim.interface.cli.options import (
    RELATIONS,
    RunFolder,
    first_and_last,
    option,
    switch,
)
from desim.interface.cli.progress import complain, counting_bar

KINDS = ("perfetto", "csv", "public", "tensorboard", "mlflow")
TOLD = KINDS[3:]  # trackers, which take several runs, and addresses


def export(
    run: RunFolder,
    to: Annotated[str, option("to", "|".join(KINDS), "For whom.")],
    out: Annotated[
        str | None, option("out", "PLACE", "File, or folder; default: in RUN.", "-o")
    ] = None,
    rounds: Annotated[str | None, option("rounds", "FIRST-LAST", "Of the timeline.")] = None,
    agents: Annotated[int | None, option("agents", "N", "The first N only.", min=1)] = None,
    view: Annotated[
        str | None, option("view", "VIEW", "Of public, e.g. neighbour:3; default: the scenario's.")
    ] = None,
    delta: Annotated[
        float | None, option("delta", "D", "Of public; default: the scenario's.")
    ] = None,
    relation: Annotated[str | None, option("relation", "R", f"Of public: {RELATIONS}.")] = None,
    anyway: Annotated[bool, switch("anyway", "Public, where its epsilon is infinite too.")] = False,
) -> None:
    """Write a run for another program: a timeline, tables, or a tracker; or what may be public.

    All but public hold what is private; that holds what the view sees, and its epsilon. For
    tensorboard and mlflow RUN may be a study, and PLACE of mlflow an address.
    """
    import desim
    from desim.experiments.studies.folder import groups_of

    chosen("--to", to, KINDS)
    window = None if rounds is None else first_and_last(rounds)
    terms: dict[str, Any] = {"view": view, "delta": delta, "relation": relation, "anyway": anyway}
    for kind, options in (("perfetto", {"rounds": window, "agents": agents}), ("public", terms)):
        if to != kind and any(one is not None and one is not False for one in options.values()):
            names = ", ".join(f"--{name}" for name in options)
            raise InputError(f"{names}: found with --to {to}; allowed with --to {kind}")
    if to in TOLD:
        several = groups_of([run])
        path = desim.export(several if isinstance(several, dict) else several[0], to, out)
        typer.echo(out or path)
        return
    found = desim.open(run)
    with counting_bar(f"{found.name}: reading", f"{found.name}: rows") as show:
        path = desim.export(
            found, to, out, rounds=window, agents=agents, tell=complain, progress=show, **terms
        )
    typer.echo(path)
    if to == "perfetto":
        complain("open it at https://ui.perfetto.dev: Open trace file (it stays in the browser)")
