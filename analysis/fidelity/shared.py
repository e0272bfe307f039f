"""Two flows at a time behind one line: how long each message of each takes.

    python -m analysis.fidelity.shared [reno cubic]

Two senders reach a receiver each, over lines of their own (`own_latency`, `own_rate`) and then over
one of their site (`latency`, `rate`, a queue of 1000 packets). Message k of both begins every so
many seconds, that of the second flow `offset` s later. Rows of `measured/shared.csv`: `sent` counts
from the first message of a pair of flows.
"""

import argparse
import csv
from itertools import product
from pathlib import Path
from typing import Any

from analysis.fidelity.measuring import Flow, Message, Timed, lateness, over
from desim.deployments.linked import Report
from desim.deployments.namespaces import Line, Link, Plan, Site

FILE = Path(__file__).parent / "measured" / "shared.csv"
OWN = Line(0.002, 1e8)
LINES = [(0.005, 1e7), (0.03, 1e7), (0.03, 1e6), (0.03, 5e7)]
PAIRS = [(100_000, 100_000), (1_000_000, 1_000_000), (1_000_000, 100_000)]
OFFSETS = [0.0, 0.4]  # of the time that the first would take alone
GAPS = [1.3, 4.0]  # s between pairs, besides what both take: shorter, longer than timeouts
MESSAGES = 4
COLUMNS = (
    "pair repeat congestion flow latency rate own_latency own_rate position size sent seconds late "
    "window threshold timeout round_trip resent"
).split()


def pair(
    line: tuple[float, float], sizes: tuple[int, int], offset: float, gap: float
) -> list[Flow]:
    """Two flows that meet on one line."""
    latency, rate = line
    alone, both = 8 * sizes[0] / rate, 8 * sum(sizes) / rate
    every = gap * (both + 0.2 if gap < 2 else 1.0) + (both if gap > 2 else 0.0)
    label = {"latency": latency, "rate": rate, "own_latency": OWN.latency, "own_rate": OWN.rate}
    return [
        Flow(
            label | {"flow": k},
            OWN,
            OWN,
            tuple(Message(size, at=n * every + k * offset * alone) for n in range(MESSAGES)),
        )
        for k, size in enumerate(sizes)
    ]


def play(pairs: list[list[Flow]], congestion: str, seed: int) -> tuple[list[list[Timed]], Report]:
    """All pairs at once, each behind a line of its own."""
    flows = [flow for one in pairs for flow in one]
    links = tuple(Link(2 * k, 2 * k + 1, flow.there, flow.back) for k, flow in enumerate(flows))
    sites = []
    for k, (flow, _) in enumerate(pairs):
        line = Line(float(flow.label["latency"]), float(flow.label["rate"]))  # type: ignore[arg-type]
        sites.append(Site((4 * k, 4 * k + 2), line, line))
    return over(Plan(links, tuple(sites), congestion, seed), flows)


def rows(
    number: int,
    repeat: int,
    congestion: str,
    flows: list[Flow],
    times: list[list[Timed]],
    report: Report,
) -> list[list[Any]]:
    """The rows of a pair."""
    began, table = min(one[0].sent for one in times), []
    for flow, timed in zip(flows, times, strict=True):
        for position, (message, one) in enumerate(zip(flow.messages, timed, strict=True)):
            row = flow.label | {"pair": number, "repeat": repeat, "congestion": congestion}
            row |= {"position": position, "size": message.size, "sent": one.sent - began}
            row |= {"seconds": one.read - one.sent, "late": lateness(report, one)}
            row |= {"window": one.window, "threshold": min(one.threshold, 1 << 20)}
            row |= {"timeout": one.timeout, "round_trip": one.round_trip, "resent": one.resent}
            table.append(
                [f"{v:.7g}" if isinstance(v, float) else v for v in map(row.__getitem__, COLUMNS)]
            )
    return table


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("congestion", nargs="*", default=["reno", "cubic"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("-o", type=Path, default=FILE)
    chosen = parser.parse_args()
    table: list[list[Any]] = []
    number = 0
    for repeat, congestion, line in product(range(chosen.repeats), chosen.congestion, LINES):
        pairs = [pair(line, *rest) for rest in product(PAIRS, OFFSETS, GAPS)]
        most = 3 if line[1] > 2e7 else 6 if line[1] > 2e6 else 12
        for part in (pairs[k : k + most] for k in range(0, len(pairs), most)):
            times, report = play(part, congestion, repeat)
            for k, flows in enumerate(part):
                both = times[2 * k : 2 * k + 2]
                table += rows(number, repeat, congestion, flows, both, report)
                number += 1
            print(f"{congestion} {line}: longest lapse {1e3 * report.longest:.2f} ms", flush=True)
        with open(chosen.o, "w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *table])
    print(f"{len(table)} messages")


if __name__ == "__main__":
    main()
