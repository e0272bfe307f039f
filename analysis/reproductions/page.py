"""What a study leaves: a CSV of all numbers, a Markdown table, and its part of README.md."""

import csv
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

from analysis.reproductions.monte_carlo import SETS, MonteCarlo
from desim.interface.plots import STYLE, Axes, save

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
README = FOLDER / "README.md"


class Script(NamedTuple):
    """A study: its part of README.md, and what makes rows, that part and a figure of them."""

    NAME: str
    study: Callable[[MonteCarlo, int], Sequence[Mapping[str, Any]]]
    markdown: Callable[[Sequence[Mapping[str, Any]]], str]
    draw: Callable[[Sequence[Mapping[str, Any]]], Axes]


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


def chosen(rows: Sequence[Mapping[str, Any]], **keys: Any) -> list[Any]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in keys.items())]


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


def carry_out(
    script: Any, sets: int | None = None, processes: int = 2, out: Path | None = None
) -> None:
    """Play a `Script`, or a module that has the same names, print its part, and write it all.

    sets: data sets, default its SETS, for which alone README.md and RESULTS are written; out: a
    folder for CSV and figure instead. A module without `draw` has no figure.
    """
    usual, began = getattr(script, "SETS", SETS), time.monotonic()
    number = usual if sets is None else sets
    with MonteCarlo(processes) as monte_carlo:
        rows = script.study(monte_carlo, number)
    text, folder = script.markdown(rows), out or (RESULTS if number == usual else None)
    print(f"{text}\n\n{number} data sets; {time.monotonic() - began:.0f} s")
    if folder is None:
        return
    write_csv(folder, script.NAME, rows)
    if folder == RESULTS:
        update(script.NAME, text)
    if hasattr(script, "draw"):
        with matplotlib.rc_context(STYLE):
            save(script.draw(rows), folder / f"{script.NAME}.svg")
