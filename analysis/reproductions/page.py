"""What a study leaves: a CSV of all numbers, a Markdown table, and its part of README.md."""

import argparse
import csv
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from analysis.reproductions.monte_carlo import SETS, MonteCarlo
from desim.plots import STYLE, save

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
README = FOLDER / "README.md"


@dataclass(frozen=True)
class Options:
    """What the command line asks for: data sets, processes, and where results go, if anywhere."""

    sets: int
    processes: int
    out: Path | None

    @property
    def official(self) -> bool:
        """Whether README.md is to be brought up to date."""
        return self.out == RESULTS


def options(about: str | None, arguments: Sequence[str] | None = None, sets: int = SETS) -> Options:
    """Read the command line of a script whose docstring is `about`; sets: how many it keeps."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=sets, help=f"data sets (default {sets})")
    parser.add_argument("--processes", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--out", type=Path, help="folder for CSV and figures; default: results/ and README.md for "
        f"{sets} data sets, nothing is written for fewer",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    out = given.out or (RESULTS if given.sets == sets else None)
    return Options(given.sets, given.processes, out)


def write_csv(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `rows`, which all have the keys of the first, to folder/name.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _plain(one) for key, one in row.items()} for row in rows)


def read(path: Path, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Rows of a CSV that `write_csv` wrote, with numbers but in columns `texts`."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {key: one if key in texts else _number(one) for key, one in row.items()}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> float | int | str:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def update(name: str, text: str, page: Path = README) -> None:
    """Put `text` between the comments <!-- name --> and <!-- /name --> of a page."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    old = page.read_text("utf-8")
    new, count = pattern.subn(lambda found: f"{found[1]}{text}\n{found[2]}", old)
    if count != 1:
        raise ValueError(f"{page}: found {count} parts named {name}; allowed: one")
    page.write_text(new, "utf-8")


def publish(
    asked: Options, name: str, rows: Sequence[Mapping[str, Any]], text: str, began: float
) -> None:
    """Print a study, and write it where `asked` says; began: monotonic s at which it did."""
    print(f"{text}\n\n{asked.sets} data sets; {time.monotonic() - began:.0f} s")
    if asked.out is not None:
        write_csv(asked.out, name, rows)
    if asked.official:
        update(name, text)


def carry_out(script: Any, arguments: Sequence[str] | None = None) -> None:
    """Play a script's `study`, print its `markdown`, publish, and `draw` where it has a figure."""
    sets = getattr(script, "SETS", SETS)
    asked, began = options(script.__doc__, arguments, sets), time.monotonic()
    with MonteCarlo(asked.processes) as monte_carlo:
        rows = script.study(monte_carlo, asked.sets)
    publish(asked, script.NAME, rows, script.markdown(rows), began)
    if asked.out is not None and hasattr(script, "draw"):
        with matplotlib.rc_context(STYLE):
            save(script.draw(rows), asked.out / f"{script.NAME}.svg")
