"""The table of the contest and of the effect of order, as csv and as a section of the page."""

import math
import sys
from pathlib import Path

from analysis.benchmarks.peers.contest import Row
from analysis.benchmarks.peers.order import Effect
from analysis.benchmarks.timing import machine
from analysis.reproductions import page

HOME = Path(__file__).resolve().parents[1]
TO = "desim, log stored"
WORDS = """**Beside peers.** Fed-PLT (gradient solver, no noise) on the same logistic data, 16
features, 20 rows and 10 local epochs for each agent. Every contestant is a process with its own
interpreter; all are pinned to one core, unless the thread that stores desim's log is said to have
one, and take turns. Microseconds per agent-round; *difference* is the largest between its models
after 20 rounds and NumPy's. desim plays a network, clocks and speeds and stores its log; the others
do the arithmetic and, in decent-bench's case, count messages. With noise each local step has a
normal number for each parameter; only desim's has the same bits on any machine, and a ledger.
FedLT is decent-bench's name for Fed-PLT; tvopt has no such method, so the gradients of its costs
are used in a loop.

```sh
python -m analysis.benchmarks.peers --environments FOLDER
```
"""
ORDER = """
**The order of algorithms.** Two methods in one decent-bench benchmark, agents active at random,
same seed; then the same two in the other order. Hashes of one method's final models. In desim every
draw has an address, so that the order says nothing.

| | played first | played second |
|---|---|---|
"""


def write(rows: list[Row], effects: list[Effect]) -> None:
    """Write results/peers.csv, results/order.csv and the section, and print the section."""
    for name, table in (("peers", rows), ("order", effects)):
        page.write_csv(HOME / "results", name, [one._asdict() for one in table])
    text = section(rows, effects)
    page.update("peers", text.rstrip("\n"), HOME / "README.md")
    sys.stdout.write(text)


def section(rows: list[Row], effects: list[Effect]) -> str:
    """The section in Markdown."""
    lines = [WORDS, machine() + ".", ""]
    lines += ["| agents | | min us | median us | min CPU us | ratio to desim | difference |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for row in rows:
        own = next((one.least for one in rows if (one.agents, one.name) == (row.agents, TO)), 1.0)
        lines.append(_line(row, own))
    versions = dict.fromkeys(row.versions for row in rows if row.versions)
    lines += ["", f"Environments: {'; '.join(versions)}."]
    lines.append(ORDER.rstrip("\n"))
    lines += [f"| {one.name} | {one.first} | {one.second} |" for one in effects]
    return "\n".join(lines) + "\n"


def _line(row: Row, own: float) -> str:
    if math.isnan(row.least):
        return f"| {row.agents} | {row.name} | | | | | {row.remark} |"
    told = row.remark or f"{row.difference:.1e}"
    return (
        f"| {row.agents} | {row.name} | {row.least:.2f} | {row.median:.2f} | {row.processor:.2f} | "
        f"{row.least / own:.2f} | {told} |"
    )
