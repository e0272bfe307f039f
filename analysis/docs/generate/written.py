"""What other parts of the project have written down: reproductions, benchmarks, counts."""

import csv
import re
from pathlib import Path

from analysis.docs.generate.markdown import escaped, table
from desim.scenario import registry

ROOT = Path(__file__).resolve().parents[3]
REPRODUCTIONS = ROOT / "analysis" / "reproductions"
REPORT = "Papers, computed again"
IMAGE = re.compile(r"(!\[[^\]]*\]\()(results/[^)]+\))")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#]+)\)")
HEADING = re.compile(r"^(#+ )", re.MULTILINE)


def reproductions() -> str:
    """analysis/reproductions/README.md without its title, one level lower, with its figures."""
    text = (REPRODUCTIONS / "README.md").read_text("utf-8").split("\n", 1)[1]
    text = IMAGE.sub(r"\1../reproductions/\2", text)
    text = LINK.sub(_pointed, text)
    return HEADING.sub(r"#\1", text)


def _pointed(link: re.Match[str]) -> str:
    """A link to a file of the project as its words, with the file's name."""
    words, path = link[1], Path(link[2])
    return f"{words} (`{path.name}`)" if path.suffix else words


def peers() -> str:
    """The benchmark beside peers."""
    rows = []
    with (ROOT / "analysis" / "benchmarks" / "results" / "peers.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            gap = float(row["difference"])
            times = (f"{float(row[key]):.2f}" for key in ("least", "median", "processor"))
            rows.append(
                (row["agents"], escaped(row["name"]), *times, row["remark"] or f"{gap:.0e}")
            )
    head = ("agents", "", "least", "median", "least of processor", "difference")
    return table(head, rows)


def algorithms() -> str:
    """How many methods desim has."""
    return str(len(registry.OWN))
