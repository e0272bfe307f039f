"""Messages over links that lose one packet in a hundred, each way: what matters is their mean.

    python -m analysis.fidelity.lossy [reno cubic bbr]

Rows of `measured/lossy.csv` are as those of `transfers`; a message waits for the answer to the one
before, or is on a connection of its own.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

from analysis.fidelity.measuring import Flow, Message
from analysis.fidelity.transfers import QUEUE, measure, store
from desim.deployments.lines import Line

FILE = Path(__file__).parent / "measured" / "lossy.csv"
LOSS = 0.01
LINKS = [(0.005, 1e7), (0.025, 1e6), (0.025, 1e7), (0.025, 1e8), (0.075, 1e7)]
NUMBERS = {1_000: 80, 10_000: 60, 100_000: 40, 1_000_000: 8}
FLOWS = 3  # of each kind


def flows() -> list[Flow]:
    """Several flows of each kind, so that the mean is of hundreds of messages."""
    every = []
    for (latency, rate), (size, number), state in product(LINKS, NUMBERS.items(), ["busy", "new"]):
        label = {"state": state, "latency": latency, "rate": rate, "back": rate, "loss": LOSS}
        line = Line(latency, rate, QUEUE, loss=LOSS)
        sequence = (Message(size, new=state == "new"),) * number
        every += [Flow(label | {"queue": QUEUE}, line, line, sequence) for _ in range(FLOWS)]
    return every


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("congestion", nargs="*", default=["reno", "cubic", "bbr"])
    parser.add_argument("-o", type=Path, default=FILE)
    chosen = parser.parse_args()
    table: list[list[Any]] = []
    for congestion in chosen.congestion:
        measure(flows(), congestion, 0, table)
        store(table, chosen.o)


if __name__ == "__main__":
    main()
