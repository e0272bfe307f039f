"""Messages over links that lose one packet in a hundred, each way: what matters is their mean.

    python -m analysis.fidelity.lossy [reno cubic bbr]

A message waits for the answer to the one before, or is on a connection of its own. A row of
`measured/lossy.csv` is all messages of a kind: how many were undisturbed, the mean of their seconds
with its standard error (over messages), quantiles, and segments resent per message.
"""

import argparse
import csv
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import mean, quantiles, stdev
from typing import Any

from analysis.fidelity.measuring import Flow, Message
from analysis.fidelity.transfers import COLUMNS, QUEUE, disturbed, measure
from desim.deployments.namespaces import Line

FILE = Path(__file__).parent / "measured" / "lossy.csv"
LOSS = 0.01
LINKS = [(0.005, 1e7), (0.025, 1e6), (0.025, 1e7), (0.025, 1e8), (0.075, 1e7)]
NUMBERS = {1_000: 80, 10_000: 60, 100_000: 40, 1_000_000: 8}
FLOWS = 3  # of each kind
KIND = "congestion state latency rate loss size".split()
SUMMARY = [*KIND, *"messages mean error q05 median q95 resent".split()]


def flows() -> list[Flow]:
    """Several flows of each kind, so that the mean is of hundreds of messages."""
    every = []
    for (latency, rate), (size, number), state in product(LINKS, NUMBERS.items(), ["busy", "new"]):
        label = {"state": state, "latency": latency, "rate": rate, "back": rate, "loss": LOSS}
        line = Line(latency, rate, QUEUE, loss=LOSS)
        sequence = (Message(size, new=state == "new"),) * number
        every += [Flow(label | {"queue": QUEUE}, line, line, sequence) for _ in range(FLOWS)]
    return every


def summary(table: list[list[Any]]) -> list[list[Any]]:
    """A row of each kind."""
    kinds: defaultdict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for values in table:
        row = dict(zip(COLUMNS, map(str, values), strict=True))
        if not disturbed(row):
            kind = tuple(row[name] for name in KIND)
            kinds[kind].append((float(row["seconds"]), float(row["resent"])))
    rows = []
    for kind, found in kinds.items():
        seconds = [one for one, _ in found]
        parts = quantiles(seconds, n=20)
        numbers = (
            mean(seconds),
            stdev(seconds) / len(seconds) ** 0.5,
            *(parts[k] for k in (0, 9, 18)),
        )
        resent = mean(one for _, one in found)
        rows.append([*kind, len(found), *(f"{one:.6g}" for one in (*numbers, resent))])
    return rows


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("congestion", nargs="*", default=["reno", "cubic", "bbr"])
    parser.add_argument("-o", type=Path, default=FILE)
    chosen = parser.parse_args()
    table: list[list[Any]] = []
    for congestion in chosen.congestion:
        measure(flows(), congestion, 0, table)
        with open(chosen.o, "w", newline="") as file:
            csv.writer(file).writerows([SUMMARY, *summary(table)])


if __name__ == "__main__":
    main()
