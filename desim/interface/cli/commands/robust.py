"""`desim robust`: how far an order of methods by time can be trusted."""

from pathlib import Path
from typing import Annotated, Any

import typer

from desim.errors import InputError, refusal
from desim.interface.cli.options import (
    FIGURES,
    Overrides,
    file_of_kind,
    inches,
    option,
    output_option,
    path_argument,
    settings,
)
from desim.interface.cli.options import target as parsed
from desim.interface.cli.progress import say
from desim.pace import Pace

Sources = Annotated[
    list[Path],
    path_argument("A B...", "Scenarios or runs that differ in method, or a study."),
]
Target = Annotated[str, option("target", "METRIC=VALUE", "What is waited for, as in error=1e-3.")]
LAW = (
    "Law of an input: latency=0.1..10, loss=none, transport=ideal,tcp, seed=1..10; or a file. "
    "Default: 0.5..2 for factors."
)
Workers = Annotated[int | None, option("workers", "N", "Processes; default: all cores.")]
FILES = "Tables (.json), worlds (.csv) or the figure (.png, .svg, .pdf); repeatable."
TABLES = (".json", ".csv")


def robust(
    sources: Sources,
    target: Target,
    worlds: Annotated[int, option("worlds", "N", "How many, rounded up to a power of two.")] = 1000,
    vary: Annotated[list[str] | None, option("vary", "INPUT=LAW", LAW)] = None,
    seed: Annotated[int, option("seed", "N", "Of the worlds.")] = 0,
    workers: Workers = None,
    override: Overrides = None,
    out: Annotated[list[Path] | None, output_option("FILE", FILES)] = None,
    size: Annotated[str | None, option("size", "WxH", "Of the figure, in inches.")] = None,
) -> None:
    """Say in how many worlds methods meet a target in the same order, and what turns it over.

    A world multiplies latency, bandwidth, speed, loss, access lines and fixed costs of all methods
    by the same drawn factors, and may change the transport and the seed.
    """
    from desim.experiments.ranking.robust import robust as trusted
    from desim.experiments.ranking.robust import write
    from desim.interface.cli.progress import moving_bar

    files = [file_of_kind("-o", path, (*TABLES, *FIGURES)) for path in out or []]
    paces: dict[str, Pace] = {}
    metric, value = parsed(target)
    with moving_bar("robust: training") as show:

        def count(what: str, done: int, total: int) -> None:
            left = paces.setdefault(what, Pace()).words(done, done / total, "")
            show(f"robust: {what} {done}/{total}{left}", done / total)

        found = trusted(
            list(sources), {metric: value}, worlds, laws_of(vary or []), seed, workers,
            settings(override), count,
        )  # fmt: skip
    say(found.text())
    for path in files:
        if path.suffix.lower() in TABLES:
            write(found, path)
        else:
            from desim.interface import plots

            plots.ranking(found, path, size=None if size is None else inches(size))
        typer.echo(path)


def laws_of(texts: list[str]) -> Any:
    """Laws by input of INPUT=LAW, or the file that holds them; None where nothing is said."""
    if len(texts) == 1 and "=" not in texts[0]:
        return Path(texts[0])
    from desim.scenario.load import parse

    found: dict[str, Any] = {}
    for text in texts:
        name, equals, law = text.partition("=")
        if not equals or not name.strip() or not law.strip():
            allowed = "INPUT=LAW, as in latency=0.1..10, or one YAML file of laws"
            raise InputError(f"--vary: {refusal(text, allowed)}")
        found[name.strip()] = law.strip() if ".." in law else parse(law, f"--vary {text}").data
    return found or None
